"""The rules analyzer for questions (Search-QA): which searches led to the answer.

A skill tells what to search for and never the answer itself, which would be of no use to another question.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from seedbench.types import Episode
from seedbench_trainers.skills.steps import NOT_AGAIN, clip, in_order, most_repeated, mostly_refused, words, worked

_SEARCH = re.compile(r"<search>(.*?)</search>", re.I | re.S)
_NAME = re.compile(r"[A-Z][\w'-]*(?: (?:[A-Z&][\w'-]*|of|the)(?=\s|$))*")
_QUERY_WORDS = 8
_MOST_SEARCHES = 3
ANSWER = "then answer with the words that were found"


def is_question(actions: Sequence[str]) -> bool:
    """Whether these are searches and answers between tags."""
    return any(action.startswith(("<search>", "<answer>")) for action in actions)


def skill(episode: Episode, plan: Sequence[str] | None) -> tuple[str, str]:
    """What went wrong, in a sentence (empty where the episode was solved), and the skill."""
    done = _queries(turn.action for turn in episode.turns if worked(turn))
    if episode.success:
        return "", _way(done, 0)
    fault = _fault(episode, done)
    searches = _queries(plan) if plan else []
    advice = _way(searches, words(fault)) if searches else "Search for one name at a time, then for what it leads to."
    return fault, f"{fault} {advice}"


def _queries(actions: Iterable[str]) -> list[str]:
    return [" ".join(match[1].split()) for action in actions if (match := _SEARCH.match(action))]


def _way(queries: list[str], spare: int) -> str:
    distinct = list(dict.fromkeys(map(_names, queries)))[-_MOST_SEARCHES:]
    if not distinct:
        return "Answer at once where the answer is well known."
    told = in_order([f"<search>{query}</search>" for query in distinct], spare + words(ANSWER))
    return f"{told.removesuffix('.')}, {ANSWER}." if told else ""


def _names(query: str) -> str:
    """A short query as it is; of a longer one the names in it, where it has any."""
    if words(query) <= _QUERY_WORDS:
        return query
    names = _NAME.findall(query.partition(" ")[2])
    return clip(" ".join(names) or query, _QUERY_WORDS)


def _fault(episode: Episode, queries: list[str]) -> str:
    """The first of the known faults that the episode shows."""
    if mostly_refused(episode):
        return "Say one <search> or one <answer> and close its tag."
    if not queries:
        return "Do not answer before you search."
    if again := most_repeated(queries, 2):
        return f"{NOT_AGAIN} the search {clip(again, 6)}."
    if episode.turns and not episode.turns[-1].action.startswith("<answer>"):
        return "Answer before the steps end."
    if any(query.casefold() == " ".join(episode.instruction.split()).casefold() for query in queries):
        return "Do not search for the whole question."
    return "Do not answer from the first passage alone."

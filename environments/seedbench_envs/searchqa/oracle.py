"""The oracle: searches for the passages that answer a question, by their titles, then gives an accepted answer."""

from __future__ import annotations

from collections.abc import Sequence

from seedbench.errors import SeedBenchError
from seedbench_envs.searchqa.actions import answer, parse, search
from seedbench_envs.searchqa.records import Passage, Question, Retriever
from seedbench_envs.searchqa.scoring import score

SEARCHES = 3
"""The tightest protocol allows so many before the answer; passages that are left then are searched for together."""
SHOWN = 3
"""Hits that count as found."""


def solve(question: Question, searches: Sequence[str] = ()) -> list[str]:
    """Actions: the searches, then an accepted answer.

    Raises:
        SeedBenchError: no accepted answer can be said between tags.
    """
    for gold in question.answers:
        said = parse(answer(gold))
        if said.kind == "answer" and score(said.text, question.answers).em == 1:
            return [*map(search, searches), answer(gold)]
    raise SeedBenchError(f"no accepted answer of {question.id} can be written between answer tags.")


def queries(passages: Sequence[Passage], retriever: Retriever) -> list[str]:
    """At most `SEARCHES` queries that find the passages, each a title where that is enough to find its passage.

    A passage that an earlier query finds needs none of its own. Raises RetrieverFault.
    """
    chosen: list[str] = []
    found: set[str] = set()
    for passage in passages:
        if passage.id in found:
            continue
        ways = _ways(passage)
        hits = {way: _hits(way, retriever) for way in ways}
        best = next((way for way in ways if passage.id in hits[way]), ways[0])
        chosen.append(best)
        found |= hits[best]
    if len(chosen) <= SEARCHES:
        return chosen
    return [*chosen[: SEARCHES - 1], " ".join(chosen[SEARCHES - 1 :])]


def _ways(passage: Passage) -> list[str]:
    """Queries for a passage, the plainest first: its title, and with more and more of its text."""
    title, words = " ".join(passage.title.split()), passage.text.split()
    return list(dict.fromkeys(" ".join((title, *words[:count])) for count in (0, 8, 30, 60)))


def _hits(query: str, retriever: Retriever) -> set[str]:
    said = parse(search(query))
    return {hit.passage.id for hit in retriever.search([said.text], SHOWN)[0]} if said.kind == "search" else set()

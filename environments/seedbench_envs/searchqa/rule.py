"""The rule baseline: search for the question, then answer a name, year or title out of what was found.

It reads what an agent reads. Turn 0 searches. Turn 1 looks through the passages, best first, for the first span of
the kind that the question's first words ask for (a year for "when", a name otherwise) that the question does not
hold itself; without one it answers the title of the first hit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from seedbench_envs.searchqa.actions import MAX_QUERY, answer, search
from seedbench_envs.searchqa.observation import read_passages
from seedbench_envs.searchqa.scoring import normalize

_YEAR = re.compile(r"\b1[0-9]{3}\b|\b20[0-9]{2}\b")
_NAME = re.compile(r"\b[A-Z][\w'’-]*(?: (?:(?:of|de|the|von|van) )?[A-Z][\w'’-]*)*")
_WHEN = re.compile(r"\b(?:when|what year|which year|what date)\b", re.I)
_YES_NO = re.compile(r"(?:is|are|was|were|do|does|did|has|have|can) ", re.I)
_FILLERS = frozenset({"it", "he", "she", "they", "his", "her", "its", "in", "this", "on", "at", "after", "as"})


def rule(instruction: str, admissible: Sequence[str], observation: str, turn: int) -> str:
    """The next action.

    Args:
        instruction: the question.
        admissible: not read; the environment lists no actions.
        observation: the passages that the search found, in either shape.
        turn: 0 for the first action of the episode.
    """
    if turn == 0:
        return search(instruction[:MAX_QUERY].replace("<", " "))
    if _YES_NO.match(instruction):
        return answer("yes")
    passages = read_passages(observation)
    wanted = _YEAR if _WHEN.search(instruction) else _NAME
    asked = normalize(instruction)
    for title, text in passages:
        for span in wanted.findall(text.replace(title, " ")):
            if (said := normalize(span)) and said not in asked and said not in _FILLERS:
                return answer(span)
    return answer(passages[0][0] if passages else "unknown")

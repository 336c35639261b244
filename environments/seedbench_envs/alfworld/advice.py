"""What a text of advice gets right about a household task. The truth is in the task's id.

`train/pick_heat_then_place_in_recep-Mug-None-Cabinet-1001/trial_1`: type, object, a container that is carried, place
(of the family look: the lamp), room.
"""

from __future__ import annotations

import re
from functools import cache

from seedbench.errors import UsageError
from seedbench_envs.alfworld.sources import family_of

_PARTS = re.compile(r"[A-Za-z_0-9]+-([A-Za-z]+)-[A-Za-z]+-([A-Za-z]+)-\d+")
_TAKE = re.compile(r"(\bnot |\bnever |n['\u2019]t )?\btake (?:the )?([a-z]+) \d+\b")
"""With a number, as the household names its things: "take it" or "take the object" says no kind."""


def checked(task: str, advice: str) -> dict[str, bool]:
    """Whether the advice names the task's object, its place and both, takes nothing else, and forbids the object.

    A "do not take" takes nothing, and so does a "don't". Empty for an id of another shape.
    """
    try:
        family_of(task)
    except UsageError:
        return {}
    match = _PARTS.fullmatch(task.split("/")[1])
    if match is None:
        return {}
    text = advice.lower()
    named, placed = (bool(_name(word).search(text)) for word in match.groups())
    thing = match[1].lower()
    taken = _TAKE.findall(text)
    return {
        "Names object": named,
        "Names place": placed,
        "Names both": named and placed,
        "Takes nothing else": all(refused or kind == thing for refused, kind in taken),
        "Forbids object": any(refused and kind == thing for refused, kind in taken),
    }


@cache
def _name(word: str) -> re.Pattern[str]:
    """AlarmClock as `alarmclock`, `alarm clock` or more than one of it."""
    words = re.split(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", word)
    return re.compile(rf"\b{' ?'.join(words).lower()}(?:e?s)?\b")

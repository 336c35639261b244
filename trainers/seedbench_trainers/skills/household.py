"""The rules analyzer for households (ALFWorld): what was found where, how it was treated, where it went.

A solved episode becomes the shortest way that its own actions contain: the first take of each object that counted,
its treatment, its last move, and the steps to get there. A failed one becomes the fault that shows first and, where a
plan is known, the plan; else where the object was seen, or where it was not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seedbench.types import Episode
from seedbench_trainers.skills.steps import (
    LISTED,
    MOST_WORDS,
    NOT_AGAIN,
    ORDER,
    in_order,
    most_repeated,
    mostly_refused,
    words,
    worked,
)

TREATMENTS = ("clean", "heat", "cool")
_WITH_PLACE = re.compile(r"(take|move|put|clean|heat|cool) (.+?) (?:from|to|in/on|with) (.+)")
_ALONE = re.compile(r"(go to|open|use) (.+)")
_ITEMS = re.compile(r"\ban? ([a-z]+ \d+)")


@dataclass(frozen=True, slots=True)
class Event:
    """An action that was accepted. `place` is where the agent stood or what the action names; "" before the first."""

    number: int
    """Its turn, from 0."""
    verb: str
    thing: str
    place: str
    action: str


def is_household(actions: Sequence[str], observation: str) -> bool:
    """Whether these are a household's actions, or its first observation."""
    found = any(_WITH_PLACE.fullmatch(action) or action.startswith("go to ") for action in actions)
    return found or "you are in the middle of a room" in observation.lower()


def skill(episode: Episode, plan: Sequence[str] | None, family: str) -> tuple[str, str]:
    """What went wrong, in a sentence (empty where the episode was solved), and the skill."""
    events = list(_events(episode))
    if episode.success:
        return "", in_order(_fitting(_way(events, family, _told(episode)) or [event.action for event in events], 0))
    fault = _fault(episode, events, family)
    spare = words(fault)
    advice = in_order(_fitting(list(plan), spare), spare) if plan else _hint(episode, events, family)
    return fault, f"{fault} {advice}".strip()


def _events(episode: Episode) -> Iterator[Event]:
    place = ""
    for number, turn in enumerate(episode.turns):
        if not worked(turn) or turn.observation.startswith("Nothing happens"):
            continue
        if match := _WITH_PLACE.fullmatch(turn.action):
            verb = "move" if match[1] == "put" else match[1]
            yield Event(number, verb, match[2], match[3], turn.action)
        elif match := _ALONE.fullmatch(turn.action):
            place = match[2] if match[1] == "go to" else place
            yield Event(number, match[1], match[2], place, turn.action)


def _kind(name: str) -> str:
    return name.rstrip("0123456789 ")


def _told(episode: Episode) -> set[str]:
    return set(re.findall(r"[a-z]+", episode.instruction.lower()))


def _way(events: list[Event], family: str, told: set[str]) -> list[str]:
    """The actions that the success needed; empty where nothing that was taken tells what it was about."""
    last = {event.thing: event for event in events if event.verb in ("take", "move")}
    moves = [event for event in last.values() if event.verb == "move"]
    uses = {event.thing: event for event in events if event.verb == "use"}
    if uses and (family == "look" or events[-1].verb == "use"):
        held = {thing for thing, event in last.items() if event.verb == "take"}
        needed = [event for thing, event in uses.items() if _kind(thing) in told] or [*uses.values()][-1:]
    elif moves:
        final = max(moves, key=_number)
        held = {e.thing for e in moves if e.place == final.place and _kind(e.thing) == _kind(final.thing)}
        needed = [last[thing] for thing in held]
    else:
        return []
    takes = {event.thing: event for event in reversed(events) if event.verb == "take" and event.thing in held}
    treated = {e.thing: e for e in events if e.verb in TREATMENTS and e.thing in held and family in (e.verb, "")}
    needed = sorted([*needed, *takes.values(), *treated.values()], key=_number)
    return list(_walked(needed, events))


def _number(event: Event) -> int:
    return event.number


def _walked(needed: list[Event], events: list[Event]) -> Iterator[str]:
    """The actions with the ways between them, and each place that had to be opened opened once.

    A place that the agent never went to stands beside another one, within reach.
    """
    visited = {event.thing for event in events if event.verb == "go to"}
    closed = {event.thing for event in events if event.verb == "open"}
    here = ""
    for event in needed:
        if event.place in visited and event.place != here:
            yield f"go to {event.place}"
            here = event.place
        if event.place in closed and event.verb in ("take", "move"):
            yield f"open {event.place}"
            closed.discard(event.place)
        yield event.action


def _fitting(actions: list[str], spare: int) -> list[str]:
    """All of them, or where that is too long without the ways to places that the next action names."""
    if words(f"{ORDER} {', '.join(actions)}") <= MOST_WORDS - spare:
        return actions
    following = [*actions[1:], ""]
    return [
        action
        for action, after in zip(actions, following, strict=True)
        if not (action.startswith("go to ") and f"{after} ".endswith(f" {action[6:]} "))
    ]


def _fault(episode: Episode, events: list[Event], family: str) -> str:
    """The first of the known faults that the episode shows."""
    told = _told(episode)
    if mostly_refused(episode):
        return LISTED
    treated = {event.thing for event in events if event.verb == family}
    for event in events:
        named = _kind(event.thing) in told
        if event.verb == "move" and named and family in TREATMENTS and event.thing not in treated:
            return f"Do not move {event.thing} before you {family} it."
        if event.verb == "move" and named and _kind(event.place) not in told:
            return f"Do not move {event.thing} to {event.place}."
        if event.verb == "take" and not named:
            return f"Do not take {event.thing}."
    ways = most_repeated([event.action for event in events if event.verb == "go to"], 3)
    again = ways or most_repeated([turn.action for turn in episode.turns], 3)
    return f"{NOT_AGAIN} {again}." if again else ""


def _hint(episode: Episode, events: list[Event], family: str) -> str:
    """Where the object was seen and what is left to do; else the places that were not looked at."""
    told = _told(episode)
    visited = {event.place for event in events}
    listed = _ITEMS.findall(episode.first_observation)
    places = {_kind(place) for place in listed}
    for turn in episode.turns:
        if match := re.search(r"\b(?:arrive at|open the) ([a-z]+ \d+)\.", turn.observation):
            things = [
                item
                for item in _ITEMS.findall(turn.observation)
                if _kind(item) in told - places and not _kind(item).endswith("lamp")
            ]
            if things:
                after = f", then {family} it" if family in TREATMENTS else ""
                return f"Go to {match[1]}, take {things[0]} from {match[1]}{after}."
    unseen = [place for place in listed if place not in visited][:3]
    return f"Go to {', go to '.join(unseen)}." if unseen else "Open what is closed."

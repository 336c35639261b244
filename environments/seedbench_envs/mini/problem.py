"""The PDDL problem and the task sentence of a generated game."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seedbench_envs.mini.household import LAMPS, RECEPTACLES, TREATMENTS, ObjectType
from seedbench_envs.mini.rooms import Receptacle, Room

# Types that the domain declares itself, because its conditions name them.
_CONSTANTS = frozenset({"SinkBasin", "Microwave", "Fridge", "Knife", "ButterKnife"})

_DELIVER = """(exists (?o - object ?r - receptacle)
    (and (objectType ?o {object}Type) (receptacleType ?r {receptacle}Type) {treated}(inReceptacle ?o ?r)))"""

_LOOK = """(and
    (exists (?lamp - object ?r - receptacle ?l - location ?a - agent)
      (and (objectType ?lamp {receptacle}Type) (toggleable ?lamp) (isToggled ?lamp)
        (inReceptacle ?lamp ?r) (receptacleAtLocation ?r ?l) (atLocation ?a ?l)))
    (exists (?o - object ?a - agent)
      (and (objectType ?o {object}Type) (holds ?a ?o))))"""

_TWO = """(exists (?first - object ?second - object ?r - receptacle)
    (and (objectType ?first {object}Type) (objectType ?second {object}Type) (not (= ?first ?second))
      (receptacleType ?r {receptacle}Type) (inReceptacle ?first ?r) (inReceptacle ?second ?r)))"""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a game asks for: an object type and a receptacle type (for `look`, a lamp type)."""

    family: str
    object: ObjectType
    receptacle: str


@dataclass(frozen=True, slots=True)
class Thing:
    """An object in its place."""

    type: ObjectType
    id: str
    place: Receptacle


def task_sentence(goal: Goal, phrase: str) -> str:
    """The sentence that an agent reads, from one of the family's phrases."""
    thing, target = goal.object.name.lower(), goal.receptacle.lower()
    task = phrase.format(
        object=thing,
        a_object=_with_article(thing),
        receptacle=target,
        a_receptacle=_with_article(target),
        preposition="" if goal.receptacle in LAMPS else RECEPTACLES[goal.receptacle].preposition,
    )
    return f"Your task is to: {task}."


def pddl_problem(room: Room, things: Sequence[Thing], goal: Goal) -> str:
    """The problem's text: what there is, what holds at the start, what is to be reached."""
    object_types = list(dict.fromkeys([*(t.type.name for t in things), *(lamp.type for lamp in room.lamps)]))
    locations = list(dict.fromkeys([room.start, *(piece.location for piece in room.receptacles)]))
    declared = [
        "agent1 - agent",
        *(f"{name}Type - otype" for name in object_types if name not in _CONSTANTS),
        *(f"{name}Type - rtype" for name in room.types if name not in _CONSTANTS),
        *(f"{piece.id} - receptacle" for piece in room.receptacles),
        *(f"{lamp.id} - object" for lamp in room.lamps),
        *(f"{thing.id} - object" for thing in things),
        *(f"{location} - location" for location in locations),
    ]
    facts = "\n".join(f"    ({fact})" for fact in _facts(room, things))
    return (
        f"(define (problem household-{room.scene})\n  (:domain household)\n  (:objects\n    "
        + "\n    ".join(declared)
        + f")\n  (:init\n{facts})\n  (:goal {_goal(goal)}))\n"
    )


def _facts(room: Room, things: Sequence[Thing]) -> Iterator[str]:
    yield f"atLocation agent1 {room.start}"
    for piece in room.receptacles:
        yield f"receptacleType {piece.id} {piece.type}Type"
        yield f"receptacleAtLocation {piece.id} {piece.location}"
        if RECEPTACLES[piece.type].openable:
            yield f"openable {piece.id}"
    for lamp in room.lamps:
        yield from _object_facts(lamp.type, lamp.id, lamp.base, ("toggleable",))
    for thing in things:
        yield from _object_facts(thing.type.name, thing.id, thing.place, ("pickupable", *thing.type.abilities))
    carried = {thing.type.name: thing.type for thing in things}
    for receptacle in room.types:
        for name, kind in carried.items():
            if receptacle in kind.places:
                yield f"canContain {receptacle}Type {name}Type"


def _object_facts(name: str, identifier: str, place: Receptacle, abilities: Sequence[str]) -> Iterator[str]:
    yield f"objectType {identifier} {name}Type"
    yield f"inReceptacle {identifier} {place.id}"
    yield f"objectAtLocation {identifier} {place.location}"
    for ability in abilities:
        yield f"{ability} {identifier}"


def _goal(goal: Goal) -> str:
    ability, condition, _ = TREATMENTS.get(goal.family, ("", "", ""))
    treated = f"({ability} ?o) ({condition} ?o) " if condition else ""
    form = {"look_at_obj_in_light": _LOOK, "pick_two_obj_and_place": _TWO}.get(goal.family, _DELIVER)
    return form.format(object=goal.object.name, receptacle=goal.receptacle, treated=treated)


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"

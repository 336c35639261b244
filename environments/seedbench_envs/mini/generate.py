"""The generator of the `mini-alfworld` games: the official file format, rooms and things of our own making.

Rooms are drawn once for a seed and a size and belong either to train and valid_seen or to valid_unseen. A game takes a
room, draws a goal that it allows and puts things where they may be; it is kept if the solver wins it in a
sensible number of steps. Equal seeds give equal bytes on every machine and Python version. Simplifications:
nothing lies inside another thing, everything starts closed, switched off and as it is, and the room's rules
(canContain) do not vary.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from seedbench_envs.alfworld.engine import Engine
from seedbench_envs.alfworld.game import parse_game
from seedbench_envs.alfworld.solve import solve
from seedbench_envs.mini.household import OBJECTS, PHRASES, ROOM_KINDS, TREATMENTS, ObjectType
from seedbench_envs.mini.problem import Goal, Thing, pddl_problem, task_sentence
from seedbench_envs.mini.rooms import Dice, Room, new_id, rooms_of
from seedbench_envs.mini.sizes import FULL, Size

GENERATOR_VERSION = 3
"""Raised whenever a game is added or the bytes of one change."""

FAMILIES = tuple(PHRASES)
"""The six task types, by their official names."""

STEPS = range(3, 13)
"""Lengths of walkthroughs."""

Offer = tuple[Room, list[list[Goal]]]
"""A room and the goals that it allows, grouped by object."""

Situation = tuple[object, ...]
"""What a game is about: room, goal, and what lies where. Sentences and the things' ids do not enter."""

_CROWDED = 5  # things in one receptacle
_COPIES = 3  # things of one type, besides those that the goal is about


def generate(seed: int = 0, size: Size = FULL) -> Iterator[tuple[str, bytes]]:
    """All games of a seed and size, as pairs of a task id `<split>/<folder>/<trial>` and the bytes of `game.tw-pddl`.

    On the native engine every game is won by its walkthrough at its last step, and no two games are about the same
    situation. Families take turns, so that the beginning of a split is balanced too.
    """
    rooms = [rooms_of(seed, kind, size) for kind in ROOM_KINDS]
    known = _offers([room for drawn in rooms for room in drawn[: size.train_rooms]])
    new = _offers([room for drawn in rooms for room in drawn[size.train_rooms :]])
    # The games of full size are older than the other sizes, and their ids and bytes must stay.
    prefix, trial = ("", "mini") if size is FULL else (f"{size.name}/", size.name)
    seen: set[Situation] = set()
    trained: set[int] = set()
    number = 0
    for split, games in size.games.items():
        offers = {"train": known, "valid_seen": _within(trained, known), "valid_unseen": new}[split]
        for index in range(games):
            for family in FAMILIES:
                label = f"{seed}/{prefix}{split}/{family}/{index}"
                room, folder, content = _new_game(label, offers[family], seen, size)
                if split == "train":
                    trained.add(room.scene)
                yield f"{split}/{folder}/trial_{trial}_{number:06d}", content
                number += 1


def _offers(rooms: Sequence[Room]) -> dict[str, list[Offer]]:
    """For each family the rooms that allow it, and the goals that they allow."""
    return {family: [(room, goals) for room in rooms if (goals := _goals(room, family))] for family in FAMILIES}


def _within(scenes: set[int], offers: dict[str, list[Offer]]) -> dict[str, list[Offer]]:
    """Offers of these rooms only: a room that no train game happened to take is not a seen one."""
    return {family: [offer for offer in of_family if offer[0].scene in scenes] for family, of_family in offers.items()}


def _new_game(label: str, offers: Sequence[Offer], seen: set[Situation], size: Size) -> tuple[Room, str, bytes]:
    """Room, folder name and bytes of a game whose situation is not in `seen` (the new one is added)."""
    for attempt in range(100):
        dice = Dice(f"{label}/{attempt}")
        room, goals = dice.pick(offers)
        goal = dice.pick(dice.pick(goals))
        things = _things(dice, room, goal, size)
        content = _solved(pddl_problem(room, things, goal), task_sentence(goal, dice.pick(PHRASES[goal.family])))
        lying = sorted((thing.type.name, thing.place.id) for thing in things)
        situation = (room.scene, goal, *lying)
        if content and situation not in seen:
            seen.add(situation)
            return room, f"{goal.family}-{goal.object.name}-None-{goal.receptacle}-{room.scene}", content
    raise RuntimeError(f"no game found for {label}")


def _solved(problem: str, sentence: str) -> bytes:
    """The game file with its walkthrough; empty where no plan of an accepted length wins."""
    domain, grammar = _texts()
    grammar = grammar.replace('"TASK"', json.dumps(sentence))
    content = {"pddl_domain": domain, "grammar": grammar, "pddl_problem": problem}
    game = parse_game(json.dumps(content).encode())
    plan = solve(game)
    if plan is None or len(plan) not in STEPS:
        return b""
    engine = Engine(game)
    for command in plan:
        if engine.won or not engine.is_admissible(command):
            return b""
        engine.step(command)
    return json.dumps({**content, "solvable": True, "walkthrough": plan}).encode() if engine.won else b""


@cache
def _texts() -> tuple[str, str]:
    """Domain and grammar, which all games share."""
    folder = Path(__file__).parent
    domain, grammar = folder / "household.pddl", folder / "household.twl"
    return domain.read_text(encoding="utf-8"), grammar.read_text(encoding="utf-8")


def _goals(room: Room, family: str) -> list[list[Goal]]:
    """The goals of a family that a room allows, grouped by object."""
    ability, _, appliance = TREATMENTS.get(family, ("", "", ""))
    if appliance and appliance not in room.types:
        return []
    goals = []
    for kind in OBJECTS:
        if room.kind.initial not in kind.rooms or (ability and ability not in kind.abilities):
            continue
        spoilt = (appliance, "GarbageCan") if ability else ()  # nobody washes what goes to the bin
        targets = [name for name in room.types if name in kind.places and name not in spoilt]
        if family == "look_at_obj_in_light":
            targets = [lamp.type for lamp in room.lamps] if targets else []
        elif not ability and len(targets) == 1:
            targets = []  # the thing could start nowhere but at its target
        if targets:
            goals.append([Goal(family, kind, target) for target in targets])
    return goals


def _things(dice: Dice, room: Room, goal: Goal, size: Size) -> list[Thing]:
    """As many things in their places as the size says; fewer where a room is full or has no place for more."""
    taken = {piece.id for piece in room.receptacles} | {lamp.id for lamp in room.lamps}
    things: list[Thing] = []

    def place(kind: ObjectType, avoided: str = "") -> None:
        free = [
            piece
            for piece in room.receptacles
            if piece.type in kind.places
            and piece.type != avoided
            and sum(thing.place is piece for thing in things) < _CROWDED
        ]
        if free:
            piece = dice.pick(free)
            things.append(Thing(kind, new_id(dice, kind.name, piece.spot, taken)[0], piece))

    # What only has to be moved must not be there already; what has to be treated may be.
    avoided = "" if goal.family in TREATMENTS else goal.receptacle
    for _ in range(dice.between(1, 2) + (1 if goal.family == "pick_two_obj_and_place" else 0)):
        place(goal.object, avoided)
    others = [kind for kind in OBJECTS if room.kind.initial in kind.rooms and kind is not goal.object]
    for kind in others:
        if kind.name == "Knife" and size.knives:
            place(kind)
    wanted = dice.between(*size.things)
    for _ in range(100):
        if len(things) >= wanted:
            break
        kind = dice.pick(others)
        if sum(thing.type is kind for thing in things) < _COPIES:
            place(kind)
    return things

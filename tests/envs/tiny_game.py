"""A builder of small hand-written ALFWorld games, on the domain and the sentences of the generated games."""

import json
from collections.abc import Sequence
from importlib.resources import files

_RESOURCES = files("seedbench_envs.mini")
DOMAIN = (_RESOURCES / "household.pddl").read_text(encoding="utf-8")
GRAMMAR = (_RESOURCES / "household.twl").read_text(encoding="utf-8")

# Types of the arguments of every binary predicate; unary ones are about objects, or receptacles below.
_ARGUMENTS = {
    "atLocation": ("agent", "location"),
    "holds": ("agent", "object"),
    "holdsAny": ("agent",),
    "receptacleAtLocation": ("receptacle", "location"),
    "receptacleType": ("receptacle", "rtype"),
    "openable": ("receptacle",),
    "opened": ("receptacle",),
    "objectAtLocation": ("object", "location"),
    "inReceptacle": ("object", "receptacle"),
    "inReceptacleObject": ("object", "object"),
    "objectType": ("object", "otype"),
    "canContain": ("rtype", "otype"),
}
_CONSTANTS = {"SinkType", "SinkBasinType", "MicrowaveType", "FridgeType", "KnifeType", "ButterKnifeType"}


class Household:
    """Facts of a game, one a line without parentheses; `file` makes the bytes of a game file of them."""

    def __init__(self, start: str = "loc_bar_0") -> None:
        self.facts = [f"atLocation agent1 {start}"]
        self._location: dict[str, str] = {}

    def furniture(self, identifier: str, location: str, *, kind: str = "", openable: bool = False) -> None:
        """Place a receptacle; its type is the first part of the id unless `kind` says otherwise."""
        self._location[identifier] = location
        self.facts.append(f"receptacleType {identifier} {kind or identifier.partition('_bar_')[0]}Type")
        self.facts.append(f"receptacleAtLocation {identifier} {location}")
        if openable:
            self.facts.append(f"openable {identifier}")

    def thing(self, identifier: str, place: str, abilities: str = "", *, seen_at: str = "") -> None:
        """Place something that can be carried; `seen_at` is where objectAtLocation says it is."""
        self.fixture(identifier, place, f"pickupable {abilities}", seen_at=seen_at)

    def fixture(self, identifier: str, place: str, abilities: str, *, seen_at: str = "") -> None:
        """Place something that cannot be carried."""
        self.facts.append(f"objectType {identifier} {identifier.partition('_bar_')[0]}Type")
        self.facts.append(f"inReceptacle {identifier} {place}")
        self.facts.append(f"objectAtLocation {identifier} {seen_at or self._location[place]}")
        self.facts += [f"{ability} {identifier}" for ability in abilities.split()]

    def in_hand(self, identifier: str, abilities: str = "") -> None:
        """Put something into the agent's hand."""
        self.facts += [f"objectType {identifier} {identifier.partition('_bar_')[0]}Type"]
        self.facts += [f"holds agent1 {identifier}", "holdsAny agent1", f"pickupable {identifier}"]
        self.facts += [f"{ability} {identifier}" for ability in abilities.split()]

    def fits(self, things: str, places: str) -> None:
        """Allow every one of the object types in every one of the receptacle types."""
        self.facts += [f"canContain {place}Type {thing}Type" for place in places.split() for thing in things.split()]

    def problem(self, goal: str) -> str:
        """The PDDL problem."""
        objects: dict[str, str] = {}
        for fact in self.facts:
            predicate, *arguments = fact.split()
            for name, kind in zip(arguments, _ARGUMENTS.get(predicate, ("object",)), strict=True):
                objects[name] = kind
        declared = "\n".join(f"    {name} - {kind}" for name, kind in objects.items() if name not in _CONSTANTS)
        facts = "\n".join(f"    ({fact})" for fact in self.facts)
        return (
            f"(define (problem tiny)\n  (:domain household)\n  (:objects\n{declared})\n"
            f"  (:init\n{facts})\n  (:goal {goal}))\n"
        )

    def file(
        self, goal: str, task: str = "be here", *, grammar: str = GRAMMAR, walkthrough: Sequence[str] | None = None
    ) -> bytes:
        """A `game.tw-pddl` file. `grammar` has TASK in the place of the task sentence."""
        content = {
            "pddl_domain": DOMAIN,
            "grammar": grammar.replace('"TASK"', json.dumps(f"Your task is to: {task}.")),
            "pddl_problem": self.problem(goal),
            "solvable": True,
            "walkthrough": walkthrough,
        }
        return json.dumps(content).encode()


FOOD = "cleanable heatable coolable sliceable"


def kitchen() -> Household:
    """Counter, shelf and basin at one place, two cabinets at another; fridge, microwave, table with a lamp.

    Apple_bar_1 is apple 3, Apple_bar_2 apple 2, Apple_bar_3 apple 1: numbers count down over the sorted ids.
    """
    room = Household()
    room.furniture("CounterTop_bar_1", "loc_bar_1")
    room.furniture("Sink_bar_1_bar_SinkBasin", "loc_bar_1", kind="SinkBasin")
    room.furniture("Shelf_bar_1", "loc_bar_1")
    room.furniture("Fridge_bar_1", "loc_bar_2", openable=True)
    room.furniture("Microwave_bar_1", "loc_bar_3", openable=True)
    room.furniture("Cabinet_bar__plus_1", "loc_bar_4", openable=True)
    room.furniture("Cabinet_bar__minus_1", "loc_bar_4", openable=True)
    room.furniture("SideTable_bar_1", "loc_bar_5")
    room.thing("Apple_bar_2", "Fridge_bar_1", FOOD)
    room.thing("Apple_bar_1", "CounterTop_bar_1", FOOD)
    room.thing("Apple_bar_3", "CounterTop_bar_1", FOOD, seen_at="loc_bar_5")
    room.thing("Mug_bar_1", "Cabinet_bar__minus_1", "cleanable heatable coolable isReceptacleObject")
    room.thing("Knife_bar_1", "CounterTop_bar_1", "cleanable")
    room.thing("Book_bar_1", "SideTable_bar_1")
    room.fixture("DeskLamp_bar_1", "SideTable_bar_1", "toggleable")
    room.fits("Apple Mug Knife", "CounterTop SinkBasin Shelf Cabinet SideTable")
    room.fits("Apple Mug", "Fridge Microwave")
    return room

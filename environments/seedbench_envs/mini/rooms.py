"""Rooms of the generated games: furniture, where it stands, which pieces share a location, and lamps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import TypeVar

from seedbench_envs.mini.household import LAMPS, RECEPTACLES, RoomKind
from seedbench_envs.mini.sizes import FULL, Size

_T = TypeVar("_T")

Spot = tuple[int, int, int]
"""Position in centimetres: x, height, z. Only ids show it."""


class Dice:
    """Seeded draws that are equal on every Python.

    They rest on `Random.random()` alone, the one method whose sequence is guaranteed across versions.
    """

    def __init__(self, seed: str) -> None:
        self._random = Random(seed).random

    def between(self, low: int, high: int) -> int:
        """A whole number in [low, high]."""
        return low + int(self._random() * (high - low + 1))

    def pick(self, items: Sequence[_T]) -> _T:
        """One of the items."""
        return items[int(self._random() * len(items))]


@dataclass(frozen=True, slots=True)
class Receptacle:
    """A piece of furniture."""

    type: str
    id: str
    location: str
    spot: Spot


@dataclass(frozen=True, slots=True)
class Lamp:
    """A lamp and the piece of furniture that it stands on."""

    type: str
    id: str
    base: Receptacle


@dataclass(frozen=True, slots=True)
class Room:
    """A furnished room without things."""

    kind: RoomKind
    scene: int
    start: str
    """The location where the agent starts: nothing stands there."""
    receptacles: tuple[Receptacle, ...]
    lamps: tuple[Lamp, ...]

    @property
    def types(self) -> tuple[str, ...]:
        """Its receptacle types, each once."""
        return tuple(dict.fromkeys(piece.type for piece in self.receptacles))

    @property
    def furniture(self) -> Counter[str]:
        """How many receptacles of each type it has: what the first sentence of a game tells of the room."""
        return Counter(piece.type for piece in self.receptacles)


def rooms_of(seed: int, kind: RoomKind, size: Size) -> list[Room]:
    """The rooms of a kind and size, in order of their numbers. No two have the same furniture in another order."""
    rooms: list[Room] = []
    for index in range(size.rooms):
        scene = size.first_scene + kind.first_scene + index
        drawn = (furnish(seed, kind, scene, size, attempt) for attempt in count())
        rooms.append(next(room for room in drawn if room.furniture not in [other.furniture for other in rooms]))
    return rooms


def furnish(seed: int, kind: RoomKind, scene: int, size: Size = FULL, attempt: int = 0) -> Room:
    """Draw the room of a scene number: as many receptacles as its size says, at most three at one location."""
    dice = Dice(f"{seed}/room/{scene}" + (f"/{attempt}" if attempt else ""))
    table = _table(kind, size)
    counts: list[int] = []
    while sum(counts) not in size.receptacles:
        counts = [dice.between(fewest, most) for _, fewest, most in table]
    names = [name for (name, _, _), number in zip(table, counts, strict=True) for _ in range(number)]
    squares = [(x, z) for x in range(-8, 9, 2) for z in range(-8, 9, 2)]
    pieces: list[Receptacle] = []
    taken: set[str] = set()
    for name in names:
        near = _neighbour(dice, name, pieces)
        if near:
            location, (x, _, z) = near.location, near.spot
        else:
            square = dice.pick(squares)
            squares.remove(square)
            location, x, z = _location(dice, square), 25 * square[0], 25 * square[1]
        identifier, spot = new_id(dice, name, (x, RECEPTACLES[name].height, z), taken)
        pieces.append(Receptacle(name, identifier, location, spot))
    lamps = []
    for name, bases in LAMPS.items():
        if fitting := [piece for piece in pieces if piece.type in bases]:
            base = dice.pick(fitting)
            lamps.append(Lamp(name, new_id(dice, name, base.spot, taken)[0], base))
    return Room(kind, scene, _location(dice, dice.pick(squares)), tuple(pieces), tuple(lamps))


def _table(kind: RoomKind, size: Size) -> Sequence[tuple[str, int, int]]:
    """(type, fewest, most) of a kind's receptacles in rooms of a size."""
    if not size.alike:
        return kind.receptacles
    return [
        (name, 1, 1) if name in kind.core else (name, 0, min(most, size.alike)) for name, _, most in kind.receptacles
    ]


def new_id(dice: Dice, name: str, near: Spot, taken: set[str]) -> tuple[str, Spot]:
    """An id in the official shape, such as `Mug_bar__minus_01_dot_57_bar_...`, for something near a spot.

    The id is not in `taken` yet and is added to it. A basin's id starts with what it is part of and ends with
    its own name, as the official ones do: the display name `sinkbasin 1` is derived from that.
    """
    base = name.removesuffix("Basin")
    part = "" if base == name else f"_bar_{name}"
    while True:
        x, height, z = near
        spot = (x + dice.between(-30, 30), height + dice.between(0, 9), z + dice.between(-30, 30))
        identifier = "_bar_".join((base, *map(_metres, spot))) + part
        if identifier not in taken:
            taken.add(identifier)
            return identifier, spot


def _neighbour(dice: Dice, name: str, pieces: Sequence[Receptacle]) -> Receptacle | None:
    """A piece whose location the next one shares; about half of those that could share one do."""
    fitting = [
        piece
        for piece in pieces
        if piece.type in RECEPTACLES[name].beside and sum(other.location == piece.location for other in pieces) < 3
    ]
    return dice.pick(fitting) if fitting and dice.between(0, 1) else None


def _location(dice: Dice, square: tuple[int, int]) -> str:
    """An id such as `loc_bar__minus_4_bar_2_bar_3_bar_45`: square, direction, and tilt of the gaze."""
    where = "_bar_".join(f"_minus_{-v}" if v < 0 else str(v) for v in square)
    return f"loc_bar_{where}_bar_{dice.between(0, 3)}_bar_{dice.pick((30, 45, 60))}"


def _metres(centimetres: int) -> str:
    sign, size = ("minus" if centimetres < 0 else "plus"), abs(centimetres)
    return f"_{sign}_{size // 100:02d}_dot_{size % 100:02d}"

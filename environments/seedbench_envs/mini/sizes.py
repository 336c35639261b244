"""The sizes of the generated households: how many rooms, receptacles and things, and how many games of each family.

Rooms of different sizes have numbers of their own, so that no room and no game belongs to two sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Size:
    """One size of household."""

    name: str
    receptacles: range
    """How many a room may have."""
    alike: int
    """Most receptacles of one type, and those that are not the kind's core may be missing; 0: as the kind says."""
    things: tuple[int, int]
    """Fewest and most things that are looked for a place."""
    knives: bool
    """A knife in every kitchen, so that things can be sliced."""
    rooms: int
    """Rooms of each kind."""
    train_rooms: int
    """The first so many of them are those of train and valid_seen, the others those of valid_unseen."""
    first_scene: int
    """Added to the numbers of a kind's rooms."""
    games: Mapping[str, int]
    """Split -> games of each family."""


FULL = Size("full", range(6, 15), 0, (10, 18), True, 10, 7, 0, {"train": 100, "valid_seen": 20, "valid_unseen": 20})
_GAMES = {"train": 100, "valid_seen": 40, "valid_unseen": 40}
# Enough games that a policy trained on them for hundreds of updates meets hardly one twice.
_MANY = {**_GAMES, "train": 800}
SMALL = Size("small", range(4, 6), 1, (3, 5), False, 60, 48, 1000, _MANY)
MEDIUM = Size("medium", range(6, 9), 2, (6, 9), False, 30, 20, 2000, _GAMES)

SIZES = (FULL, SMALL, MEDIUM)
"""All sizes; the games of the first have no mark of their size in their ids."""

"""The changing part of an episode: where the agent is, what it holds, where things are."""

from __future__ import annotations

from seedbench_envs.alfworld.facts import FLUENT, index_of
from seedbench_envs.alfworld.game import Game


class State:
    """Facts that actions change, over a shared `Game`. About 4 kB; creating one takes tens of microseconds."""

    __slots__ = (
        "clean", "contents", "cool", "game", "held", "hot", "location",
        "objects_at", "on", "opened", "sliced", "taken_from", "toggled",
    )  # fmt: skip

    def __init__(self, game: Game) -> None:
        self.game: Game = game
        self.location: int = game.start
        """Index of the agent's location."""
        held = game.initial.get("holds", ())
        self.held: int = held[0][1] if held else -1
        """Index of the object in hand; -1: none."""
        self.contents: dict[int, list[int]] = index_of(game.initial.get("inreceptacle", ()))  # type: ignore[arg-type]
        """Receptacle -> sorted objects in or on it."""
        self.objects_at: dict[int, list[int]] = index_of(game.initial.get("objectatlocation", ()))  # type: ignore[arg-type]
        """Location -> sorted objects recorded there (only slicing and `look` read it)."""
        self.taken_from: dict[int, list[int]] = {}
        """Receptacle -> objects once taken from it and not put back (the explicit negation of inReceptacle)."""
        self.opened: set[int]
        self.clean: set[int]
        self.hot: set[int]
        self.cool: set[int]
        self.toggled: set[int]
        self.on: set[int]
        self.sliced: set[int]
        for predicate, attribute in FLUENT.items():
            setattr(self, attribute, {row[0] for row in game.initial.get(predicate, ())})

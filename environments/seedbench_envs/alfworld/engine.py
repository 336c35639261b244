"""The native ALFWorld engine: the reference engine's semantics in plain Python.

Equal to `textworld.envs.PddlEnv` under `alfworld`'s demangler, character for character: the observation,
the sorted admissible commands and `won`, after any command, admissible or not. Preconditions and effects
are those of the ALFRED domain (domain.py names the accepted texts). Two properties of the reference that
are easy to miss: `examine` of an object that is not held never grounds (a stray comma in the domain), and
going to a receptacle at the current location is no action at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from seedbench_envs.alfworld.facts import discard, insert
from seedbench_envs.alfworld.game import Game
from seedbench_envs.alfworld.state import State

Action = tuple[str, int, int]
"""(action name, first entity, second entity); -1 where there is none."""

NOTHING = "Nothing happens."

# Which domain parameter the first and second entity of an action are.
_ROLES: dict[str, tuple[str, str]] = {
    "look": ("", ""), "inventory": ("", ""), "help": ("", ""),
    "examinereceptacle": ("r", ""), "examineobject": ("o", ""), "gotolocation": ("r", ""),
    "openobject": ("r", ""), "closeobject": ("r", ""),
    "pickupobject": ("o", "r"), "putobject": ("o", "r"), "toggleobject": ("o", "r"),
    "cleanobject": ("o", "r"), "heatobject": ("o", "r"), "coolobject": ("o", "r"),
    "sliceobject": ("co", "ko"),
}  # fmt: skip


class Engine:
    """One episode of one game. `reset` and `step` return the observation; the rest is read from attributes."""

    __slots__ = ("_admissible", "_local", "game", "state", "won")

    def __init__(self, game: Game) -> None:
        self.game = game
        self.state: State
        self.won: bool
        self._local: dict[str, Action]
        self._admissible: list[str] | None
        self.reset()

    def reset(self) -> str:
        """Start over; returns the first observation (welcome, room, task)."""
        self.state = State(self.game)
        self.won = self.game.reached(self.state)
        self._refresh()
        return self.game.grammar.intro(self.state, {})

    @property
    def admissible(self) -> list[str]:
        """The commands that do something now, sorted. A fresh list each time."""
        if self._admissible is None:
            self._admissible = sorted([*self._go_to()[1], *self._local])  # the long part is sorted already
        return list(self._admissible)

    def is_admissible(self, command: str) -> bool:
        """Whether the stripped command is one of `admissible`."""
        command = command.strip()
        return command in self._local or command in self._go_to()[0]

    def step(self, command: str) -> str:
        """Do `command` (surrounding space is ignored, case is not) and return the observation.

        An inadmissible command changes nothing and gives "Nothing happens.".
        """
        command = command.strip()
        action = self._local.get(command)
        if action is None:
            receptacle = self._go_to()[0].get(command)
            if receptacle is None:
                return NOTHING
            action = ("gotolocation", receptacle, -1)
        binding = self._binding(action)
        name = action[0]
        if self._apply(action):
            if name in self.game.decisive:
                self.won = self.game.reached(self.state)
            self._refresh()
        return self.game.grammar.feedback[name](self.state, binding)

    def _refresh(self) -> None:
        self._local = {self._command(action): action for action in self._local_actions()}
        self._admissible = None

    def _go_to(self) -> tuple[dict[str, int], list[str]]:
        """Commands to every receptacle elsewhere: they depend on the location alone."""
        game, here = self.game, self.state.location
        found = game.go_to.get(here)
        if found is None:
            targets = {
                self._command(("gotolocation", receptacle, -1)): receptacle
                for receptacle, location in game.location_of.items()
                if location != here
            }
            found = game.go_to[here] = (targets, sorted(targets))
        return found

    def _command(self, action: Action) -> str:
        commands = self.game.commands
        text = commands.get(action)
        if text is None:
            text = self.game.grammar.command[action[0]](self.state, self._binding(action))
            commands[action] = text
        return text

    def _binding(self, action: Action) -> dict[str, int]:
        """The domain's parameters of an action, bound (before the action is applied)."""
        name, first, second = action
        game = self.game
        binding = {"a": game.agent, "l": self.state.location}
        if name == "gotolocation":
            return {
                "a": game.agent,
                "lstart": self.state.location,
                "lend": game.location_of[first],
                "r": first,
            }
        role, other = _ROLES[name]
        if role:
            binding[role] = first
        if other:
            binding[other] = second
        if name == "putobject":
            binding["ot"], binding["rt"] = self._fitting_types(first, second)[0]
        return binding

    def _fitting_types(self, item: int, receptacle: int) -> list[tuple[int, int]]:
        game = self.game
        return [
            (object_type, receptacle_type)
            for receptacle_type in game.receptacle_types.get(receptacle, ())
            for object_type in game.object_types.get(item, ())
            if (receptacle_type, object_type) in game.accepts
        ]

    def _local_actions(self) -> Iterator[Action]:
        """Every applicable action but the moves, by the domain's preconditions."""
        game, state = self.game, self.state
        held = state.held
        yield "look", -1, -1
        yield "inventory", -1, -1
        if "help" in game.domain.actions:
            yield "help", -1, -1
        if held >= 0:
            yield "examineobject", held, -1
        openable, toggleable, pickupable = (game.static[p] for p in ("openable", "toggleable", "pickupable"))
        for receptacle in game.receptacles_at.get(state.location, ()):
            yield "examinereceptacle", receptacle, -1
            reachable = True
            if receptacle in openable:
                reachable = receptacle in state.opened
                yield ("closeobject" if reachable else "openobject"), receptacle, -1
            contents = state.contents.get(receptacle, ())
            for item in contents:
                if item in toggleable:  # the domain does not ask for an open receptacle here
                    yield "toggleobject", item, receptacle
                if reachable and held < 0 and item in pickupable:
                    yield "pickupobject", item, receptacle
            if held >= 0:
                if reachable and self._fitting_types(held, receptacle):
                    yield "putobject", held, receptacle
                yield from self._appliance_actions(held, receptacle)
        if held in game.knives:
            for item in state.objects_at.get(state.location, ()):
                if item in game.static["sliceable"]:
                    yield "sliceobject", item, held

    def _appliance_actions(self, held: int, receptacle: int) -> Iterator[Action]:
        game = self.game
        for action, capable in (
            ("cleanobject", "cleanable"),
            ("heatobject", "heatable"),
            ("coolobject", "coolable"),
        ):
            if receptacle in game.appliances[action] and held in game.static[capable]:
                yield action, held, receptacle

    def _apply(self, action: Action) -> bool:
        """Apply the domain's effects; False where nothing that can be read later has changed."""
        state = self.state
        name, first, second = action
        match name:
            case "gotolocation":
                state.location = self.game.location_of[first]
            case "openobject":
                state.opened.add(first)
            case "closeobject":
                state.opened.discard(first)
            case "pickupobject":
                discard(state.contents, second, first)
                insert(state.taken_from, second, first)
                discard(state.objects_at, state.location, first)
                state.held = first
            case "putobject":
                insert(state.contents, second, first)
                discard(state.taken_from, second, first)
                insert(state.objects_at, state.location, first)
                state.held = -1
            case "cleanobject":
                state.clean.add(first)
            case "heatobject":
                state.hot.add(first)
                state.cool.discard(first)
            case "coolobject":
                state.cool.add(first)
                state.hot.discard(first)
            case "toggleobject":
                state.on.symmetric_difference_update((first,))
                state.toggled.add(first)
            case "sliceobject":
                state.sliced.add(first)
            case _:  # look, inventory, help, examine: their effects are never read
                return False
        return True

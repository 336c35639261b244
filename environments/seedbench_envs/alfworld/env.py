"""ALFWorld as a Gymnasium environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, Protocol

from seedbench.errors import SeedBenchError, UsageError
from seedbench_envs.alfworld import reference
from seedbench_envs.alfworld.dialect import to_dialect
from seedbench_envs.alfworld.domain import domain_of
from seedbench_envs.alfworld.engine import Engine
from seedbench_envs.alfworld.game import TASK_PREFIX
from seedbench_envs.alfworld.library import Library, library
from seedbench_envs.alfworld.reference import INSTALL_HINT, ReferenceEngine
from seedbench_envs.alfworld.sources import family_of
from seedbench_envs.base import TextEnv


class _Engine(Protocol):
    won: bool

    @property
    def admissible(self) -> list[str]: ...
    def reset(self) -> str: ...
    def step(self, command: str) -> str: ...
    def is_admissible(self, command: str) -> bool: ...


class ALFWorldEnv(TextEnv):
    """Text ALFWorld: `reset(options={"task": "valid_unseen/<folder>/<trial>"})`, then commands.

    The observation is upstream's text; the reward is 1.0 at the step that wins and 0.0 otherwise; `terminated`
    is true once won. Commands after the end are played on, as upstream does.

    Args:
        edition: "official" or "mini" (the generated games, which are not official).
        engine: "native" or "reference" (upstream's packages, in a process of its own).
        dialect: data release whose games are played, "2.1.2" ("move X to Y") or "2.1.1" ("put X in/on Y").
        accept_other_dialect: also accept the other release's verb for putting things down.
        data: a folder, zip or tar archive of game files to read instead of the store.
        render_mode: "ansi" makes `render` return the current observation.

    Raises:
        SeedBenchError: the games are not there (the message says how to fetch them); at `reset`, a game that
            cannot be played.
        UsageError: an unknown option or task.
    """

    def __init__(
        self,
        edition: Literal["official", "mini"] = "official",
        engine: Literal["native", "reference"] = "native",
        dialect: str = "2.1.2",
        accept_other_dialect: bool = False,
        data: str | Path | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        if engine not in ("native", "reference"):
            raise UsageError(f"engine must be 'native' or 'reference', not '{engine}'.")
        if engine == "reference" and reference.reference_python() is None:
            raise SeedBenchError(f"the reference engine needs the packages alfworld and textworld: {INSTALL_HINT}.")
        self.slow = engine == "reference"
        self.accept_other_dialect = accept_other_dialect
        self.dialect = dialect
        self._library: Library = library(edition, dialect, data)
        self._engine: _Engine | None = None
        self._task = ""
        self._family = ""
        self._instruction = ""

    def task_ids(self) -> list[str]:
        """Ids of all games at hand, sorted."""
        return list(self._library.hashes())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start a game; see the class. Raises UsageError for a task that is not there."""
        task = self._chosen_task(seed, options)
        family = family_of(task)
        if self.slow:
            content = self._library.read(task)
            domain = domain_of(content)
            self._check_dialect(task, domain.dialect if domain else self.dialect)
            game = json.loads(content)
            if isinstance(self._engine, ReferenceEngine):
                self._engine.game = game
            else:
                self._engine = ReferenceEngine(game)
        else:
            parsed = self._library.game(task)
            self._check_dialect(task, parsed.dialect)
            self._engine = Engine(parsed)
        self._task, self._family = task, family
        self._observation = self._engine.reset()
        self._instruction = self._observation.rpartition(TASK_PREFIX)[2].rstrip().removesuffix(".")
        return self._observation, self._info(action_valid=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play one command. Raises UsageError before the first reset or for a command that is no text."""
        engine = self._engine
        if engine is None:
            raise UsageError("step was called before reset: start a game with reset(options={'task': id}).")
        if not isinstance(action, str):
            raise UsageError(f"an action is a string, not {type(action).__name__}.")
        if self.accept_other_dialect:
            action = to_dialect(action, self.dialect)
        valid, before = engine.is_admissible(action), engine.won
        self._observation = engine.step(action)
        reward = float(engine.won and not before)
        return self._observation, reward, engine.won, False, self._info(action_valid=valid)

    def _check_dialect(self, task: str, dialect: str) -> None:
        if dialect != self.dialect:
            raise UsageError(
                f"{task} is a game of dialect {dialect}, not {self.dialect}: open the environment with"
                f" dialect='{dialect}'."
            )

    def close(self) -> None:
        """End the reference engine's process, if there is one."""
        if isinstance(self._engine, ReferenceEngine):
            self._engine.close()

    def _info(self, *, action_valid: bool) -> dict[str, Any]:
        engine = self._engine
        assert engine is not None
        return {
            "task_id": self._task,
            "family": self._family,
            "instruction": self._instruction,
            "admissible_actions": engine.admissible,
            "success": engine.won,
            "score": float(engine.won),
            "action_valid": action_valid,
        }

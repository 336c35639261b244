"""The contract of a SeedBench environment: a Gymnasium environment whose observations and actions are text."""

from __future__ import annotations

import string
from abc import abstractmethod
from typing import Any

import gymnasium
from gymnasium import spaces


class TextEnv(gymnasium.Env[str, str]):
    """One task at a time, chosen at `reset`, played with text commands.

    `reset(options={"task": id})` starts a task; without the option, the environment draws one with its seeded
    generator. Every `info` holds: task_id, family, instruction, admissible_actions (a list in the suite's own order,
    or None where it has none), success (bool), score (float in [0, 1]), action_valid (the environment accepted the
    action); and, where the score has parts, metrics (name -> float in [0, 1]). An admissible action may have a blank
    to fill in, written `<your ...>` in its brackets: `search[<your query>]`.

    The episode ends (`terminated`) when the task is decided; there is no step limit, because that belongs to the
    protocol. The last observation of an episode is its own: nothing is reset behind the caller. Instances share no
    mutable state, write no files and may live by the thousand in one process.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012

    slow: bool = False
    """True where reset or step blocks for long (another process): asynchronous callers then use a thread."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = spaces.Text(max_length=1_000_000, min_length=0, charset=string.printable)
        self.action_space = spaces.Text(max_length=200, min_length=0, charset=string.printable)
        self._observation = ""

    @abstractmethod
    def task_ids(self) -> list[str]:
        """Ids of all tasks that `reset` accepts, sorted."""

    def render(self) -> str | None:
        """The current observation, with `render_mode="ansi"`."""
        return self._observation if self.render_mode == "ansi" else None

    def _chosen_task(self, seed: int | None, options: dict[str, Any] | None) -> str:
        """The task of this reset; seeds `np_random` first, as Gymnasium asks."""
        super().reset(seed=seed)
        task = (options or {}).get("task")
        if task is not None:
            return str(task)
        ids = self.task_ids()
        return ids[int(self.np_random.integers(len(ids)))]

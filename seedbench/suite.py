"""What a benchmark suite gives the harness: environments, panels, protocols, data, an oracle.

A suite is an object found through the entry point `seedbench.environments` (registry.py), so that other
packages can add their own; the harness knows none by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Protocol

from seedbench.panels import Panel
from seedbench.types import Task


class Environment(Protocol):
    """The part of `gymnasium.Env[str, str]` that a roll-out uses; `seedbench_envs.base` has the contract."""

    slow: bool

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start a task: observation and info."""
        ...

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Observation, reward, terminated, truncated, info."""
        ...

    def close(self) -> None:
        """Free what the environment holds."""
        ...


@dataclass(frozen=True, slots=True)
class DataStatus:
    """What the store holds of a suite. `problems` are sentences that say what to do; none: all is well."""

    summary: str
    problems: tuple[str, ...] = ()


class Suite(ABC):
    """One benchmark. Subclasses set the attributes and implement the methods; none of them loads a model."""

    name: str
    official: bool
    """False for generated editions, whose numbers must never be read as the official benchmark's."""
    families: Mapping[str, str]
    """Family key -> title, in table order."""
    default_protocol: str
    layout: str
    """Name of the table layout."""
    resources: Traversable
    """Package folder that holds `panels/*.jsonl.gz` and `protocols/*.toml`."""
    dialects: Sequence[str] = ()

    @abstractmethod
    def make(self, panel: Panel, engine: str = "native") -> Environment:
        """An environment that can play every task of `panel`."""

    @abstractmethod
    def content_hashes(self, panel: Panel) -> Mapping[str, str]:
        """Task id -> sha256 of what the store holds, for the panel's data. Raises SeedBenchError if nothing."""

    @abstractmethod
    def oracle(self, panel: Panel, task: Task) -> Sequence[str]:
        """Actions that solve the task. Raises SeedBenchError where none are known."""

    @abstractmethod
    def fetch(self, source: Path | None, report: Callable[[str], None]) -> None:
        """Bring the data into the store: from `source`, or downloaded. Raises SeedBenchError."""

    @abstractmethod
    def check(self) -> DataStatus:
        """Compare the store with the shipped panels: counts and content hashes. Never raises for missing data."""

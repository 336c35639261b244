"""What a benchmark suite gives the harness: environments, panels, protocols, data, an oracle.

A suite is an object found through the entry point `seedbench.environments` (registry.py), so that other
packages can add their own; the harness knows none by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, ClassVar, Protocol

from seedbench.errors import unknown
from seedbench.panels import Panel, read_panel
from seedbench.types import Task

Rule = Callable[[str, Sequence[str], str, int], str]
"""A scripted baseline: (instruction, admissible actions, observation, turn from 0) -> action. Must be deterministic."""


Option = str | int | float | bool
"""A value of a protocol's `[environment]` table."""


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


def refuse_unknown(options: Mapping[str, Option], known: Sequence[str]) -> None:
    """Raise UsageError, offering the nearest, for an environment option that a suite does not have."""
    for name in options:
        if name not in known:
            raise unknown("environment option", name, known)


@dataclass(frozen=True, slots=True)
class DataStatus:
    """What the store holds of a suite. `problems` are sentences that say what to do; none: all is well."""

    summary: str
    """What is there and complete; empty where nothing is."""
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
    policies: ClassVar[Mapping[str, Rule]] = {}
    """Scripted baselines of the suite, by the name that `seedbench eval` takes."""

    def panels(self) -> Iterator[Panel]:
        """The panels that this suite ships, sorted by file name. Raises SeedBenchError at one that is damaged."""
        folder = self.resources / "panels"
        files = [
            file
            for file in (folder.iterdir() if folder.is_dir() else ())
            if file.name.startswith(f"{self.name}--") and file.name.endswith(".jsonl.gz")
        ]
        yield from map(read_panel, sorted(files, key=lambda file: file.name))

    @abstractmethod
    def make(self, panel: Panel, engine: str = "native", **options: Option) -> Environment:
        """An environment that can play every task of `panel`.

        `options` is the protocol's `[environment]` table. Raises UsageError for an unknown engine or option.
        """

    @abstractmethod
    def content_hashes(self, panel: Panel) -> Mapping[str, str]:
        """Task id -> sha256 of what the store holds, for the panel's data. Raises SeedBenchError if nothing."""

    @abstractmethod
    def oracle(self, panel: Panel, task: Task) -> Sequence[str]:
        """Actions that solve the task. Raises SeedBenchError where none are known."""

    def out_of_reach(self, panel: Panel) -> frozenset[str]:
        """Ids of tasks that nothing can win under the suite's own scoring rules: the known ceiling of the panel."""
        return frozenset()

    def advice_checks(self, task: str, advice: str) -> Mapping[str, bool]:
        """What a text of advice (a skill) gets right about the task of that id: title -> whether.

        Every task and text has the same titles, in the same order; empty where the suite cannot tell.
        """
        return {}

    @abstractmethod
    def fetch(self, source: Path | None, report: Callable[[str], None]) -> None:
        """Bring the data into the store: from `source`, or downloaded. Raises SeedBenchError."""

    @abstractmethod
    def check(self) -> DataStatus:
        """Compare the store with the shipped panels: counts and content hashes. Never raises for missing data."""

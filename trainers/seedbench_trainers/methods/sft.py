"""SFT: imitate demonstrations, scripted by the suite's oracle or taken from recorded runs.

The demonstrations are made once, from the seed alone, so that a resumed run sees the same. They are passed over in
seeded orders: every update takes the next `update.mini_batch` samples (0: all of them). A sample is a turn under a
step-independent protocol, an episode under a conversation. With `decode = "admissible"` what is learned is the
distribution over the admissible actions, else the free one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from seedbench.errors import UsageError
from seedbench.rollout import derive_seed
from seedbench_trainers import base
from seedbench_trainers.demonstrations import PLANNED, demonstrate, from_runs
from seedbench_trainers.records import Batch

if TYPE_CHECKING:
    import torch

    from seedbench_trainers.config import TrainConfig


class SFTSettings(base.Settings):
    """The `[method]` table of an SFT recipe."""

    source: Literal["oracle", "runs"] = "oracle"
    """oracle: the suite's solutions mixed with random actions; runs: recorded evaluations."""
    runs: tuple[str, ...] = ()
    """Folders of `seedbench eval`, with source "runs"; their episodes on the training panel's tasks are used."""
    episodes: int = Field(default=1024, ge=1)
    """Episodes played, with source "oracle"."""
    noise: float = Field(default=0.0, ge=0, le=1)
    """Probability of a random action in each turn, with source "oracle"."""
    only_solved: bool = True
    """Leave out episodes that did not end in success."""
    imitate: Literal["all", "oracle"] = "all"
    """oracle: random actions are shown, but are no targets."""


class SFT(base.Method):
    """Maximises the likelihood of demonstrated responses."""

    name: ClassVar[str] = "sft"
    summary: ClassVar[str] = "supervised fine-tuning on oracle play, noisy if asked, or on recorded runs"
    Settings: ClassVar[type[base.Settings]] = SFTSettings
    samples_policy: ClassVar[bool] = False

    settings: SFTSettings

    def __init__(self, settings: SFTSettings, config: TrainConfig) -> None:
        super().__init__(settings, config)
        self._data: Batch | None = None
        if (settings.source == "runs") != bool(settings.runs):
            raise UsageError(
                f"sft: source is '{settings.source}' and runs names {len(settings.runs)} folders: set both"
                " method.source=runs and method.runs=[...], or neither."
            )
        if missing := [folder for folder in settings.runs if not Path(folder).expanduser().is_dir()]:
            raise UsageError(f"sft: method.runs names '{missing[0]}', which is no folder; name run folders that exist.")
        if config.update.epochs != 1:
            raise UsageError("sft: update.epochs must be 1; more passes over the demonstrations are more updates.")

    def gather(self, tools: base.Tools, iteration: int) -> Batch:
        """The next samples of the demonstrations. Raises as `demonstrations.demonstrate` and `from_runs`."""
        if self._data is None:
            # Played once: where environments answer by luck (servers), processes must not learn from different data.
            self._data = tools.once(lambda: self._demonstrations(tools))
            count, solved = len(self._data.samples), sum(t.episode.success for t in self._data.trajectories)
            tools.note(
                f"{count:,} samples of {len(self._data.trajectories):,} demonstrations, {solved:,} of them solved"
            )
        size = self.config.update.mini_batch or len(self._data.samples)
        return part(self._data, taken(len(self._data.samples), iteration * size, size, self.config.seed))

    def signals(self, batch: Batch, tools: base.Tools) -> base.Metrics:
        """The signal `planned` is part of the demonstrations; figures of this update's samples."""
        tokens = sum(sample.length for sample in batch.samples)
        planned = sum(float(sample.signals[PLANNED].sum()) for sample in batch.samples)
        solved = sum(trajectory.episode.success for trajectory in batch.trajectories)
        return {
            "demonstrations/tokens": tokens,
            "demonstrations/planned": planned / max(1, tokens),
            "demonstrations/solved": solved / max(1, len(batch.trajectories)),
        }

    def terms(self) -> Sequence[base.Term]:
        """One term: the negative log-likelihood, a mean over tokens."""
        return (base.Term("nll", mask=PLANNED if self.settings.imitate == "oracle" else ""),)

    def loss(self, tokens: base.Tokens) -> Mapping[str, torch.Tensor]:
        """-log pi of every response token, and the probability that the policy gives it."""
        return {"nll": -tokens.logprobs, "probability": tokens.logprobs.detach().exp()}

    def _demonstrations(self, tools: base.Tools) -> Batch:
        settings = self.settings
        if settings.source == "runs":
            folders = [Path(folder).expanduser() for folder in settings.runs]
            return from_runs(folders, tools.panel, tools.protocol, tools.loaded, only_solved=settings.only_solved)
        return demonstrate(
            tools.panel,
            tools.protocol,
            tools.loaded,
            episodes=settings.episodes,
            noise=settings.noise,
            seed=derive_seed(self.config.seed, "demonstrations"),
            only_solved=settings.only_solved,
        )


def taken(size: int, first: int, count: int, seed: int) -> list[int]:
    """Entries `first` to `first + count - 1` of endless passes over range(size), each in a seeded order of its own."""
    indices: list[int] = []
    while len(indices) < count:
        number, at = divmod(first + len(indices), size)
        indices += _order(size, number, seed)[at : at + count - len(indices)]
    return indices


@lru_cache(maxsize=2)
def _order(size: int, number: int, seed: int) -> list[int]:
    return sorted(range(size), key=lambda index: derive_seed(seed, "pass", number, index))


def part(data: Batch, indices: Sequence[int]) -> Batch:
    """A batch of some of the samples, with their trajectories alone."""
    places: dict[int, int] = {}
    samples = []
    for index in indices:
        sample = data.samples[index]
        place = places.setdefault(sample.trajectory, len(places))
        samples.append(replace(sample, trajectory=place, signals=dict(sample.signals)))
    return Batch([data.trajectories[trajectory] for trajectory in places], samples)

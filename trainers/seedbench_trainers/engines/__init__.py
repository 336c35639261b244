"""Roll-outs by another engine than the model under training: who answers, and how it gets the new weights.

After an optimiser step the trainee's weights are saved as a checkpoint folder, and the engine goes on with that folder:
`Colocated` in this process's vLLM, `Served` on `vllm serve` machines that see the same file system. What was sampled
keeps its token ids and log-probabilities; that they are those of the trainee is measured at the first optimiser step
of every iteration (`policy/parity` in the journal).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from seedbench.policies.base import Policy


class RolloutEngine(Protocol):
    """What a training run asks of an engine. `release` and `update` take turns with roll-outs, never beside them."""

    def policy(self, *, name: str, identity: dict[str, Any], record: bool = False) -> Policy:
        """A policy over the present weights; opening and closing it leaves the engine running."""

    def release(self) -> None:
        """Give memory back while the trainee computes, where engine and trainee share a GPU."""

    def update(self, folder: Path) -> None:
        """Go on with the weights in a checkpoint folder. Raises SeedBenchError or UsageError where it cannot."""

    def logprobs(self, ids: list[int]) -> list[float]:
        """(T - 1,) natural log-probability of each of (T,) ids but the first, by the present weights."""

    def close(self) -> None:
        """Stop what was started."""

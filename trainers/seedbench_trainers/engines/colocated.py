"""vLLM in the trainer's own process, on the same machine and, where there is one, the same GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seedbench.policies.checkpoint import locate
from seedbench.policies.vllm_ import VllmPolicy
from seedbench.policies.vllm_engine import VllmEngine
from seedbench.policies.vllm_setup import EngineSettings


class Colocated:
    """A `RolloutEngine` over an engine of this process, started on `checkpoint`.

    `settings`: `memory` is the share of the GPU that vLLM takes while it answers; with `sleep` it gives it back in
    between. Raises SeedBenchError or UsageError where vLLM is missing or cannot serve the checkpoint.
    """

    def __init__(self, checkpoint: str, settings: EngineSettings) -> None:
        self.engine = VllmEngine(locate(checkpoint), settings)
        _make_room()
        self.engine.start()

    def policy(self, *, name: str, identity: dict[str, Any], record: bool = False) -> VllmPolicy:
        """See `RolloutEngine`."""
        return VllmPolicy.serving(self.engine, name=name, identity=identity, record=record)

    def release(self) -> None:
        """Sleep; the next `update` wakes the engine."""
        self.engine.sleep()

    def update(self, folder: Path) -> None:
        """See `RolloutEngine`."""
        _make_room()
        self.engine.update_weights(folder)

    def logprobs(self, ids: list[int]) -> list[float]:
        """See `RolloutEngine`."""
        return self.engine.logprobs(ids)

    def close(self) -> None:
        """Shut the engine down."""
        self.engine.close()


def _make_room() -> None:
    """Give the GPU memory that torch keeps for later tensors back: the engine lives in other processes."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()

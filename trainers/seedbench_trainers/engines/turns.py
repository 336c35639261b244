"""An engine's turns in an iteration: it gets the weights, plays and answers, and gives memory back for the update."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from seedbench.policies.base import Policy

if TYPE_CHECKING:
    from seedbench_trainers.config import TrainConfig
    from seedbench_trainers.distributed import World
    from seedbench_trainers.engines import RolloutEngine
    from seedbench_trainers.trainee import Trainee

_FOLDER = ".rollout-weights"


def start_engine(config: TrainConfig, checkpoint: str, trainee: Trainee) -> RolloutEngine:
    """The engine that `rollout.engine` names, over the folder `checkpoint` until it gets other weights.

    Raises SeedBenchError or UsageError where it cannot be started or reached.
    """
    name = config.rollout.engine
    if name != "vllm":
        from seedbench_trainers.engines.served import Served

        return Served(name.removeprefix("openai:"), checkpoint, concurrency=config.rollout.batch_size)
    from seedbench.policies.vllm_setup import EngineSettings
    from seedbench_trainers.engines.colocated import Colocated

    dtype = "float32" if trainee.autocast is None else str(trainee.autocast).removeprefix("torch.")
    settings = EngineSettings(dtype=dtype, memory=config.rollout.engine_memory, sleep=True)
    return Colocated(checkpoint, settings)


class EngineTurns:
    """An engine that is kept at the trainee's weights. `out`: the run folder, which servers see under the same path.

    `start` first, and `close` whatever came of it.
    """

    def __init__(self, config: TrainConfig, trainee: Trainee, out: Path, world: World) -> None:
        self._config, self._trainee, self._world = config, trainee, world
        self._folder = out / _FOLDER
        self._engine: RolloutEngine | None = None

    def start(self) -> None:
        """Start the engine, hand the present weights over, so that what cannot work shows now, and let it sleep.

        It starts on weights as the trainee saves them: the checkpoint that training began from may be a LoRA folder,
        which is merged, or name its tensors otherwise. Raises as `start_engine` and `begin`.
        """
        self._world.first(self._write)
        self._engine = engine = start_engine(self._config, str(self._folder), self._trainee)
        self._world.first(lambda: engine.update(self._folder))
        self.end()

    def begin(self) -> None:
        """Hand over the present weights. Raises SeedBenchError where they cannot be written or loaded."""

        def hand_over() -> None:
            self._write()
            self._started().update(self._folder)

        self._world.first(hand_over)

    def policy(self, *, record: bool = False) -> Policy:
        """The engine as a policy of the harness."""
        identity = dict(self._trainee.loaded.identity)
        return self._started().policy(name=self._config.method, identity=identity, record=record)

    def end(self) -> None:
        """Give memory back; `begin` takes it again."""
        self._started().release()

    def close(self) -> None:
        """Stop the engine, where it was started, and drop the weights that it was given."""
        try:
            if self._engine is not None:
                self._engine.close()
        finally:
            if self._world.leads:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _write(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._trainee.save(self._folder)

    def _started(self) -> RolloutEngine:
        assert self._engine is not None, "start comes first"
        return self._engine

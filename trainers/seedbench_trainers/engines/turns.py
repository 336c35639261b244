"""An engine's turns in an iteration: it gets the weights, plays and answers, and gives memory back for the update."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from seedbench.policies.base import Policy
from seedbench_trainers.engines import RolloutEngine

if TYPE_CHECKING:
    from seedbench_trainers.config import TrainConfig
    from seedbench_trainers.distributed import World
    from seedbench_trainers.trainee import Trainee

_FOLDER = ".rollout-weights"


def start_engine(config: TrainConfig, checkpoint: str, trainee: Trainee) -> RolloutEngine:
    """The engine that `rollout.engine` names, over `checkpoint` (a folder or hub name) until it gets other weights.

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
    """Keeps an engine at the trainee's weights. `out`: the run folder, which servers see under the same path."""

    def __init__(self, engine: RolloutEngine, trainee: Trainee, out: Path, world: World, name: str) -> None:
        self._engine, self._trainee, self._world, self._name = engine, trainee, world, name
        self._folder = out / _FOLDER

    def begin(self) -> None:
        """Hand over the present weights. Raises SeedBenchError where they cannot be written or loaded."""

        def hand_over() -> None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._trainee.save(self._folder)
            self._engine.update(self._folder)

        self._world.first(hand_over)

    def policy(self, *, record: bool = False) -> Policy:
        """The engine as a policy of the harness."""
        return self._engine.policy(name=self._name, identity=dict(self._trainee.loaded.identity), record=record)

    def end(self) -> None:
        """Give memory back; `begin` takes it again."""
        self._engine.release()

    def close(self) -> None:
        """Stop the engine, and drop the weights that it was given."""
        self._engine.close()
        if self._world.leads:
            shutil.rmtree(self._folder, ignore_errors=True)

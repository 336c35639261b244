"""The warm start: SFT on noisy oracle play, for models that would otherwise never be rewarded."""

from __future__ import annotations

from seedbench_trainers.base import Trainer
from seedbench_trainers.config import Checkpoints, Data, TrainConfig, Update, Validation, Warmstart

FOLDER = "warmstart"


def warm_start(config: TrainConfig, train: Trainer) -> str | None:
    """Train the stage that `config.warmstart` asks for and return its checkpoint's path; None where it asks for none.

    Raises as the training does.
    """
    return train(warm_start_config(config), FOLDER) if config.warmstart.updates else None


def warm_start_config(config: TrainConfig) -> TrainConfig:
    """The SFT run before a run: its model, data, protocol and seed; no validation, one checkpoint at the end.

    The learning rate falls along a cosine, after a rise over the first twentieth.
    """
    asked, data = config.warmstart, config.data
    if data.reading == "draws":  # a share of the method's draws says nothing of the stage before it
        data = Data(panel=data.panel, families=data.families, limit=data.limit)
    stage = config.model_copy(
        update={
            "method": "sft",
            "updates": asked.updates,
            "data": data,
            "options": {"episodes": asked.episodes, "noise": asked.noise},
            "optimiser": config.optimiser.model_copy(update={"lr": asked.lr, "schedule": "cosine", "warmup": 0.05}),
            "update": Update(
                mini_batch=asked.mini_batch,
                tokens=config.update.tokens,
                checkpointing=config.update.checkpointing,
                dtype=config.update.dtype,
            ),
            "validation": Validation(),
            "checkpoints": Checkpoints(every=0),
            "warmstart": Warmstart(),
        }
    )
    return TrainConfig.model_validate(stage.model_dump())

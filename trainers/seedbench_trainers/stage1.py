"""SEED's stage 1 as a stage of a run: its settings, and the run of method `skill_sft` that they make.

arXiv 2607.14777, appendix: 180 tasks x 8 roll-outs at temperature 0.4, annotated by an analyzer; three epochs of SFT on
(trajectory -> summary and skill), learning rate 5e-6, batch 8, cosine with warm-up 0.1, betas .9/.95, weight decay .01,
clipping at 1.0, 90/10 split with seed 2026, at most 8,192 tokens (12,288 on WebShop and Search-QA).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from seedbench.errors import UsageError
from seedbench.policies.checkpoint import origin_of
from seedbench.runs import LOG
from seedbench_trainers.base import Settings, Trainer
from seedbench_trainers.checks import panel_of
from seedbench_trainers.config import Checkpoints, Optimiser, TrainConfig, Validation, Warmstart

FOLDER, METHOD = "stage1", "skill_sft"
_EVERY = 50
"""Updates between checkpoints: a stage that is killed loses little."""


class Annotated(Settings):
    """What stage 1 learns from. Figures are the paper's."""

    tasks: int = Field(default=180, ge=1)
    """Tasks that are collected, spread evenly over the families."""
    repeats: int = Field(default=8, ge=1)
    """Roll-outs a task."""
    temperature: float = Field(default=0.4, ge=0)
    """Of these roll-outs."""
    collected: str = ""
    """A run folder to annotate instead of collecting (`seedbench collect`)."""
    analyzer: str = "rules"
    """Who annotates: rules, openai:URL[#MODEL], or a model (`seedbench annotate`)."""
    style: Literal["full", "brief"] = "full"
    """Wording of the analysis prompt; stage 2 uses the same."""
    acting: float = Field(default=0.0, ge=0, lt=1)
    """Share of acting demonstrations among the samples (noisy oracle play, as in the warm start); the paper: none."""
    acting_noise: float = Field(default=0.3, ge=0, le=1)
    """Share of random actions in them."""
    acting_skill: float = Field(default=0.0, ge=0, le=1)
    """Share of them that is shown behind the rules' skill of the demonstration: a tiny model has never read a skill,
    and as a teacher it would not know what to do with one. The paper: none."""
    holdout: float = Field(default=0.1, ge=0, lt=1)
    """Share of the trajectories that is held out, to log a loss on."""
    max_length: int = Field(default=8192, ge=1)
    """Longest sample in tokens; longer ones are left out and counted."""


class Stage1(Annotated):
    """Stage 1 before a run of SEED."""

    run: bool = True
    """Whether it is run; False is the ablation without SFT."""
    epochs: float = Field(default=3.0, gt=0)
    """Passes over the annotated trajectories."""
    lr: float = Field(default=5e-6, gt=0)
    """Learning rate."""
    mini_batch: int = Field(default=8, ge=1)
    """Samples an optimiser step."""


def check_collected(stage1: Annotated) -> None:
    """Raises UsageError where `collected` is no run, before hours of other stages."""
    if stage1.collected and not (Path(stage1.collected).expanduser() / LOG).is_file():
        raise UsageError(
            f"'{stage1.collected}', which stage 1 is to learn from, is no run folder: make one with `seedbench"
            " collect`, or leave out 'collected' and it is made."
        )


def run_stage1(config: TrainConfig, stage1: Stage1, model: str, train: Trainer) -> str:
    """The model after stage 1: trained now into the folder `stage1` of the run, or `model` itself if it is that."""
    return model if is_stage1(Path(model)) else train(stage1_config(config, stage1, model), FOLDER)


def is_stage1(model: Path) -> bool:
    """Whether a folder holds the result of stage 1."""
    return (origin_of(model) or {}).get("method") == METHOD


def stage1_config(config: TrainConfig, stage1: Stage1, model: str) -> TrainConfig:
    """The run of `skill_sft` before a run of SEED, with enough updates for the epochs if every annotation is kept.

    Raises UsageError where `collected` is no run.
    """
    # A share of the method's draws says nothing of the stage before it.
    fraction = config.data.fraction if config.data.reading == "games" else 1.0
    samples = _trajectories(config, stage1, fraction) * (1 - stage1.holdout) / (1 - stage1.acting)
    changed = {
        "method": METHOD,
        "model": model,
        "updates": max(1, round(stage1.epochs * samples / stage1.mini_batch)),
        "data": config.data.model_copy(update={"fraction": fraction, "reading": "games"}),
        "options": stage1.model_dump(include=set(Annotated.model_fields)),
        "optimiser": Optimiser(
            lr=stage1.lr, betas=(0.9, 0.95), weight_decay=0.01, schedule="cosine", warmup=0.1, clip=1.0
        ),
        "update": config.update.model_copy(update={"mini_batch": stage1.mini_batch, "epochs": 1}),
        "validation": Validation(),
        "checkpoints": Checkpoints(every=_EVERY),
        "warmstart": Warmstart(),
    }
    return TrainConfig.model_validate(config.model_copy(update=changed).model_dump())


def _trajectories(config: TrainConfig, stage1: Stage1, fraction: float) -> int:
    """How many trajectories there will be to annotate."""
    if stage1.collected:
        from seedbench_trainers.skills.annotate import finished_episodes

        return len(finished_episodes(Path(stage1.collected).expanduser()))
    games = max(1, round(fraction * len(panel_of(config.data).tasks)))
    return min(stage1.tasks, games) * stage1.repeats

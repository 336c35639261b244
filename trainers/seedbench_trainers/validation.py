"""Validation: the policy under training on a fixed panel, by the code and into the files of `seedbench eval`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seedbench.evaluate import Evaluation, evaluate
from seedbench.policies.transformers_ import TransformersPolicy
from seedbench.protocol import Protocol
from seedbench.ui.live import Progress
from seedbench_trainers.base import Metrics
from seedbench_trainers.checks import panel_of
from seedbench_trainers.config import TrainConfig


def evaluation(config: TrainConfig, protocol: Protocol, policy: TransformersPolicy, out: Path) -> Evaluation:
    """The evaluation that a validation runs: `seedbench eval` with the same words gives the same numbers."""
    settings = config.validation
    return Evaluation(
        panel=panel_of(settings),
        protocol=protocol.with_settings(temperature=settings.temperature),
        policy=policy,
        out=out,
        repeats=settings.repeats,
        seed=settings.seed,
        concurrency=config.rollout.batch_size,
    )


def validate(
    config: TrainConfig,
    protocol: Protocol,
    policy: TransformersPolicy,
    out: Path,
    progress: Progress,
) -> Metrics:
    """Evaluate and return the figures for the log: success, score, success by family and n, rates in [0, 1]."""
    summary = evaluate(evaluation(config, protocol, policy, out), progress)
    return figures(summary)


def figures(summary: dict[str, Any]) -> Metrics:
    """What the log keeps of a summary; a rate that the summary leaves open is left out."""
    success = summary["success"]
    named = {
        "validation/success": success["micro"]["rate"],
        "validation/macro": success["macro"]["rate"],
        "validation/score": summary["score"]["mean"],
        "validation/n": success["micro"]["n"],
        **{f"validation/success/{family}": rate["rate"] for family, rate in success["families"].items()},
    }
    return {name: float(value) for name, value in named.items() if value is not None}

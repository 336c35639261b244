"""What a training run left of its course: success of roll-outs and validations over updates and environment steps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seedbench.journal import METRICS, read_metrics
from seedbench.statistics import Rate
from seedbench.subject import validations
from seedbench.tables import load_summary

_SUCCESS, _STEPS = "rollout/success", "steps/environment"


@dataclass(frozen=True, slots=True)
class Point:
    """Success after an update, in [0, 1]."""

    update: int
    steps: float
    """Environment steps of all training roll-outs so far."""
    rate: float
    validation: Rate | None = None
    """The validation's micro rate with its interval; None for a training roll-out."""


@dataclass(frozen=True, slots=True)
class Course:
    """The course of one training run."""

    rollouts: tuple[Point, ...]
    validations: tuple[Point, ...]


def course(folder: Path) -> Course:
    """Read the journal and the validations' summaries of a training run.

    Raises SeedBenchError where a line of the journal before the last is damaged, or a summary cannot be read.
    """
    points: dict[int, dict[str, float]] = {}
    journal = folder / METRICS
    for update, metrics in read_metrics(journal) if journal.is_file() else ():
        points.setdefault(update, {}).update(metrics)
    steps = {update: metrics[_STEPS] for update, metrics in sorted(points.items()) if _STEPS in metrics}
    rollouts = tuple(
        Point(update, steps.get(update, 0.0), metrics[_SUCCESS])
        for update, metrics in sorted(points.items())
        if _SUCCESS in metrics
    )
    measured = []
    for update, path in validations(folder):
        micro = load_summary(path)["success"]["micro"]
        if micro["rate"] is not None:
            spent = max((count for at, count in steps.items() if at <= update), default=0.0)
            measured.append(Point(update, spent, micro["rate"], Rate(micro["rate"], micro["n"], *micro["ci"])))
    return Course(rollouts, tuple(measured))

"""What a training run left of its course: success of roll-outs and validations over updates and environment steps."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seedbench.errors import SeedBenchError
from seedbench.statistics import Rate
from seedbench.subject import validations
from seedbench.tables import load_summary

METRICS = "metrics.jsonl"
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
    for update, metrics in _records(folder / METRICS):
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


def _records(path: Path) -> Iterator[tuple[int, dict[str, float]]]:
    """Update and finite metrics of each line; a torn last line is left out."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                record = json.loads(line)
                yield int(record["update"]), _finite(record["metrics"])
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise SeedBenchError(
                    f"'{path}' line {number} is damaged ({type(error).__name__}): expected the record of an update;"
                    " restore the file, or leave the training run out and name its validations."
                ) from error


def _finite(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value) for name, value in metrics.items() if isinstance(value, int | float) and math.isfinite(value)
    }

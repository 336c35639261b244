"""What the runs of a study left: rates on the panels, costs, learning curves. Read from files alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbench.errors import SeedBenchError
from seedbench.journal import METRICS, read_metrics
from seedbench.statistics.means import t_quantile
from seedbench.study.plan import Job, evaluation
from seedbench.study.run import USAGE, is_evaluated
from seedbench.study.sheets import Estimate
from seedbench.study.spec import Study
from seedbench.subject import TRAINING
from seedbench.tables import load_summary

Series = NDArray[np.float64]

_ALIKE = 1e-9
"""Standard errors below it are rounding."""

AXES = {"steps/environment": "environment steps", "tokens/generated": "generated tokens", "seconds": "seconds"}
"""Running totals that a learning curve is drawn against."""
COSTS = {
    "steps/environment": "Environment steps",
    "tokens/prompt": "Prompt tokens",
    "tokens/generated": "Generated tokens",
    "tokens/trained": "Trained tokens",
    "seconds": "Seconds",
    "seconds/gpu": "GPU seconds",
}
STEPS = "steps/environment"
SIGNALS = (
    "teacher/delta/solved", "teacher/delta/unsolved", "teacher/open", "teacher/gate", "skill/parsed",
    "skill/parsed/solved", "skill/parsed/unsolved", "skill/words", "gradient/policy", "gradient/distil",
    "policy/entropy", "rollout/success",
)  # fmt: skip
"""What a report shows of a journal over the updates (docs/methods/seed.md has their meanings)."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The validations of a run, in order: success (N,) in [0, 1], and what had been spent by then."""

    success: Series
    spent: dict[str, Series]
    """Axis -> (N,), rising; 0 before the first update."""


@dataclass(frozen=True, slots=True)
class Result:
    """A finished run."""

    job: Job
    curve: Curve
    cost: dict[str, float]
    """Total of each kind; without what the run began from."""
    cpu_hours: float | None
    """Training and evaluations; None where it was not kept."""
    summaries: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Name of the panel in the report -> summary."""
    signals: dict[str, Series] = field(default_factory=dict)
    """`STEPS` and each of `SIGNALS` -> (updates,), NaN where an update has none."""
    own_skills: bool = False
    """Whether the policy wrote the skills that it was taught with."""


def load_results(study: Study, jobs: Sequence[Job], root: Path) -> tuple[list[Result], list[str]]:
    """The runs that have a journal and every evaluation, whole and as the study asks; and the names of the others.

    Raises SeedBenchError where a file is there but damaged.
    """
    usage = _usage(root / USAGE)
    found, missing = [], []
    for job in jobs:
        panels = () if job.is_start else study.evaluation.panels
        trained = all((job.folder / name).is_file() for name in (TRAINING, METRICS))
        if not (trained and all(is_evaluated(study, job, panel) for panel in panels)):
            missing.append(job.name)
            continue
        journal = list(read_metrics(job.folder / METRICS))
        rows = [metrics for _, metrics in journal]
        found.append(
            Result(
                job,
                _curve(rows),
                {name: rows[-1].get(name, 0.0) if rows else 0.0 for name in COSTS},
                usage.get(job.name),
                {panel: load_summary(evaluation(job, panel)) for panel in panels},
                _signals([metrics for update, metrics in journal if update]),
                _own_skills(job.folder / TRAINING),
            )
        )
    return found, missing


def _signals(rows: Sequence[dict[str, float]]) -> dict[str, Series]:
    return {name: np.array([row.get(name, math.nan) for row in rows], dtype=np.float64) for name in (STEPS, *SIGNALS)}


def _own_skills(record: Path) -> bool:
    try:
        options = json.loads(record.read_text(encoding="utf-8"))["settings"]["options"]
        return bool(options.get("skill") == "own")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SeedBenchError(
            f"'{record}' is damaged ({type(error).__name__}): expected the record of a training; restore the file or"
            " train the run again."
        ) from error


def _curve(rows: Iterable[dict[str, float]]) -> Curve:
    scored = [row for row in rows if "validation/success" in row]
    spent = {axis: np.array([row.get(axis, 0.0) for row in scored]) for axis in AXES}
    return Curve(np.array([row["validation/success"] for row in scored]), spent)


def _usage(path: Path) -> dict[str, float]:
    """Run -> hours of processor time, over all its processes."""
    hours: dict[str, float] = {}
    lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
    for number, line in enumerate(lines, start=1):
        try:
            used = json.loads(line)
            hours[used["run"]] = hours.get(used["run"], 0.0) + float(used["cpu_seconds"]) / 3600
        except (ValueError, KeyError, TypeError) as error:
            raise SeedBenchError(
                f"'{path}' line {number} is damaged ({type(error).__name__}); delete that line."
            ) from error
    return hours


def cells_of(results: Iterable[Result], *, full: bool = True) -> dict[str, list[Result]]:
    """Label -> its runs, those with all of the data unless not `full`; starts are left out."""
    cells: dict[str, list[Result]] = {}
    for result in results:
        if not result.job.is_start and (result.job.fraction == 1 or not full):
            cells.setdefault(result.job.cell, []).append(result)
    return cells


def over_seeds(rates: Sequence[dict[str, Any]]) -> Estimate | None:
    """The mean of one rate a seed (`{"rate", "ci"}` of a summary) with Student's interval over seeds, cut to [0, 1].

    Of one seed, and where all agree, the first summary's interval, over tasks. None where a seed has no rate.
    """
    values = [rate["rate"] for rate in rates]
    if not values or any(value is None for value in values):
        return None
    found = mean_over(values)
    return Estimate(found.mean, *rates[0]["ci"]) if found.lo == found.hi else found


def mean_over(values: Sequence[float], lowest: float = 0.0) -> Estimate:
    """Mean with Student's 95 % interval over seeds, cut to [lowest, 1]; the mean alone where they do not differ."""
    mean, count = math.fsum(values) / len(values), len(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / max(1, count - 1) / count)
    half = t_quantile(count - 1) * spread if spread > _ALIKE else 0.0
    return Estimate(mean, max(lowest, mean - half), min(1.0, mean + half))


def at(curve: Curve, axis: str, where: float | Series) -> Series:
    """Validation success where so much was spent, on the line between neighbouring validations; NaN without any.

    Outside the curve it is that of its nearest end.
    """
    if not len(curve.success):
        return np.full(np.shape(where), math.nan)
    return np.asarray(np.interp(where, curve.spent[axis], curve.success), dtype=np.float64)

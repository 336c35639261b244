"""Numbers of the measured rows: of one run from its summary, of several seeds their mean and its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

from seedbench.errors import SeedBenchError
from seedbench.statistics import macro, wilson_limits
from seedbench.tables.build import rate_of
from seedbench.tables.paper.layouts import PaperColumn, families
from seedbench.tables.paper.model import Cell
from seedbench.tables.paper.runs import MeasuredRow, MeasuredRun

Matrix = Sequence[Sequence[float]]
"""(seeds, tasks), means over attempts."""


def cell_of(row: MeasuredRow, column: PaperColumn) -> Cell | None:
    """The row's number in a column; None where it has none. Raises SeedBenchError where a log cannot be read."""
    if column.kind in ("printed", "derived"):
        return None
    panels = row.panels(column)
    if column.kind == "family":
        panels = {panel: runs for panel, runs in panels.items() if column.key in runs[0].families}
    if column.kind == "macro" and not _complete(column.suite, [run for runs in panels.values() for run in runs]):
        return None
    if len(panels) > 1:
        return _over_panels(list(panels.values()))
    return next((_over_seeds(runs, column) for runs in panels.values()), None)


def _complete(suite: str, runs: Sequence[MeasuredRun]) -> bool:
    """Whether a mean over the runs' families is the mean that the column means.

    It is over all of the suite's columns, or, for generated editions, over families that have no column.
    """
    present = {family for run in runs for family in run.families}
    known = set(families(suite))
    return not known or suite == "alfworld" or known <= present or not known & present


def _over_seeds(runs: Sequence[MeasuredRun], column: PaperColumn) -> Cell:
    rates = [rate for run in runs if (rate := rate_of(column.kind, column.key, run.summary))]
    counted = sum(rate.n for rate in rates)
    values = [rate.rate for rate in rates if rate.rate is not None]
    if len(values) < len(runs):
        return Cell(None, counted, seeds=len(runs))
    if len(runs) == 1:
        return Cell(values[0], counted, rates[0].lo, rates[0].hi)
    mean = _mean(values)
    if not all(run.has_log for run in runs) or not (strata := _strata(runs, column)):
        return Cell(mean, counted, seeds=len(runs))
    lo, hi = mean_interval(strata)
    # Tasks left out in some run after an infrastructure error can put the mean of all outside.
    return Cell(mean, counted, min(mean, lo), max(mean, hi), seeds=len(runs))


def _strata(runs: Sequence[MeasuredRun], column: PaperColumn) -> list[Matrix]:
    """The tasks counted in all runs: a matrix for each family of a macro rate, one for all tasks otherwise."""
    values = [run.values["score" if column.kind == "score" else "success"] for run in runs]
    wanted = [column.key] if column.kind == "family" else runs[0].families
    of_family: list[Matrix] = []
    for family in wanted:
        tasks = sorted(set.intersection(*(set(value.get(family, {})) for value in values)))
        of_family.append([[_mean(value[family][task]) for task in tasks] for value in values])
    if column.kind == "macro":
        return of_family if all(matrix[0] for matrix in of_family) else []
    joined = [[x for matrix in of_family for x in matrix[seed]] for seed in range(len(runs))]
    return [joined] if joined[0] else []


def _over_panels(panels: Sequence[Sequence[MeasuredRun]]) -> Cell:
    """The mean of families that lie on several panels."""
    runs = [run for of_panel in panels for run in of_panel]
    seeds = max(map(len, panels))
    rates = [
        _mean(of_family)
        for of_panel in panels
        for family in of_panel[0].families
        if None not in (of_family := [run.summary["success"]["families"][family]["rate"] for run in of_panel])
    ]
    counted = sum(run.summary["success"]["micro"]["n"] for run in runs)
    if len(rates) < sum(len(of_panel[0].families) for of_panel in panels):
        return Cell(None, counted, seeds=seeds)
    if seeds > 1 or not all(run.has_log for run in runs):
        return Cell(_mean(rates), counted, seeds=seeds)
    tasks = [values for run in runs for values in run.values["success"].values()]
    rate = macro([[(round(sum(of)), len(of)) for of in family.values()] for family in tasks])
    return Cell(rate.rate, counted, rate.lo, rate.hi)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def mean_interval(strata: Sequence[Matrix]) -> tuple[float, float]:
    """95 % interval of a mean over training seeds, where both the seeds and the tasks are a sample.

    Args:
        strata: a (seeds, tasks) matrix of values in [0, 1] for each stratum, all with the same seeds; the mean is that
            of the strata's means (one stratum: the plain mean).

    It is that of the difference to nothing by `seedbench.statistics.seeds.crossed`, cut at 0 and 1; Wilson's on the
    number of tasks where all values are equal. Raises SeedBenchError for values outside [0, 1].
    """
    import numpy as np

    from seedbench.statistics.seeds import crossed

    values = np.concatenate([np.asarray(matrix, dtype=np.float64) for matrix in strata], axis=1)  # (seeds, tasks)
    kinds = np.repeat(np.arange(len(strata)), [len(matrix[0]) for matrix in strata])
    if values.min() < 0 or values.max() > 1:
        raise SeedBenchError("scores outside [0, 1] have no interval over seeds: leave that column's runs out.")
    if values.min() == values.max():
        return wilson_limits(float(values[0, 0]), values.shape[1])
    found = crossed(np.zeros((1, values.shape[1])), values, paired=False, families=kinds)
    return max(0.0, found.lo), min(1.0, found.hi)

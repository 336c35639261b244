"""Which measured numbers are best and significantly so, and differences of rows: `seedbench compare` by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seedbench.compare import LEVEL, Comparison, Effect, compare
from seedbench.errors import SeedBenchError
from seedbench.tables.paper.layouts import PaperColumn
from seedbench.tables.paper.runs import MeasuredRow, MeasuredRun
from seedbench.tables.text import one_line


@dataclass(frozen=True, slots=True)
class ColumnTests:
    """The comparisons behind one column: every pair of the rows that have runs in it."""

    rows: tuple[int, ...]
    """Rows of the block that were compared, in order; empty where they were not."""
    pairs: Mapping[tuple[int, int], Comparison]
    reason: str = ""
    """Why nothing was compared though there are several rows."""

    def difference(self, column: PaperColumn, row: int, other: int) -> tuple[float, float, float] | None:
        """`row` - `other` in a column, with its limits; None where that was not compared."""
        sign = 1 if other < row else -1
        pair = self.pairs.get((min(row, other), max(row, other)))
        effect = None if pair is None else _effect(pair, column)
        if effect is None:
            return None
        limits = sorted((sign * effect.lo, sign * effect.hi))
        return sign * effect.difference, limits[0], limits[1]

    def winner(self, column: PaperColumn) -> int | None:
        """The row that is significantly better than each of the others; None where there is none."""
        return next((row for row in self.rows if len(self.rows) > 1 and self._wins(column, row)), None)

    def _wins(self, column: PaperColumn, row: int) -> bool:
        for (first, second), pair in self.pairs.items():
            if row in (first, second):
                effect = _effect(pair, column)
                gain = 0.0 if effect is None else effect.difference * (1 if row == second else -1)
                if effect is None or effect.p_holm >= LEVEL or gain <= 0:
                    return False
        return True


def _effect(pair: Comparison, column: PaperColumn) -> Effect | None:
    if column.kind == "macro":
        return pair.macro
    if column.kind != "family":
        return pair.overall
    if not pair.families:  # the panel's only family
        return pair.overall
    return next((effect for effect in pair.families if effect.name == column.key), None)


class BlockTests:
    """The comparisons of one block, made once for every set of runs and metric."""

    def __init__(self, rows: Sequence[MeasuredRow]) -> None:
        self._rows = rows
        self._done: dict[tuple[str, tuple[tuple[int, tuple[str, ...]], ...]], ColumnTests] = {}
        self.reasons: dict[str, None] = {}
        """Why columns were not tested, each once."""

    def of(self, column: PaperColumn) -> ColumnTests:
        """The comparisons of a column."""
        metric = "score" if column.kind == "score" else "success"
        sides = []
        for index, row in enumerate(self._rows):
            panels = row.panels(column)
            if column.kind == "family":
                panels = {panel: runs for panel, runs in panels.items() if column.key in runs[0].families}
            if len(panels) > 1:
                self.reasons["an average over several panels is not tested, so nothing is bold there"] = None
                return ColumnTests((), {})
            sides += [(index, runs) for runs in panels.values()]
        key = (metric, tuple((index, tuple(str(run.path) for run in runs)) for index, runs in sides))
        if key not in self._done:
            self._done[key] = _compared(metric, sides, self._rows)
            if self._done[key].reason:
                self.reasons[self._done[key].reason] = None
        return self._done[key]


def _compared(
    metric: str, sides: Sequence[tuple[int, tuple[MeasuredRun, ...]]], rows: Sequence[MeasuredRow]
) -> ColumnTests:
    if len(sides) < 2:
        return ColumnTests((), {})
    for index, runs in sides:
        for run in runs:
            where = f"'{rows[index].label}' on {one_line(run.summary['panel']['name'])}"
            if not run.has_log:
                return ColumnTests((), {}, f"{where} has no episode log: not tested, so nothing is bold there")
            if run.unfinished:
                return ColumnTests((), {}, f"{where} is unfinished: not tested, so nothing is bold there")
    indices = tuple(index for index, _ in sides)
    try:
        report = compare(
            [[run.path for run in runs] for _, runs in sides], metric=metric, labels=list(map(str, indices))
        )
    except SeedBenchError as error:
        return ColumnTests((), {}, f"not tested, so nothing is bold there: {one_line(str(error).rstrip('.'))}")
    return ColumnTests(indices, {(int(pair.a), int(pair.b)): pair for pair in report.comparisons})

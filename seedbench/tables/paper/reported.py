"""Reported rows in paper tables: apart from the measured ones, each with its caveats and source as footnotes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from seedbench.errors import unknown
from seedbench.reported import ReportedRow, caveats, derived
from seedbench.tables.paper.layouts import PAPER_LAYOUTS, PaperColumn, method_title, rank
from seedbench.tables.paper.model import Cell, PaperRow
from seedbench.tables.text import one_line

PAPERS = ("2607.14777", "2606.26790")
"""The papers shown unless others are asked for: SEED, and OPID, which SEED's tables do not have."""

_FRACTION = re.compile(r"(\d+)%")
_ABLATED = "w/o"
_READINGS = {"fraction-of-games": "games"}


def chosen(rows: Iterable[ReportedRow], layout: str, papers: Sequence[str]) -> tuple[ReportedRow, ...]:
    """The rows that a layout shows, of the given papers (arXiv identifiers or names; none: the usual two; `all`).

    Raises UsageError for a paper without any reported row.
    """
    found = tuple(rows)
    names = {name for row in found for name in (row.arxiv, row.paper) if name}
    for paper in papers:
        if paper != "all" and paper not in names:
            raise unknown("paper", paper, [*names, "all"])
    wanted = papers or PAPERS
    of_papers = (row for row in found if "all" in wanted or {row.arxiv, row.paper} & set(wanted))
    shown = [row for row in of_papers if row.suite in PAPER_LAYOUTS[layout].suites and _belongs(row, layout)]
    if layout == "paper-ablation":  # the full method alone is no ablation
        models = {row.model for row in shown if _ABLATED in row.method}
        shown = [row for row in shown if row.model in models]
    return tuple(shown)


def _belongs(row: ReportedRow, layout: str) -> bool:
    ablated, full = _ABLATED in row.method, row.method == "SEED" and row.arxiv == PAPERS[0]
    match layout:
        case "paper-efficiency":
            return bool(fractions(row))
        case "paper-ablation":
            return ablated or (full and row.suite == "alfworld" and row.split == "seen" and not fractions(row))
        case "paper-unseen":
            return row.split == "unseen"
    plain = not ablated and row.split != "unseen" and not fractions(row)
    return plain and bool({"Avg", "Succ", "Pick", "NQ"} & set(row.values))


def fractions(row: ReportedRow) -> list[tuple[str, float, str]]:
    """`(suite, fraction, reading)` of its columns; the reading is empty where the paper leaves it open."""
    found = [match for name in row.values if (match := _FRACTION.fullmatch(name))]
    return [(row.suite, int(match[1]) / 100, _reading(row)) for match in found]


def _reading(row: ReportedRow) -> str:
    return next((reading for caveat, reading in _READINGS.items() if caveat in row.caveats), "")


class Footnotes:
    """Numbers for sentences, in the order in which they are first needed."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._caveats: Mapping[str, str] = caveats()

    def of(self, rows: Sequence[ReportedRow]) -> tuple[int, ...]:
        """The numbers of the rows' caveats and sources, in ascending order."""
        texts = [self._caveats.get(key, key) for row in rows for key in row.caveats]
        texts += [f"Source of {row.paper} {row.table}: {row.provenance}." for row in rows]
        return tuple(sorted({self._numbers.setdefault(one_line(text), len(self._numbers) + 1) for text in texts}))

    @property
    def texts(self) -> tuple[str, ...]:
        """The sentences, from number 1."""
        return tuple(self._numbers)


def reported_blocks(
    rows: Sequence[ReportedRow], columns: Sequence[PaperColumn], layout: str, footnotes: Footnotes
) -> dict[str, tuple[PaperRow, ...]]:
    """Model -> a row for each paper and method, its suites joined, in the layout's order."""
    grouped: dict[str, dict[tuple[str, str, str], list[ReportedRow]]] = {}
    for row in rows:
        # Further rows of one method and suite, such as several re-runs of a paper, are told apart by their table.
        apart = grouped.setdefault(one_line(row.model), {})
        key = (row.paper, row.method, "")
        if any(other.suite == row.suite for other in apart.get(key, [])):
            key = (row.paper, row.method, row.table)
        apart.setdefault(key, []).append(row)
    several = any(row.arxiv not in PAPERS for row in rows)
    blocks = {}
    for model, members in grouped.items():
        made = [_row(of, columns, layout, footnotes, several) for of in members.values()]
        blocks[model] = tuple(sorted(made, key=lambda row: rank(row.label, layout)))
    return blocks


def _row(
    rows: Sequence[ReportedRow], columns: Sequence[PaperColumn], layout: str, footnotes: Footnotes, several: bool
) -> PaperRow:
    label = method_title(rows[0].method, layout)
    if several:
        label = f"{label} ({rows[0].paper})"
    cells = tuple(next(filter(None, (_cell(row, column) for row in rows)), None) for column in columns)
    notes = {row.suite: footnotes.of([of for of in rows if of.suite == row.suite]) for row in rows}
    return PaperRow(one_line(label), "reported", cells, notes=notes)


def _cell(row: ReportedRow, column: PaperColumn) -> Cell | None:
    if row.suite != column.suite or (column.fraction is not None and column.reading != _reading(row)):
        return None
    value = derived(row).get(column.key) if column.kind == "derived" else row.values.get(column.reported)
    if value is None:
        return None
    average = column.reported == "Avg"
    # What is derived has many digits; the printed figures have one or two.
    mark = row.aggregation.removesuffix("-mean") if average else ""
    return Cell(round(round(value, 1 if column.kind == "derived" else 4) / 100, 6), mark=mark)

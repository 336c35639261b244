"""The papers' tables: models are blocks, methods rows, measured and reported rows apart.

Measured rows come from run folders; what is bold is decided by `seedbench compare`, never by the eye. Reported rows are
copied from papers (`seedbench.reported`), stand under the measured ones, and are neither tested nor ranked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from seedbench.errors import UsageError, unknown
from seedbench.reported import ReportedRow, reported_rows
from seedbench.tables.paper.bold import BlockTests
from seedbench.tables.paper.caption import block_notes, caption, sources
from seedbench.tables.paper.cells import cell_of
from seedbench.tables.paper.layouts import PAPER_LAYOUTS, ColumnGroup, PaperColumn, fraction_groups, result_groups
from seedbench.tables.paper.model import Cell, PaperBlock, PaperRow, PaperTable
from seedbench.tables.paper.reported import Footnotes, chosen, fractions, reported_blocks
from seedbench.tables.paper.runs import NO_MODEL, MeasuredRow, MeasuredRun, blocks_of, read_runs


def paper_table(
    runs: Sequence[Path],
    layout: str = "paper",
    *,
    labels: Sequence[str] = (),
    reported: bool = False,
    papers: Sequence[str] = (),
    rows: Sequence[ReportedRow] | None = None,
) -> PaperTable:
    """A table in one of the paper layouts.

    Args:
        runs: run folders, bundle folders or summary.json files; may be empty with `reported`.
        layout: one of PAPER_LAYOUTS.
        labels: names of the methods in the order of the runs; default: what the runs say of themselves.
        reported: add the reported rows of the measured models (of all models where none of them has any).
        papers: whose rows; default: SEED and OPID; `all`.
        rows: reported rows in place of those that ship.

    Raises UsageError for an unknown layout or paper, nothing to show, runs that the layout does not show, or runs in
    one block that differ in panel or protocol; SeedBenchError for runs that cannot be read.
    """
    if layout not in PAPER_LAYOUTS:
        raise unknown("paper layout", layout, PAPER_LAYOUTS)
    if not runs and not reported:
        raise UsageError("a table needs at least one run: name a run folder, or give --reported for what papers print.")
    measured = read_runs(runs, layout, labels)
    of_papers = chosen(reported_rows() if rows is None else rows, layout, papers) if reported else ()
    of_papers = _of_measured_models(of_papers, measured)
    groups = _groups(layout, measured, of_papers, reported)
    columns = [column for group in groups for column in group.columns]
    footnotes = Footnotes() if reported else None
    printed = reported_blocks(of_papers, columns, layout, footnotes) if footnotes else {}
    blocks = [_measured(model, members, columns, layout) for model, members in blocks_of(measured, layout).items()]
    return PaperTable(
        layout=layout,
        title=PAPER_LAYOUTS[layout].title,
        groups=groups,
        blocks=tuple(_joined(blocks, printed)),
        caption=caption(layout, groups, measured=bool(measured), reported=bool(of_papers)),
        footnotes=footnotes.texts if footnotes else (),
    )


def _of_measured_models(rows: Sequence[ReportedRow], measured: Sequence[MeasuredRun]) -> tuple[ReportedRow, ...]:
    models = {run.model.casefold() for run in measured}
    return tuple(row for row in rows if row.model.casefold() in models) or tuple(rows)


def _groups(
    layout: str, measured: Sequence[MeasuredRun], of_papers: Sequence[ReportedRow], reported: bool
) -> tuple[ColumnGroup, ...]:
    if layout != "paper-efficiency":
        return result_groups(
            [run.suite for run in measured] + [row.suite for row in of_papers],
            measured=bool(measured),
            reported=reported,
        )
    parts = [part for row in of_papers for part in fractions(row)]
    for run in measured:
        share, reading = run.subject.fraction, run.subject.reading
        readings = {other.subject.reading for other in measured if other.suite == run.suite} - {""}
        # All of the data is the end of either reading's row.
        for name in sorted(readings) if share == 1 and readings else [reading]:
            parts.append((run.suite, share or 1.0, name))
    return fraction_groups(parts)


def _measured(model: str, members: Sequence[MeasuredRow], columns: Sequence[PaperColumn], layout: str) -> PaperBlock:
    tests = BlockTests(members)
    rows = [_row(row, columns) for row in members]
    for place, column in enumerate(columns):
        if column.kind in ("family", "micro", "macro", "score"):
            best = tests.of(column).winner(column)
            if best is not None:
                rows[best] = _bold(rows[best], place)
    if layout == "paper-ablation":
        rows = _with_differences(rows, columns, tests)
    notes = (*tests.reasons, *block_notes(members))
    return PaperBlock(model, tuple(rows), sources=sources(members, columns), notes=notes)


def _row(row: MeasuredRow, columns: Sequence[PaperColumn]) -> PaperRow:
    cells = tuple(cell_of(row, column) for column in columns)
    seeds: dict[str, int] = {}
    for column, cell in zip(columns, cells, strict=True):
        if cell is not None:
            seeds[column.suite] = max(cell.seeds, seeds.get(column.suite, 1))
    return PaperRow(row.label, "measured", cells, seeds, unfinished=any(run.unfinished for run in row.runs))


def _bold(row: PaperRow, place: int) -> PaperRow:
    cells = [replace(cell, bold=True) if cell and at == place else cell for at, cell in enumerate(row.cells)]
    return replace(row, cells=tuple(cells))


def _with_differences(rows: Sequence[PaperRow], columns: Sequence[PaperColumn], tests: BlockTests) -> list[PaperRow]:
    """Each variant with its difference to the first row, the full method."""
    found = [rows[0]]
    for index, row in enumerate(rows[1:], start=1):
        cells = [_difference(tests, column, index) for column in columns]
        found += [row, PaperRow(f"difference to {rows[0].label}", "difference", tuple(cells))]
    return found


def _difference(tests: BlockTests, column: PaperColumn, row: int) -> Cell | None:
    found = tests.of(column).difference(column, row, 0) if column.kind not in ("printed", "derived") else None
    return None if found is None else Cell(found[0], 0, found[1], found[2])


def _joined(blocks: Sequence[PaperBlock], printed: dict[str, tuple[PaperRow, ...]]) -> list[PaperBlock]:
    """The measured blocks, each with what papers report of its model; then the other models; runs without one last."""
    left = {model.casefold(): (model, rows) for model, rows in printed.items()}
    found = [replace(block, reported=left.pop(block.model.casefold(), ("", ()))[1]) for block in blocks]
    found += [PaperBlock(model, reported=rows) for model, rows in left.values()]
    return sorted(found, key=lambda block: block.model == NO_MODEL)

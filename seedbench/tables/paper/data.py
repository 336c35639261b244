"""Paper tables as CSV and JSON: fractions at full precision, measured, reported and derived numbers told apart."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

from seedbench.tables.paper.layouts import PaperColumn
from seedbench.tables.paper.model import Cell, PaperBlock, PaperRow, PaperTable
from seedbench.tables.text import no_formula

CSV_COLUMNS = (
    "layout",
    "model",
    "label",
    "kind",
    "suite",
    "panel",
    "panel_hash",
    "split",
    "official",
    "protocol",
    "protocol_hash",
    "fraction",
    "reading",
    "column",
    "title",
    "value",
    "n",
    "lo",
    "hi",
    "seeds",
    "bold",
    "unfinished",
    "aggregation",
    "footnotes",
)


def to_csv(table: PaperTable) -> str:
    """Long form: a line for each number; `kind` is measured, difference, reported or derived.

    A text that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for block in table.blocks:
        for row in (*block.measured, *block.reported):
            for line in _lines(table, block, row):
                writer.writerow({k: str(v).lower() if isinstance(v, bool) else no_formula(v) for k, v in line.items()})
    return out.getvalue()


def to_json(table: PaperTable) -> str:
    """The whole table, schema `seedbench.paper-table/1`."""
    data = {
        "schema": "seedbench.paper-table/1",
        "layout": table.layout,
        "title": table.title,
        "blocks": [_json_block(table, block) for block in table.blocks],
        "caption": table.sentences(),
        "footnotes": list(table.footnotes),
    }
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _json_block(table: PaperTable, block: PaperBlock) -> dict[str, Any]:
    rows = (*block.measured, *block.reported)
    return {
        "model": block.model,
        "sources": [source.text for source in block.sources],
        "notes": list(block.notes),
        "numbers": [line for row in rows for line in _lines(table, block, row)],
    }


def _lines(table: PaperTable, block: PaperBlock, row: PaperRow) -> Iterator[dict[str, Any]]:
    for column, cell in zip(table.columns, row.cells, strict=True):
        if cell is not None and cell.value is not None:
            about = {"layout": table.layout, "model": block.model, "label": row.label}
            yield {**about, **_kind(block, row, column), **_number(row, column, cell)}


def _kind(block: PaperBlock, row: PaperRow, column: PaperColumn) -> dict[str, Any]:
    """What kind of number, and what it was measured on."""
    of_suite = [source for source in block.sources if source.suite == column.suite and row.kind != "reported"]

    def joined(name: str) -> str:
        return "; ".join(dict.fromkeys(getattr(source, name) for source in of_suite))

    return {
        "kind": "derived" if column.kind == "derived" else row.kind,
        "suite": column.suite,
        **{name: joined(name) for name in ("panel", "panel_hash", "split", "protocol", "protocol_hash")},
        "official": all(source.official for source in of_suite) if of_suite else "",
    }


def _number(row: PaperRow, column: PaperColumn, cell: Cell) -> dict[str, Any]:
    reported = row.kind == "reported"
    return {
        "fraction": "" if column.fraction is None else column.fraction,
        "reading": column.reading,
        "column": column.reported or column.key if reported else column.key,
        "title": column.title,
        "value": cell.value,
        "n": "" if reported or not cell.n else cell.n,
        "lo": "" if cell.lo is None else cell.lo,
        "hi": "" if cell.hi is None else cell.hi,
        "seeds": "" if reported else cell.seeds,
        "bold": cell.bold,
        "unfinished": row.unfinished,
        "aggregation": cell.mark,
        "footnotes": " ".join(map(str, row.footnotes(column.suite))),
    }

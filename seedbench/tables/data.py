"""CSV and JSON: rates and means as fractions at full precision, for other programs."""

import csv
import io
import json
from typing import Any

from seedbench.statistics import Rate
from seedbench.tables.build import Block, Cell, Row, Table
from seedbench.tables.text import no_formula

CSV_COLUMNS = (
    "panel",
    "panel_hash",
    "panel_n",
    "suite",
    "split",
    "official",
    "label",
    "policy",
    "protocol",
    "protocol_hash",
    "repeats",
    "seed",
    "episodes",
    "expected",
    "infra_errors",
    "environment",
    "steps",
    "column",
    "rate",
    "n",
    "lo",
    "hi",
)


def to_csv(table: Table) -> str:
    """Long form: one line for each run and column. Empty fields where there is no number.

    The field `rate` holds the mean where the column is the score or a metric, and the number, without n and interval,
    where it is an amount.
    A text that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for block in table.blocks:
        for row in block.rows:
            run = _flat(block, row)
            for column, rate in zip(table.columns, row.rates, strict=True):
                if rate is not None:
                    writer.writerow({**run, "column": column.key, **_numbers(rate)})
    return out.getvalue()


def to_json(table: Table) -> str:
    """The whole table, schema `seedbench.table/1`; `rates` is keyed by column, null for what there is not.

    `rate` holds the mean where the column's kind is score or metric; where it is amount, there is a plain number in
    place of the object.
    """
    data = {
        "schema": "seedbench.table/1",
        "layout": table.layout,
        "title": table.title,
        "columns": [{"kind": c.kind, "key": c.key, "title": c.title} for c in table.columns],
        "blocks": [_json_block(table, block) for block in table.blocks],
        "caption": table.caption,
    }
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _flat(block: Block, row: Row) -> dict[str, Any]:
    cells = {
        "panel": block.panel,
        "panel_hash": block.panel_hash,
        "panel_n": block.n,
        "suite": block.suite,
        "split": block.split,
        "official": str(block.official).lower(),
        **_json_row(row),
    }
    return {key: no_formula(value) for key, value in cells.items()}


def _numbers(rate: Rate | float) -> dict[str, float | None]:
    if isinstance(rate, Rate):
        return {"rate": rate.rate, "n": rate.n, "lo": rate.lo, "hi": rate.hi}
    return {"rate": rate}


def _json_row(row: Row) -> dict[str, Any]:
    return {
        "label": row.label,
        "policy": row.policy,
        "protocol": row.protocol,
        "protocol_hash": row.protocol_hash,
        "repeats": row.repeats,
        "seed": row.seed,
        "episodes": row.episodes,
        "expected": row.expected,
        "infra_errors": row.infra_errors,
        "environment": row.environment,
        "steps": row.steps,
    }


def _json_block(table: Table, block: Block) -> dict[str, Any]:
    keys = [column.key for column in table.columns]
    return {
        "panel": {
            "name": block.panel,
            "hash": block.panel_hash,
            "n": block.n,
            "suite": block.suite,
            "split": block.split,
            "official": block.official,
        },
        "rows": [
            {**_json_row(row), "rates": dict(zip(keys, map(_json_rate, row.rates), strict=True))} for row in block.rows
        ],
        "notes": list(block.notes),
    }


def _json_rate(rate: Cell) -> dict[str, Any] | float | None:
    return rate.to_json() if isinstance(rate, Rate) else rate

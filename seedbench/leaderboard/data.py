"""A leaderboard as CSV and JSON, for programs: rates as fractions, texts inert."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

from seedbench.leaderboard.board import Board, Row, StudyRow
from seedbench.leaderboard.markdown import figures, flat
from seedbench.reported import ReportedRow
from seedbench.tables.text import no_formula, one_line


def to_csv(board: Board) -> str:
    """A line for each measured row, study and reported row, told apart by `kind`; fractions, texts guarded.

    A text that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    rows = [
        *_measured_records(board),
        *map(_study_record, board.studies),
        *(_reported_record(row, more) for row, more in board.reported),
    ]
    out = io.StringIO()
    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: no_formula(value) for key, value in _inert(row).items()})
    return out.getvalue()


def _measured_records(board: Board) -> Iterator[dict[str, Any]]:
    for table in (*board.official, *board.unofficial):
        place = {
            "kind": "measured", "suite": table.panel["suite"], "panel": table.panel["name"],
            "panel_hash": table.panel["hash"], "split": table.panel["split"],
            "official": str(table.panel["official"]).lower(), "protocol": table.protocol["name"],
            "protocol_hash": table.protocol["hash"], "repeats": table.repeats,
        }  # fmt: skip
        yield from ({**place, **_record(row)} for row in table.rows)


def _record(row: Row) -> dict[str, Any]:
    who, rates = row.subject, {"success": "micro", "macro": "macro", "score": "score"}
    found = {name: row.rate(key) for name, key in rates.items()}
    return {
        "rank_best": row.best or None, "rank_worst": row.worst or None, "model": who.model, "method": who.method,
        "training_seed": who.seed, "data_fraction": who.fraction, "n": found["success"].n,
        **{f"{name}{end}": value for name, rate in found.items()
           for end, value in (("", rate.rate), ("_lo", rate.lo), ("_hi", rate.hi))},
        "environment_steps": row.summary["turns"]["total"], "prompt_tokens": row.summary["tokens"]["prompt"],
        "generated_tokens": row.summary["tokens"]["generated"], "verified_turns": row.verified.turns,
        "submitter": row.submission.submitter, "id": row.id,
    }  # fmt: skip


def _study_record(row: StudyRow) -> dict[str, Any]:
    held = row.verified
    return {
        "kind": "study", "suite": held.suite, "protocol": held.protocol, "study": held.study,
        "panels": ", ".join(held.panels.values()), "cells": "; ".join(row.cells), "evaluations": held.evaluations,
        "episodes": held.episodes, "verified_turns": held.turns, "archive": row.path, "sha256": held.archive,
        "page": held.page,
    }  # fmt: skip


def _reported_record(row: ReportedRow, more: Mapping[str, float]) -> dict[str, Any]:
    return {
        "kind": "reported", "suite": row.suite, "split": row.split, "protocol": row.protocol, "model": row.model,
        "method": row.method, "paper": row.paper, "table": row.table, "aggregation": row.aggregation,
        "figures": figures(row.values), "derived": figures(more), "caveats": " ".join(row.caveats),
    }  # fmt: skip


def to_json(board: Board) -> dict[str, Any]:
    """Schema `seedbench.leaderboard/1`: measured rows, studies, reported rows and footnotes, apart from each other."""
    measured = [_inert(record) for record in _measured_records(board)]
    reported = [
        _inert(_reported_record(row, more))
        | {"figures": dict(row.values), "derived": dict(more), "caveats": list(row.caveats)}
        for row, more in board.reported
    ]
    return {
        "schema": "seedbench.leaderboard/1",
        "measured": measured,
        "studies": [
            _inert(_study_record(row))
            | {
                "panels": {one_line(label): one_line(name) for label, name in row.verified.panels.items()},
                "cells": [_inert(cell.model_dump(mode="json")) for cell in row.verified.cells],
                "notes": [flat(note) for note in row.verified.notes],
            }
            for row in board.studies
        ],
        "reported": reported,
        "caveats": {key: flat(text) for key, text in board.caveats.items()},
    }


def _inert(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: one_line(value) if isinstance(value, str) and value else value for key, value in record.items()}

"""The journal of a training run: `metrics.jsonl`, one line an update, the source of truth of everything shown.

    {"update": 12, "optimiser_steps": 24, "metrics": {"rollout/success": 0.25, "policy/entropy": null, ...}}

A number that is not finite is written as null and read as NaN. Views, curves and trackers are fed from the same
records and can be made again from the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from seedbench.errors import SeedBenchError, UsageError
from seedbench.journal import METRICS
from seedbench.runs import append_line
from seedbench_trainers.trackers import Trackers


@dataclass(frozen=True, slots=True)
class Record:
    """What one update left."""

    update: int
    """Number of the update, from 1; 0 holds what was measured before the first."""
    optimiser_steps: int
    """Optimiser steps so far."""
    metrics: dict[str, float]


class Journal:
    """The journal opened for writing. Use as a context manager, or call `close`.

    Args:
        folder: the run folder, made where it is missing.
        after: the update that the run goes on after, its checkpoint's; lines of later updates are dropped, and so is
            a torn last line. -1, for a run that begins, drops all.
        trackers: are told of every record beside the file.

    Raises (when opened): SeedBenchError if the file cannot be written, or a line before the last is damaged.
    """

    def __init__(self, folder: Path, after: int = -1, trackers: Trackers | None = None) -> None:
        self._path = folder / METRICS
        self._trackers = trackers or Trackers()
        kept = [record for record in _read(self._path) if record.update <= after] if self._path.is_file() else []
        self._last = kept[-1].update if kept else -1
        draft = self._path.with_name(f".{METRICS}.tmp")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(b"".join(map(_line, kept)))
            draft.replace(self._path)
            self._file = self._path.open("ab", buffering=0)
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def record(self, update: int, metrics: Mapping[str, float], optimiser_steps: int = 0) -> None:
        """Write one line through to the system, then tell the trackers.

        Values may be anything that `float` takes. Raises SeedBenchError when the disk is full (the file stays whole),
        and ValueError for an update before the last one.
        """
        if update < self._last:
            raise ValueError(f"update {update} after update {self._last}: the journal only goes forward")
        record = Record(update, optimiser_steps, {name: float(value) for name, value in metrics.items()})
        try:
            append_line(self._file, _line(record))
        except OSError as error:
            raise _unwritable(self._path, error) from error
        self._last = update
        self._trackers.log(update, record.metrics)

    def close(self) -> None:
        """Close the file and the trackers."""
        self._file.close()
        self._trackers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_journal(folder: Path) -> list[Record]:
    """The records of a run in the order written; a torn last line is left out.

    Raises:
        UsageError: the folder has no journal.
        SeedBenchError: a line before the last is damaged (its number is named).
    """
    path = folder / METRICS
    if not path.is_file():
        raise UsageError(f"'{folder}' holds no training journal ({METRICS}); give the folder of a training run.")
    return _read(path)


def _read(path: Path) -> list[Record]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise SeedBenchError(f"cannot read '{path}': {error.strerror}.") from error
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(_parsed(json.loads(line)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            # An object ends with its brace, so the part of a line that was being written never parses.
            if number == len(lines):
                break
            raise SeedBenchError(
                f"'{path}' line {number} is damaged ({type(error).__name__}: {error}); delete that line."
            ) from error
    return records


def _parsed(data: dict[str, Any]) -> Record:
    metrics = {str(name): math.nan if value is None else float(value) for name, value in data["metrics"].items()}
    return Record(int(data["update"]), int(data["optimiser_steps"]), metrics)


def _line(record: Record) -> bytes:
    metrics = {name: value if math.isfinite(value) else None for name, value in record.metrics.items()}
    data = {"update": record.update, "optimiser_steps": record.optimiser_steps, "metrics": metrics}
    return (json.dumps(data, allow_nan=False) + "\n").encode()


def _unwritable(path: Path, error: OSError) -> SeedBenchError:
    return SeedBenchError(
        f"cannot write '{path}': {error.strerror}. Free space or choose another folder with --out, and run the same"
        " command again."
    )

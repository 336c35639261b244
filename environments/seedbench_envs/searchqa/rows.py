"""Rows of question files: JSONL, JSON, TSV, CSV and parquet, plain or gzipped, as plain dictionaries."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from seedbench.errors import SeedBenchError

Row = dict[str, Any]
SUFFIXES = (".jsonl", ".json", ".tsv", ".csv", ".parquet")


def is_rows_file(path: Path) -> bool:
    """Whether the name is one of a file that `read_rows` can read."""
    return path.name.lower().removesuffix(".gz").endswith(SUFFIXES)


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file, one by one.

    A .json file holds a list, an object with the list under `Data` or `data` (TriviaQA), or JSON lines.

    Raises:
        SeedBenchError: the file cannot be read or is damaged (with the line), or is parquet and pyarrow is missing.
    """
    kind = Path(path.name.lower().removesuffix(".gz")).suffix
    try:
        if kind == ".parquet":
            yield from _parquet(path)
            return
        with _open(path) as file:
            if kind in (".tsv", ".csv"):
                csv.field_size_limit(10_000_000)
                yield from csv.DictReader(file, delimiter="\t" if kind == ".tsv" else ",")
            elif kind == ".json":
                yield from _json(path, file)
            else:
                yield from _json_lines(path, file)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise SeedBenchError(f"cannot read '{path}': {error}. Fetch the file again.") from error


def _open(path: Path) -> IO[str]:
    if path.name.lower().endswith(".gz"):
        return io.TextIOWrapper(gzip.open(path, "rb"), encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _json_lines(path: Path, file: IO[str]) -> Iterator[Row]:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SeedBenchError(f"'{path}', line {number}: no JSON ({error}). Fetch the file again.") from error
        if not isinstance(row, dict):
            raise SeedBenchError(f"'{path}', line {number}: expected a JSON object, not a {type(row).__name__}.")
        yield row


def _json(path: Path, file: IO[str]) -> Iterator[Row]:
    text = file.read()
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        yield from _json_lines(path, io.StringIO(text))
        return
    rows = next((data[key] for key in ("Data", "data") if key in data), [data]) if isinstance(data, dict) else data
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SeedBenchError(f"'{path}': expected a list of JSON objects, one a question.")
    yield from rows


def _parquet(path: Path) -> Iterator[Row]:
    try:
        # By name, because it has no types.
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise SeedBenchError(
            f"reading '{path}' needs pyarrow: `pip install pyarrow`, or use the JSON lines edition of the set."
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=4096):
                yield from batch.to_pylist()
    except arrow.ArrowException as error:
        raise SeedBenchError(f"'{path}' is no parquet file: {error}. Fetch it again.") from error

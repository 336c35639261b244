"""Rows that papers report: their figures as printed, where they come from and why they mislead.

The files are leaderboards/reported/*.csv, with text columns (`COLUMNS`) first and then the figures in percent, an empty
cell where nothing is reported; caveats.toml holds the footnotes. docs/reported.md describes both.
"""

import csv
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from seedbench.errors import SeedBenchError

FAMILIES = ("Pick", "Look", "Clean", "Heat", "Cool", "Pick2")
QUESTION_SETS = ("NQ", "TriviaQA", "PopQA", "HotpotQA", "2Wiki", "MuSiQue", "Bamboogle")
SPLITS = ("seen", "unseen", "unknown")
AGGREGATIONS = ("micro", "macro", "batch-mean", "unknown")
_REQUIRED = ("paper", "table", "model", "method", "suite", "provenance")
_FIGURE = re.compile(r"[0-9]{1,3}(\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class ReportedRow:
    """One method of one table of one paper, on one suite and split."""

    paper: str
    """Short name, or the thread of a re-run."""
    arxiv: str
    """Identifier such as 2607.14777; empty where there is none."""
    table: str
    model: str
    method: str
    """As printed; a star means skills in the evaluation prompt (or, in SkillRL, a copied row)."""
    suite: str
    split: str
    """One of SPLITS."""
    aggregation: str
    """How the average was formed: one of AGGREGATIONS."""
    protocol: str
    """What is known of it, parts separated by "; "; may be empty."""
    provenance: str
    caveats: tuple[str, ...]
    """Keys of `caveats()`."""
    values: Mapping[str, float]
    """Column -> percent, 0 to 100, in the file's order."""


COLUMNS = tuple(field.name for field in fields(ReportedRow) if field.name != "values")


def reported_rows(folder: Path | None = None) -> tuple[ReportedRow, ...]:
    """The rows of all CSV files of a folder (default: those that ship), by file name and in the files' order.

    Raises SeedBenchError, naming file and line, where a column is missing, a figure is not a number from 0 to 100, a
    caveat or label is unknown or a row stands there twice.
    """
    folder = folder or shipped()
    known = caveats(folder)
    paths = sorted(folder.glob("*.csv"))
    if not paths:
        raise SeedBenchError(
            f"'{folder}' holds no CSV files of reported rows; name a folder such as leaderboards/reported."
        )
    places: dict[tuple[str, ...], str] = {}
    rows = []
    for path in paths:
        for line, row in _read(path):
            place = f"'{path}', line {line}"
            _check(row, known, place)
            key = (row.paper, row.table, row.model, row.method, row.suite, row.split, row.protocol)
            if key in places:
                raise SeedBenchError(
                    f"{place} repeats the row of {places[key]}; remove one or tell them apart by table or protocol."
                )
            places[key] = place
            rows.append(row)
    return tuple(rows)


def caveats(folder: Path | None = None) -> dict[str, str]:
    """The footnotes: key -> sentence. Raises SeedBenchError where caveats.toml is missing or damaged."""
    path = (folder or shipped()) / "caveats.toml"
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SeedBenchError(f"'{path}' cannot be read as TOML ({error}); restore it or mend that place.") from error
    for key, sentence in found.items():
        if not isinstance(sentence, str) or not sentence.strip():
            raise SeedBenchError(f"'{path}': caveat '{key}' must be a sentence in quotes.")
    return found


def derived(row: ReportedRow) -> Mapping[str, float]:
    """Corrected values in percent, unrounded; only those that the row allows.

    `macro`: the mean of the six ALFWorld families, wherever all six are given.
    `bamboogle_per_question` and `search_average` (the mean of the seven sets with it): for Search-QA rows that average
    batches (`aggregation` batch-mean), where the printed Bamboogle has the form of `_per_question`; rows that average
    per question already (macro) keep theirs.
    """
    if row.suite == "alfworld" and all(family in row.values for family in FAMILIES):
        return {"macro": _mean(row.values[family] for family in FAMILIES)}
    if row.suite != "searchqa" or not all(name in row.values for name in QUESTION_SETS):
        return {}
    printed = row.values["Bamboogle"]
    bamboogle = {"batch-mean": _per_question(printed), "macro": printed}.get(row.aggregation)
    if bamboogle is None:
        return {}
    corrected = {**row.values, "Bamboogle": bamboogle}
    return {"bamboogle_per_question": bamboogle, "search_average": _mean(corrected[name] for name in QUESTION_SETS)}


def shipped() -> Path:
    """The folder of the rows that ship: inside an installed package, beside the package in a source tree."""
    package = Path(__file__).parent
    installed = package / "_leaderboards" / "reported"
    return installed if installed.is_dir() else package.parent / "leaderboards" / "reported"


def _per_question(printed: float) -> float | None:
    """Percent per question behind a mean of two batch means; None where the value has not exactly one such reading.

    51,713 questions are 101 batches of 512 and one question more, which is Bamboogle's: k of 124 right in one batch and
    b of 1 in the next print (k/124 + b)/2, where per question it is (k + b)/125. Printed values have one decimal.
    """
    readings = [(k, b) for b in (0, 1) for k in range(125) if abs((k / 124 + b) / 2 * 100 - printed) <= 0.05 + 1e-9]
    return sum(readings[0]) / 125 * 100 if len(readings) == 1 else None


def _mean(values: Iterator[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)


def _read(path: Path) -> Iterator[tuple[int, ReportedRow]]:
    """Line numbers (of a record's last line) and rows of a file."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            header = next(reader, [])
            _check_header(header, path)
            for cells in reader:
                yield reader.line_num, _row(header, cells, f"'{path}', line {reader.line_num}")
    except (OSError, ValueError, csv.Error) as error:
        raise SeedBenchError(
            f"'{path}' cannot be read as CSV in UTF-8 ({error}); restore it or mend that place."
        ) from error


def _check_header(header: list[str], path: Path) -> None:
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise SeedBenchError(
            f"'{path}', line 1 lacks the column '{missing[0]}'; expected {', '.join(COLUMNS)}, then figures."
        )
    if len(set(header)) < len(header) or "" in header:
        raise SeedBenchError(
            f"'{path}', line 1 has a column twice or without a name; give every column a name of its own."
        )


def _row(header: list[str], cells: list[str], place: str) -> ReportedRow:
    if len(cells) != len(header):
        raise SeedBenchError(
            f"{place} has {len(cells)} cells where the header has {len(header)}; mend the commas or quotes."
        )
    texts = dict(zip(header, cells, strict=True))
    keys = tuple(texts.pop("caveats").split())
    named = {name: texts.pop(name).strip() for name in COLUMNS if name != "caveats"}
    values = {column: _figure(text.strip(), column, place) for column, text in texts.items() if text.strip()}
    return ReportedRow(caveats=keys, values=values, **named)


def _figure(text: str, column: str, place: str) -> float:
    if not _FIGURE.fullmatch(text) or float(text) > 100:
        raise SeedBenchError(f"{place}: {column} is {text[:40]!r}, expected a percentage from 0 to 100 such as 75.0.")
    return float(text)


def _check(row: ReportedRow, known: Mapping[str, str], place: str) -> None:
    """Raise SeedBenchError for a label, caveat or figure that a row may not have or lack."""
    for name in _REQUIRED:
        if not getattr(row, name):
            raise SeedBenchError(f"{place}: {name} is empty; every row needs it.")
    for name, allowed in (("split", SPLITS), ("aggregation", AGGREGATIONS)):
        if getattr(row, name) not in allowed:
            raise SeedBenchError(
                f"{place}: {name} is {getattr(row, name)[:40]!r}, expected one of {', '.join(allowed)}."
            )
    if row.arxiv and not re.fullmatch(r"[0-9]{4}\.[0-9]{4,5}", row.arxiv):
        raise SeedBenchError(
            f"{place}: arxiv is {row.arxiv[:40]!r}, expected an identifier such as 2607.14777 or nothing."
        )
    unknown = [key for key in row.caveats if key not in known]
    if unknown:
        raise SeedBenchError(
            f"{place}: no caveat '{unknown[0][:40]}' in caveats.toml; add its sentence there or correct the key."
        )
    if not row.values:
        raise SeedBenchError(f"{place} has no figures; fill in at least one.")

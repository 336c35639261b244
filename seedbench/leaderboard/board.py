"""What a leaderboard shows: a table for each panel and protocol, ranked as far as the runs can be told apart.

Ranks: `seedbench.compare` tests every pair of a table's rows, corrected by Holm over all of them. A row's best rank
counts the rows that are significantly better, its worst rank those that are not significantly worse; where nothing is
proved, rows share a range. Oracles, which know the solutions, are shown without a rank. Reported rows are carried
beside the tables and never ranked.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from seedbench.bundle import Submission, check_files, read_submission
from seedbench.compare import LEVEL, compare
from seedbench.errors import SeedBenchError, UsageError
from seedbench.leaderboard import studies
from seedbench.leaderboard.submissions import FOLDER, Verified, read_record, submissions
from seedbench.reported import ReportedRow, caveats, derived, reported_rows
from seedbench.statistics import Rate
from seedbench.subject import Subject, subject
from seedbench.tables import load_summary
from seedbench.tables.build import rate_of


@dataclass(frozen=True, slots=True)
class Row:
    """One verified submission; texts are as it holds them, not yet safe for any output."""

    id: str
    best: int
    """Ranks are in [1, ranked rows of the table]; 0 for a row that is not ranked."""
    worst: int
    submission: Submission
    subject: Subject
    verified: Verified
    summary: Mapping[str, Any]

    @property
    def reference(self) -> bool:
        """Whether it is an oracle's, which is told the solution: a bound, not a competitor."""
        return bool(self.summary["policy"]["identity"].get("kind") == "oracle")

    @property
    def rank(self) -> str:
        """`1`, or a range such as `2-4`; a dash for a row that is not ranked."""
        if self.reference:
            return "-"
        return str(self.best) if self.best == self.worst else f"{self.best}-{self.worst}"

    @property
    def method(self) -> str:
        """The method, with the training's seed and its share of the data where the run knows them."""
        who = self.subject
        share = f"{100 * who.fraction:g} % of {who.reading or 'the data'}" if who.fraction not in (None, 1.0) else ""
        seed = f"seed {who.seed}" if who.seed is not None else ""
        details = ", ".join(filter(None, (seed, share)))
        return f"{who.method} ({details})" if details else who.method

    def rate(self, name: str) -> Rate:
        """`micro` or `macro` success, or the mean `score`, in [0, 1]."""
        rate = rate_of(name, name, self.summary)
        assert rate is not None  # only a family can be missing
        return rate


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that can be compared: one panel, protocol, number of repeats and environment."""

    panel: Mapping[str, Any]
    """name, hash, n, suite, split, official."""
    protocol: Mapping[str, Any]
    """name and hash."""
    repeats: int
    environment: Mapping[str, Any]
    rows: tuple[Row, ...]
    """By success, the highest first."""


@dataclass(frozen=True, slots=True)
class StudyRow:
    """One verified study; texts are as it holds them, not yet safe for any output."""

    path: str
    """Of its archive, from the leaderboard's folder."""
    verified: studies.VerifiedStudy

    @property
    def cells(self) -> tuple[str, ...]:
        """`seed: 5 seeds (20, 60, 100 % of the data)` for each cell."""
        return tuple(map(_cell, self.verified.cells))


def _cell(cell: studies.CellRecord) -> str:
    shares = (
        "" if cell.shares == (1.0,) else f" ({', '.join(f'{100 * share:g}' for share in cell.shares)} % of the data)"
    )
    return f"{cell.label}: {cell.seeds} seed{'s' if cell.seeds != 1 else ''}{shares}"


@dataclass(frozen=True, slots=True)
class Board:
    """Everything that is shown."""

    official: tuple[Table, ...]
    unofficial: tuple[Table, ...]
    """On generated suites and on panels that are not a benchmark's own."""
    reported: tuple[tuple[ReportedRow, Mapping[str, float]], ...]
    """Rows from papers, each with its derived values."""
    caveats: Mapping[str, str]
    studies: tuple[StudyRow, ...] = ()
    """By suite and name."""


def load(folder: Path) -> Board:
    """Read a leaderboard's folder. Submissions are compared with their hashes and records; `check` replays them.

    Of a study's archive nothing but its hash is read.

    Raises UsageError where it holds neither submissions nor reported rows, SeedBenchError where something there is
    damaged, changed or was not verified.
    """
    shown = folder / "reported"
    if not (folder / FOLDER).is_dir() and not shown.is_dir():
        raise UsageError(f"'{folder}' is no leaderboard (no {FOLDER}/, no reported/): name one with --folder.")
    groups: dict[str, list[tuple[Path, Row]]] = defaultdict(list)
    for place in submissions(folder):
        row = _row(place)
        groups[_comparable(row.summary)].append((place, row))
    tables = [_table(members) for _, members in sorted(groups.items())]
    reported = reported_rows(shown) if shown.is_dir() else ()
    return Board(
        official=tuple(table for table in tables if table.panel["official"]),
        unofficial=tuple(table for table in tables if not table.panel["official"]),
        reported=tuple((row, derived(row)) for row in reported),
        caveats=caveats(shown) if shown.is_dir() else {},
        studies=tuple(
            StudyRow(place.relative_to(folder).as_posix(), studies.read_record(place))
            for place in studies.studies(folder)
        ),
    )


def _row(place: Path) -> Row:
    if problems := check_files(place):
        raise SeedBenchError(f"'{place}' was changed: {problems[0]} `seedbench leaderboard check` says more.")
    return Row(place.name, 0, 0, read_submission(place), subject(place), read_record(place), load_summary(place))


def _comparable(summary: Mapping[str, Any]) -> str:
    """The key of the table that a summary belongs to, in the order of the tables."""
    panel, protocol = summary["panel"], summary["protocol"]
    names = (panel["suite"], panel["name"], panel["hash"], protocol["name"], protocol["hash"], summary["repeats"])
    return json.dumps([*names, summary["environment"]], sort_keys=True)


def _table(members: Sequence[tuple[Path, Row]]) -> Table:
    ordered = sorted(members, key=lambda member: (-(member[1].rate("micro").rate or 0.0), member[1].id))
    ranked = [place for place, row in ordered if not row.reference]
    better = _separated(ranked)
    wins, losses = Counter(first for first, _ in better), Counter(second for _, second in better)
    rows = [
        row if row.reference else replace(row, best=1 + losses[place], worst=len(ranked) - wins[place])
        for place, row in ordered
    ]
    first = rows[0].summary
    return Table(first["panel"], first["protocol"], first["repeats"], first["environment"], tuple(rows))


def _separated(places: Sequence[Path]) -> list[tuple[Path, Path]]:
    """The pairs (better, worse) whose difference in success is significant."""
    if len(places) < 2:
        return []
    report = compare([[place] for place in places], labels=[place.name for place in places])
    pairs = zip(combinations(places, 2), (pair.overall for pair in report.comparisons), strict=True)
    return [(a, b) if effect.difference < 0 else (b, a) for (a, b), effect in pairs if effect.p_holm < LEVEL]

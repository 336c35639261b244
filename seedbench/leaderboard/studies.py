"""Studies in a leaderboard: archives of whole studies, each of whose evaluations was verified."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

import seedbench
from seedbench.errors import SeedBenchError, UsageError
from seedbench.leaderboard.submissions import FOLDER, Told, inside, no_row, parsed, refuse, safe, settle
from seedbench.store import file_sha256
from seedbench.study.archive import SUFFIX, opened_study, study_of
from seedbench.study.evidence import is_evaluation, verify_study
from seedbench.study.run import asked_panel
from seedbench.study.spec import Study
from seedbench.verify import Report

_Count = Annotated[int, Field(ge=0)]
_PAGE = r"^(https?://|(\.\./)*)?[A-Za-z0-9_][A-Za-z0-9._~/?#@!&+,;=%-]*$|^$"
"""An address, or a path from the leaderboard's folder, of characters that Markdown takes as they are."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class CellRecord(_Part):
    """A cell of the matrix."""

    label: str
    method: str
    start: str
    seeds: _Count
    """How many."""
    shares: tuple[float, ...]
    """Of the data, in (0, 1]."""


class VerifiedStudy(_Part):
    """The record beside an archive: what it is of, and what was replayed when it was added."""

    schema_: Literal["seedbench.verified-study/1"] = Field(alias="schema")
    archive: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of the archive."""
    bytes: _Count
    seedbench: str
    """The version that verified it."""
    study: str
    suite: str
    protocol: str
    panels: dict[str, str]
    """Name in the study's report -> panel."""
    cells: tuple[CellRecord, ...]
    evaluations: _Count
    episodes: _Count
    turns: _Count
    notes: tuple[str, ...]
    """What could not be checked, each said once."""
    page: Annotated[str, StringConstraints(max_length=500, pattern=_PAGE)] = ""
    """Where the study is reported: an address, or a path from the leaderboard's folder."""


def add_study(source: Path, folder: Path, *, page: str = "", told: Told = lambda line: None) -> Path:
    """Verify every evaluation of an archived study and copy the archive into a leaderboard's folder; where to.

    Raises:
        UsageError: `source` is no such archive, `page` neither an address nor a path, or an evaluation no row of a
            leaderboard: made on a part of a panel, or with attempts that infrastructure errors ended.
        SeedBenchError: something is not what it claims to be (the first difference is named), or a study of that name
            or with that content is here.
    """
    if not re.fullmatch(_PAGE, page):
        raise UsageError(
            f"the page '{page}' is neither http(s)://... nor a path such as ../docs/studies/NAME.md; spaces, brackets"
            " and ports cannot be in it."
        )
    with TemporaryDirectory(prefix="seedbench-") as draft:
        archive = Path(draft) / source.name
        _copy(source, archive)  # from here on nobody else can change it
        record = _verified(archive, source, page, told)
        place = folder / FOLDER / safe(record.suite) / f"{safe(record.study)}{SUFFIX}"
        if twin := next((other for other in studies(folder) if file_sha256(other) == record.archive), None):
            raise SeedBenchError(f"'{source}' is here already, as '{twin}'.")
        if place.exists() or record_of(place).exists():
            raise SeedBenchError(f"'{place}' is here: remove it with its record first, or give the study another name.")
        settle(place, record_of(place), record, lambda made: shutil.copyfile(archive, made))
    return place


def _copy(source: Path, target: Path) -> None:
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        raise UsageError(f"cannot read '{source}': {error.strerror}.") from error


def _verified(archive: Path, source: Path, page: str, told: Told) -> VerifiedStudy:
    """The record of an archive, all of which is verified; refused at the first thing that is wrong."""
    reports: list[Report] = []
    with opened_study(archive) as folder:
        for report in verify_study(folder, told=told):
            name = report.folder.relative_to(folder).as_posix()
            told(name)
            refuse([f"{name}: {text}" for text in report.first], source, report.findings)
            if reason := no_row(report.folder):
                raise UsageError(f"'{source}' {reason} ({name}).")
            reports.append(report)
        return _record(study_of(folder), archive, reports, page)


def _record(study: Study, archive: Path, reports: Sequence[Report], page: str) -> VerifiedStudy:
    return VerifiedStudy(
        schema="seedbench.verified-study/1", archive=file_sha256(archive), bytes=archive.stat().st_size,
        seedbench=seedbench.__version__, study=study.study.name, suite=study.study.suite,
        protocol=study.asked.name,
        panels={label: asked_panel(study, label).name for label in study.evaluation.panels},
        cells=tuple(
            CellRecord(
                label=cell.label, method=cell.method, start=cell.start, seeds=len(cell.seeds),
                shares=tuple(sorted(cell.fractions)),
            )
            for cell in study.resolved()
        ),
        evaluations=sum(map(is_evaluation, reports)), episodes=sum(report.episodes for report in reports),
        turns=sum(report.turns for report in reports),
        notes=tuple(dict.fromkeys(note for report in reports for note in report.notes)), page=page,
    )  # fmt: skip


def record_of(place: Path) -> Path:
    """Where the record of an archive's verification lies."""
    return place.with_name(f"{place.name.removesuffix(SUFFIX)}.json")


def read_record(place: Path) -> VerifiedStudy:
    """The record of an archive. Raises SeedBenchError where there is none, or one of another archive."""
    path = record_of(place)
    record = parsed(path, place, VerifiedStudy)
    if record.archive != file_sha256(place):
        raise SeedBenchError(f"'{path}' is of another archive than '{place.name}': add it again.")
    return record


def studies(folder: Path) -> Iterator[Path]:
    """The archives of all studies, by suite and name; links are none."""
    for suite in inside(folder / FOLDER):
        for path in sorted(suite.glob(f"*{SUFFIX}")):
            if path.is_file() and not path.is_symlink():
                yield path


def wrong(place: Path, name: str) -> Iterator[str]:
    """Verify a study again: a sentence for each thing that is wrong."""
    try:
        held = read_record(place)
        found = _verified(place, place, held.page, lambda line: None)
    except SeedBenchError as error:
        yield f"{name}: {error}"
        return
    if found != held.model_copy(update={"seedbench": found.seedbench}):
        yield f"{name}: {record_of(place).name} is not what its verification says."
    if (right := f"{safe(found.suite)}/{safe(found.study)}{SUFFIX}") != f"{place.parent.name}/{place.name}":
        yield f"{name}: its place is {right}."

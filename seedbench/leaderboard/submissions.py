"""Submissions: only verified bundles come in, each content once, and every one can be verified again."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

import seedbench
from seedbench.bundle import LIMITS, check_files, is_bundle, opened, pack
from seedbench.errors import SeedBenchError, UsageError
from seedbench.runs import read_episodes, read_manifest, write_json
from seedbench.store import file_sha256
from seedbench.subject import SUBMISSION, subject
from seedbench.tables import load_summary
from seedbench.verify import Report, verify

FOLDER = "submissions"
Told = Callable[[str], None]
Record = TypeVar("Record", bound=BaseModel)

_LARGEST = 1 << 20
"""Bytes of a record of verification."""


class Verified(BaseModel):
    """The record beside a submission: what was replayed when it was added."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    schema_: Literal["seedbench.verified/1"] = Field(alias="schema")
    submission: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of submission.json, which holds those of the other files."""
    seedbench: str
    """The version that verified it."""
    episodes: Annotated[int, Field(ge=0)]
    turns: Annotated[int, Field(ge=0)]
    notes: tuple[str, ...]
    """What could not be checked."""


def add_run(source: Path, folder: Path, *, told: Told = lambda line: None) -> Path:
    """Verify a run, a bundle or an archive of one, and copy it into a leaderboard's folder; returns where to.

    Raises:
        UsageError: `source` is none of them, or no row of a leaderboard: made on a part of a panel, or with attempts
            that infrastructure errors ended.
        SeedBenchError: it is not what it claims to be (the first difference is named), or is here already.
    """
    with opened(source) as run, TemporaryDirectory(prefix="seedbench-") as draft:
        bundle = Path(draft) / "bundle"
        if is_bundle(run):  # from here on nobody else can change it
            refuse(check_files(run), source)
            _copy(run, bundle)
        else:
            pack(run, bundle)
        report = verify(bundle, told=told)
        refuse(report.first, source, report.findings)
        if reason := no_row(bundle):
            raise UsageError(f"'{source}' {reason}.")
        place = folder / FOLDER / safe(read_manifest(bundle)["panel"]["suite"]) / identity(bundle)
        if twin := _twin(place):
            raise SeedBenchError(f"'{source}' is here already: '{twin}' has the same settings and responses.")
        _place(bundle, place, report)
    return place


def refuse(found: Sequence[str], source: Path, count: int = 0) -> None:
    """Raise SeedBenchError where anything was found, `count` things if more than are given."""
    if found:
        more = f" (and {rest:,} more)" if (rest := (count or len(found)) - 1) else ""
        raise SeedBenchError(
            f"'{source}' is not what it claims to be: {found[0]}{more} `seedbench verify` shows the rest."
        )


def no_row(run: Path) -> str:
    """Why a verified run is no row of a leaderboard; an empty text where it is one."""
    summary = load_summary(run)
    if "[" in (panel := summary["panel"]["name"]):
        return f"was made on a part of a panel ({panel}): a leaderboard compares whole ones"
    if errors := summary["outcomes"]["infra_error"]:
        return (  # rates leave them out, and nothing proves their cause
            f"has {errors} attempts that infrastructure errors ended: the same `seedbench eval` command tries them"
            " again"
        )
    return ""


def _copy(bundle: Path, target: Path) -> None:
    try:
        target.mkdir()
        for name in LIMITS:
            shutil.copyfile(bundle / name, target / name, follow_symlinks=False)
    except OSError as error:
        raise SeedBenchError(f"cannot copy '{bundle}': {error.strerror or error}.") from error


def _place(bundle: Path, place: Path, report: Report) -> None:
    """Copy a verified bundle and its record into their place."""
    record = Verified(
        schema="seedbench.verified/1", submission=file_sha256(bundle / SUBMISSION), seedbench=seedbench.__version__,
        episodes=report.episodes, turns=report.turns, notes=report.notes,
    )  # fmt: skip
    settle(place, record_of(place), record, lambda made: _copy(bundle, made))


def settle(place: Path, beside: Path, record: BaseModel, fill: Callable[[Path], object]) -> None:
    """Put what `fill` makes of the path it is given into its place, and its record beside it, or neither.

    Raises SeedBenchError where the disk refuses.
    """
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=place.parent, prefix=".") as draft:
            made, written = Path(draft) / place.name, Path(draft) / beside.name
            fill(made)
            write_json(written, record.model_dump(by_alias=True, mode="json"))
            written.rename(beside)
            try:
                made.rename(place)
            except OSError:
                beside.unlink()
                raise
    except OSError as error:
        raise SeedBenchError(f"cannot write '{place}': {error.strerror}.") from error


def identity(bundle: Path) -> str:
    """A submission's name: method, model, panel, and twelve digits of the hash of its content.

    The content is the run's settings and the responses of every attempt: neither times nor who submits it, nor the
    order in which episodes ended.
    """
    settings = read_manifest(bundle)["settings"]
    responses = {episode.key: [turn.response for turn in episode.turns] for episode in read_episodes(bundle)}
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for (task, repeat), texts in sorted(responses.items()):
        digest.update(json.dumps([task, repeat, texts]).encode())
    who = subject(bundle)
    parts = [safe(part) for part in (who.method, who.model, settings["panel"]["name"]) if part]
    return "-".join([*parts, digest.hexdigest()[:12]])


def safe(text: str) -> str:
    """A part of a file's name that every system takes: at most 40 of a-z, 0-9, `_`, `.` and `-`, no point in front."""
    return re.sub(r"[^a-z0-9_.]+", "-", text.lower()).strip("-.")[:40] or "unnamed"


def _twin(place: Path) -> Path | None:
    """The submission of the suite with the same content, under whatever name."""
    return next((other for other in place.parent.glob(f"*-{place.name[-12:]}") if other.is_dir()), None)


def record_of(place: Path) -> Path:
    """Where the record of a submission's verification lies."""
    return place.with_name(f"{place.name}.json")


def read_record(place: Path) -> Verified:
    """The record of a submission. Raises SeedBenchError where there is none, or one of another submission."""
    path = record_of(place)
    record = parsed(path, place, Verified)
    if record.submission != file_sha256(place / SUBMISSION):
        raise SeedBenchError(f"'{path}' is of another submission than '{place.name}': add it again.")
    return record


def parsed(path: Path, place: Path, model: type[Record]) -> Record:
    """The record in a file, which says that what lies in `place` was verified. Raises SeedBenchError without one."""
    try:
        if path.is_symlink() or path.stat().st_size > _LARGEST:
            raise SeedBenchError(f"'{path}' is no record of a verification.")
        return model.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise SeedBenchError(
            f"'{place.name}' was not verified (no {path.name}): add it with `seedbench leaderboard add`."
        ) from None
    except ValidationError as error:
        raise SeedBenchError(f"'{path}' is damaged: {error.errors()[0]['msg']}.") from error


def submissions(folder: Path) -> Iterator[Path]:
    """The folders of all submissions, by suite and name; links are none."""
    for suite in inside(folder / FOLDER):
        yield from inside(suite)


def inside(folder: Path) -> list[Path]:
    """The folders in a folder, sorted; links are none."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in paths if path.is_dir() and not path.is_symlink()]


def wrong(place: Path, name: str) -> Iterator[str]:
    """Verify a submission again: a sentence for each thing that is wrong."""
    report = verify(place)
    if report.findings:
        yield from (f"{name}: {text}" for text in report.first)
        return
    record = read_record(place)
    if (record.episodes, record.turns) != (report.episodes, report.turns):
        yield f"{name}: {record_of(place).name} is not what its verification says."
    if reason := no_row(place):
        yield f"{name}: it {reason}."
    if (right := identity(place)) != place.name or safe(read_manifest(place)["panel"]["suite"]) != place.parent.name:
        yield f"{name}: its place is {safe(read_manifest(place)['panel']['suite'])}/{right}."

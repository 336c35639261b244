"""Bundles: runs to hand on. A folder of four files, or an archive (.tar.gz) of them.

    manifest.json  summary.json    as the run has them
    episodes.jsonl.xz              its log, compressed
    submission.json                who was measured, who says so, and the size and hash of each of the others

The same run packs to the same bytes. Whatever a bundle holds may come from anybody: only these names are taken from an
archive, only regular files, and nothing beyond the sizes below.
"""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from seedbench.archives import Layout, unpacked, write_tar
from seedbench.errors import SeedBenchError, UsageError
from seedbench.logs import LONGEST_LOG, Seal, held, lines, seal
from seedbench.runs import LOG, MANIFEST, SUMMARY, read_manifest, write_json
from seedbench.store import file_sha256
from seedbench.subject import SUBMISSION, subject

SCHEMA = "seedbench.submission/1"
"""Its JSON Schema: seedbench/schemas/submission.schema.json."""

SUFFIX = ".tar.gz"
PACKED_LOG = f"{LOG}.xz"
LIMITS = {MANIFEST: 16 << 20, PACKED_LOG: 1 << 30, SUBMISSION: 1 << 20, SUMMARY: 16 << 20}
"""The files of a bundle, and how many bytes each may have."""

_LAYOUT = Layout("a bundle", ", ".join(sorted(LIMITS)), LIMITS.get, len(LIMITS), sum(LIMITS.values()))

_Line = StringConstraints(max_length=200, pattern=r"^[^\n\r]*$")
_Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class File(_Part):
    """Size and hash of a file."""

    bytes: int = Field(ge=0, le=LONGEST_LOG)
    sha256: _Sha256


class Submission(_Part):
    """What submission.json says."""

    schema_: Literal["seedbench.submission/1"] = Field(alias="schema")
    model: Annotated[str, _Line]
    """The base model; empty for policies without one."""
    method: Annotated[str, _Line, Field(min_length=1)]
    submitter: Annotated[str, _Line]
    note: Annotated[str, StringConstraints(max_length=2000)]
    url: Annotated[str, StringConstraints(max_length=500, pattern=r"^(https?://[!-~]+)?$")]
    files: Annotated[
        dict[Literal["episodes.jsonl.xz", "manifest.json", "summary.json"], File], Field(min_length=3, max_length=3)
    ]
    log: File
    """The log as it is when unpacked."""


def is_bundle(folder: Path) -> bool:
    """Whether a folder is a bundle or part of one, rather than the folder of a run."""
    return any((folder / name).is_file() for name in (SUBMISSION, PACKED_LOG))


def read_submission(folder: Path) -> Submission:
    """The submission of a bundle. Raises SeedBenchError where it is missing or not of the schema."""
    path = folder / SUBMISSION
    try:
        if not (_is_regular(path) and path.stat().st_size <= LIMITS[SUBMISSION]):
            raise SeedBenchError(
                f"'{folder}' is no bundle: expected a file {SUBMISSION} of at most {LIMITS[SUBMISSION] >> 20} MiB, as"
                " `seedbench leaderboard pack` writes it."
            )
        return Submission.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the top"
        raise SeedBenchError(f"'{path}' is not of schema {SCHEMA} at {place}: {first['msg']}.") from error


def pack(
    run: Path,
    target: Path,
    *,
    model: str | None = None,
    method: str | None = None,
    submitter: str = "",
    note: str = "",
    url: str = "",
) -> Path:
    """Make a bundle of a run: an archive where `target` ends in .tar.gz, a folder otherwise.

    Args:
        run: the folder of an evaluation; prompts that it kept are packed too.
        target: what does not exist yet.
        model, method: who was measured; default: what the run says (`seedbench.subject`).
        submitter, note, url: shown beside the row; may be empty.

    Raises:
        UsageError: `run` is no run, `target` exists, or a text is too long or has a line break where none may be.
        SeedBenchError: the run's files are missing or too large, or `target` cannot be written.
    """
    if target.exists():
        raise UsageError(f"'{target}' exists: give the bundle another name, or remove that one first.")
    read_manifest(run)
    if is_bundle(run):
        raise UsageError(f"'{run}' is a bundle already: copy it.")
    who = subject(run)
    claimed = {
        "model": who.model if model is None else model, "method": method or who.method,
        "submitter": submitter, "note": note, "url": url,
    }  # fmt: skip
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as draft:
            made = Path(draft) / "bundle"
            made.mkdir()
            _fill(made, run, claimed)
            if target.name.endswith(SUFFIX):
                _archive(made, made := made.with_suffix(SUFFIX))
            made.rename(target)
    except OSError as error:
        raise SeedBenchError(f"cannot pack '{run}' into '{target}': {error.strerror}.") from error
    return target


def _fill(folder: Path, run: Path, claimed: dict[str, str]) -> None:
    for name, found in ((LOG, held(run / LOG)), (SUMMARY, run / SUMMARY)):
        if not (found and found.is_file()):
            raise SeedBenchError(f"'{run}' has no {name}: the same `seedbench eval` command makes it again.")
    write_json(folder / MANIFEST, published(read_manifest(run)))
    shutil.copyfile(run / SUMMARY, folder / SUMMARY)
    with lzma.open(folder / PACKED_LOG, "wb", preset=9) as log:
        log.writelines(lines(run / LOG))
    files = {name: _file(folder / name) for name in sorted({*LIMITS} - {SUBMISSION})}
    try:
        data = {"schema": SCHEMA, **claimed, "files": files, "log": seal(folder / LOG)}
        Submission.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise UsageError(f"a submission's {'.'.join(map(str, first['loc']))} cannot be so: {first['msg']}.") from error
    write_json(folder / SUBMISSION, data)
    if large := next((name for name, most in LIMITS.items() if (folder / name).stat().st_size > most), None):
        raise SeedBenchError(f"'{run}' cannot be a bundle: {large} has more than {LIMITS[large] >> 20} MiB.")


def published(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest with the folders of this machine cut from its command lines."""
    sessions = [dict(session) for session in manifest["sessions"]]
    for session in sessions:
        if isinstance(command := session.get("command"), list):
            session["command"] = [without_folders(str(word)) for word in command]
    return {**manifest, "sessions": sessions}


def without_folders(text: str) -> str:
    """The text with folders cut from absolute paths: `/home/me/runs/x` becomes `x`."""
    return re.sub(r'(?<![\w./:])[/~][^\s,="]*/', "", text)


def _file(path: Path) -> Seal:
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


def _archive(folder: Path, target: Path) -> None:
    with target.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as compressed:
        write_tar(compressed, ((name, folder / name) for name in sorted(LIMITS)))


def check_files(folder: Path) -> list[str]:
    """Compare the files of a bundle's folder with its submission: a sentence for each that differs, names sorted.

    Nothing is read of a file whose kind or size is wrong, and of the log no more than it is said to unpack to.
    """
    try:
        claimed = read_submission(folder)
    except SeedBenchError as error:
        return [str(error)]
    held = {path.name for path in folder.iterdir()}
    problems = [f"{name!r} is no file of a bundle." for name in sorted(held - {*LIMITS})]
    for name, file in sorted(claimed.files.items()):
        path = folder / name
        if not _is_regular(path):
            problems.append(f"{name} is {'no regular file' if name in held else 'missing'}.")
        elif (size := path.stat().st_size) != file.bytes or size > LIMITS[name]:
            problems.append(f"{name} has {size:,} bytes; {SUBMISSION} says {file.bytes:,}, at most {LIMITS[name]:,}.")
        elif file_sha256(path) != file.sha256:
            problems.append(f"{name} does not have the SHA-256 that {SUBMISSION} says.")
    return problems or _log_problems(folder, claimed.log)


def _log_problems(folder: Path, claimed: File) -> list[str]:
    try:
        same = seal(folder / LOG, claimed.bytes) == claimed.model_dump()
    except SeedBenchError as error:
        return [str(error)]
    return [] if same else [f"{PACKED_LOG} does not unpack to the log that {SUBMISSION} says."]


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)  # no link, wherever it leads
    except FileNotFoundError:
        return False


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """The folder of a run: `path` itself where it is a folder, otherwise an archive unpacked for as long as it is open.

    Files are not compared with their hashes (`check_files` does). Raises UsageError where there is neither, and
    SeedBenchError where the archive is damaged, holds anything but a bundle's files, or too much.
    """
    if path.is_dir():
        yield path
        return
    if not (path.is_file() and path.name.endswith(SUFFIX)):
        raise UsageError(f"'{path}' is neither a folder nor an archive ({SUFFIX}) of a bundle.")
    with unpacked(path, gzip.GzipFile, _LAYOUT) as folder:
        if missing := [name for name in LIMITS if not (folder / name).exists()]:
            raise SeedBenchError(f"'{path}' is no bundle: it has no {missing[0]}.")
        yield folder

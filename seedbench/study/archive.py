"""Published studies as one archive (.tar.xz), and as folders: what they may hold, and how they are opened.

    NAME/study.toml  study.json  usage.jsonl                NAME: the study's
    NAME/starts/START/{training.json, metrics.jsonl}
    NAME/runs/RUN/{training.json, metrics.jsonl, traces/update-000010.jsonl.gz}
    NAME/runs/RUN/evaluation/PANEL/{manifest.json, summary.json, episodes.jsonl}

The archive is solid: runs of a study share most of their prompts and observations, and a dictionary that spans many
logs finds them again. Whatever an archive holds may come from anybody (seedbench/archives.py).
"""

from __future__ import annotations

import gzip
import json
import lzma
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seedbench.archives import Layout, unpacked, write_tar
from seedbench.errors import SeedBenchError, UsageError
from seedbench.journal import METRICS
from seedbench.logs import open_xz
from seedbench.runs import LOG, MANIFEST, SUMMARY
from seedbench.study.plan import EVALUATION, RECORD
from seedbench.study.run import USAGE
from seedbench.study.spec import Study, load_study
from seedbench.subject import TRAINING
from seedbench.traces import FOLDER as TRACES

SUFFIX = ".tar.xz"
FILE = "study.toml"
MOST_RUNS = 10_000
"""Of one study; whoever asks for more wants to keep a reader busy."""

_NAME = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}"
_LIMITS = {
    rf"({FILE}|{RECORD}|{USAGE})": 16 << 20,
    rf"(starts|runs)/{_NAME}/{TRAINING}": 1 << 20,
    rf"(starts|runs)/{_NAME}/{METRICS}": 256 << 20,
    rf"runs/{_NAME}/{TRACES}/update-[0-9]{{6}}\.jsonl\.gz": 16 << 20,
    rf"runs/{_NAME}/{EVALUATION}/{_NAME}/({MANIFEST}|{SUMMARY})": 16 << 20,
    rf"runs/{_NAME}/{EVALUATION}/{_NAME}/{re.escape(LOG)}": 1 << 30,
}
"""Pattern of a file's path inside the study -> how many bytes it may have."""
_MOST_FILES, _MOST_BYTES = 50_000, 4 << 30
_MOST_TRACES = 256 << 20
"""Bytes that a file of traces may unpack to; all of them together no more than `_MOST_BYTES`."""
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6 | lzma.PRESET_EXTREME, "dict_size": 64 << 20}]
"""Of 28 real logs 1.29 MB were left, 1.41 without the slower search, 1.44 with the preset's own dictionary of 8 MiB,
3.85 in files of their own. Reading takes 65 MiB of memory, writing ten times that."""


def write_archive(folder: Path, target: Path) -> None:
    """Write a packed study as an archive with the folder's name on top. The same files make the same bytes.

    Raises OSError.
    """
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=_place)
    with lzma.open(target, "wb", format=lzma.FORMAT_XZ, filters=_FILTERS) as out:
        write_tar(out, ((path.relative_to(folder.parent).as_posix(), path) for path in files))


def _place(path: Path) -> tuple[bool, str, str, str]:
    """The order of files: like beside like, and of the logs, which come last, those of one panel."""
    return path.name == LOG, path.name, path.parent.name, path.as_posix()


@contextmanager
def opened_study(path: Path) -> Iterator[Path]:
    """The folder of a study: `path` itself where it is one, otherwise an archive unpacked for as long as it is open.

    Raises UsageError where there is neither, and SeedBenchError where the archive is damaged, holds anything but a
    study's files, or too much.
    """
    if path.is_dir():
        yield path
        return
    if not (path.is_file() and path.name.endswith(SUFFIX)):
        raise UsageError(f"'{path}' is neither a folder nor an archive ({SUFFIX}) of a study.")
    with unpacked(path, open_xz, _layout()) as folder:
        tops = list(folder.iterdir())
        if not (tops and (tops[0] / FILE).is_file()):
            raise SeedBenchError(f"'{path}' is no archive of a study: it has no {FILE}.")
        left = _MOST_BYTES
        for traces in sorted(folder.glob(f"*/runs/*/{TRACES}/*")):
            left -= _unpacked_size(traces, path)
            if left < 0:
                raise SeedBenchError(f"'{path}' is refused: its traces unpack to more than {_MOST_BYTES:,} bytes.")
        yield tops[0]


def _layout() -> Layout:
    """What an archive may hold; the first member says what the folder on top is called."""
    top = ""

    def limit(name: str) -> int | None:
        nonlocal top
        first, _, inside = name.partition("/")
        top = top or first
        if first != top or not re.fullmatch(_NAME, first):
            return None
        return next((most for pattern, most in _LIMITS.items() if re.fullmatch(pattern, inside)), None)

    return Layout("a study", "the files that `seedbench study --pack` keeps", limit, _MOST_FILES, _MOST_BYTES)


def _unpacked_size(traces: Path, archive: Path) -> int:
    size = 0
    try:
        with gzip.open(traces) as content:
            while size <= _MOST_TRACES and (chunk := content.read(1 << 20)):
                size += len(chunk)
    except (OSError, EOFError, zlib.error) as error:
        raise SeedBenchError(f"'{archive}' is damaged: {traces.name} cannot be unpacked ({error}).") from error
    if size > _MOST_TRACES:
        raise SeedBenchError(f"'{archive}' is refused: {traces.name} unpacks to more than {_MOST_TRACES >> 20} MiB.")
    return size


def is_study(folder: Path) -> bool:
    """Whether a folder is a study's own, or what `seedbench study --pack` made of one."""
    return (folder / FILE).is_file() or ((folder / "runs").is_dir() and (folder / RECORD).is_file())


def study_of(folder: Path) -> Study:
    """The study that a folder is of: by the TOML file of a published one, by study.json in the study's own folder.

    Raises UsageError where it cannot be right, SeedBenchError where it is damaged or of too many runs.
    """
    study = load_study(folder / FILE) if (folder / FILE).is_file() else _recorded(folder / RECORD)
    count = sum(len(cell.seeds) * len(cell.fractions) for cell in study.resolved()) + len(study.starts)
    if count > MOST_RUNS:
        raise SeedBenchError(f"the study '{study.study.name}' asks for {count:,} runs; at most {MOST_RUNS:,} are read.")
    return study


def _recorded(path: Path) -> Study:
    try:
        return Study.model_validate_json(json.dumps(json.loads(path.read_bytes())["study"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:  # a ValidationError is a ValueError
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise SeedBenchError(f"'{path}' holds no study ({reason[:200]}).") from error

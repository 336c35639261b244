"""Where game files come from: an unpacked folder, the official zip, a tar archive, or a folder of those."""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from seedbench.errors import SeedBenchError, UsageError

GAME_FILE = "game.tw-pddl"
SPLITS = ("train", "valid_seen", "valid_unseen", "valid_train")
FAMILIES = {
    "pick_and_place_simple": "pick",
    "look_at_obj_in_light": "look",
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
    "pick_two_obj_and_place": "pick2",
}
"""Task type (the folder name's first part) -> family."""

_ARCHIVES = (".zip", ".tar.xz", ".tar.gz", ".tar", ".tgz", ".txz")


def family_of(task_id: str) -> str:
    """Family of a task id `<split>/<task_type>-.../<trial>`; raises UsageError for another shape."""
    parts = task_id.split("/")
    task_type = parts[1].partition("-")[0] if len(parts) == 3 else ""
    if parts[0] not in SPLITS or task_type not in FAMILIES:
        raise UsageError(
            f"'{task_id}' is not an ALFWorld task id; expected <split>/<task_type>-.../<trial>,"
            f" split one of {', '.join(SPLITS)}."
        )
    return FAMILIES[task_type]


def task_id_of(path: str) -> str | None:
    """Task id of a game file's path, whatever folders stand before the split; None for other files."""
    parts = PurePosixPath(path).parts
    if len(parts) < 4 or parts[-1] != GAME_FILE or parts[-4] not in SPLITS:
        return None
    if parts[-3].partition("-")[0] not in FAMILIES:
        return None
    return "/".join(parts[-4:-1])


def is_archive(path: Path) -> bool:
    """Whether the file's name says that it is an archive this module reads."""
    return path.name.endswith(_ARCHIVES)


# What archives that are damaged, encrypted or of an unknown compression (a RuntimeError) make the library raise.
_DAMAGE = (
    EOFError, gzip.BadGzipFile, lzma.LZMAError, RuntimeError, tarfile.TarError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def read_games(source: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (task id, file content) of every game in `source`, archives inside a folder included.

    Games come in sorted order from folders and zips, in stored order from tar archives. Names inside archives
    are only compared, never used as paths, so that hostile names are harmless.

    Raises:
        SeedBenchError: the source does not exist, is no archive, or ends early.
    """
    if not source.exists():
        raise SeedBenchError(f"'{source}' does not exist; give a folder, zip or tar archive of ALFWorld games.")
    if source.is_dir():
        for archive in sorted(path for path in source.iterdir() if path.is_file() and is_archive(path)):
            yield from read_games(archive)
        for path in sorted(source.rglob(GAME_FILE)):
            if task := task_id_of(path.as_posix()):
                yield task, path.read_bytes()
        return
    try:
        if zipfile.is_zipfile(source):
            yield from _read_zip(source)
        elif tarfile.is_tarfile(source):
            yield from _read_tar(source)
        else:
            raise SeedBenchError(f"'{source}' is neither a folder nor a zip or tar archive of ALFWorld games.")
    except _DAMAGE as error:
        raise SeedBenchError(
            f"'{source}' is damaged or incomplete ({error}); download it again. Nothing was imported from it."
        ) from error


def _read_zip(source: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(source) as archive:
        for name in sorted(archive.namelist()):
            if task := task_id_of(name):
                yield task, archive.read(name)


def _read_tar(source: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(source) as archive:
        for member in archive:
            task = task_id_of(member.name) if member.isfile() else None
            if task and (content := archive.extractfile(member)):
                yield task, content.read()
        # A tar ends before its compressed stream does, whose checksum comes last: read on to have it compared.
        while archive.fileobj and archive.fileobj.read(1 << 20):
            pass

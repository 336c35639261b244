"""Tar archives that may come from anybody: what is written tells no times or owners, what is read is bounded.

Taken are only regular files of the names that a layout knows, each once (names that differ in case alone are one, since
some systems take them so), none larger than it may be, and of what is compressed no more than they need.
"""

from __future__ import annotations

import gzip
import io
import lzma
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from seedbench.errors import SeedBenchError

_HEADERS, _HEADER = 1 << 20, 4 << 10
"""Bytes of an archive beside the content of its members, in all and for each: names, attributes, padding. tarfile keeps
them in memory to the end."""

_DAMAGES = (
    tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, ValueError, gzip.BadGzipFile,
    RecursionError,  # tarfile reads a chain of headers so
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Layout:
    """What an archive may hold."""

    what: str
    """What it is an archive of: `a bundle`."""
    names: str
    """Its files, in words, for whoever gave another."""
    limit: Callable[[str], int | None]
    """Name of a member -> the bytes that it may have; None: it does not belong."""
    files: int
    """So many members at most."""
    total: int
    """Bytes of all members together, at most."""


def write_tar(out: IO[bytes] | gzip.GzipFile | lzma.LZMAFile, files: Iterable[tuple[str, Path]]) -> None:
    """Write files under the given names, in their order: the same files make the same bytes."""
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, path in files:
            member = tarfile.TarInfo(name)
            member.size = path.stat().st_size
            with path.open("rb") as file:
                tar.addfile(member, file)


@contextmanager
def unpacked(archive: Path, open_stream: Callable[[Path], IO[bytes] | gzip.GzipFile], layout: Layout) -> Iterator[Path]:
    """A temporary folder with an archive's files, for as long as it is open; `open_stream` undoes the compression.

    Raises SeedBenchError where the archive is damaged, cut short, holds what the layout does not know, or too much.
    """
    with TemporaryDirectory(prefix="seedbench-") as folder:
        try:
            with open_stream(archive) as stream:
                _unpack(stream, archive, Path(folder), layout)
        except _DAMAGES as error:
            raise SeedBenchError(
                f"'{archive}' is no whole archive of {layout.what} ({error}); get it again."
            ) from error
        except OSError as error:
            raise SeedBenchError(f"cannot unpack '{archive}': {error.strerror}.") from error
        yield Path(folder)


def _unpack(stream: IO[bytes] | gzip.GzipFile, archive: Path, folder: Path, layout: Layout) -> None:
    metered = _Metered(stream, archive, layout.what)
    metered.allowance = _HEADERS
    taken, left = set[str](), layout.total
    with tarfile.open(fileobj=metered, mode="r|") as tar:
        while member := tar.next():
            left -= max(0, member.size)
            reason = _refusal(member, taken, layout) or _excess(len(taken) >= layout.files, left < 0, layout)
            if reason:
                raise SeedBenchError(f"'{archive}' is refused for its member {member.name[:80]!r}: {reason}.")
            taken.add(member.name.casefold())
            metered.allowance += member.size + _HEADER
            file = tar.extractfile(member)
            assert file is not None  # a regular file has content
            place = folder / member.name
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as out:
                shutil.copyfileobj(file, out)
    while metered.read(1 << 16):  # checksums stand at the end
        pass


def _refusal(member: tarfile.TarInfo, taken: Set[str], layout: Layout) -> str:
    """Why a member is not taken; an empty text where it is."""
    most = layout.limit(member.name)
    if most is None:
        return f"only {layout.names} belong into {layout.what}"
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.sparse is not None:
        return "it is no regular file"
    if not 0 <= member.size <= most:
        return f"it has {member.size:,} bytes, and may have {most:,}"
    return "it is there twice, in other letters perhaps" if member.name.casefold() in taken else ""


def _excess(files: bool, total: bool, layout: Layout) -> str:
    if files:
        return f"more than {layout.files:,} files"
    return f"with it they have more than {layout.total:,} bytes" if total else ""


class _Metered(io.RawIOBase):
    """Unpacked content, of which no more is read than is allowed: a header may claim any size."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, archive: Path, what: str) -> None:
        self.allowance = 0
        self._stream, self._archive, self._what = stream, archive, what

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes. Raises SeedBenchError beyond the allowance."""
        content = self._stream.read(size)
        self.allowance -= len(content)
        if self.allowance < 0:
            raise SeedBenchError(f"'{self._archive}' is refused: it unpacks to more than the files of {self._what}.")
        return content

"""Episode logs as files: plain or compressed, read line by line and within bounds.

A log lies where it is said to lie, or compressed beside that (`episodes.jsonl.xz`, in a bundle; xz, because episodes
repeat themselves over longer distances than gzip looks back). A compressed log may come from anybody: however much it
unpacks to, no line and no total is read beyond the bounds.
"""

from __future__ import annotations

import hashlib
import io
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, TypedDict

from seedbench.errors import SeedBenchError

LONGEST_LINE = 64 << 20
"""Bytes of an episode's line, its newline included; a longer one is no episode of any run."""

LONGEST_LOG = 4 << 30
"""Bytes that a compressed log may unpack to."""

_CHUNK = 1 << 20
_MEMORY = 128 << 20
"""What unpacking may take, in bytes: the strongest preset needs 65 MiB, a hostile header asks for any amount."""


class Seal(TypedDict):
    """What tells a log's content from any other's: its bytes and their SHA-256."""

    bytes: int
    sha256: str


def packed(log: Path) -> Path:
    """Where the compressed form of `log` lies."""
    return log.with_name(f"{log.name}.xz")


def held(log: Path) -> Path | None:
    """The file that holds the log: itself, or where it is absent its compressed form; None without either."""
    return next((path for path in (log, packed(log)) if path.is_file()), None)


def open_log(log: Path) -> IO[bytes]:
    """The log's content, unpacked on the way where it is compressed. Raises OSError where it cannot be opened."""
    found = held(log) or log
    return found.open("rb") if found == log else open_xz(found)


def open_xz(path: Path) -> IO[bytes]:
    """The content of an xz file, in bounded memory; nothing may follow its end.

    Raises OSError where it cannot be opened, LZMAError and EOFError, while it is read, where it is damaged.
    """
    return io.BufferedReader(_Unpacked(path), _CHUNK)


class _Unpacked(io.RawIOBase):
    """What `open_xz` buffers. (`lzma.open` bounds no memory.)"""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._xz = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._xz.eof:
            more = self._file.read(_CHUNK) if self._xz.needs_input else b""
            if self._xz.needs_input and not more:
                raise EOFError("it ends early")
            if data := self._xz.decompress(more, len(buffer)):
                buffer[: len(data)] = data
                return len(data)
        if self._xz.unused_data or self._file.read(1):  # other readers might see another log
            raise lzma.LZMAError("something follows its end")
        return 0

    def close(self) -> None:
        self._file.close()
        super().close()


def lines(log: Path) -> Iterator[bytes]:
    """The lines of a log with their newlines; the last may lack it.

    Raises OSError where it cannot be read, SeedBenchError for damaged compression, a line above `LONGEST_LINE`, and a
    compressed log above `LONGEST_LOG`.
    """
    total, bound = 0, LONGEST_LOG if held(log) == packed(log) else None
    with open_log(log) as file:
        number = 0
        while line := _taken(file, log, LONGEST_LINE + 1, lines=True):
            number, total = number + 1, total + len(line)
            if len(line) > LONGEST_LINE:
                raise SeedBenchError(
                    f"'{log}' line {number} is longer than {LONGEST_LINE >> 20} MiB, which no episode is: this is not"
                    " the log of a run."
                )
            _refuse_endless(log, total, bound)
            yield line


def seal(log: Path, most: int | None = None) -> Seal:
    """Length and hash of the log's content, as if it were plain.

    Raises OSError where it cannot be read, SeedBenchError for damaged compression and, where `most` is given, more
    bytes than that.
    """
    digest, total = hashlib.sha256(), 0
    with open_log(log) as file:
        while chunk := _taken(file, log, _CHUNK):
            total += len(chunk)
            _refuse_endless(log, total, most)
            digest.update(chunk)
    return {"bytes": total, "sha256": digest.hexdigest()}


def _refuse_endless(log: Path, total: int, bound: int | None) -> None:
    if bound is not None and total > bound:
        raise SeedBenchError(
            f"'{packed(log)}' unpacks to more than {bound:,} bytes: it is not the log it claims to be."
        )


def _taken(file: IO[bytes], log: Path, size: int, *, lines: bool = False) -> bytes:
    try:
        return file.readline(size) if lines else file.read(size)
    except (lzma.LZMAError, EOFError) as error:
        raise SeedBenchError(f"'{packed(log)}' is damaged ({error}); get the bundle again.") from error

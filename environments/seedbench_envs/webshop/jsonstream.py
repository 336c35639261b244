"""Large JSON files read one element at a time, so that memory does not grow with the file. Plain or gzipped."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from seedbench.errors import SeedBenchError

_CHUNK = 1 << 18
_LARGEST = 1 << 26
"""No element of an official file comes near this many characters; past it the file is not what it should be."""
_SPACE = " \t\n\r"
_FOLLOW = tuple(f"{_SPACE},:]}}")
_GZIP = b"\x1f\x8b"


def json_items(path: Path, expected: str) -> Iterator[Any]:
    """The elements of the array that the file holds, in order.

    Args:
        path: the file; whether it is gzipped is seen from its content.
        expected: what the file should be, for error messages, e.g. "the product file (items_shuffle.json)".

    Raises:
        SeedBenchError: the file is missing, unreadable, damaged, cut off, or holds something else.
    """
    with _open(path, expected) as scanner:
        scanner.open_with("[", "a list")
        while scanner.more("]"):
            yield scanner.value()
        scanner.finish()


def json_members(path: Path, expected: str) -> Iterator[tuple[str, Any]]:
    """The (key, value) pairs of the object that the file holds, in order, repeated keys included.

    Arguments and errors as `json_items`.
    """
    with _open(path, expected) as scanner:
        scanner.open_with("{", "an object by ASIN")
        while scanner.more("}"):
            key = scanner.value()
            if not isinstance(key, str) or scanner.next() != ":":
                raise scanner.error("it is no JSON")
            scanner.at += 1
            yield key, scanner.value()
        scanner.finish()


def _open(path: Path, expected: str) -> _Scanner:
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == _GZIP
        return _Scanner(
            gzip.open(path, "rt", encoding="utf-8-sig") if zipped else path.open(encoding="utf-8-sig"), path, expected
        )
    except OSError as error:
        raise SeedBenchError(f"cannot read '{path}': {error.strerror}; expected {expected}.") from error


class _Scanner:
    """The text of a file, a part of it at a time: `text[at:]` is what was read and not yet used."""

    def __init__(self, file: IO[str], path: Path, expected: str) -> None:
        self.file, self.path, self.expected = file, path, expected
        self.text, self.at, self.ended, self.count = "", 0, False, 0
        self.decode = json.JSONDecoder().raw_decode

    def __enter__(self) -> _Scanner:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def error(self, fault: str) -> SeedBenchError:
        """The error that names the file, what is wrong with it and what was expected."""
        return SeedBenchError(
            f"'{self.path}' is not {self.expected}: {fault}. Download it again, or name another file."
        )

    def next(self) -> str:
        """The next character that is no white space, not yet used; empty at the end of the file."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in _SPACE:
                self.at += 1
            if self.at < len(self.text) or not self._read():
                return self.text[self.at : self.at + 1]

    def open_with(self, bracket: str, kind: str) -> None:
        """Use up the opening bracket of the whole."""
        first = self.next()
        if first == "<":
            raise self.error("it is a web page, such as a download page saved in place of the file")
        if first != bracket:
            held = {"": "it is empty", "{": "it holds an object", "[": "it holds a list"}.get(first, "it is no JSON")
            raise self.error(f"{held}, where {kind} was expected")
        self.at += 1

    def more(self, bracket: str) -> bool:
        """Whether another element follows, past its comma; the closing bracket is used up."""
        if self.next() == bracket:
            self.at += 1
            return False
        if self.count:
            if self.next() != ",":
                raise self.error(self._broken(self.count))
            self.at += 1
        self.count += 1
        return True

    def value(self) -> Any:
        """Decode one value."""
        self.next()
        while True:
            try:
                value, end = self.decode(self.text, self.at)
            except (ValueError, RecursionError) as error:
                if isinstance(error, RecursionError) or not self._read():
                    raise self.error(self._broken(self.count - 1)) from None
                continue
            # A number that nothing follows yet may go on in the next part.
            if self.text[end : end + 1] in _FOLLOW or not self._read():
                self.at = end
                return value

    def finish(self) -> None:
        """Nothing but white space may follow."""
        if self.next():
            raise self.error("something follows the end of the JSON value")

    def _broken(self, entries: int) -> str:
        where = f"after {entries:,} entries"
        return f"it ends {where}, cut off" if self.ended else f"it is no JSON {where}"

    def _read(self) -> bool:
        """Read on, doubling what is at hand so that a long element costs no more than its length."""
        if self.ended:
            return False
        rest = self.text[self.at :]
        if len(rest) > _LARGEST:
            raise self.error(f"its entry {self.count:,} does not end or is no JSON")
        try:
            new = self.file.read(max(_CHUNK, len(rest)))
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
            raise self.error(f"it is damaged or cut off ({str(error) or type(error).__name__})") from error
        self.text, self.at, self.ended = rest + new, 0, not new
        return bool(new)

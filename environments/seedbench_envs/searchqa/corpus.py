"""Corpora of passages: JSON lines in wiki-18 layout, plain or gzip, one file or a folder of shards.

A line is `{"id": "7", "contents": "\\"Title\\"\\ntext"}`; `{"id", "title", "text"}` is read too, other keys are not.
Files are streamed: memory holds one line, and eight bytes for each id to find ids that come twice.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from seedbench.errors import SeedBenchError, UsageError
from seedbench.ui.text import inert
from seedbench_envs.searchqa.records import Passage

SUFFIXES = (".jsonl", ".jsonl.gz")
MAX_LINE = 16 << 20
"""Bytes; a longer line is an error, so that a file of another kind does not fill the memory."""

_WATCHED = 1 << 20
"""Ids that are compared in one go; a second use of an id is reported at most so many passages late."""


def corpus_files(path: Path) -> list[Path]:
    """The files of a corpus in reading order: the file itself, or the shards of a folder sorted by name.

    Raises:
        UsageError: there is nothing at `path`, or the folder holds no shards.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UsageError(f"there is no corpus at '{path}': name a .jsonl or .jsonl.gz file, or a folder of them.")
    shards = sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES) and file.is_file())
    if not shards:
        raise UsageError(f"the folder '{path}' holds no .jsonl or .jsonl.gz file: name the folder of the shards.")
    return shards


def read_corpus(path: Path) -> Iterator[Passage]:
    """The passages of a corpus, in order.

    Lone surrogates, which no UTF-8 file can hold, become U+FFFD. Blank lines are skipped.

    Raises:
        UsageError: there is no corpus at `path`.
        SeedBenchError: a line is no passage, a file cannot be read, the corpus is empty, or an id comes twice
            (found late, at the end at the latest; both lines are named).
    """
    files = corpus_files(path)
    watch = _Watch()
    count = 0
    for passage, _ in _placed(files):
        count += 1
        if watch.add(id_hash(passage.id)):
            _refuse_duplicates(files, watch.check())
        yield passage
    _refuse_duplicates(files, watch.check())
    if not count:
        raise SeedBenchError(f"the corpus '{path}' holds no passages.")


def passage_of(identifier: str, contents: str) -> Passage:
    """A passage from its id and `contents`: the first line is the title, with or without quotation marks around it.

    >>> passage_of("1", '"Oslo"\\nA city.')
    Passage(id='1', title='Oslo', text='A city.')
    """
    title, _, text = contents.partition("\n")
    if len(title) > 1 and title.startswith('"') and title.endswith('"'):
        title = title[1:-1]
    return Passage(identifier, title, text)


def passage_from(record: object) -> Passage:
    """A passage from a JSON object. Raises ValueError that says what is wrong."""
    if not isinstance(record, Mapping):
        raise ValueError("it is not a JSON object")
    identifier, contents = record.get("id"), record.get("contents")
    if isinstance(identifier, int) and not isinstance(identifier, bool):
        identifier = str(identifier)
    if not isinstance(identifier, str) or not identifier or "\n" in identifier:
        raise ValueError("its 'id' is not a text of one line")
    if isinstance(contents, str):
        return passage_of(_valid(identifier), _valid(contents))
    title, text = record.get("title"), record.get("text")
    if not isinstance(title, str) or not isinstance(text, str):
        raise ValueError("it has neither 'contents' nor 'title' and 'text'")
    return Passage(_valid(identifier), _valid(title).replace("\n", " "), _valid(text))


def corpus_hash(passages: Iterable[Passage]) -> str:
    """SHA-256 over ids and contents in their order, 64 hex digits. Files, compression and further keys do not count."""
    hasher = CorpusHasher()
    for passage in passages:
        hasher.add(passage)
    return hasher.hexdigest()


class CorpusHasher:
    """`corpus_hash`, a passage at a time."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, passage: Passage) -> None:
        """Take the next passage."""
        for text in (passage.id, passage.contents):
            data = text.encode()
            self._digest.update(len(data).to_bytes(8, "little") + data)

    def hexdigest(self) -> str:
        """The hash of what was taken so far."""
        return self._digest.hexdigest()


def id_hash(identifier: str) -> int:
    """64 bits of an id's BLAKE2b hash."""
    return int.from_bytes(hashlib.blake2b(identifier.encode(), digest_size=8).digest(), "little")


class _Watch:
    """Finds hashes that come twice, eight bytes each: sorted ones from before, and a block of new ones."""

    def __init__(self) -> None:
        self._seen: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._fresh = array("Q")

    def add(self, number: int) -> bool:
        """Take a hash; true when it is time for `check`."""
        self._fresh.append(number)
        return len(self._fresh) >= _WATCHED

    def check(self) -> set[int]:
        """Hashes that came again since the last check."""
        fresh = np.array(self._fresh, dtype=np.uint64)
        self._fresh = array("Q")
        merged = np.concatenate([self._seen, np.sort(fresh)])
        merged.sort(kind="stable")  # two sorted runs: linear
        self._seen = merged
        return set(merged[1:][merged[1:] == merged[:-1]].tolist())


def _refuse_duplicates(files: list[Path], suspects: set[int]) -> None:
    """Read again, and raise where an id, not only its hash, comes twice."""
    if not suspects:
        return
    places: dict[str, str] = {}
    for passage, place in _placed(files):
        if id_hash(passage.id) not in suspects:
            continue
        if passage.id in places:
            raise SeedBenchError(
                f"the id '{inert(passage.id, 80)}' comes twice in the corpus: {places[passage.id]} and {place}."
                " Every passage needs an id of its own: remove or rename one."
            )
        places[passage.id] = place


def _placed(files: Iterable[Path]) -> Iterator[tuple[Passage, str]]:
    """Every passage with the place of its line in words."""
    for file in files:
        for number, line in _lines(file):
            place = f"'{file}', line {number:,}"
            try:
                passage = passage_from(json.loads(line.decode()))
            except (ValueError, RecursionError) as error:
                reason = "it is no JSON" if isinstance(error, json.JSONDecodeError) else str(error)
                raise SeedBenchError(
                    f"{place} is no passage ({inert(reason, 200)}): expected"
                    ' {"id": "7", "contents": "\\"Title\\"\\ntext"}; mend or remove the line.'
                ) from error
            yield passage, place


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, numbered from 1."""
    number = 0
    try:
        with _opened(path) as file:
            while line := file.readline(MAX_LINE + 1):
                number += 1
                if len(line) > MAX_LINE:
                    raise SeedBenchError(
                        f"'{path}', line {number:,} is longer than {MAX_LINE >> 20} MB: it is no corpus of passages."
                    )
                if line.strip():
                    yield number, line
    except (OSError, EOFError, zlib.error) as error:
        raise SeedBenchError(
            f"'{path}' cannot be read after line {number:,} ({inert(str(error), 200)}): copy the file again."
        ) from error


def _opened(path: Path) -> IO[bytes] | gzip.GzipFile:
    file = path.open("rb")
    packed = file.peek(2)[:2] == b"\x1f\x8b"
    if not packed:
        return file
    file.close()
    return gzip.open(path, "rb")


def _valid(text: str) -> str:
    """`text` without lone surrogates."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

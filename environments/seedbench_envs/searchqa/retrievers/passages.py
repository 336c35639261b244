"""The passages of an index on disk: one file of texts, memory-mapped, so that processes share one copy.

Opening reads nothing; a passage is found by its number at once, and by its id through sorted hashes.
"""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from seedbench.errors import SeedBenchError
from seedbench_envs.searchqa.corpus import CorpusHasher, id_hash
from seedbench_envs.searchqa.records import Passage

_TEXTS = "passages.bin"
_STARTS = "passage_starts.npy"
_HASHES = "passage_hashes.npy"
_NUMBERS = "passage_numbers.npy"
FILES = (_TEXTS, _STARTS, _HASHES, _NUMBERS)


class PassageWriter:
    """Writes passages into a folder as they come; memory holds 16 bytes for each. `finish` completes it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._file = (folder / _TEXTS).open("wb")
        self._starts = array("q", [0])
        self._hashes = array("Q")
        self._hasher = CorpusHasher()
        self._size = 0

    def add(self, passage: Passage) -> None:
        """Append a passage. Ids must differ; its title has one line."""
        self._hasher.add(passage)
        self._size += self._file.write(f"{passage.id}\n{passage.title}\n{passage.text}".encode())
        self._starts.append(self._size)
        self._hashes.append(id_hash(passage.id))

    def finish(self) -> str:
        """Write the tables and return the corpus hash."""
        self._file.close()
        hashes = np.array(self._hashes, dtype=np.uint64)
        order = np.argsort(hashes, kind="stable")
        np.save(self._folder / _HASHES, hashes[order])
        np.save(self._folder / _NUMBERS, order.astype(np.uint32))
        np.save(self._folder / _STARTS, np.array(self._starts, dtype=np.int64))
        return self._hasher.hexdigest()

    def __enter__(self) -> PassageWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


class Passages:
    """The passages that a `PassageWriter` left in a folder, numbered from 0. Any number of threads may read them."""

    def __init__(self, folder: Path) -> None:
        """Map the files.

        Raises:
            SeedBenchError: files are missing or do not fit together.
        """
        try:
            with (folder / _TEXTS).open("rb") as file:
                empty = file.seek(0, 2) == 0
                self._texts = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._starts = _mapped(folder / _STARTS, np.int64)
            self._hashes = _mapped(folder / _HASHES, np.uint64)
            self._numbers = _mapped(folder / _NUMBERS, np.uint32)
        except (OSError, ValueError, EOFError) as error:
            raise _damaged(folder, str(error)) from error
        count = len(self._hashes)
        fits = len(self._numbers) == count and len(self._starts) == count + 1
        if not fits or int(self._starts[-1]) != len(self._texts):
            raise _damaged(folder, "its files do not fit together")

    def __len__(self) -> int:
        return len(self._hashes)

    def __getitem__(self, number: int) -> Passage:
        """The passage of that number. Raises IndexError out of range."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        start, end = self._starts[number : number + 2].tolist()
        identifier, title, text = self._texts[start:end].decode().split("\n", 2)
        return Passage(identifier, title, text)

    def __iter__(self) -> Iterator[Passage]:
        return map(self.__getitem__, range(len(self)))

    def find(self, identifier: str) -> int:
        """The number of the passage with that id; -1 where there is none."""
        wanted = np.uint64(id_hash(identifier))
        place = int(np.searchsorted(self._hashes, wanted))
        while place < len(self) and self._hashes[place] == wanted:
            number = int(self._numbers[place])
            if self[number].id == identifier:
                return number
            place += 1
        return -1


def _mapped(path: Path, kind: type[np.generic]) -> NDArray[np.generic]:
    part = np.load(path, mmap_mode="r", allow_pickle=False)
    if part.dtype != np.dtype(kind) or part.ndim != 1:
        raise ValueError(f"{path.name} holds {part.dtype} {part.shape}")
    return np.asarray(part)


def _damaged(folder: Path, reason: str) -> SeedBenchError:
    return SeedBenchError(f"the passages of the index '{folder}' are damaged ({reason}): build the index again.")

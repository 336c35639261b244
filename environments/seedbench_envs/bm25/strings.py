"""Many strings in two arrays: their UTF-8 bytes in a row, and where each of them starts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


class Strings:
    """A sequence of strings over two arrays, which may be memory-mapped. Indexing gives UTF-8 bytes.

    `blob` is uint8; `offsets` is int64, one more than there are strings.
    """

    __slots__ = ("_blob", "_offsets", "blob", "offsets")

    def __init__(self, blob: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        self.blob = blob
        self.offsets = offsets
        # Views whose items are plain Python values: a third of the time of numpy's items.
        self._blob = blob.data
        self._offsets = offsets.data

    @classmethod
    def of(cls, strings: Iterable[str]) -> Strings:
        """The strings in the order given."""
        encoded = [string.encode("utf-8", "surrogatepass") for string in strings]
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(string) for string in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, number: int) -> bytes:
        return bytes(self._blob[self._offsets[number] : self._offsets[number + 1]])

    def text(self, number: int) -> str:
        """A string, decoded."""
        return self[number].decode("utf-8", "surrogatepass")

    def find(self, string: str) -> int:
        """Number of `string` in a sorted sequence; -1 where it is not there."""
        wanted = string.encode("utf-8", "surrogatepass")
        number = bisect_left(self, wanted)
        return number if number < len(self) and self[number] == wanted else -1

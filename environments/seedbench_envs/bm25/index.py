"""The search index: BM25 with Lucene's terms, numbers and order."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seedbench_envs.bm25 import storage
from seedbench_envs.bm25.analysis import analyze
from seedbench_envs.bm25.arrays import Arrays
from seedbench_envs.bm25.build import Scratch, build_arrays
from seedbench_envs.bm25.scores import MAX_TERMS, TooManyTerms, best, inverse_frequency, reported

_SMALL = 1 << 14
"""Documents, and entries of a query, up to which fresh arrays are cheaper than a thread's own."""

_CHUNK = 1 << 16


class _Workspace(threading.local):
    """Arrays that each thread keeps: large fresh ones cost more in page faults than all the arithmetic."""

    def __init__(self, documents: int) -> None:
        self.scores = np.zeros(documents, dtype=np.float64)
        self.numbers = np.empty(_CHUNK, dtype=np.intp)
        self.parts = np.empty(_CHUNK, dtype=np.float32)
        self.wide = np.empty(_CHUNK, dtype=np.float64)


class Bm25Index:
    """An index over documents with ids. Read-only: any number of threads may search it at once.

    Made by `build` or `open`. Hits equal those of Anserini 0.22 on Lucene 9.5, scores included.
    """

    def __init__(self, arrays: Arrays, scratch: Scratch | None = None) -> None:
        self.arrays = arrays
        self._scratch = scratch  # keeps the temporary files of a large build
        self._workspace = _Workspace(len(arrays.ids))
        self._entry = lru_cache(maxsize=1 << 16)(self._look_up)

    @classmethod
    def build(
        cls,
        documents: Iterable[tuple[str, str]],
        k1: float = 0.9,
        b: float = 0.4,
        scratch: Path | None = None,
    ) -> Bm25Index:
        """Index (id, text) pairs, which may be a stream; texts are analysed as they are.

        Args:
            documents: ids must differ.
            k1: weight of a repeated term, above 0.
            b: share of the document's length in it, 0 to 1.
            scratch: where the temporary files of large sets go; the system's folder for them by default.

        Raises:
            SeedBenchError: two documents have one id, or the disk is full.
            ValueError: `k1` or `b` is out of range.
        """
        if not k1 > 0 or not 0 <= b <= 1:
            raise ValueError(f"k1 must be above 0 and b in 0 to 1, not k1={k1}, b={b}")
        place = Scratch(scratch)
        return cls(build_arrays(documents, k1, b, place), place)

    @classmethod
    def open(cls, folder: Path, verify: bool = False) -> Bm25Index:
        """Open a saved index; its arrays are memory-mapped.

        Every opening checks version, sizes and a stored search, and the content of small files; `verify` reads
        all of them.

        Raises:
            SeedBenchError: the folder holds no index, one of another version, or a damaged one.
        """
        index = cls(storage.read_arrays(folder, verify))
        storage.check_probe(folder, index.search(index.arrays.probe, storage.PROBE_HITS))
        return index

    def save(self, folder: Path) -> None:
        """Write the index to `folder`, whole or not at all; an index that is there is replaced.

        Raises:
            SeedBenchError: the folder holds something else, or it cannot be written.
        """
        storage.write_arrays(folder, self.arrays, self.search(self.arrays.probe, storage.PROBE_HITS))

    def __len__(self) -> int:
        """The number of documents."""
        return len(self.arrays.ids)

    def search(self, query: str, k: int = 50, as_written: bool = False) -> list[tuple[str, float]]:
        """Ids and scores of the `k` best documents that hold a term of the query, best first.

        Scores have four decimals, less 1e-6 for each hit before that has the same (Anserini's rule). `as_written`
        leaves the query's case to the analysis; otherwise the query is lower-cased first, as WebShop does, which
        differs for the dotted capital I alone.

        Raises:
            TooManyTerms: more than 1,024 distinct terms.
            ValueError: `k` is below 1.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        counts = Counter(analyze(query if as_written else query.lower()))
        if len(counts) > MAX_TERMS:
            raise TooManyTerms
        scores = self._scores(counts)
        if scores is None:
            return []
        documents, raw = best(scores, self.arrays.rank, k)
        text = self.arrays.ids.text
        return list(zip(map(text, documents.tolist()), reported(raw).tolist(), strict=True))

    def _look_up(self, term: str) -> tuple[int, int, np.float32] | None:
        """Where the term's documents start and end, and its inverse frequency."""
        number = self.arrays.terms.find(term)
        if number < 0:
            return None
        start, end = self.arrays.starts[number : number + 2].tolist()
        return start, end, inverse_frequency(self.arrays.filled, end - start)

    def _scores(self, counts: Counter[str]) -> NDArray[np.float64] | None:
        """A score for every document, (N,); None where no term is known."""
        spans, weights = [], []
        for term, count in counts.items():
            entry = self._entry(term)
            if entry is not None:
                spans.append(slice(entry[0], entry[1]))
                weights.append(np.float32(count) * entry[2])
        if not spans:
            return None
        if len(self) > _SMALL or sum(span.stop - span.start for span in spans) > _SMALL:
            return self._add_in_place(spans, weights)
        documents = np.concatenate([self.arrays.documents[span] for span in spans])
        divisors = np.concatenate([self.arrays.divisors[span] for span in spans])
        weight = np.repeat(np.array(weights, dtype=np.float32), [span.stop - span.start for span in spans])
        sums = np.bincount(documents, weight - weight / divisors, minlength=len(self))
        return np.asarray(sums, dtype=np.float64)  # which it is, with weights

    def _add_in_place(self, spans: list[slice], weights: list[np.float32]) -> NDArray[np.float64]:
        """The same sums in the thread's own array, a chunk of a term's documents at a time."""
        space = self._workspace
        space.scores.fill(0)
        for span, weight in zip(spans, weights, strict=True):
            for start in range(span.start, span.stop, _CHUNK):
                chunk = slice(start, min(start + _CHUNK, span.stop))
                size = chunk.stop - start
                numbers, parts, wide = space.numbers[:size], space.parts[:size], space.wide[:size]
                np.divide(weight, self.arrays.divisors[chunk], out=parts)
                np.subtract(weight, parts, out=parts)
                # add.at is fast for matching types alone.
                numbers[:], wide[:] = self.arrays.documents[chunk], parts
                np.add.at(space.scores, numbers, wide)
        return space.scores

"""The engine `bm25`: bm25s (Lù, 2024) with method lucene, memory-mapped. The default.

Terms, quantised lengths and the order of ties are Lucene's (seedbench_envs.bm25): bm25s gets its score table from
there, which is also why building needs little memory. Its own tokenizer and its own selection, which leaves ties in
any order, are not used. Scores are summed in float32, Lucene's in float64: that alone can differ.
"""

from __future__ import annotations

import importlib
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbench.errors import SeedBenchError
from seedbench.store import Report
from seedbench_envs.bm25.analysis import VERSION as ANALYSIS
from seedbench_envs.bm25.arrays import Arrays
from seedbench_envs.bm25.build import Scratch, build_arrays
from seedbench_envs.bm25.scores import best, inverse_frequency
from seedbench_envs.bm25.strings import Strings
from seedbench_envs.searchqa.records import Hit
from seedbench_envs.searchqa.retrievers.engine import BuildOptions, Built, InProcess, installed, query_terms
from seedbench_envs.searchqa.retrievers.manifest import IndexManifest
from seedbench_envs.searchqa.retrievers.passages import Passages

VERSION = 1
RESUMES = False
_INDEX = "bm25s"
_TERMS_AT_ONCE = 10_000


def packages() -> dict[str, str]:
    """The version of bm25s. Raises SeedBenchError where it is not installed."""
    return installed("bm25", "bm25s")


def build(passages: Passages, folder: Path, scratch: Path, options: BuildOptions, report: Report) -> Built:
    """Index the passages. Raises SeedBenchError where the disk is full."""
    bm25s = importlib.import_module("bm25s")
    report(f"indexing {len(passages):,} passages")
    aside = Scratch(scratch)
    documents = ((passage.id, passage.contents) for passage in passages)
    arrays = build_arrays(documents, options.k1, options.b, aside)
    report(f"scoring {len(arrays.documents):,} entries of {len(arrays.terms):,} terms")
    target = folder / _INDEX
    target.mkdir(parents=True, exist_ok=True)
    model = bm25s.BM25(k1=options.k1, b=options.b, method="lucene")
    model.vocab_dict, model.nonoccurrence_array = {}, None
    model.scores = {
        "data": _scores(arrays, scratch / "scores.npy"), "indices": arrays.documents, "indptr": arrays.starts,
        "num_docs": len(arrays.ids),
    }  # fmt: skip
    model.save(target, show_progress=False)
    np.save(target / "terms.npy", arrays.terms.blob)
    np.save(target / "term_starts.npy", arrays.terms.offsets)
    np.save(target / "rank.npy", arrays.rank)
    return Built({"method": "lucene", "k1": options.k1, "b": options.b, "analysis": ANALYSIS}, {})


def _scores(arrays: Arrays, path: Path) -> NDArray[np.float32]:
    """Score of every entry, idf - idf / (1 + tf * n) (seedbench_envs.bm25.scores); (P,), in a file."""
    size = len(arrays.documents)
    if not size:
        return np.empty(0, dtype=np.float32)
    data = np.lib.format.open_memmap(path, "w+", np.dtype(np.float32), (size,))
    for first in range(0, len(arrays.terms), _TERMS_AT_ONCE):
        starts = np.asarray(arrays.starts[first : first + _TERMS_AT_ONCE + 1])
        holding = np.diff(starts)
        idf = np.array([inverse_frequency(arrays.filled, count) for count in holding.tolist()], dtype=np.float32)
        weights = np.repeat(idf, holding)
        span = slice(int(starts[0]), int(starts[-1]))
        data[span] = weights - weights / arrays.divisors[span]
    return np.asarray(data)


def open_index(folder: Path, manifest: IndexManifest, passages: Passages, encoder: str | None) -> Bm25s:
    """Open the index, memory-mapped. Raises SeedBenchError where it cannot be read."""
    bm25s = importlib.import_module("bm25s")
    target = folder / _INDEX
    try:
        model = bm25s.BM25.load(target, mmap=True, load_vocab=False, show_progress=False)
        terms, starts, rank = (_mapped(target / f"{name}.npy") for name in ("terms", "term_starts", "rank"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SeedBenchError(
            f"bm25s {packages()['bm25s']} cannot read the index '{folder}', which bm25s"
            f" {manifest.packages.get('bm25s', '?')} wrote ({error}): build it again."
        ) from error
    # Plain arrays: slices of numpy's memmap class cost several times as much.
    model.scores.update({name: np.asarray(model.scores[name]) for name in ("data", "indices", "indptr")})
    return Bm25s(model, Strings(terms, starts), rank, passages, manifest)


def _mapped(path: Path) -> NDArray[Any]:
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))


class Bm25s(InProcess):
    """BM25 through bm25s. Of queries with more than 1,024 different terms the first 1,024 count, as in Lucene."""

    def __init__(
        self, model: Any, terms: Strings, rank: NDArray[np.int32], passages: Passages, manifest: IndexManifest
    ) -> None:
        self._model = model
        self._find = lru_cache(maxsize=1 << 16)(terms.find)
        self._rank = rank
        super().__init__(passages, manifest)

    def _search(self, query: str, k: int) -> list[Hit]:
        counts = Counter(number for number in map(self._find, query_terms(query)) if number >= 0)
        if not counts:
            return []
        documents, scores = best(self._scores(counts), self._rank, k)
        return [
            Hit(self._passages[number], score)
            for number, score in zip(documents.tolist(), scores.tolist(), strict=True)
            if score > 0
        ]

    def _scores(self, counts: Counter[int]) -> NDArray[Any]:
        """A score for every passage, (N,). Terms that come equally often are scored together, one pass for all."""
        by_count: dict[int, list[int]] = {}
        for number, count in counts.items():
            by_count.setdefault(count, []).append(number)
        total: NDArray[Any] | None = None
        for count, numbers in by_count.items():
            part = self._model.get_scores_from_ids(numbers)
            part = part if count == 1 else part * np.float32(count)
            total = part if total is None else total + part
        assert total is not None  # `counts` holds something
        return total

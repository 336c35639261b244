"""The numbers of Lucene's BM25, in its precision, and of Anserini's hit list.

Lucene adds w - w / (1 + tf * n) over the terms of a query, with w = qtf * ln(1 + (N - df + 0.5) / (df + 0.5)) and
n = 1 / (k1 * (1 - b + b * length / mean length)): BM25 (Robertson et al., TREC-3) without its constant factor k1 + 1.
Every term's part is a float32; the sum is taken in float64 and rounded to float32. N counts the documents that hold
any term, and the length is quantised.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from seedbench.errors import SeedBenchError

MAX_TERMS = 1024
"""Lucene's default limit of distinct terms in a query."""

_EXACT_LENGTHS = 24


class TooManyTerms(SeedBenchError):
    """A query of more than 1,024 distinct terms, which Lucene refuses (TooManyClauses)."""

    def __init__(self) -> None:
        super().__init__(
            f"the query has more than {MAX_TERMS:,} distinct terms, the most that a search takes (Lucene's"
            " TooManyClauses); shorten it."
        )


def quantised(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Document lengths as one byte keeps them (Lucene's SmallFloat): exact below 24, then 24 + four leading bits.

    >>> quantised(np.array([23, 39, 40, 41, 100])).tolist()
    [23, 39, 40, 40, 96]
    """
    rest = np.maximum(lengths - _EXACT_LENGTHS, 0)
    _, bits = np.frexp(rest.astype(np.float64))  # the number of binary digits of a whole number
    dropped = np.maximum(bits - 4, 0)
    return np.where(lengths < _EXACT_LENGTHS, lengths, _EXACT_LENGTHS + (rest >> dropped << dropped))


def length_factors(lengths: NDArray[np.int64], k1: float, b: float) -> NDArray[np.float32]:
    """n of every document; `lengths` are terms a document, (N,). Documents without terms do not count in the mean."""
    filled = np.count_nonzero(lengths)
    mean = np.float32(lengths.sum() / max(filled, 1))
    sizes = quantised(np.maximum(lengths, 1)).astype(np.float32)
    one, k, share = np.float32(1), np.float32(k1), np.float32(b)
    return one / (k * ((one - share) + share * sizes / max(mean, one)))


def inverse_frequency(documents: int, holding: int) -> np.float32:
    """ln(1 + (N - df + 0.5) / (df + 0.5)) of a term that `holding` of `documents` documents hold."""
    return np.float32(math.log(1 + (documents - holding + 0.5) / (holding + 0.5)))


def best(scores: NDArray[np.float64], rank: NDArray[np.int32], k: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """The `k` best documents with a score above 0 and their scores in float32, best first; equal ones by `rank`.

    Both arguments are (N,): a score and a rank for each document.
    """
    chosen = np.flatnonzero(scores >= _floor(scores, k))
    kept = scores[chosen].astype(np.float32)
    if len(kept) > k:
        least = np.partition(kept, len(kept) - k)[len(kept) - k]
        chosen, kept = chosen[kept >= least], kept[kept >= least]
    order = np.lexsort((rank[chosen], -kept))[:k]
    return chosen[order], kept[order]


def _floor(scores: NDArray[np.float64], k: int) -> float:
    """A score above 0 that at least `k` documents reach, where there are as many, found without sorting them all.

    Of the maxima of disjoint groups the k-th largest is such a score.
    """
    tiny = float(np.finfo(np.float64).tiny)
    groups = len(scores) // 64
    if groups < 2 * k:
        return tiny
    maxima = scores[: groups * 64].reshape(64, groups).max(axis=0)  # (groups,)
    reached = np.float32(np.partition(maxima, groups - k)[groups - k])
    # Scores compare as float32: one that rounds up to `reached` counts.
    return max(tiny, float(np.nextafter(reached, np.float32(0))))


def reported(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scores as Anserini lists them, best first: four decimals, and each of a run of equal ones 1e-6 lower."""
    rounded = (np.floor(scores.astype(np.float64) * 1e4 + 0.5) / 1e4).astype(np.float32)  # Java's Math.round
    step, near = np.float32(1e-6), np.float32(1e-4)
    if len(rounded) < 2 or bool(np.all(rounded[:-1] - rounded[1:] > near)):
        return rounded
    run = 0
    for number in range(1, len(rounded)):
        # As there, against the score before as already lowered.
        run = 0 if rounded[number - 1] - rounded[number] > near else run + 1
        rounded[number] -= step * np.float32(run)
    return rounded

"""What an index is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seedbench_envs.bm25.strings import Strings


@dataclass(frozen=True, slots=True)
class Arrays:
    """Documents are numbered in the order they came, terms in the order of their UTF-8 bytes."""

    ids: Strings
    """Document number -> id; (N,)."""
    rank: NDArray[np.int32]
    """Document number -> place of its id among all ids, sorted; (N,). It breaks ties."""
    terms: Strings
    """Term number -> term; (V,), sorted."""
    starts: NDArray[np.int64]
    """Term number -> where its documents start in the two arrays below; (V + 1,)."""
    documents: NDArray[np.int32]
    """Documents that hold a term, ascending; (P,)."""
    divisors: NDArray[np.float32]
    """1 + tf * n of that term in that document (scores.py); (P,)."""
    filled: int
    """How many documents hold any term."""
    k1: float
    b: float
    probe: str
    """A text of the documents' own, which a stored index is tried with; empty where none holds a term."""

"""Documents to the arrays of an index, in bounded memory.

Documents come as a stream. Blocks of two million terms are sorted and, but for the last, put aside in temporary
files; at the end each block's share of every term is copied to its place. Memory holds the vocabulary, the ids and one
block; a set that fits in one block needs no files at all.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from seedbench.errors import SeedBenchError
from seedbench_envs.bm25.analysis import analyze
from seedbench_envs.bm25.arrays import Arrays
from seedbench_envs.bm25.scores import length_factors
from seedbench_envs.bm25.strings import Strings

Kind = TypeVar("Kind", bound=np.generic)

BLOCK_TERMS = 2_000_000
_PROBE_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class _Block:
    """Terms (numbered as first met) of some documents, sorted by term, then document; three arrays of one length."""

    terms: NDArray[np.int32]
    documents: NDArray[np.int32]
    counts: NDArray[np.int32]


class Scratch:
    """A temporary folder that is there from the first use on; it goes with the object."""

    def __init__(self, parent: Path | None) -> None:
        self._parent = parent
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def used(self) -> bool:
        """Whether anything was put there."""
        return self._folder is not None

    def path(self, name: str) -> Path:
        """A file's path in the folder."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(dir=self._parent, prefix="bm25-")
        return Path(self._folder.name) / name


def build_arrays(
    documents: Iterable[tuple[str, str]],
    k1: float,
    b: float,
    scratch: Scratch,
    block_terms: int = BLOCK_TERMS,
) -> Arrays:
    """Index (id, text) pairs.

    Raises:
        SeedBenchError: two documents have one id, or the disk is full.
    """
    collected = _Collector(scratch, block_terms)
    try:
        for identifier, text in documents:
            collected.add(identifier, text)
        return collected.finish(k1, b)
    except OSError as error:
        raise SeedBenchError(
            f"cannot build the search index: {error}; free disk space in the folder of temporary files and try again."
        ) from error


class _Collector:
    def __init__(self, scratch: Scratch, block_terms: int) -> None:
        self._scratch = scratch
        self._block_terms = block_terms
        self._ids: list[str] = []
        self._lengths = array("q")
        self._vocabulary: dict[str, int] = {}
        self._terms = array("i")
        self._first = 0  # first document of the present block
        self._aside = 0
        self._probe = ""

    def add(self, identifier: str, text: str) -> None:
        vocabulary = self._vocabulary
        terms = analyze(text)
        if terms and not self._probe:
            self._probe = text[:_PROBE_CHARACTERS]
        self._terms.extend([vocabulary.setdefault(term, len(vocabulary)) for term in terms])
        self._ids.append(identifier)
        self._lengths.append(len(terms))
        if len(self._terms) >= self._block_terms:
            self._put_aside()

    def _block(self) -> _Block:
        """The present block, sorted and counted; the next one starts empty."""
        lengths = np.array(self._lengths[self._first :], dtype=np.int64)
        size = max(len(lengths), 1)
        terms = np.array(self._terms, dtype=np.int64)
        pairs, counts = np.unique(terms * size + np.repeat(np.arange(len(lengths)), lengths), return_counts=True)
        block = _Block(
            (pairs // size).astype(np.int32),
            (pairs % size + self._first).astype(np.int32),
            counts.astype(np.int32),
        )
        self._first = len(self._ids)
        self._terms = array("i")
        return block

    def _put_aside(self) -> None:
        block = self._block()
        with self._scratch.path(f"block-{self._aside}").open("wb") as file:
            for part in (block.terms, block.documents, block.counts):
                np.save(file, part)
        self._aside += 1

    def _blocks(self, last: _Block) -> Iterator[_Block]:
        for number in range(self._aside):
            with self._scratch.path(f"block-{number}").open("rb") as file:
                yield _Block(*(np.load(file) for _ in range(3)))
        yield last

    def finish(self, k1: float, b: float) -> Arrays:
        last = self._block()
        rank = _ranks(self._ids)
        words = sorted(self._vocabulary)
        place = np.zeros(len(words), dtype=np.int32)  # number as first met -> sorted
        place[[self._vocabulary[word] for word in words]] = np.arange(len(words), dtype=np.int32)
        self._vocabulary.clear()
        holding = np.zeros(len(words), dtype=np.int64)
        for block in self._blocks(last):
            holding += np.bincount(place[block.terms], minlength=len(words))
        starts = np.concatenate([[0], np.cumsum(holding)]).astype(np.int64)
        lengths = np.array(self._lengths, dtype=np.int64)
        documents, divisors = self._merge(last, place, starts, length_factors(lengths, k1, b))
        return Arrays(
            ids=Strings.of(self._ids), rank=rank, terms=Strings.of(words), starts=starts,
            documents=documents, divisors=divisors, filled=int(np.count_nonzero(lengths)),
            k1=k1, b=b, probe=self._probe,
        )  # fmt: skip

    def _merge(
        self, last: _Block, place: NDArray[np.int32], starts: NDArray[np.int64], factors: NDArray[np.float32]
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Documents and divisors of all terms, in the order of the sorted vocabulary."""
        size = int(starts[-1])
        documents = self._room("documents.npy", size, np.int32)
        divisors = self._room("divisors.npy", size, np.float32)
        free = starts[:-1].copy()  # next free place of each term
        for block in self._blocks(last):
            terms = place[block.terms]
            order = np.argsort(terms, kind="stable")
            counts = np.bincount(terms, minlength=len(free))
            before = np.cumsum(counts) - counts
            target = np.arange(len(terms)) + np.repeat(free - before, counts)
            documents[target] = block.documents[order]
            tf = block.counts[order].astype(np.float32)
            divisors[target] = np.float32(1) + tf * factors[block.documents[order]]
            free += counts
        return documents, divisors

    def _room(self, name: str, size: int, kind: type[Kind]) -> NDArray[Kind]:
        if not self._scratch.used:
            return np.empty(size, dtype=kind)
        return np.asarray(np.lib.format.open_memmap(self._scratch.path(name), "w+", np.dtype(kind), (size,)))


def _ranks(ids: list[str]) -> NDArray[np.int32]:
    """Place of each id among all, in the order of their UTF-8 bytes (Lucene's), which is that of code points."""
    order = sorted(range(len(ids)), key=ids.__getitem__)
    for one, other in pairwise(order):
        if ids[one] == ids[other]:
            raise SeedBenchError(
                f"two documents have the id '{ids[one]}': a search index needs a different id for each."
            )
    rank = np.empty(len(ids), dtype=np.int32)
    rank[order] = np.arange(len(ids), dtype=np.int32)
    return rank

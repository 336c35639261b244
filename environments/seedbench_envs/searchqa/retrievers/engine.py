"""What an engine that keeps an index on disk is: a module with these functions. `__init__.py` lists them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

from seedbench.errors import SeedBenchError, UsageError
from seedbench.store import Report
from seedbench_envs.bm25.analysis import analyze, term_of
from seedbench_envs.bm25.scores import MAX_TERMS
from seedbench_envs.bm25.words import split_words
from seedbench_envs.searchqa.records import Hit, Retriever
from seedbench_envs.searchqa.retrievers.manifest import IndexManifest
from seedbench_envs.searchqa.retrievers.passages import Passages

_QUICK = 500_000
"""Passages; past that a search takes more than a few milliseconds."""
KINDS = ("flat", "ivf", "hnsw")


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How to build an index. Each engine reads its own part. Raises UsageError on values out of range."""

    k1: float = 0.9
    """BM25: weight of a repeated term, above 0."""
    b: float = 0.4
    """BM25: share of a document's length, 0 to 1."""
    encoder: str = ""
    """dense: folder or hub name of an E5-style encoder."""
    kind: str = "flat"
    """dense: flat (exact), ivf (inverted lists) or hnsw (graph)."""
    query_prefix: str = "query: "
    passage_prefix: str = "passage: "
    max_tokens: int = 256
    batch: int = 32
    """dense: texts that are encoded at once."""
    lists: int = 0
    """ivf: number of lists; 0 takes four times the square root of the number of passages."""
    probes: int = 32
    """ivf: lists that a search reads. More is slower and closer to exact."""
    neighbours: int = 32
    """hnsw: links of a passage."""
    effort: int = 128
    """hnsw: candidates that a search and the building keep. More is slower and closer to exact."""

    def __post_init__(self) -> None:
        if not self.k1 > 0 or not 0 <= self.b <= 1:
            raise UsageError(f"k1 must be above 0 and b in 0 to 1, not k1={self.k1:g} and b={self.b:g}.")
        if self.kind not in KINDS:
            raise UsageError(f"the kind of a dense index is one of {', '.join(KINDS)}, not '{self.kind}'.")
        if min(self.max_tokens, self.batch, self.probes, self.neighbours, self.effort) < 1 or self.lists < 0:
            raise UsageError(
                "max-tokens, batch, probes, neighbours and effort must be at least 1, and lists at least 0."
            )


@dataclass(frozen=True, slots=True)
class Built:
    """What an engine says of an index that it built."""

    parameters: dict[str, Any]
    local: dict[str, str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    """Versions beside those that `packages` names."""


class Engine(Protocol):
    """An engine's module."""

    VERSION: int
    """Of its files and rules; see `IndexManifest.version`."""
    RESUMES: bool
    """Whether `build` goes on with what an earlier, killed one left in the scratch folder."""

    def packages(self) -> dict[str, str]:
        """Versions of the packages it needs. Raises SeedBenchError naming the one to install."""
        ...

    def build(self, passages: Passages, folder: Path, scratch: Path, options: BuildOptions, report: Report) -> Built:
        """Write the index into `folder`. What is in `scratch` outlives a kill, and goes when the index is done."""
        ...

    def open_index(self, folder: Path, manifest: IndexManifest, passages: Passages, encoder: str | None) -> Retriever:
        """Open what `build` wrote. `encoder` replaces the manifest's place of the encoder."""
        ...


class InProcess(ABC):
    """A retriever of this process over mapped files, which answers one query after the other."""

    def __init__(self, passages: Passages, manifest: IndexManifest) -> None:
        self._passages = passages
        self._identity = manifest.identity()
        self.slow = len(passages) > _QUICK

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """See `Retriever.search`."""
        checked_k(k)
        return [self._search(query, k) for query in queries]

    @abstractmethod
    def _search(self, query: str, k: int) -> list[Hit]:
        """The hits of one query."""

    def identity(self) -> dict[str, object]:
        """See `Retriever.identity`."""
        return self._identity

    def close(self) -> None:  # noqa: B027  (part of the contract)
        """Nothing to free."""


def installed(engine: str, *names: str, extra: str = "search") -> dict[str, str]:
    """Versions of packages that `engine` needs. Raises SeedBenchError where one is not installed."""
    try:
        return {name: metadata.version(name) for name in names}
    except metadata.PackageNotFoundError as error:
        raise SeedBenchError(
            f"the retriever '{engine}' needs the package {error.name}: install it with"
            f" `pip install 'seedbench[{extra}]'`."
        ) from error


def query_terms(query: str) -> list[str]:
    """The terms of a query, with repeats; at most 1,024 different ones, the first (Lucene refuses more)."""
    terms = analyze(query)
    allowed = set(list(dict.fromkeys(terms))[:MAX_TERMS])
    return [term for term in terms if term in allowed]


def within_limit(query: str) -> str:
    """The query itself, or its words up to the 1,024th different term."""
    if len(query) < 2 * MAX_TERMS:  # too short for so many
        return query
    terms: set[str] = set()
    words = []
    for word in split_words(query):
        terms.add(term_of(word))
        if len(terms) > MAX_TERMS:
            break
        words.append(word)
    else:
        return query
    return " ".join(words)


def checked_k(k: int) -> int:
    """`k`. Raises ValueError below 1."""
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    return k

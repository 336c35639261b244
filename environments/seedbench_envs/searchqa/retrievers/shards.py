"""A corpus in parts, each behind servers of its own: all are asked, and the best passages of all parts are kept.

Scores must be comparable between the parts. Inner products of one encoder are: the result is that of one exact index
over the whole corpus. BM25 scores are so only nearly, because each part weighs terms by its own passages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from seedbench.errors import UsageError
from seedbench.ui.text import inert
from seedbench_envs.searchqa.records import Hit
from seedbench_envs.searchqa.retrievers.http import HttpRetriever

BETWEEN = "|"
_ASIDE = {"encoder", "kind", "lists", "probes", "neighbours", "effort"}
"""Parameters that scores do not depend on: a name beside a hash, and how near passages are looked for."""
_AT_ONCE = 16
"""Searches under way at each part."""


class Shards:
    """Search through several `HttpRetriever`s with different corpora. Any number of threads may use it at once.

    `urls`: parts separated by `|`, each an address or several of servers with the same part, separated by commas.
    `part`: makes the client of one part from its addresses.
    """

    slow = True

    def __init__(self, urls: str, part: Callable[[str], HttpRetriever]) -> None:
        given = [text.strip() for text in urls.split(BETWEEN)]
        self._parts = [part(text) for text in given]
        addresses = [address for one in self._parts for address in one.shown.split(", ")]
        if twice := next((address for address in addresses if addresses.count(address) > 1), None):
            raise UsageError(f"the server {twice} is named in two parts: name each once.")
        self._threads = ThreadPoolExecutor(_AT_ONCE * len(self._parts), thread_name_prefix="shard")
        self._identity: dict[str, object] | None = None

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """See `Retriever.search`. Of equal scores that of the earlier part comes first, then that of the better rank.

        Raises:
            RetrieverFault: one part does not answer; nothing is left out in silence.
        """
        found = list(self._threads.map(lambda part: part.search(queries, k), self._parts))
        return [best_of(lists, k) for lists in zip(*found, strict=True)]

    def identity(self) -> dict[str, object]:
        """The parts' identities, in order.

        Raises:
            SeedBenchError: as of `HttpRetriever.identity`.
            UsageError: two parts have the same corpus, or their scores are not comparable.
        """
        if self._identity is None:
            shards: list[Any] = [one["server"] for one in self._threads.map(lambda p: p.identity(), self._parts)]
            self._refuse_a_mixture(shards)
            self._identity = {"engine": "http", "shards": shards}
        return self._identity

    def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for part in self._parts:
            part.close()

    def _refuse_a_mixture(self, shards: list[dict[str, Any] | None]) -> None:
        corpora: dict[str, HttpRetriever] = {}
        scorers: dict[str, HttpRetriever] = {}
        for part, shard in zip(self._parts, shards, strict=True):
            if shard is None:  # it does not say, and is trusted
                continue
            corpus = str(shard.get("corpus"))
            if other := corpora.get(corpus):
                raise UsageError(
                    f"the parts {other.shown} and {part.shown} have the same corpus: put a comma between servers of one"
                    " part."
                )
            corpora[corpus] = part
            scorers.setdefault(_scorer(shard), part)
        if len(scorers) > 1:
            (one, first), (two, second) = list(scorers.items())[:2]
            raise UsageError(
                f"the parts {first.shown} and {second.shown} score differently ({one}; {two}): build the indexes of all"
                " parts with one engine and the same parameters."
            )


def best_of(lists: Sequence[list[Hit]], k: int) -> list[Hit]:
    """The `k` best of the lists of all parts; sorting keeps the order of equal scores."""
    return sorted((hit for hits in lists for hit in hits), key=lambda hit: -hit.score)[:k]


def _scorer(shard: dict[str, Any]) -> str:
    """What scores depend on beside the passages, in words."""
    given = shard.get("parameters")
    parameters = given if isinstance(given, dict) else {}
    words = [f"{name}={str(parameters[name])[:12]}" for name in sorted(parameters.keys() - _ASIDE)]
    return inert(" ".join([f"{shard.get('engine')} version {shard.get('version')}", *words]), 200)

"""The records of Search-QA that its parts pass to each other, and what a retriever promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a set."""

    id: str
    """`<set>/<split>/<n>`, e.g. `nq/test/0`: the position in the official file."""
    question: str
    answers: tuple[str, ...]
    """Accepted answers, aliases included; at least one."""
    source: str
    """The set: nq, triviaqa, popqa, hotpotqa, 2wikimultihopqa, musique, bamboogle."""
    split: str
    supporting: tuple[str, ...] = ()
    """Ids of the passages that answer it, where they are known."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One passage of a corpus in wiki-18 layout: `contents` is `"Title"`, a line break, and the text."""

    id: str
    title: str
    text: str

    @property
    def contents(self) -> str:
        """The passage as corpora and `/retrieve` replies write it."""
        return f'"{self.title}"\n{self.text}'


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage found for a query, with the engine's score (larger is better)."""

    passage: Passage
    score: float


class RetrieverFault(Exception):
    """A search that cannot be answered (after retries): the episode ends as an infrastructure error."""


class Retriever(Protocol):
    """Search over one corpus. Safe to call from several threads; slow ones say so."""

    slow: bool
    """True where a search blocks for more than a few milliseconds: callers then use a thread."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """At most `k` hits for each query, best first. An empty or blank query has no hits.

        Raises:
            RetrieverFault: the engine or server does not answer.
        """
        ...

    def identity(self) -> dict[str, object]:
        """What results depend on: engine, version, parameters, corpus hash. Plain JSON values, no paths."""
        ...

    def close(self) -> None:
        """Free processes and connections."""
        ...

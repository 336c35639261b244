"""What goes over the wire to a `/retrieve` server: addresses, requests in two dialects, replies.

Search-R1's clients send a list as `queries`, verl-agent's one text as `query`; replies are nested alike:
`{"result": [[{"document": {"id", "contents"}, "score"}, ...], ...]}`, and without scores `{"id", "contents"}` alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from seedbench.errors import UsageError
from seedbench_envs.searchqa.corpus import passage_from
from seedbench_envs.searchqa.records import Hit

SEARCH_R1 = "search-r1"
VERL_AGENT = "verl-agent"
DIALECTS = (SEARCH_R1, VERL_AGENT)
RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_ROUTE = "/retrieve"


class Garbage(Exception):
    """A reply that is none; the text says why."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is."""

    retrieve: str
    health: str
    shown: str
    """Without user name, password and query."""


def addresses(urls: str) -> list[Address]:
    """The addresses in a list separated by commas; a path is kept, and `/retrieve` added where there is none.

    Raises:
        UsageError: one is no http address, or one comes twice.
    """
    found = [_address(url.strip()) for url in urls.split(",")]
    if len({address.retrieve for address in found}) < len(found):
        raise UsageError(f"'{urls}' names a server twice: name each once.")
    return found


def _address(url: str) -> Address:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or any(ord(letter) < 33 for letter in url):
        raise UsageError(f"'{url}' is not a server's address: expected e.g. http://localhost:8000/retrieve.")
    path = parts.path.rstrip("/") or _ROUTE
    base = path.removesuffix(_ROUTE)
    host = parts.netloc.rpartition("@")[2]
    return Address(
        retrieve=urlunsplit((parts.scheme, parts.netloc, path, parts.query, "")),
        health=urlunsplit((parts.scheme, parts.netloc, f"{base}/health", "", "")),
        shown=urlunsplit((parts.scheme, host, path, "", "")),
    )


def body_of(dialect: str, queries: Sequence[str], k: int) -> dict[str, Any]:
    """A request; of verl-agent's dialect for the first query alone."""
    asked: dict[str, Any] = {"query": queries[0]} if dialect == VERL_AGENT else {"queries": list(queries)}
    return {**asked, "topk": k, "return_scores": True}


def read_hits(content: bytes, count: int, k: int, *, scored: bool = False) -> list[list[Hit]]:
    """The hits of a reply to `count` queries, at most `k` each.

    A passage without a score gets 1 / its rank: the order is the server's.

    Raises:
        Garbage: it is not such a reply, or, if it must be `scored`, a passage has no score.
    """
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Garbage("the reply is no JSON") from error
    lists = data.get("result") if isinstance(data, dict) else None
    if not isinstance(lists, list) or not all(isinstance(hits, list) for hits in lists):
        raise Garbage('the reply has no "result" that is a list of lists')
    if len(lists) != count:
        raise Garbage(f"the reply has {len(lists)} lists of passages for {count} queries")
    return [[_hit(hit, rank, scored) for rank, hit in enumerate(hits[:k], 1)] for hits in lists]


def _hit(hit: object, rank: int, scored: bool) -> Hit:
    if not isinstance(hit, dict):
        raise Garbage("a passage of the reply is not an object")
    score = hit.get("score")
    if scored and score is None:
        raise Garbage("a passage of the reply has no score, which parts of a corpus need")
    try:
        passage = passage_from(hit.get("document", hit))
        number = 1 / rank if score is None else float(score)
    except (ValueError, TypeError, OverflowError) as error:
        raise Garbage(f"a passage of the reply cannot be read: {error}") from error
    if not math.isfinite(number):
        raise Garbage("a score of the reply is not a finite number")
    return Hit(passage, number)

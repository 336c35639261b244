"""What the retrieval server takes: the two dialects of `/retrieve`, and limits that no request may pass."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from seedbench.errors import UsageError

_KINDS: dict[type, str] = {str: "a text", list: "a list", dict: "an object"}


class Refused(Exception):
    """A request that is not answered: an HTTP status and one sentence for the client."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one request.

    Raises:
        UsageError: a limit below 1, or a default above its limit.
    """

    body: int = 8 << 20
    """Bytes of a request's body."""
    queries: int = 4096
    """Queries in a request; roll-outs send one for every open episode."""
    characters: int = 20_000
    """Characters of a query."""
    topk: int = 100
    """Passages for a query."""
    default_topk: int = 3
    """Passages for a query where the request does not say."""
    seconds: float = 30.0
    """Time that a client may take to send a body."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise UsageError(f"the limit {field.name} must be at least 1, not {getattr(self, field.name)}.")
        if self.default_topk > self.topk:
            raise UsageError(f"the default topk ({self.default_topk}) is above the limit of topk ({self.topk}).")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that can be answered."""

    queries: tuple[str, ...]
    topk: int
    scores: bool
    """Each passage inside {"document", "score"}; otherwise the documents alone."""


def parse_request(body: bytes, limits: Limits) -> Asked:
    """Read a `/retrieve` body of either dialect: `queries` is a list of texts, `query` is one text.

    As in Search-R1's and verl-agent's servers, `topk` may be absent or null, `return_scores` is false unless said, and
    other fields are ignored.

    Raises:
        Refused: 422 with a sentence, whatever the bytes are.
    """
    data = _json(body)
    topk = data.get("topk")
    topk = limits.default_topk if topk is None else topk
    if not isinstance(topk, int) or isinstance(topk, bool) or not 1 <= topk <= limits.topk:
        raise Refused(422, f"topk must be a whole number from 1 to {limits.topk}, not {_shown(topk)}.")
    scores = data.get("return_scores")
    if scores is not None and not isinstance(scores, bool):
        raise Refused(422, f"return_scores must be true or false, not {_shown(scores)}.")
    return Asked(_queries(data, limits), topk, bool(scores))


def _json(body: bytes) -> dict[str, Any]:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        # ValueError covers broken UTF-8 and numbers too long to read; the parser's words may quote the input.
        raise Refused(422, "the body is not JSON; send an object with queries or query.") from None
    if not isinstance(data, dict):
        raise Refused(422, f"the body must be a JSON object with queries or query, not {_shown(data)}.")
    return data


def _queries(data: dict[str, Any], limits: Limits) -> tuple[str, ...]:
    if ("queries" in data) == ("query" in data):
        raise Refused(422, "send either queries (a list of texts) or query (one text).")
    if "query" in data:
        if not isinstance(data["query"], str):
            raise Refused(422, f"query must be one text, not {_shown(data['query'])}; send a list as queries.")
        queries = [data["query"]]
    else:
        queries = data["queries"]
        if not isinstance(queries, list):
            raise Refused(422, f"queries must be a list of texts, not {_shown(queries)}.")
    if len(queries) > limits.queries:
        raise Refused(422, f"{len(queries):,} queries are more than the {limits.queries:,} that a request may hold.")
    for number, query in enumerate(queries):
        if not isinstance(query, str):
            raise Refused(422, f"queries[{number}] must be a text, not {_shown(query)}.")
        if len(query) > limits.characters:
            raise Refused(
                422,
                f"queries[{number}] has {len(query):,} characters, more than the {limits.characters:,} of a query.",
            )
    return tuple(queries)


def _shown(value: object) -> str:
    """A value as a short word: numbers as they are, the rest by its JSON kind."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return str(value) if abs(value) < 1e15 else "such a number"
    return _KINDS[type(value)]

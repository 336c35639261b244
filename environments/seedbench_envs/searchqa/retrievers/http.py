"""The engine `http`: a client of one or several servers with a `/retrieve` route that serve the same index.

Several servers share the load (`seedbench.balance`), and where one fails the next is asked at once. What they serve
(`/health`) must be equal on all; a server that failed is asked again what it serves before it is searched.
Servers that hold parts of a corpus: `shards`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from seedbench.balance import Balanced, take
from seedbench.errors import SeedBenchError, UsageError, unknown
from seedbench.ui.text import inert
from seedbench_envs.searchqa.records import Hit, RetrieverFault
from seedbench_envs.searchqa.retrievers import http_wire as wire
from seedbench_envs.searchqa.retrievers.engine import checked_k
from seedbench_envs.searchqa.retrievers.http_exchange import Failed, Reply, get, identity_in, post

_CONNECT_SECONDS = 10.0
_REST_SECONDS = 5.0
"""A server that failed is set aside for so long; twice as long with each further failure in a row."""
_LONGEST_REST = 60.0
_LONGEST_WAIT = 10.0
_AT_ONCE = 8
"""Requests of one search under way to a server that takes a query at a time."""


@dataclass(slots=True, eq=False)
class _Server(Balanced):
    """One server, and what was learned about it."""

    address: wire.Address
    dialect: str | None
    """None until a reply has shown it."""
    sure: bool = True
    """Whether it serves what it served; not after a failure: another server may have taken its place."""


class HttpRetriever:
    """Search through servers. Any number of threads may use it at once.

    `urls`: addresses separated by commas; `/retrieve` is added to those without a path. `dialect`: search-r1 (a list of
    queries in a request), verl-agent (one query) or auto, which finds out. `timeout`: seconds for one whole reply.
    `retries`: further rounds over all servers after one in which none answered; connection errors, time-outs, statuses
    429 and 5xx, and replies that cannot be read are tried again. `back_off_seconds`: mean wait before the first retry;
    it doubles each time, up to 10 s. `scored`: a reply without scores is one that cannot be read.
    """

    slow = True

    def __init__(
        self,
        urls: str,
        *,
        dialect: str = "auto",
        timeout: float = 30.0,
        retries: int = 5,
        back_off_seconds: float = 0.25,
        scored: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if dialect not in ("auto", *wire.DIALECTS):
            raise unknown("dialect", dialect, ("auto", *wire.DIALECTS))
        if not timeout > 0 or retries < 0 or back_off_seconds < 0:
            raise UsageError("timeout must be positive, retries and back-off at least 0.")
        known = None if dialect == "auto" else dialect
        self._servers = [_Server(address, known) for address in wire.addresses(urls)]
        self._timeout = timeout
        self._retries = retries
        self._back_off_seconds = back_off_seconds
        self._scored = scored
        self._sleep = sleep
        self._lock = threading.Lock()
        self._searches = 0
        self._identity: dict[str, object] | None = None
        self._client = httpx.Client(
            timeout=httpx.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS)),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        )
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="retrieve")

    @property
    def shown(self) -> str:
        """The addresses for a message."""
        return ", ".join(server.address.shown for server in self._servers)

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """See `Retriever.search`. Servers are not asked about blank queries."""
        checked_k(k)
        asked = [number for number, query in enumerate(queries) if query.strip()]
        results: list[list[Hit]] = [[] for _ in queries]
        if asked:
            texts = [queries[n].encode("utf-16", "surrogatepass").decode("utf-16", "replace") for n in asked]
            for number, hits in zip(asked, self._persist(lambda server: self._found(server, texts, k)), strict=True):
                results[number] = hits
        return results

    def identity(self) -> dict[str, object]:
        """What the servers say they are in `/health` (SeedBench's do); None where they do not say.

        Raises:
            SeedBenchError: no server answers, or two serve different indexes.
        """
        if self._identity is None:
            self._identity = {"engine": "http", "server": self._common_identity()}
        return self._identity

    def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _persist(self, exchange: Callable[[_Server], list[list[Hit]]]) -> list[list[Hit]]:
        """The first answer; servers in turn, then a pause, and again."""
        problems: dict[str, str] = {}
        for attempt in range(self._retries + 1):
            waits: list[float] = []
            for server in self._in_turn():
                try:
                    with self._taken(server):
                        return exchange(server)
                except Failed as error:
                    problems[server.address.shown] = str(error)
                    waits.extend([] if error.wait is None else [error.wait])
            if attempt < self._retries:
                mean = self._back_off_seconds * 2**attempt
                self._sleep(min(_LONGEST_WAIT, max([random.uniform(0.5, 1.5) * mean, *waits])))
        listing = "; ".join(f"{shown}: {problem}" for shown, problem in problems.items())
        raise RetrieverFault(f"no answer in {self._retries + 1} attempts from {listing}.")

    def _in_turn(self) -> Iterator[_Server]:
        """Every server once, counted as under way at each."""
        left = list(self._servers)
        with self._lock:
            home, self._searches = self._searches, self._searches + 1
        while left:
            with self._lock:
                chosen = take(left, home)
            left.remove(chosen)
            yield chosen

    @contextmanager
    def _taken(self, server: _Server) -> Iterator[None]:
        """Note what becomes of the request to a server that was taken."""
        alive = True
        try:
            yield
        except Failed:
            alive = False
            raise
        finally:
            with self._lock:
                server.under_way -= 1
                if alive:
                    server.answered()
                else:
                    server.failed(min(_LONGEST_REST, _REST_SECONDS * 2 ** min(server.failures, 8)))
                    server.sure = False

    def _found(self, server: _Server, queries: list[str], k: int) -> list[list[Hit]]:
        """The answer of one server, in its dialect, which the first reply shows."""
        if not server.sure:
            self._check(server)
        if server.dialect == wire.VERL_AGENT:
            return self._singly(server, queries, k)
        reply = self._post(server, wire.body_of(wire.SEARCH_R1, queries, k))
        if server.dialect is None and reply.status in {400, 422}:
            other = self._post(server, wire.body_of(wire.VERL_AGENT, queries, k))
            if other.status == httpx.codes.OK:
                first = self._read(server, other, 1, k)
                server.dialect = wire.VERL_AGENT
                return first + self._singly(server, queries[1:], k)
        hits = self._read(server, reply, len(queries), k)
        server.dialect = wire.SEARCH_R1
        return hits

    def _check(self, server: _Server) -> None:
        """Raise Failed where a server does not say, or no longer says, that it serves what the others do."""
        if self._identity is not None and self._health(server) != self._identity["server"]:
            raise Failed("it serves another index than the search began with")
        server.sure = True

    def _singly(self, server: _Server, queries: list[str], k: int) -> list[list[Hit]]:
        """A request for each query, a few at once."""

        def ask(query: str) -> list[Hit]:
            return self._read(server, self._post(server, wire.body_of(wire.VERL_AGENT, [query], k)), 1, k)[0]

        return [ask(query) for query in queries] if len(queries) < 2 else list(self._threads.map(ask, queries))

    def _read(self, server: _Server, reply: Reply, count: int, k: int) -> list[list[Hit]]:
        if reply.status == httpx.codes.OK:
            try:
                return wire.read_hits(reply.content, count, k, scored=self._scored)
            except wire.Garbage as error:
                raise Failed(str(error)) from error
        text = inert(" ".join(reply.content[:2000].decode(errors="replace").split()), 200) or "no text"
        if reply.status in wire.RETRIED:
            raise Failed(f"status {reply.status}: {text}", reply.wait)
        raise RetrieverFault(f"{server.address.shown} refuses the search (status {reply.status}: {text}).")

    def _post(self, server: _Server, body: dict[str, object]) -> Reply:
        return post(self._client, server.address.retrieve, body, self._timeout)

    def _common_identity(self) -> dict[str, object] | None:
        found, problems = list[tuple[_Server, dict[str, object] | None]](), list[str]()
        for server in self._servers:
            try:
                found.append((server, self._patient_health(server)))
            except Failed as error:
                server.sure = False
                problems.append(f"{server.address.shown} does not answer: {error}")
        if not found:
            raise SeedBenchError(f"{'; '.join(problems)}. Start the server, or correct the address.")
        first, identity = found[0]
        for server, other in found:
            if other != identity:
                raise SeedBenchError(
                    f"{server.address.shown} and {first.address.shown} serve different indexes"
                    f" ({_described(other)}; {_described(identity)}): name servers of one index, or put '|' between the"
                    " parts of a corpus."
                )
        return identity

    def _patient_health(self, server: _Server) -> dict[str, object] | None:
        for attempt in range(self._retries):
            try:
                return self._health(server)
            except Failed:
                self._sleep(min(_LONGEST_WAIT, self._back_off_seconds * 2**attempt))
        return self._health(server)

    def _health(self, server: _Server) -> dict[str, object] | None:
        reply = get(self._client, server.address.health, self._timeout)
        if reply.status in wire.RETRIED:
            raise Failed(f"status {reply.status}")
        return identity_in(reply)


def _described(identity: dict[str, object] | None) -> str:
    if identity is None:
        return "it does not say which"
    return inert(f"engine {identity.get('engine')}, corpus {str(identity.get('corpus'))[:12]}", 80)

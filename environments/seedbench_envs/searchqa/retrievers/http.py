"""The engine `http`: a client of one or several servers with a `/retrieve` route.

Several servers share the load: a request goes to the one with the fewest under way, and to the next where one fails.
They must serve the same index; those that say what they serve (`/health`) are compared.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from seedbench.errors import SeedBenchError, UsageError, unknown
from seedbench.ui.text import inert
from seedbench_envs.searchqa.records import Hit, RetrieverFault
from seedbench_envs.searchqa.retrievers import http_wire as wire
from seedbench_envs.searchqa.retrievers.engine import checked_k

_CONNECT_SECONDS = 10.0
_REST_SECONDS = 5.0
"""A server that failed is asked last for so long."""
_LONGEST_WAIT = 10.0
_LARGEST_REPLY = 64 << 20
_LARGEST_IDENTITY = 1 << 16
_AT_ONCE = 8
"""Requests of one search under way to a server that takes a query at a time."""


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    content: bytes
    wait: float | None
    """Seconds that the server asks to wait."""


class _Failed(Exception):
    """An attempt that may succeed later."""

    def __init__(self, problem: str, wait: float | None = None) -> None:
        super().__init__(problem)
        self.wait = wait


class _Server:
    """One server, and what was learned about it."""

    def __init__(self, address: wire.Address, dialect: str | None) -> None:
        self.address = address
        self.dialect = dialect
        """None until a reply has shown it."""
        self.busy = 0
        self.asked = 0
        self.resting_until = 0.0


class HttpRetriever:
    """Search through servers. Any number of threads may use it at once.

    `urls`: addresses separated by commas; `/retrieve` is added to those without a path. `dialect`: search-r1 (a list of
    queries in a request), verl-agent (one query) or auto, which finds out. `timeout`: seconds for one whole reply.
    `retries`: further rounds over all servers after one in which none answered; connection errors, time-outs, statuses
    429 and 5xx, and replies that cannot be read are tried again. `back_off_seconds`: mean wait before the first retry;
    it doubles each time, up to 10 s.
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
        self._sleep = sleep
        self._lock = threading.Lock()
        self._identity: dict[str, object] | None = None
        self._client = httpx.Client(
            timeout=httpx.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS)),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        )
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="retrieve")

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
        """What the server says it is in `/health` (SeedBench's does); None where it does not say.

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
                    with self._counted(server):
                        return exchange(server)
                except _Failed as error:
                    problems[server.address.shown] = str(error)
                    waits.extend([] if error.wait is None else [error.wait])
                    server.resting_until = time.monotonic() + _REST_SECONDS
            if attempt < self._retries:
                mean = self._back_off_seconds * 2**attempt
                self._sleep(min(_LONGEST_WAIT, max([random.uniform(0.5, 1.5) * mean, *waits])))
        listing = "; ".join(f"{shown}: {problem}" for shown, problem in problems.items())
        raise RetrieverFault(f"no answer in {self._retries + 1} attempts from {listing}.")

    def _in_turn(self) -> Iterator[_Server]:
        """Every server once: those that failed lately last, then by load, then by how often they were asked."""
        left = list(self._servers)
        while left:
            now = time.monotonic()
            with self._lock:
                chosen = min(left, key=lambda server: (server.resting_until > now, server.busy, server.asked))
                chosen.asked += 1
            left.remove(chosen)
            yield chosen

    @contextmanager
    def _counted(self, server: _Server) -> Iterator[None]:
        with self._lock:
            server.busy += 1
        try:
            yield
        finally:
            with self._lock:
                server.busy -= 1

    def _found(self, server: _Server, queries: list[str], k: int) -> list[list[Hit]]:
        """The answer of one server, in its dialect, which the first reply shows."""
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

    def _singly(self, server: _Server, queries: list[str], k: int) -> list[list[Hit]]:
        """A request for each query, a few at once."""

        def ask(query: str) -> list[Hit]:
            return self._read(server, self._post(server, wire.body_of(wire.VERL_AGENT, [query], k)), 1, k)[0]

        return [ask(query) for query in queries] if len(queries) < 2 else list(self._threads.map(ask, queries))

    def _read(self, server: _Server, reply: _Reply, count: int, k: int) -> list[list[Hit]]:
        if reply.status == httpx.codes.OK:
            try:
                return wire.read_hits(reply.content, count, k)
            except wire.Garbage as error:
                raise _Failed(str(error)) from error
        text = inert(" ".join(reply.content[:2000].decode(errors="replace").split()), 200) or "no text"
        if reply.status in wire.RETRIED:
            raise _Failed(f"status {reply.status}: {text}", reply.wait)
        raise RetrieverFault(f"{server.address.shown} refuses the search (status {reply.status}: {text}).")

    def _post(self, server: _Server, body: dict[str, object]) -> _Reply:
        """Raises _Failed where no whole reply comes in time."""
        return self._exchange("POST", server.address.retrieve, json.dumps(body).encode(), _LARGEST_REPLY)

    def _exchange(self, method: str, url: str, content: bytes | None, largest: int) -> _Reply:
        end = time.monotonic() + self._timeout
        headers = {"Content-Type": "application/json"}
        received = bytearray()
        try:
            with self._client.stream(method, url, content=content, headers=headers) as reply:
                for chunk in reply.iter_bytes():
                    received += chunk
                    if len(received) > largest:
                        raise _Failed(f"the reply is larger than {largest >> 10:,} kB")
                    if time.monotonic() > end:  # the client's own limit is for each piece
                        raise _Failed(f"no whole reply within {self._timeout:g} s")
                return _Reply(reply.status_code, bytes(received), _retry_after(reply))
        except httpx.TimeoutException as error:
            raise _Failed(f"no reply within {self._timeout:g} s") from error
        except httpx.HTTPError as error:
            raise _Failed(f"the connection failed ({type(error).__name__})") from error

    def _common_identity(self) -> dict[str, object] | None:
        found, problems = [], []
        for server in self._servers:
            try:
                found.append(self._health(server))
            except _Failed as error:
                problems.append(f"{server.address.shown} does not answer: {error}")
        if not found:
            raise SeedBenchError(f"{'; '.join(problems)}. Start the server, or correct the address.")
        if any(identity != found[0] for identity in found):
            raise SeedBenchError(
                f"the servers {', '.join(server.address.shown for server in self._servers)} serve different indexes:"
                " name servers of one index."
            )
        return found[0]

    def _health(self, server: _Server) -> dict[str, object] | None:
        for attempt in range(self._retries + 1):
            try:
                reply = self._exchange("GET", server.address.health, None, _LARGEST_IDENTITY)
                if reply.status not in wire.RETRIED:
                    return _identity_in(reply)
                problem = _Failed(f"status {reply.status}")
            except _Failed as error:
                problem = error
            if attempt < self._retries:
                self._sleep(min(_LONGEST_WAIT, self._back_off_seconds * 2**attempt))
        raise problem


def _identity_in(reply: _Reply) -> dict[str, object] | None:
    try:
        data = json.loads(reply.content) if reply.status == httpx.codes.OK else None
    except (ValueError, RecursionError):
        return None
    identity = data.get("identity") if isinstance(data, dict) else None
    return identity if isinstance(identity, dict) else None


def _retry_after(reply: httpx.Response) -> float | None:
    text = reply.headers.get("retry-after", "")
    return float(text[:6]) if text.isascii() and text.isdecimal() else None

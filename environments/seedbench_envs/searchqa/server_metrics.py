"""Counters of the retrieval server, as plain text in the Prometheus form. Used by one thread, the event loop's."""

from __future__ import annotations

from collections import Counter, deque

_KEPT = 4096
"""Latest answered requests that the quantiles are of."""
_PREFIX = "seedbench_retriever"


class Metrics:
    """What the server has done since it started."""

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        """Requests to `/retrieve` by HTTP status."""
        self.queries = 0
        """Queries of answered requests."""
        self._seconds: deque[float] = deque(maxlen=_KEPT)

    def count(self, status: int, queries: int, seconds: float) -> None:
        """Record one request; `queries` and `seconds` count where it was answered."""
        self.requests[status] += 1
        if status == 200:
            self.queries += queries
            self._seconds.append(seconds)

    @property
    def errors(self) -> int:
        """Requests that were not answered."""
        return sum(number for status, number in self.requests.items() if status != 200)

    def quantile(self, share: float) -> float:
        """Seconds that this share of the latest answered requests did not pass; 0 before the first.

        The nearest-rank quantile: the smallest value that at least `share` of the values do not pass.
        """
        ordered = sorted(self._seconds)
        return ordered[max(-int(-share * len(ordered) // 1), 1) - 1] if ordered else 0.0

    def text(self, waiting: int, uptime: float) -> str:
        """The page: one counter a line. `waiting` is queries in the queue, `uptime` seconds."""
        lines = [f'{_PREFIX}_requests_total{{status="{s}"}} {n}' for s, n in sorted(self.requests.items())]
        lines += [
            f"{_PREFIX}_queries_total {self.queries}",
            f"{_PREFIX}_errors_total {self.errors}",
            f"{_PREFIX}_queries_waiting {waiting}",
            f"{_PREFIX}_uptime_seconds {uptime:.3f}",
        ]
        lines += [
            f'{_PREFIX}_latency_seconds{{quantile="{share}"}} {self.quantile(share):.6f}' for share in (0.5, 0.95, 0.99)
        ]
        return "\n".join(lines) + "\n"

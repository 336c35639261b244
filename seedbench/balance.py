"""Which of several equal servers the next request goes to, and how long one that failed is left alone.

The server with the fewest requests under way is asked. One that failed is set aside for a while; then a single request
tries it, and if that is answered the others follow. Where all are set aside, the one whose time comes first is asked.
Nothing here is locked: threads that share servers hold a lock of their own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar


@dataclass(slots=True, eq=False, kw_only=True)
class Balanced:
    """The state of one server."""

    under_way: int = 0
    """Requests that are not answered yet; whoever takes a server takes one off again."""
    failures: int = 0
    """Failures in a row."""
    until: float = 0.0
    """Until when it is set aside, by `time.monotonic`."""

    def failed(self, seconds: float) -> None:
        """Note a failure, and set the server aside for so many seconds from now."""
        now = time.monotonic()
        self.failures += self.until <= now  # those of one moment count once
        self.until = max(self.until, now + seconds)

    def answered(self) -> None:
        """Note a success."""
        self.failures, self.until = 0, 0.0


T = TypeVar("T", bound=Balanced)


def take(servers: Sequence[T], home: int) -> T:
    """The server for the next request, counted as under way there: the caller takes one off again.

    `home`: breaks ties, as the place to begin at; an episode's number for all its turns, whose prompts share their
    beginning, or a count for turn and turn about.
    """
    now, n = time.monotonic(), len(servers)
    ready = [s for s in servers if s.until <= now and not (s.failures and s.under_way)]
    if ready:
        chosen = min(ready, key=lambda s: (s.under_way, (servers.index(s) - home) % n))
    else:
        chosen = min(servers, key=lambda s: (s.until, s.under_way))
    chosen.under_way += 1
    return chosen

"""One exchange with a `/retrieve` server: a whole reply within a time and a size, or a failure that may pass."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import httpx

_LARGEST_REPLY = 64 << 20
_LARGEST_IDENTITY = 1 << 16


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply."""

    status: int
    content: bytes
    wait: float | None
    """Seconds that the server asks to wait."""


class Failed(Exception):
    """An attempt that may succeed later."""

    def __init__(self, problem: str, wait: float | None = None) -> None:
        super().__init__(problem)
        self.wait = wait


def post(client: httpx.Client, url: str, body: dict[str, object], timeout: float) -> Reply:
    """Send JSON. Raises Failed where no whole reply comes within `timeout` seconds, or one of over 64 MiB."""
    return _exchange(client, "POST", url, json.dumps(body).encode(), timeout, _LARGEST_REPLY)


def get(client: httpx.Client, url: str, timeout: float) -> Reply:
    """Ask for a page. Raises Failed where no whole reply comes within `timeout` seconds, or one of over 64 KiB."""
    return _exchange(client, "GET", url, None, timeout, _LARGEST_IDENTITY)


def identity_in(reply: Reply) -> dict[str, object] | None:
    """The identity in a reply of `/health`; None where there is none."""
    try:
        data = json.loads(reply.content) if reply.status == httpx.codes.OK else None
    except (ValueError, RecursionError):
        return None
    identity = data.get("identity") if isinstance(data, dict) else None
    return identity if isinstance(identity, dict) else None


def _exchange(
    client: httpx.Client, method: str, url: str, content: bytes | None, timeout: float, largest: int
) -> Reply:
    end = time.monotonic() + timeout
    headers = {"Content-Type": "application/json"}
    received = bytearray()
    try:
        with client.stream(method, url, content=content, headers=headers) as reply:
            for chunk in reply.iter_bytes():
                received += chunk
                if len(received) > largest:
                    raise Failed(f"the reply is larger than {largest >> 10:,} kB")
                if time.monotonic() > end:  # the client's own limit is for each piece
                    raise Failed(f"no whole reply within {timeout:g} s")
            return Reply(reply.status_code, bytes(received), _retry_after(reply))
    except httpx.TimeoutException as error:
        raise Failed(f"no reply within {timeout:g} s") from error
    except httpx.HTTPError as error:
        raise Failed(f"the connection failed ({type(error).__name__})") from error


def _retry_after(reply: httpx.Response) -> float | None:
    text = reply.headers.get("retry-after", "")
    return float(text[:6]) if text.isascii() and text.isdecimal() else None

"""`seedbench serve retriever`: a corpus behind HTTP, for clients of Search-R1's and of verl-agent's `/retrieve`."""

from __future__ import annotations

import signal
import socket
import sys
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbench.errors import SeedBenchError, UsageError
from seedbench.ui.text import inert
from seedbench_envs.searchqa.records import Retriever
from seedbench_envs.searchqa.server_limits import Limits
from seedbench_envs.searchqa.server_pool import SearchPool

if TYPE_CHECKING:
    import uvicorn

_STOP_SECONDS = 10
"""Time that requests under way have to end once the server is told to stop."""


@dataclass(frozen=True, slots=True)
class Serving:
    """Settings of a server.

    Raises:
        UsageError: a count below 1, a port that is none, or a queue that no full request fits in.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    """0 takes a free one."""
    threads: int = 4
    """Searches under way at once."""
    batch: int = 64
    """Most queries in one search."""
    queue: int = 8192
    """Queries that may wait."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for name in ("threads", "batch", "queue"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if not 0 <= self.port <= 65535:
            raise UsageError(f"the port must be from 0 (any free one) to 65535, not {self.port}.")
        if self.queue < self.limits.queries:
            raise UsageError(
                f"the queue ({self.queue}) must hold at least one full request ({self.limits.queries} queries);"
                " make it longer or lower the limit of queries."
            )


def serve_index(engine: str, index: Path, serving: Serving) -> None:
    """`serve` the index in a folder. `engine` is `auto` or the index's own; raises as `open_retriever` too."""
    from seedbench_envs.searchqa.retrievers import open_retriever

    serve(open_retriever(engine, index), serving)


def serve(retriever: Retriever, serving: Serving) -> None:
    """Serve until SIGTERM or SIGINT, then end what is under way and return. The retriever is closed at the end.

    One line on standard output says when requests are taken and from what; faults go to standard error.

    Args:
        retriever: what is searched.
        serving: address, threads and limits.

    Raises:
        SeedBenchError: fastapi or uvicorn is not installed, or the address cannot be listened on.
    """
    try:
        listener = _listen(serving.host, serving.port)
        with listener:
            server = _make_server(retriever, serving)
            _stop_on_signals(server)
            _announce(listener, retriever.identity())
            server.run(sockets=[listener])
    finally:
        retriever.close()


def _make_server(retriever: Retriever, serving: Serving) -> uvicorn.Server:
    try:
        import uvicorn

        from seedbench_envs.searchqa.server_app import make_app
    except ImportError as error:
        raise SeedBenchError(
            f"the retrieval server needs fastapi and uvicorn ({error}); pip install 'seedbench[search]'."
        ) from None
    pool = SearchPool(retriever, threads=serving.threads, batch=serving.batch, room=serving.queue)
    app = make_app(retriever.identity(), pool, serving.limits, _complain)
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            # Clients that keep a pool of connections pause between batches of roll-outs.
            timeout_keep_alive=75,
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
    )


def _stop_on_signals(server: uvicorn.Server) -> None:
    """Tell the server to stop on SIGTERM and SIGINT.

    The server has handlers of its own while it runs; afterwards it raises the signal again for those that were there
    before, which are these: the process then ends as one that was asked to stop, with exit code 0.
    """

    def stop(_: int, __: Any) -> None:
        server.should_exit = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket; requests wait in it until the server runs."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(2048)
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that no host can have
        reason = error.strerror if isinstance(error, OSError) else "this is no host name"
        raise UsageError(
            f"cannot listen on {host}, port {port}: {reason}. Choose another with --host and --port"
            " (port 0 takes a free one)."
        ) from None
    return listener


def _announce(listener: socket.socket, identity: dict[str, object]) -> None:
    host, port = listener.getsockname()[:2]
    if not ip_address(host).is_loopback:
        _complain(f"warning: {host} is open to other machines, and whoever reaches it may search.")
    shown = f"[{host}]" if ":" in host else host
    size = identity.get("passages")
    passages = f", {size:,} passages" if isinstance(size, int) else ""
    corpus = str(identity.get("corpus"))[:12]
    print(
        inert(f"http://{shown}:{port}: engine {identity.get('engine')}, corpus {corpus}{passages}"),
        flush=True,
    )


def _complain(text: str) -> None:
    print(inert(text), file=sys.stderr, flush=True)

"""A real HTTP server on 127.0.0.1 that plays an OpenAI-compatible API from a script."""

import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """What the server answers: `body` is sent as JSON, `raw` as it is."""

    status: int = 200
    body: Any = None
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0


def completion(text: str | None, finish_reason: str = "stop", **choice: Any) -> Reply:
    """A well-formed chat completion of 11 prompt and 5 generated tokens."""
    message = {"role": "assistant", "content": text}
    return Reply(
        body={
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason, **choice}],
            "usage": {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16},
        }
    )


def models(*names: str, owner: str = "someone") -> Reply:
    """A model list."""
    return Reply(body={"object": "list", "data": [{"id": name, "owned_by": owner} for name in names]})


class FakeServer(AbstractContextManager["FakeServer"]):
    """Answers `GET /v1/models` with `listing` and each `POST` with `script(body, number of that POST)`.

    `info`: the reply to `GET /server_info`. `port`: 0 takes a free one. `late`: seconds until it listens.
    """

    def __init__(
        self,
        script: Callable[[dict[str, Any], int], Reply],
        listing: Reply | None = None,
        *,
        info: Reply | None = None,
        port: int = 0,
        late: float = 0.0,
    ) -> None:
        self.script = script
        self.listing = listing or models("tiny")
        self.info = info or Reply(404, {"detail": "Not Found"})
        self.port = port
        self.late = late
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.most_at_once = 0
        self._at_once = 0
        self._connections: list[socket.socket] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler(), bind_and_activate=not port)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        """The API's base address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> "FakeServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for connection in self._connections:  # a process that ends takes its connections with it
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _serve(self) -> None:
        time.sleep(self.late)
        if self.port:
            self._server.server_bind()
            self._server.server_activate()
        self._server.serve_forever(0.01)

    def answer(self, body: dict[str, Any], headers: dict[str, str]) -> Reply:
        """Record one POST and play its reply, counting how many are under way."""
        with self._lock:
            number = len(self.bodies)
            self.bodies.append(body)
            self.headers.append(headers)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        reply = self.script(body, number)
        time.sleep(reply.delay)
        with self._lock:
            self._at_once -= 1
        return reply

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                fake._connections.append(self.connection)

            def do_GET(self) -> None:
                replies = {"/v1/models": fake.listing, "/server_info": fake.info}
                self._send(replies.get(self.path.partition("?")[0], Reply(404, {"detail": "Not Found"})))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                found = self.path == "/v1/chat/completions"
                headers = {key.lower(): value for key, value in self.headers.items()}
                self._send(fake.answer(body, headers) if found else Reply(404, {"detail": "Not Found"}))

            def _send(self, reply: Reply) -> None:
                data = reply.raw if reply.raw is not None else json.dumps(reply.body).encode()
                try:
                    self.send_response(reply.status)
                    for name, value in reply.headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True  # the client gave up: a timeout is part of some tests

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        return Handler

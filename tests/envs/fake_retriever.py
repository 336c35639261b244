"""A `/retrieve` server in a thread that answers by a script."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from seedbench_envs.searchqa.records import Retriever

Answer = tuple[int, bytes, dict[str, str]]
Script = Callable[[dict[str, Any]], Answer]


def document(query: str, rank: int) -> dict[str, str]:
    return {"id": f"{query}-{rank}", "contents": f'"{query}"\ntext {rank}'}


def result(queries: list[str], k: int, scores: bool = True) -> dict[str, Any]:
    """A right reply."""
    return {
        "result": [
            [
                {"document": document(query, rank), "score": 10.0 - rank} if scores else document(query, rank)
                for rank in range(k)
            ]
            for query in queries
        ]
    }


def ok(data: object) -> Answer:
    return 200, json.dumps(data).encode(), {}


def search_r1(request: dict[str, Any]) -> Answer:
    if "queries" not in request:
        return 422, b'{"detail": "queries: field required"}', {}
    return ok(result(request["queries"], request["topk"]))


def verl_agent(request: dict[str, Any]) -> Answer:
    if "query" not in request:
        return 422, b'{"detail": "query: field required"}', {}
    return ok(result([request["query"]], request["topk"]))


def searching(retriever: Retriever) -> Script:
    """Searches, as SeedBench's server does."""

    def script(request: dict[str, Any]) -> Answer:
        found = retriever.search(request["queries"], request["topk"])
        written = [
            [{"document": {"id": h.passage.id, "contents": h.passage.contents}, "score": h.score} for h in hits]
            for hits in found
        ]
        return ok({"result": written})

    return script


class FakeServer:
    """Answers POST /retrieve by a script that can be changed; keeps what it was asked."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.health: Answer = (404, b"{}", {})
        self.asked: list[dict[str, Any]] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path != "/retrieve":
                    return self.answer((404, b"no such page", {}))
                fake.asked.append(request)
                return self.answer(fake.script(request))

            def do_GET(self) -> None:
                self.answer(fake.health if self.path == "/health" else (404, b"{}", {}))

            def answer(self, answer: Answer) -> None:
                status, body, headers = answer
                if status == 0:  # hang up without a word
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Length", headers.get("Content-Length", str(len(body))))
                for name, value in headers.items():
                    if name != "Content-Length":
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = "Content-Length" in headers

            def log_message(self, format: str, *args: Any) -> None:
                """Keep quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the port, and connections that are open when they are used again."""
        self.script = lambda request: (0, b"", {})
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


Start = Callable[[Script], FakeServer]


@contextmanager
def servers() -> Iterator[Start]:
    """Starts servers, which are gone afterwards."""
    started: list[FakeServer] = []

    def start(script: Script) -> FakeServer:
        started.append(FakeServer(script))
        return started[-1]

    try:
        yield start
    finally:
        for server in started:
            server.stop()

"""An evaluation whose retrieval server stops, slows down or talks nonsense: tried again, then an infrastructure error.

A real server (`seedbench serve retriever`) over the generated corpus, a proxy in front of it that misbehaves on demand,
and the engine `http:URL` in real evaluations.
"""

import http.client
import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from seedbench.errors import SeedBenchError
from seedbench.evaluate import Evaluation, evaluate
from seedbench.panels import load_panel
from seedbench.policies import ModelOptions, make_policy
from seedbench.protocol import load_protocol
from seedbench.runs import read_episodes
from seedbench.types import Episode, Outcome
from seedbench.ui.live import Progress
from seedbench_envs.searchqa import library
from seedbench_envs.searchqa.retrievers import open_retriever
from seedbench_envs.searchqa.suite import MINI
from tests.envs.search_server import running
from tests.eval.helpers import command_line, installed, logged, said, valid_summary

TIMEOUT = 0.6
LIMIT = 6
PANEL = "mini-searchqa/test"
Behave = Callable[["Proxy", int], tuple[int, bytes] | None]


@pytest.fixture(scope="module", autouse=True)
def suite() -> Iterator[None]:
    with installed("mini-searchqa", MINI):
        yield


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine `http`, with a short time-out and one retry."""
    monkeypatch.setattr(library, "open_retriever", partial(open_retriever, timeout=TIMEOUT, retries=1))


def serving(port: int) -> list[str]:
    """The words of a server process over the generated corpus."""
    code = "from seedbench.cli.serve import app; app()"
    index = str(library.index_folder("mini"))
    return [sys.executable, "-c", code, "retriever", "--index", index, "--port", str(port)]


@pytest.fixture(scope="module")
def server_port(store: Path) -> Iterator[int]:
    with running(serving(0)) as server:
        assert "engine lucene-order, corpus " in server.line
        yield server.port
        assert server.stop(signal.SIGTERM)[0] == 0


class Proxy:
    """Forwards to the server; `behave(proxy, number of the search)` may give another answer or none (drop)."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.behave: Behave | None = None
        self.searches = 0
        self.lock = threading.Lock()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def forward(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.target, timeout=30)
        connection.request(method, path, body)
        reply = connection.getresponse()
        data = reply.read()
        connection.close()
        return reply.status, data

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes] | None:
        if method == "POST" and self.behave is not None:
            with self.lock:
                number, self.searches = self.searches, self.searches + 1
            return self.behave(self, number)
        return self.forward(method, path, body)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send(proxy.answer("POST", self.path, body), body)

            def do_GET(self) -> None:
                self.send(proxy.answer("GET", self.path, b""), b"")

            def send(self, answer: tuple[int, bytes] | None, body: bytes) -> None:
                if answer is None:
                    self.close_connection = True
                    return
                status, data = answer if answer[0] else proxy.forward("POST", self.path, body)
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    self.close_connection = True  # the client gave up

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        return Handler


@pytest.fixture
def proxy(server_port: int) -> Iterator[Proxy]:
    proxy = Proxy(server_port)
    yield proxy
    proxy.http.shutdown()
    proxy.http.server_close()


THROUGH = (0, b"")
"""What makes the proxy forward the request after all."""


def slow(proxy: Proxy, number: int) -> tuple[int, bytes]:
    time.sleep(2 * TIMEOUT)
    return THROUGH


def dropped(proxy: Proxy, number: int) -> None:
    return None


def replies(status: int, data: object) -> Behave:
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    return lambda proxy, number: (status, body)


def evaluation(url: str, out: Path, policy: str = "oracle", **settings: Any) -> Evaluation:
    panel = load_panel(PANEL).subset([], LIMIT)
    asked = load_protocol("searchqa/seed")
    values = {"engine": f"http:{url}", "concurrency": 2, **settings}
    return Evaluation(panel, asked, make_policy(policy, panel, ModelOptions()), out, **values)


def outcome_of(work: Evaluation, progress: Progress | None = None) -> dict[str, Any]:
    """The summary, less the seconds and what stands behind the engine: that is another thing through a server."""
    return {key: value for key, value in valid_summary(work, progress).items() if key != "environment"}


Expected = tuple[dict[str, Any], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def expected(server_port: int, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Expected]:
    """Summary and episodes of undisturbed runs with the stored corpus itself, no server between."""
    found = {}
    for policy in ("oracle", "rule"):
        work = evaluation("", tmp_path_factory.mktemp("expected") / policy, policy, engine="native")
        found[policy] = (outcome_of(work), logged(work.out))
    oracle = found["oracle"][0]["success"]["micro"]
    assert (oracle["rate"], oracle["n"]) == (1.0, LIMIT)
    return found


def faults(folder: Path) -> list[Episode]:
    return [episode for episode in read_episodes(folder) if episode.outcome is Outcome.INFRA_ERROR]


# What the server may do to a run


@pytest.mark.parametrize("policy", ["oracle", "rule"])
def test_server_gives_what_the_engine_gives(
    tmp_path: Path, proxy: Proxy, expected: dict[str, Expected], policy: str
) -> None:
    work = evaluation(proxy.url, tmp_path / "run", policy)
    assert (outcome_of(work), logged(work.out)) == expected[policy]
    environments = [
        valid_summary(evaluation(proxy.url, tmp_path / engine, engine=engine))["environment"]["retriever"]
        for engine in ("native", f"http:{proxy.url}")
    ]
    assert environments[1] == {"engine": "http", "server": environments[0]}


@pytest.mark.parametrize(
    ("behave", "cause"),
    [
        (slow, "no reply within 0.6 s"),
        (dropped, "the connection failed (RemoteProtocolError)"),
        (replies(500, {"detail": "the search failed: RuntimeError: no memory"}), "status 500: "),
        (replies(503, b""), "status 503: no text"),
        (replies(200, b"<html>\x1b[31m"), "the reply is no JSON"),
        (replies(200, {"result": "none"}), 'the reply has no "result" that is a list of lists'),
        (replies(200, {"result": []}), "the reply has 0 lists of passages for 1 queries"),
        (replies(200, {"result": [[{"document": {"id": "1"}, "score": 1}]]}), "a passage of the reply cannot be read"),
    ],
)
def test_fault_is_tried_again_then_recorded_and_the_same_command_completes(
    tmp_path: Path, proxy: Proxy, expected: dict[str, Expected], behave: Behave, cause: str
) -> None:
    work = evaluation(proxy.url, tmp_path / "run", max_infra=1.0)
    proxy.behave = behave
    summary = outcome_of(work)
    assert summary["outcomes"]["infra_error"] == LIMIT
    assert summary["success"]["micro"]["n"] == 0
    assert proxy.searches == 2 * LIMIT  # each search once, and once again
    for episode in faults(work.out):
        assert episode.error.startswith("environment: RetrieverFault: no answer in 2 attempts from ")
        assert f"{proxy.url}/retrieve: {cause}" in episode.error
        assert "\x1b" not in episode.error
    proxy.behave = None
    assert (outcome_of(evaluation(proxy.url, work.out, max_infra=1.0)), logged(work.out)) == expected["oracle"]


def test_faults_that_pass_are_not_seen_in_the_run(tmp_path: Path, proxy: Proxy, expected: dict[str, Expected]) -> None:
    """Every other request fails in another way; one episode at a time, so that each is followed by a good one."""
    ways = [replies(500, b"busy"), replies(200, b"garbage"), dropped, slow]
    proxy.behave = lambda proxy, number: THROUGH if number % 2 else ways[number // 2 % 4](proxy, number)
    work = evaluation(proxy.url, tmp_path / "run", concurrency=1)
    assert (outcome_of(work), logged(work.out)) == expected["oracle"]
    assert faults(work.out) == []
    assert proxy.searches >= 2 * LIMIT


def test_refused_search_is_not_tried_again(tmp_path: Path, proxy: Proxy, expected: dict[str, Expected]) -> None:
    proxy.behave = replies(403, {"detail": "no key"})
    work = evaluation(proxy.url, tmp_path / "run", max_infra=1.0)
    assert outcome_of(work)["outcomes"]["infra_error"] == LIMIT
    assert proxy.searches == LIMIT
    assert all("refuses the search (status 403" in episode.error for episode in faults(work.out))


def test_too_many_faults_end_the_run_and_it_can_be_completed(
    tmp_path: Path, proxy: Proxy, expected: dict[str, Expected], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Through the command line: the first two searches are answered, then the server is out of order."""
    run = command_line(monkeypatch, capsys)
    words = ["eval", "oracle", "-p", PANEL, "--limit", LIMIT, "--engine", f"http:{proxy.url}"]
    words += ["--out", tmp_path / "run"]
    words += ["--protocol", "searchqa/seed", "--concurrency", 1, "--quiet"]
    proxy.behave = lambda proxy, number: THROUGH if number < 2 else (500, b"out of order")
    sentence = said(run(*words), 1)
    assert sentence.startswith(f"4 of {LIMIT} episodes ended in infrastructure errors (the last: environment: ")
    assert "status 500: out of order" in sentence
    proxy.behave = None
    done = run(*words)
    assert done.code == 0, done
    assert logged(tmp_path / "run") == expected["oracle"][1]


# A server that dies


class Killing(Progress):
    """Calls a function after the first episode."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action
        self.seen = 0

    def update(self, episode: Episode) -> None:
        self.seen += 1
        if self.seen == 1:
            self.action()


def test_server_is_killed_and_comes_back(tmp_path: Path, expected: dict[str, Expected]) -> None:
    with running(serving(0)) as server:
        port = server.port

        def kill() -> None:
            server.process.kill()
            server.process.wait()

        work = evaluation(server.url, tmp_path / "run", "oracle", concurrency=1)
        with pytest.raises(
            SeedBenchError, match=r"4 of 6 episodes .* the connection failed \((ConnectError|ReadError)\)"
        ):
            outcome_of(work, Killing(kill))
    solved = [episode for episode in read_episodes(work.out) if episode.outcome is Outcome.SOLVED]
    assert len(solved) == 1
    assert len(faults(work.out)) == 4
    with running(serving(port)) as back:
        assert back.port == port
        again = evaluation(back.url, work.out, "oracle", concurrency=1)
        assert (outcome_of(again), logged(work.out)) == expected["oracle"]


def test_server_that_is_not_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    work = evaluation(f"http://127.0.0.1:{port}", tmp_path / "run", max_infra=1.0)
    with pytest.raises(
        SeedBenchError, match=r"does not answer: the connection failed \(ConnectError\)\. Start the server"
    ):
        evaluate(work, Progress())
    assert not work.out.exists()

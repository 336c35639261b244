"""The client of `/retrieve` servers: both dialects, retries, faults, several servers."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench_envs.searchqa.records import Hit, Passage, RetrieverFault
from seedbench_envs.searchqa.retrievers import http, http_wire, open_retriever
from seedbench_envs.searchqa.retrievers.http import HttpRetriever

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


@pytest.fixture
def start() -> Iterator[Callable[[Script], FakeServer]]:
    servers: list[FakeServer] = []

    def make(script: Script) -> FakeServer:
        servers.append(FakeServer(script))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


Start = Callable[[Script], FakeServer]


def client(*servers: FakeServer, waits: list[float] | None = None, **more: Any) -> HttpRetriever:
    waits = [] if waits is None else waits
    settings: dict[str, Any] = {"retries": 2, "timeout": 5.0, "sleep": waits.append, **more}
    return HttpRetriever(",".join(server.url for server in servers), **settings)


def hits(query: str, k: int) -> list[Hit]:
    return [Hit(Passage(f"{query}-{rank}", query, f"text {rank}"), 10.0 - rank) for rank in range(k)]


def test_both_dialects_are_found_out(start: Start) -> None:
    one, other = start(search_r1), start(verl_agent)
    for server in (one, other):
        retriever = client(server)
        assert retriever.search(["b", "", "a", " \n"], 2) == [hits("b", 2), [], hits("a", 2), []]
        assert retriever.search(["c"], 1) == [hits("c", 1)]
        retriever.close()
    assert one.asked == [
        {"queries": ["b", "a"], "topk": 2, "return_scores": True},
        {"queries": ["c"], "topk": 1, "return_scores": True},
    ]
    assert other.asked == [
        {"queries": ["b", "a"], "topk": 2, "return_scores": True},  # refused; then one at a time
        {"query": "b", "topk": 2, "return_scores": True},
        {"query": "a", "topk": 2, "return_scores": True},
        {"query": "c", "topk": 1, "return_scores": True},
    ]


def test_a_dialect_that_is_named_is_kept_to(start: Start) -> None:
    server = start(verl_agent)
    retriever = open_retriever("http", url=f"{server.url}/retrieve", dialect="verl-agent")
    queries = [f"q{number}" for number in range(20)]
    assert retriever.search(queries, 3) == [hits(query, 3) for query in queries]  # in order, though sent at once
    assert sorted(request["query"] for request in server.asked) == sorted(queries)
    retriever.close()
    with pytest.raises(RetrieverFault, match="refuses the search"):
        client(server, dialect="search-r1").search(["x"], 1)
    with pytest.raises(UsageError, match="did you mean 'search-r1'"):
        client(server, dialect="search-r")


def test_nothing_is_asked_for_nothing(start: Start) -> None:
    server = start(search_r1)
    assert client(server).search([], 3) == []
    assert client(server).search(["", "\t"], 3) == [[], []]
    with pytest.raises(ValueError, match="k must be"):
        client(server).search(["x"], 0)
    assert server.asked == []


def test_replies_without_scores_and_of_other_lengths(start: Start) -> None:
    server = start(lambda request: ok(result(request["queries"], 4, scores=False)))
    found = client(server).search(["a"], 3)[0]
    assert [hit.passage.id for hit in found] == ["a-0", "a-1", "a-2"]  # no more than asked for
    assert [hit.score for hit in found] == pytest.approx([1, 1 / 2, 1 / 3])
    server.script = lambda request: ok({"result": [[]]})
    assert client(server).search(["a"], 3) == [[]]
    server.script = lambda request: ok(
        {"result": [[{"document": {"id": 7, "title": "T", "text": "x", "contents": '"T"\nx'}, "score": "1.5"}]]}
    )
    assert client(server).search(["a"], 3) == [[Hit(Passage("7", "T", "x"), 1.5)]]


GARBAGE: list[tuple[Answer, str]] = [
    ((500, b"Traceback\x1b[31m", {}), "status 500"),
    ((503, b"", {}), "status 503: no text"),
    ((429, b"slow down", {}), "status 429"),
    ((200, b"<html>", {}), "no JSON"),
    ((200, b"[" * 100_000, {}), "no JSON"),
    (ok([]), 'no "result"'),
    (ok({"result": {}}), 'no "result"'),
    (ok({"result": [[], []]}), "2 lists of passages for 1 queries"),
    (ok({"result": [["text"]]}), "not an object"),
    (ok({"result": [[{"document": {"id": "1"}, "score": 1}]]}), "neither 'contents'"),
    (ok({"result": [[{"document": document("a", 0), "score": "high"}]]}), "could not convert"),
    ((200, b'{"result": [[{"document": {"id": "1", "contents": "x"}, "score": NaN}]]}', {}), "not a finite number"),
    ((0, b"", {}), "the connection failed"),
    ((200, b'{"result', {"Content-Length": "1000"}), "the connection failed"),
]


@pytest.mark.parametrize(("answer", "problem"), GARBAGE)
def test_what_may_pass_is_tried_again_and_then_a_fault_with_the_cause(
    start: Start, answer: Answer, problem: str
) -> None:
    server = start(lambda request: answer)
    waits: list[float] = []
    with pytest.raises(RetrieverFault) as caught:
        client(server, waits=waits, back_off_seconds=1.0).search(["a"], 2)
    assert problem in str(caught.value)
    assert server.url in str(caught.value)
    assert "3 attempts" in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(server.asked) == 3
    assert 0.5 <= waits[0] <= 1.5
    assert 1.0 <= waits[1] <= 3.0
    left = [answer, answer]
    server.script = lambda request: left.pop() if left else search_r1(request)
    assert client(server).search(["a"], 2) == [hits("a", 2)]  # after two failures


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
def test_a_refusal_is_a_fault_at_once(start: Start, status: int) -> None:
    server = start(lambda request: (status, b'{"detail": "too long"}', {}))
    retriever = client(server, dialect="search-r1")
    with pytest.raises(RetrieverFault, match=f"status {status}: .*too long"):
        retriever.search(["a"], 2)
    assert len(server.asked) == 1


def test_the_wait_that_a_server_asks_for(start: Start) -> None:
    left = [(429, b"", {"Retry-After": "3"}), (503, b"", {"Retry-After": "9999"}), (503, b"", {"Retry-After": "soon"})]
    server = start(lambda request: left.pop(0) if left else search_r1(request))
    waits: list[float] = []
    assert client(server, waits=waits, retries=3, back_off_seconds=0.0).search(["a"], 1) == [hits("a", 1)]
    assert waits == [3.0, 10.0, 0.0]


def test_slow_servers_and_endless_replies_end_in_time(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def slow(request: dict[str, Any]) -> Answer:
        release.wait(20)
        return search_r1(request)

    server = start(slow)
    begin = time.monotonic()
    with pytest.raises(RetrieverFault, match=r"no reply within 0\.2 s"):
        client(server, timeout=0.2, retries=1).search(["a"], 1)
    assert time.monotonic() - begin < 15  # not the server's 20
    release.set()
    monkeypatch.setattr(http, "_LARGEST_REPLY", 1000)
    server.script = lambda request: (200, b"x" * 5000, {})
    with pytest.raises(RetrieverFault, match="larger than"):
        client(server, retries=0).search(["a"], 1)


def test_a_server_that_is_not_there_and_comes_back(start: Start) -> None:
    server = start(search_r1)
    retriever = client(server)
    assert retriever.search(["a"], 1) == [hits("a", 1)]
    server.stop()
    with pytest.raises(RetrieverFault, match=r"the connection failed \((ConnectError|ReadError|RemoteProtocolError)\)"):
        retriever.search(["a"], 1)
    with pytest.raises(SeedBenchError, match="does not answer"):
        client(server).identity()
    again = start(search_r1)
    retriever._servers[0].address = http_wire.addresses(again.url)[0]
    assert retriever.search(["a"], 1) == [hits("a", 1)]


def test_several_servers_share_the_load_and_stand_in_for_each_other(start: Start) -> None:
    servers = [start(search_r1) for _ in range(3)]
    waits: list[float] = []
    retriever = client(*servers, waits=waits)
    for _ in range(9):
        assert retriever.search(["a"], 1) == [hits("a", 1)]
    assert [len(server.asked) for server in servers] == [3, 3, 3]
    servers[1].script = lambda request: (500, b"", {})
    servers[2].script = lambda request: (200, b"garbage", {})
    for _ in range(12):
        assert retriever.search(["a"], 1) == [hits("a", 1)]
    assert waits == []  # the next server is asked at once
    assert [len(server.asked) for server in servers] == [15, 4, 4]  # those that failed rest
    servers[0].script = servers[1].script
    with pytest.raises(RetrieverFault) as caught:
        retriever.search(["a"], 1)
    assert all(server.url in str(caught.value) for server in servers)


def test_the_server_with_the_fewest_requests_under_way_is_asked(start: Start) -> None:
    release = threading.Event()

    def busy(request: dict[str, Any]) -> Answer:
        release.wait(20)
        return search_r1(request)

    slow, quick = start(busy), start(search_r1)
    retriever = client(slow, quick, timeout=30.0)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(retriever.search, ["a"], 1)
        while not slow.asked:
            time.sleep(0.005)
        for _ in range(5):
            assert retriever.search(["b"], 1) == [hits("b", 1)]
        release.set()
        assert waiting.result() == [hits("a", 1)]
    assert (len(slow.asked), len(quick.asked)) == (1, 5)


def test_identity_is_the_servers_own_and_must_be_one(start: Start) -> None:
    one, other = start(search_r1), start(search_r1)
    assert client(one).identity() == {"engine": "http", "server": None}
    for answer in (ok([1]), (200, b"<html>", {}), ok({"identity": "x"}), (405, b"", {})):
        one.health = answer
        assert client(one).identity() == {"engine": "http", "server": None}
    about = {"engine": "bm25", "corpus": "c" * 64}
    one.health = other.health = ok({"status": "ok", "identity": about})
    assert client(one, other).identity() == {"engine": "http", "server": about}
    other.health = ok({"status": "ok", "identity": {**about, "corpus": "d" * 64}})
    with pytest.raises(SeedBenchError, match="different indexes"):
        client(one, other).identity()
    one.health = (503, b"", {})
    with pytest.raises(SeedBenchError, match="status 503"):
        client(one).identity()


def test_addresses() -> None:
    def shown(urls: str) -> list[tuple[str, str, str]]:
        return [(one.retrieve, one.health, one.shown) for one in http_wire.addresses(urls)]

    assert shown("http://h:1") == [("http://h:1/retrieve", "http://h:1/health", "http://h:1/retrieve")]
    assert shown("http://h:1/a/retrieve/, https://me:word@g/x?key=1") == [
        ("http://h:1/a/retrieve", "http://h:1/a/health", "http://h:1/a/retrieve"),
        ("https://me:word@g/x?key=1", "https://me:word@g/x/health", "https://g/x"),
    ]
    for wrong in (
        "",
        "h:1",
        "ftp://h",
        "http://",
        "http://h:99999",
        "http://h:0",
        "http://a b",
        "http://h,",
        "http://[x",
    ):
        with pytest.raises(UsageError, match="not a server's address"):
            http_wire.addresses(wrong)
    with pytest.raises(UsageError, match="names a server twice"):
        http_wire.addresses("http://h, http://h/retrieve")


def test_texts_that_no_server_takes_are_mended(start: Start) -> None:
    server = start(search_r1)
    client(server).search(["a\ud800\x00" + "b" * 100_000], 1)
    assert server.asked[0]["queries"] == ["a�\x00" + "b" * 100_000]


def test_many_threads_at_once(start: Start) -> None:
    server = start(search_r1)
    retriever = client(server)
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda n: retriever.search([f"q{n}"], 2), range(200)))
    assert found == [[hits(f"q{n}", 2)] for n in range(200)]

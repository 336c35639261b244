"""The retrieval server: a real process on 127.0.0.1, asked as Search-R1's and verl-agent's clients ask."""

import asyncio
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from seedbench.errors import SeedBenchError, UsageError
from seedbench_envs.searchqa.server import Serving, serve
from seedbench_envs.searchqa.server_limits import Limits, Refused, parse_request
from seedbench_envs.searchqa.server_metrics import Metrics
from seedbench_envs.searchqa.server_pool import Busy, SearchPool
from tests.envs.search_server import PASSAGES, REPOSITORY, Memory, Server, running, words

SMALL = {"body": 50_000, "queries": 5, "characters": 100, "topk": 10}
ENGINE = {
    "id": "8",
    "contents": '"Analytical Engine"\nThe Analytical Engine was designed by Charles Babbage.',
}
BABBAGE = {
    "id": "9",
    "contents": '"Charles Babbage"\nCharles Babbage, a mathematician, designed two engines.',
}


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(server: Server, body: Any = None, path: str = "/retrieve", method: str = "POST") -> Reply:
    """One request over a connection of its own. Bytes are sent as they are, anything else as JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, data)
    answer = connection.getresponse()
    reply = Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    connection.close()
    return reply


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(words(**SMALL)) as process:
        yield process


def test_first_line(server: Server) -> None:
    assert server.line == f"http://127.0.0.1:{server.port}: engine memory, corpus c0ffeec0ffee, 4 passages"
    assert server.port > 0


# The dialects


def test_list_of_queries_with_scores(server: Server) -> None:
    reply = ask(server, {"queries": ["babbage engine", "", "lovelace"], "topk": 3, "return_scores": True})
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    first, blank, last = reply.json["result"]
    assert [hit["document"] for hit in first] == [ENGINE, BABBAGE]
    direct = Memory().find("babbage engine", 3)
    assert [hit["score"] for hit in first] == [hit.score for hit in direct]
    assert first[0]["score"] > first[1]["score"] > 0
    assert blank == []
    assert [hit["document"]["id"] for hit in last] == ["7"]


def test_list_of_queries_without_scores(server: Server) -> None:
    """Documents without a wrapper, which is what a client reads that asks for no scores."""
    for extra in ({"return_scores": False}, {}, {"return_scores": None}):
        reply = ask(server, {"queries": ["babbage engine", "lovelace"], "topk": 1, **extra})
        assert reply.status == 200
        assert reply.json["result"][0] == [ENGINE]
        assert reply.json["result"][1][0]["id"] == "7"


def test_one_query(server: Server) -> None:
    with_scores = ask(server, {"query": "babbage engine", "topk": 2, "return_scores": True}).json["result"]
    assert [[hit["document"] for hit in hits] for hits in with_scores] == [[ENGINE, BABBAGE]]
    assert ask(server, {"query": "babbage engine", "topk": 1, "return_scores": False}).json == {"result": [[ENGINE]]}


def test_default_topk_and_unknown_fields(server: Server) -> None:
    query = "charles lovelace analytical umlaut"  # every passage has one of the words
    for body in ({"query": query}, {"query": query, "topk": None, "model": "e5"}):
        assert len(ask(server, body).json["result"][0]) == 3
    assert len(ask(server, {"query": query, "topk": 10}).json["result"][0]) == len(PASSAGES)


def test_no_queries(server: Server) -> None:
    assert ask(server, {"queries": []}).json == {"result": []}


def test_text_of_passages_arrives_as_it_is(server: Server) -> None:
    hit = ask(server, {"query": "größe"}).json["result"][0][0]
    assert hit == {
        "id": "10",
        "contents": '"The "Größe""\nA name with an umlaut, a snowman ☃ and a line\nbreak.',
    }


# Limits and garbage


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "the body is not JSON; send an object with queries or query."),
        (b'{"queries": ["a"', "the body is not JSON; send an object with queries or query."),
        (b"\xff\x00\xfe garbage", "the body is not JSON; send an object with queries or query."),
        (b"[" * 40_000, "the body is not JSON; send an object with queries or query."),
        (b'{"topk": ' + b"9" * 5000 + b"}", "the body is not JSON; send an object with queries or query."),
        (["a"], "the body must be a JSON object with queries or query, not a list."),
        ({}, "send either queries (a list of texts) or query (one text)."),
        ({"query": "a", "queries": ["a"]}, "send either queries (a list of texts) or query (one text)."),
        ({"query": ["a"]}, "query must be one text, not a list; send a list as queries."),
        ({"queries": "a"}, "queries must be a list of texts, not a text."),
        ({"queries": ["a", 7]}, "queries[1] must be a text, not 7."),
        ({"queries": ["a", None]}, "queries[1] must be a text, not null."),
        ({"queries": ["a"] * 6}, "6 queries are more than the 5 that a request may hold."),
        ({"queries": ["a", "b" * 101]}, "queries[1] has 101 characters, more than the 100 of a query."),
        ({"query": "a", "topk": 0}, "topk must be a whole number from 1 to 10, not 0."),
        ({"query": "a", "topk": 11}, "topk must be a whole number from 1 to 10, not 11."),
        ({"query": "a", "topk": -1}, "topk must be a whole number from 1 to 10, not -1."),
        ({"query": "a", "topk": True}, "topk must be a whole number from 1 to 10, not true."),
        ({"query": "a", "topk": 2.5}, "topk must be a whole number from 1 to 10, not 2.5."),
        ({"query": "a", "topk": "3"}, "topk must be a whole number from 1 to 10, not a text."),
        (b'{"query": "a", "topk": Infinity}', "topk must be a whole number from 1 to 10, not such a number."),
        (b'{"query": "a", "topk": NaN}', "topk must be a whole number from 1 to 10, not such a number."),
        ({"query": "a", "return_scores": "yes"}, "return_scores must be true or false, not a text."),
    ],
)
def test_refused_with_a_sentence(server: Server, body: Any, sentence: str) -> None:
    reply = ask(server, body)
    assert (reply.status, reply.json) == (422, {"detail": sentence})


def test_queries_at_the_limits_are_answered(server: Server) -> None:
    reply = ask(server, {"queries": ["b" * 100] * 5, "topk": 10})
    assert (reply.status, reply.json) == (200, {"result": [[]] * 5})


@pytest.mark.parametrize("size", [50_001, 5_000_000])
def test_large_body_is_refused(server: Server, size: int) -> None:
    reply = ask(server, b" " * size)
    assert reply.status == 413
    assert reply.json == {"detail": "the body is larger than the 50,000 bytes that a request may have."}
    assert ask(server, {"query": "lovelace"}).status == 200


def test_large_body_without_a_length_is_refused(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", "/retrieve", iter([b" " * 20_000] * 3), encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_control_characters_and_half_characters(server: Server) -> None:
    for query in ("babbage\u0000\u001b[31m\r\n", "babbage \ud800", "babbage \U0001f9ee"):
        reply = ask(server, {"query": query, "topk": 1})
        assert (reply.status, reply.json) == (200, {"result": [[BABBAGE]]})


def test_bytes_that_are_no_http(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as raw:
        raw.sendall(b"\x16\x03\x01\x02\x00\x01garbage\r\n\r\n")
        assert raw.recv(1000).startswith(b"HTTP/1.1 400")
    assert ask(server, {"query": "lovelace"}).status == 200


def test_client_that_leaves(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as raw:
        raw.sendall(b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as raw:
        body = b'{"query": "sleep 0.2"}'
        raw.sendall(b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    assert ask(server, {"query": "lovelace"}).status == 200


def test_body_that_never_comes() -> None:
    with running(words(seconds=1)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as raw:
            raw.sendall(b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
            assert raw.recv(1000).startswith(b"HTTP/1.1 408")
        assert ask(server, {"query": "lovelace"}).status == 200


def test_unknown_pages_and_methods(server: Server) -> None:
    pages = "POST /retrieve, GET /health and GET /metrics."
    reply = ask(server, path="/search", method="GET")
    assert (reply.status, reply.json) == (404, {"detail": f"no such page; there are {pages}"})
    for path in ("/docs", "/openapi.json", "/"):
        assert ask(server, path=path, method="GET").status == 404
    reply = ask(server, method="GET")
    assert (reply.status, reply.json) == (405, {"detail": f"GET is not for this page; there are {pages}"})
    assert reply.headers["allow"] == "POST"


def test_fault_of_the_engine_is_one_requests_answer(server: Server) -> None:
    reply = ask(server, {"query": "break"})
    assert (reply.status, reply.json) == (
        500,
        {"detail": "the search failed: RuntimeError: the engine fell over"},
    )
    reply = ask(server, {"queries": ["lovelace", "fault"]})
    assert reply.json == {"detail": "the search failed: RetrieverFault: no answer from the index"}
    too_many = " ".join(f"w{number}" for number in range(1100))
    with running(words()) as other:
        refused = ask(other, {"query": too_many})
    assert refused.status == 422
    assert "more than 1,024 distinct terms" in refused.json["detail"]
    assert ask(server, {"query": "lovelace"}).status == 200


# Many clients


def test_full_queue_is_told_at_once() -> None:
    with running(words(queries=4, queue=4, threads=1)) as server, ThreadPoolExecutor(2) as pool:
        busy = pool.submit(ask, server, {"query": "sleep 1.5"})
        time.sleep(0.5)
        waits = pool.submit(ask, server, {"queries": ["lovelace"] * 4})
        while b"queries_waiting 4" not in ask(server, path="/metrics", method="GET").body:
            time.sleep(0.01)
        refused = ask(server, {"query": "lovelace"})
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        assert "try again in a second" in refused.json["detail"]
        assert ask(server, path="/health", method="GET").status == 200  # the event loop is free
        assert (busy.result().status, waits.result().status) == (200, 200)
        assert ask(server, {"query": "lovelace"}).status == 200


def test_sixteen_clients_get_their_own_answers(server: Server) -> None:
    texts = ["lovelace algorithm", "babbage engine", "größe", "mathematician"]
    expected = {text: [hit.passage.id for hit in Memory().find(text, 3)] for text in texts}
    end = time.monotonic() + 3

    def client(number: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        count = 0
        while time.monotonic() < end:
            queries = [texts[(number + count + place) % 4] for place in range(1 + count % 3)]
            connection.request("POST", "/retrieve", json.dumps({"queries": queries, "topk": 3}))
            reply = connection.getresponse()
            assert reply.status == 200
            found = json.loads(reply.read())["result"]
            assert [[hit["id"] for hit in hits] for hits in found] == [expected[query] for query in queries]
            count += 1
        connection.close()
        return count

    with ThreadPoolExecutor(16) as pool:
        counts = list(pool.map(client, range(16)))
    assert min(counts) > 0


# What it tells of itself


def test_health(server: Server) -> None:
    first, second = (ask(server, path="/health", method="GET").json for _ in range(2))
    assert first["status"] == "ok"
    assert (first["engine"], first["corpus"], first["passages"]) == ("memory", "c0ffee" * 10, 4)
    assert first["identity"] == Memory().identity()
    assert second["uptime_seconds"] >= first["uptime_seconds"] > 0


def test_metrics() -> None:
    with running(words(**SMALL)) as server:
        ask(server, {"queries": ["lovelace", "babbage"]})
        ask(server, {"query": "lovelace"})
        ask(server, {"query": "break"})
        ask(server, b"garbage")
        ask(server, b"garbage")
        reply = ask(server, path="/metrics", method="GET")
    assert reply.headers["content-type"].startswith("text/plain")
    lines = dict(line.rsplit(" ", 1) for line in reply.body.decode().splitlines())
    assert lines['seedbench_retriever_requests_total{status="200"}'] == "2"
    assert lines['seedbench_retriever_requests_total{status="422"}'] == "2"
    assert lines['seedbench_retriever_requests_total{status="500"}'] == "1"
    assert lines["seedbench_retriever_queries_total"] == "3"
    assert lines["seedbench_retriever_errors_total"] == "3"
    assert lines["seedbench_retriever_queries_waiting"] == "0"
    assert 0 < float(lines['seedbench_retriever_latency_seconds{quantile="0.5"}']) < 30


def test_latency_quantiles_are_nearest_ranks() -> None:
    metrics = Metrics()
    assert metrics.quantile(0.5) == 0
    for second in range(10, 0, -1):
        metrics.count(200, 1, second)
    metrics.count(500, 0, 99)
    assert [metrics.quantile(share) for share in (0.5, 0.95, 0.99, 0.1, 0.11)] == [5, 10, 10, 1, 2]
    metrics.count(200, 1, 11)
    assert metrics.quantile(0.5) == 6


# Start and stop


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stops_on_signals_and_finishes_what_is_under_way(number: int) -> None:
    with running(words(threads=1)) as server, ThreadPoolExecutor(2) as pool:
        under_way = pool.submit(ask, server, {"query": "sleep 1"})
        time.sleep(0.3)
        waits = pool.submit(ask, server, {"query": "lovelace"})
        time.sleep(0.3)
        assert server.stop(number) == (0, "closed\n", "")
        assert under_way.result().json == {"result": [[]]}
        assert waits.result().json["result"][0][0]["id"] == "7"


def test_stops_before_the_first_request() -> None:
    with running(words()) as server:
        assert server.stop(signal.SIGTERM) == (0, "closed\n", "")


def test_port_in_use(server: Server) -> None:
    done = subprocess.run(words(server.port), capture_output=True, text=True, cwd=REPOSITORY, check=False, timeout=60)
    assert done.returncode != 0
    assert f"cannot listen on 127.0.0.1, port {server.port}: Address already in use. Choose another" in done.stderr
    assert done.stdout == "closed\n"


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid", "x" * 70])
def test_host_that_is_not_here(host: str) -> None:
    with pytest.raises(UsageError, match=r"cannot listen on \S+, port 0: .*\. Choose another with --host"):
        serve(Memory(), Serving(host=host, port=0))


def test_other_machines_are_let_in_only_on_demand_and_with_a_warning() -> None:
    assert Serving().host == "127.0.0.1"
    with running(words(host="0.0.0.0")) as server:
        assert ask(server, {"query": "lovelace"}).status == 200
        _, _, err = server.stop(signal.SIGTERM)
    assert err == "warning: 0.0.0.0 is open to other machines, and whoever reaches it may search.\n"


def test_missing_packages(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(SeedBenchError, match=r"needs fastapi and uvicorn .*; pip install 'seedbench\[search\]'\."):
        serve(Memory(), Serving(port=0))
    assert capsys.readouterr().out == "closed\n"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"threads": 0}, "threads must be at least 1, not 0."),
        ({"batch": 0}, "batch must be at least 1, not 0."),
        ({"port": 70_000}, "the port must be from 0 (any free one) to 65535, not 70000."),
        ({"queue": 10}, "the queue (10) must hold at least one full request (4096 queries)"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, int], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Serving(**settings)  # type: ignore[arg-type]
    assert text in str(caught.value)


def test_limits_that_cannot_work() -> None:
    with pytest.raises(UsageError, match=r"the limit topk must be at least 1, not 0\."):
        Limits(topk=0)
    with pytest.raises(UsageError, match=r"the default topk \(3\) is above the limit of topk \(2\)\."):
        Limits(topk=2)


def test_parser_takes_any_bytes() -> None:
    from hypothesis import given, settings
    from hypothesis import strategies as st

    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    )
    fields = st.dictionaries(st.sampled_from(["queries", "query", "topk", "return_scores"]), values, max_size=4)
    bodies = st.binary(max_size=40) | fields.map(lambda data: json.dumps(data).encode())

    @settings(max_examples=300, deadline=None)
    @given(bodies)
    def check(body: bytes) -> None:
        try:
            asked = parse_request(body, Limits(queries=2, characters=4))
        except Refused as error:
            refused.append(error)
        else:
            assert len(asked.queries) <= 2
            assert all(len(query) <= 4 for query in asked.queries)
            assert 1 <= asked.topk <= 100

    refused: list[Refused] = []
    check()
    assert refused
    assert {error.status for error in refused} == {422}
    assert all(str(error).endswith(".") for error in refused)


# The pool


def test_waiting_requests_of_one_k_are_one_search() -> None:
    memory = Memory()
    pool = SearchPool(memory, threads=1, batch=4, room=100)

    async def clients() -> list[Any]:
        first = asyncio.create_task(pool.search(["sleep 0.3"], 3))
        while pool.waiting or not memory.sizes:  # until the only thread has it
            await asyncio.sleep(0.005)
        asks = [
            (["lovelace"], 3),
            (["babbage", "größe"], 3),
            (["engine"], 3),
            (["engine"], 1),
            (["a"] * 6, 1),
        ]
        found = await asyncio.gather(*(pool.search(queries, k) for queries, k in asks))
        await first
        return [[[hit.passage.id for hit in hits] for hits in answer] for answer in found]

    answers = asyncio.run(clients())
    assert answers[:4] == [[["7"]], [["9", "8"], ["10"]], [["8", "9"]], [["8"]]]
    assert len(answers[4]) == 6
    # Three requests for k = 3 make a full batch; the next k waits, and six queries are cut into four and two.
    assert memory.sizes == [1, 4, 1, 4, 2]
    pool.close()


def test_fault_in_a_batch_is_not_the_neighbours() -> None:
    memory = Memory()
    pool = SearchPool(memory, threads=1, batch=8, room=100)

    async def clients() -> list[Any]:
        first = asyncio.create_task(pool.search(["sleep 0.3"], 3))
        while pool.waiting or not memory.sizes:
            await asyncio.sleep(0.005)
        asks = [pool.search([query], 3) for query in ("lovelace", "break", "größe")]
        found = await asyncio.gather(*asks, return_exceptions=True)
        await first
        return found

    first, second, third = asyncio.run(clients())
    assert (first[0][0].passage.id, third[0][0].passage.id) == ("7", "10")
    assert isinstance(second, RuntimeError)
    assert memory.sizes == [1, 3, 1, 1, 1]
    pool.close()


def test_closed_pool_refuses_and_its_threads_end() -> None:
    before = threading.active_count()
    pool = SearchPool(Memory(), threads=3, batch=8, room=100)
    assert threading.active_count() == before + 3
    pool.close()
    assert threading.active_count() == before
    with pytest.raises(Busy):
        asyncio.run(pool.search(["lovelace"], 3))


# The command


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--index", "nowhere"], "there is no retrieval index at 'nowhere'"),
        (["--index", "nowhere", "--queue", "10"], "the queue (10) must hold at least one full request (4096 queries)"),
        (["--index", "nowhere", "--topk", "200"], "the default topk (200) is above the limit of topk (100)."),
        (["--index", "nowhere", "--engine", "bm52"], "unknown engine 'bm52': did you mean 'bm25'?"),
    ],
)
def test_command_that_cannot_work(words: list[str], text: str) -> None:
    from typer.testing import CliRunner

    from seedbench.cli.serve import app

    result = CliRunner().invoke(app, ["retriever", *words])
    assert isinstance(result.exception, UsageError)
    assert text in str(result.exception)

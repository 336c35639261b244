"""The client of `/retrieve` servers: both dialects, retries, faults, several servers."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench_envs.searchqa.records import Hit, Passage, RetrieverFault
from seedbench_envs.searchqa.retrievers import http_exchange, http_wire, open_retriever
from seedbench_envs.searchqa.retrievers.http import HttpRetriever
from tests.envs.fake_retriever import Answer, FakeServer, Start, document, ok, result, search_r1, servers, verl_agent


@pytest.fixture
def start() -> Iterator[Start]:
    with servers() as starter:
        yield starter


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
    monkeypatch.setattr(http_exchange, "_LARGEST_REPLY", 1000)
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
    three = [start(search_r1) for _ in range(3)]
    waits: list[float] = []
    retriever = client(*three, waits=waits)
    for _ in range(9):
        assert retriever.search(["a"], 1) == [hits("a", 1)]
    assert [len(server.asked) for server in three] == [3, 3, 3]
    three[1].script = lambda request: (500, b"", {})
    three[2].script = lambda request: (200, b"garbage", {})
    for _ in range(12):
        assert retriever.search(["a"], 1) == [hits("a", 1)]
    assert waits == []  # the next server is asked at once
    assert [len(server.asked) for server in three] == [15, 4, 4]  # those that failed rest
    three[0].script = three[1].script
    with pytest.raises(RetrieverFault) as caught:
        retriever.search(["a"], 1)
    assert all(server.url in str(caught.value) for server in three)


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
    with pytest.raises(SeedBenchError) as caught:
        client(one, other).identity()
    assert str(caught.value) == (
        f"{other.url}/retrieve and {one.url}/retrieve serve different indexes (engine bm25, corpus dddddddddddd;"
        " engine bm25, corpus cccccccccccc): name servers of one index, or put '|' between the parts of a corpus."
    )
    one.health = (503, b"", {})
    with pytest.raises(SeedBenchError, match="status 503"):
        client(one).identity()


def test_a_server_that_comes_back_with_another_index_is_not_searched(start: Start) -> None:
    one, other = start(search_r1), start(search_r1)
    about = {"engine": "bm25", "corpus": "c" * 64}
    one.health = other.health = ok({"identity": about})
    retriever = client(one, other)
    assert retriever.identity() == {"engine": "http", "server": about}
    assert retriever.search(["a"], 1) == [hits("a", 1)]
    other.script = lambda request: (500, b"", {})
    assert retriever.search(["a"], 1) == [hits("a", 1)]
    other.script, other.health = search_r1, ok({"identity": {**about, "corpus": "d" * 64}})
    count = len(other.asked)
    retriever._servers[1].until = 0.0  # its rest is over
    for _ in range(4):
        assert retriever.search(["a"], 1) == [hits("a", 1)]
    assert len(other.asked) == count
    one.script = lambda request: (500, b"", {})
    with pytest.raises(RetrieverFault, match=f"{other.url}/retrieve: it serves another index than the search began"):
        retriever.search(["a"], 1)
    other.health = ok({"identity": about})
    assert retriever.search(["a"], 1) == [hits("a", 1)]
    assert len(other.asked) == count + 1


def test_a_server_that_is_down_at_the_start_joins_if_it_has_the_same_index(start: Start) -> None:
    one, late, wrong = (start(search_r1) for _ in range(3))
    about = {"engine": "bm25", "corpus": "c" * 64}
    one.health = ok({"identity": about})
    late.health = wrong.health = (503, b"", {})
    retriever = client(one, late, wrong)
    assert retriever.identity() == {"engine": "http", "server": about}
    late.health, wrong.health = one.health, ok({"identity": {**about, "passages": 7}})
    for _ in range(9):
        assert retriever.search(["a"], 1) == [hits("a", 1)]
    assert len(one.asked) + len(late.asked) == 9
    assert len(late.asked) >= 3
    assert wrong.asked == []


def test_a_server_that_failed_rests_longer_each_time(start: Start) -> None:
    one, other = start(search_r1), start(lambda request: (500, b"", {}))
    retriever = client(one, other)
    failing = retriever._servers[1]
    rests = []
    for _ in range(6):
        failing.until = 0.0
        while failing.until == 0.0:
            retriever.search(["a"], 1)
        rests.append(failing.until - time.monotonic())
    assert rests == pytest.approx([5, 10, 20, 40, 60, 60], abs=1.0)
    other.script, failing.until = search_r1, 0.0
    for _ in range(2):
        retriever.search(["a"], 1)
    assert (failing.failures, failing.until) == (0, 0.0)


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

"""Several servers behind one policy, and what is recorded of their answers, against real HTTP servers."""

import asyncio
import dataclasses
import socket
import time
from collections import Counter
from typing import Any

import pytest

from seedbench.balance import take
from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.base import PolicyFault, Request, Response, Sampled, Sampling
from seedbench.policies.openai import OpenAIPolicy
from seedbench.policies.openai_servers import Server, another_is_ready, servers_at
from tests.eval.fake_server import FakeServer, Reply, completion, models
from tests.eval.test_openai_policy import ask, request, using


def policy(*servers: FakeServer, **settings: Any) -> OpenAIPolicy:
    addresses = ",".join(server.url for server in servers)
    return OpenAIPolicy(addresses, **{"retries": 2, "back_off_seconds": 0.001, "timeout": 5.0, **settings})


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def answering(word: str, delay: float = 0.0, listing: Reply | None = None) -> FakeServer:
    return FakeServer(lambda body, n: dataclasses.replace(completion(word), delay=delay), listing)


def requests(count: int) -> list[Request]:
    return [request(seed=seed, text=str(seed)) for seed in range(count)]


# ---- which server answers ------------------------------------------------------------------------------


def test_the_server_with_the_fewest_requests_under_way_is_taken() -> None:
    a, b, c = servers = servers_at("http://a/v1, http://b/v1,http://c/v1", "")
    assert [take(servers, home=1) for _ in range(4)] == [b, c, a, b]
    c.under_way = 0
    assert take(servers, home=1) is c
    assert [server.under_way for server in servers] == [1, 2, 1]


def test_a_failed_server_is_set_aside_then_tried_by_one_request() -> None:
    a, b = servers = servers_at("http://a/v1,http://b/v1", "")
    a.set_aside(60.0, unreachable=False)
    assert {take(servers, home=0).shown for _ in range(5)} == {"http://b/v1"}
    assert another_is_ready(servers)
    a.until = 0.0  # its time has come
    assert take(servers, home=0) is a
    assert take(servers, home=0) is b
    a.under_way -= 1
    a.answered()
    assert [take(servers, home=0) for _ in range(3)] == [a, a, a]


def test_failures_of_one_moment_count_once_and_the_longest_wait_holds() -> None:
    (server,) = servers_at("http://a/v1", "")
    for seconds in (20.0, 60.0, 40.0):
        server.set_aside(seconds, unreachable=False)
    assert server.failures == 1
    assert 59.0 < server.until - time.monotonic() <= 60.0
    server.until = time.monotonic()
    server.set_aside(1.0, unreachable=False)
    assert server.failures == 2


def test_where_all_are_set_aside_the_first_to_return_is_asked() -> None:
    a, b = servers = servers_at("http://a/v1,http://b/v1", "")
    a.set_aside(60.0, unreachable=False)
    b.set_aside(30.0, unreachable=True)
    assert take(servers, home=0) is b
    assert not another_is_ready(servers)


def test_an_address_named_twice_is_refused_without_its_password() -> None:
    with pytest.raises(UsageError, match=r"the server http://a/v1 is named twice"):
        servers_at("http://me:secret@a/v1,http://me:secret@a/v1/", "")
    with pytest.raises(UsageError, match="'' is not a server's address"):
        servers_at("http://a/v1,", "")
    assert "secret" not in repr(Server("http://a/v1", "http://a/v1", "secret"))


def test_work_is_shared_between_servers() -> None:
    with answering("a", 0.05) as a, answering("b", 0.05) as b:
        said = Counter(answer.text for answer in ask(policy(a, b, concurrency=8), *requests(32)))
        assert (a.most_at_once, b.most_at_once) == (4, 4)
    assert said == {"a": 16, "b": 16}


def test_a_fast_server_answers_more_than_a_slow_one() -> None:
    with answering("slow", 0.3) as slow, answering("fast", 0.01) as fast:
        said = Counter(answer.text for answer in ask(policy(slow, fast, concurrency=4), *requests(24)))
    assert said["fast"] > 2 * said["slow"] > 0


@pytest.mark.parametrize(
    "broken", [Reply(500, {}), Reply(429, {}, headers={"Retry-After": "30"}), Reply(raw=b"<html>")]
)
def test_what_one_server_fails_another_answers_at_once(broken: Reply) -> None:
    with FakeServer(lambda body, n: broken) as bad, answering("ok") as good:
        start = time.monotonic()
        answers = ask(policy(bad, good, concurrency=4, back_off_seconds=30.0), *requests(12))
        assert time.monotonic() - start < 10.0  # nobody waited half a minute
        assert [answer.text for answer in answers] == ["ok"] * 12
        assert 1 <= len(bad.bodies) <= 2  # of two at once; none once it was set aside


def test_a_server_that_hangs_costs_its_requests_one_timeout() -> None:
    with answering("late", 1.0) as hung, answering("ok") as good:
        answers = ask(policy(hung, good, timeout=0.3, back_off_seconds=30.0, concurrency=2), *requests(8))
        assert {answer.text for answer in answers} == {"ok"}
        assert len(hung.bodies) == 1


def test_a_server_that_is_not_there_yet_is_used_once_it_serves() -> None:
    port = free_port()

    async def work(opened: OpenAIPolicy) -> list[set[str]]:
        alone = {(await opened.act(one)).text for one in requests(4)}
        with FakeServer(lambda body, n: completion("late"), port=port, late=0.0):
            deadline = time.monotonic() + 5.0
            both: set[str] = set()
            while len(both) < 2 and time.monotonic() < deadline:
                both |= {answer.text for answer in await asyncio.gather(*(opened.act(one) for one in requests(4)))}
        return [alone, both]

    with answering("there", 0.01) as server:
        two = OpenAIPolicy(f"http://127.0.0.1:{port}/v1,{server.url}", back_off_seconds=0.01, timeout=5.0)
        assert using(two, work) == [{"there"}, {"there", "late"}]


def test_a_server_that_was_killed_and_started_again_is_waited_for() -> None:
    first = answering("before")
    port = int(first.url.split(":")[2].removesuffix("/v1"))

    async def work(opened: OpenAIPolicy) -> list[Response]:
        before = await opened.act(request())
        first.__exit__()
        again = FakeServer(lambda body, n: completion("after"), port=port, late=0.5)
        with again:
            return [before, await opened.act(request())]

    first.__enter__()
    answers = using(policy(first, retries=0, back_off_seconds=0.05), work)
    assert [answer.text for answer in answers] == ["before", "after"]


def test_a_server_that_does_not_come_back_is_a_fault() -> None:
    server = answering("x")

    async def work(opened: OpenAIPolicy) -> None:
        server.__exit__()
        await opened.act(request())

    server.__enter__()
    with pytest.raises(PolicyFault, match=r"gave no answer in \d+ attempts: .*(does not answer|connection failed)"):
        using(policy(server, retries=1, back_off_seconds=0.05, timeout=0.5), work)


def test_a_server_that_comes_back_with_another_model_stops_the_run() -> None:
    server = answering("x")
    port = int(server.url.split(":")[2].removesuffix("/v1"))

    async def work(opened: OpenAIPolicy) -> None:
        server.__exit__()
        with FakeServer(lambda body, n: completion("y"), models("other"), port=port, late=0.2):
            await opened.act(request())

    server.__enter__()
    with pytest.raises(UsageError, match=r"does not serve the model 'tiny': it serves other; name one of these"):
        using(policy(server, back_off_seconds=0.05), work)


# ---- what they must have in common ---------------------------------------------------------------------


def test_a_wrong_model_name_lists_what_is_served() -> None:
    with (
        FakeServer(lambda body, n: completion("x"), models("alpha", "beta")) as server,
        pytest.raises(UsageError) as error,
    ):
        ask(policy(server, model="gamma"))
    assert str(error.value) == (
        f"{server.url} does not serve the model 'gamma': it serves alpha, beta; name one of these, as in"
        f" {server.url}#MODEL."
    )


def test_servers_that_differ_are_refused() -> None:
    def listing(length: int) -> Reply:
        return Reply(body={"data": [{"id": "m", "owned_by": "vllm", "max_model_len": length}]})

    with answering("a", listing=listing(4096)) as a, answering("b", listing=listing(8192)) as b:
        with pytest.raises(UsageError, match=r"'m' with a context of 8192 tokens by vllm, another server .* 4096"):
            ask(policy(a, b))
        assert a.bodies == b.bodies == []
    with (
        answering("a") as a,
        answering("b", listing=models("other")) as b,
        pytest.raises(UsageError, match=r"'other' by someone, another server 'tiny' by someone.*#MODEL"),
    ):
        ask(policy(a, b))


def test_where_no_server_answers_the_first_is_named() -> None:
    ports = [free_port(), free_port()]
    addresses = ",".join(f"http://127.0.0.1:{port}/v1" for port in ports)
    with pytest.raises(SeedBenchError, match=rf"127\.0\.0\.1:{ports[0]}/v1 does not answer"):
        ask(OpenAIPolicy(addresses))


# ---- tokens --------------------------------------------------------------------------------------------

INFO = {"vllm_config": {"model_config": {"logprobs_mode": "processed_logprobs"}}}


def tokens(ids: Any, logprobs: Any, prompt: Any = (7, 8, 9)) -> Reply:
    content = logprobs if logprobs is None else [{"token": "t", "logprob": value} for value in logprobs]
    reply = completion("go", token_ids=ids, logprobs={"content": content})
    reply.body["prompt_token_ids"] = list(prompt) if prompt else prompt
    return reply


def recording(script: Reply, info: Any = INFO) -> FakeServer:
    return FakeServer(lambda body, n: script, models("m", owner="vllm"), info=Reply(200 if info else 404, info))


@pytest.mark.parametrize(("temperature", "expected"), [(1.0, (-0.5, -2.0)), (0.0, (0.0, 0.0))])
def test_tokens_and_their_log_probabilities_are_recorded(temperature: float, expected: tuple[float, ...]) -> None:
    sampling = Sampling(temperature=temperature, max_new_tokens=64)
    with recording(tokens([3, 4], [-0.5, -2.0])) as server:
        (answer,) = ask(policy(server, record=True), request(sampling))
    assert answer.sampled == Sampled((7, 8, 9), (3, 4), expected)
    assert (server.bodies[0]["logprobs"], server.bodies[0]["return_token_ids"]) == (True, True)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (tokens(None, [-0.5]), "lacks token ids"),
        (tokens([3], None), "lacks token ids"),
        (tokens([3, 4], [-0.5]), "lacks token ids"),
        (tokens([3], [-0.5], prompt=None), "lacks token ids"),
        (tokens([3], ["x"]), "no number"),
    ],
)
def test_a_reply_without_its_tokens_is_no_answer(reply: Reply, words: str) -> None:
    with recording(reply) as server, pytest.raises(PolicyFault, match=words):
        ask(policy(server, record=True))


@pytest.mark.parametrize("info", [None, {}, {"vllm_config": {"model_config": {"logprobs_mode": "raw_logprobs"}}}])
def test_a_server_whose_log_probabilities_are_others_is_refused(info: Any) -> None:
    with recording(tokens([3], [-0.5]), info) as server:
        with pytest.raises(UsageError, match="--logprobs-mode processed_logprobs"):
            ask(policy(server, record=True))
        assert server.bodies == []


def test_nothing_is_recorded_unless_asked_for() -> None:
    with recording(tokens([3], [-0.5]), info=None) as server:
        (answer,) = ask(policy(server))
    assert answer.sampled is None
    assert not {"logprobs", "return_token_ids"} & set(server.bodies[0])

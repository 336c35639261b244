"""The policy for OpenAI-compatible servers, against a real HTTP server."""

import asyncio
import dataclasses
import json
import socket
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, TypeVar

import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies import openai
from seedbench.policies.base import ContextOverflow, PolicyFault, Request, Response, Sampling
from seedbench.policies.openai import OpenAIPolicy
from seedbench.policies.openai_wire import back_off, overflows, retry_after
from seedbench.types import Message, Task, Usage
from tests.eval.fake_server import FakeServer, Reply, completion, models

GREEDY = Sampling(temperature=0.0, max_new_tokens=64)
T = TypeVar("T")


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def request(sampling: Sampling = GREEDY, seed: int = 7, text: str = "go") -> Request:
    return Request(
        task=Task("game", "look", "train", "0" * 64),
        repeat=0,
        turn=0,
        seed=seed,
        messages=(Message("system", "be brief"), Message("user", text)),
        sampling=sampling,
        observation="",
        admissible_actions=None,
    )


def using(policy: OpenAIPolicy, work: Callable[[OpenAIPolicy], Awaitable[T]]) -> T:
    async def run() -> T:
        await policy.open()
        try:
            return await work(policy)
        finally:
            await policy.close()

    return asyncio.run(run())


def ask(policy: OpenAIPolicy, *requests: Request) -> list[Response]:
    async def work(opened: OpenAIPolicy) -> list[Response]:
        return await asyncio.gather(*(opened.act(one) for one in requests or (request(),)))

    return using(policy, work)


def policy(server: FakeServer, **settings: Any) -> OpenAIPolicy:
    return OpenAIPolicy(server.url, **{"retries": 2, "back_off_seconds": 0.001, **settings})


def test_a_protocol_that_restricts_decoding_is_refused_before_anything_is_sent() -> None:
    with FakeServer(lambda body, n: completion("go")) as server:
        with pytest.raises(UsageError, match="cannot be held to: use a checkpoint folder"):
            ask(policy(server), request(Sampling(temperature=0.0, max_new_tokens=64, decode="admissible")))
        assert server.bodies == []


def test_a_plain_answer_and_what_was_sent() -> None:
    sampling = Sampling(temperature=0.7, max_new_tokens=99, top_p=0.9)
    with FakeServer(lambda body, n: completion("<action>look</action>")) as server:
        (answer,) = ask(policy(server), request(sampling, seed=2**31 + 5))
    assert answer == Response("<action>look</action>", None, Usage(11, 5), "stop")
    assert server.bodies == [
        {
            "model": "tiny",
            "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "go"}],
            "temperature": 0.7,
            "top_p": 0.9,
            "max_tokens": 99,
            "seed": 5,
        }
    ]
    assert "authorization" not in server.headers[0]


@pytest.mark.parametrize(("thinking", "enabled"), [("on", True), ("off", False)])
def test_top_k_and_thinking_are_sent_where_the_protocol_sets_them(thinking: str, enabled: bool) -> None:
    with FakeServer(lambda body, n: completion("x")) as server:
        ask(policy(server), request(dataclasses.replace(GREEDY, top_k=20, thinking=thinking)))
    assert server.bodies[0]["top_k"] == 20
    assert server.bodies[0]["chat_template_kwargs"] == {"enable_thinking": enabled}


def test_engines_with_sampling_defaults_of_their_own_are_told_to_use_none() -> None:
    with FakeServer(lambda body, n: completion("x"), models("m", owner="vllm")) as server:
        ask(policy(server), request(), request(dataclasses.replace(GREEDY, top_k=20)))
    assert sorted(body["top_k"] for body in server.bodies) == [-1, 20]
    assert {body["repetition_penalty"] for body in server.bodies} == {1.0}


def test_length_and_missing_usage() -> None:
    reply = completion("cut off", "length")
    del reply.body["usage"]
    with FakeServer(lambda body, n: reply) as server:
        (answer,) = ask(policy(server))
    assert (answer.finish_reason, answer.usage) == ("length", Usage(0, 0))


STOP = dataclasses.replace(GREEDY, stop=("</action>", "\n\n"))


@pytest.mark.parametrize(("owner", "field"), [("vllm", "stop_reason"), ("sglang", "matched_stop")])
def test_a_reported_stop_string_is_put_back(owner: str, field: str) -> None:
    end: dict[str, Any] = {field: None if owner == "vllm" else 2}
    replies = {
        "named": completion("<action>look", **{field: "</action>"}),
        "end of sequence": completion("<action>look", **end),
        "kept": completion("<action>look</action>", **{field: "</action>"}),
    }
    with FakeServer(lambda body, n: replies[body["messages"][1]["content"]], models("m", owner=owner)) as server:
        answers = ask(policy(server), *(request(STOP, text=name) for name in replies))
    assert server.bodies[0]["stop"] == ["</action>", "\n\n"]
    assert [answer.text for answer in answers] == [
        "<action>look</action>",
        "<action>look",
        "<action>look</action>",
    ]


def test_an_answer_that_grows_is_continued_by_servers_that_can() -> None:
    grown = dataclasses.replace(request(), messages=(Message("user", "q"), Message("assistant", "so far")))
    with FakeServer(lambda body, n: completion(" and on"), models("m", owner="vllm")) as server:
        assert ask(policy(server), grown)[0].text == " and on"
    body = server.bodies[-1]
    assert (body["add_generation_prompt"], body["continue_final_message"]) == (False, True)
    assert body["messages"][-1] == {"role": "assistant", "content": "so far"}
    with FakeServer(lambda body, n: completion("x")) as server, pytest.raises(SeedBenchError, match="lets one answer"):
        ask(policy(server), grown)


def test_other_servers_are_not_told_the_stop_string_and_the_text_is_cut_here() -> None:
    with FakeServer(lambda body, n: completion("<action>look</action> and more", "length")) as server:
        (answer,) = ask(policy(server), request(STOP))
    assert "stop" not in server.bodies[0]
    assert (answer.text, answer.finish_reason) == ("<action>look</action>", "stop")


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503])
def test_a_passing_failure_is_retried(status: int) -> None:
    with FakeServer(lambda body, n: Reply(status, {"error": "busy"}) if n < 2 else completion("ok")) as server:
        (answer,) = ask(policy(server))
    assert (answer.text, len(server.bodies)) == ("ok", 3)
    assert server.bodies[0] == server.bodies[2]


def test_retry_after_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float | None] = []

    def recorded(seed: int, attempt: int, first: float, wait: float | None) -> float:
        asked.append(wait)
        return 0.0

    def script(body: dict[str, Any], n: int) -> Reply:
        return [Reply(429, {}, headers={"Retry-After": "7"}), Reply(500, {}), completion("ok")][n]

    monkeypatch.setattr(openai, "back_off", recorded)
    with FakeServer(script) as server:
        ask(policy(server))
    assert asked == [7.0, 7.0, None, None]  # for the request and for its server


def test_failures_that_do_not_pass_become_a_fault_that_says_why() -> None:
    with (
        FakeServer(lambda body, n: Reply(500, raw=b"engine \x1b[31mdied")) as server,
        pytest.raises(PolicyFault, match=r"no answer in 3 attempts: status 500: engine <1b>\[31mdied"),
    ):
        ask(policy(server))
    assert len(server.bodies) == 3


def test_a_slow_reply_is_a_timeout() -> None:
    with (
        FakeServer(lambda body, n: dataclasses.replace(completion("late"), delay=0.6)) as server,
        pytest.raises(PolicyFault, match=r"no reply within 0\.2 s"),
    ):
        ask(policy(server, timeout=0.2, retries=1))
    assert len(server.bodies) == 2


def test_a_timeout_is_retried_and_a_broken_connection_too() -> None:
    def script(body: dict[str, Any], n: int) -> Reply:
        slow = dataclasses.replace(completion("late"), delay=0.6)
        return [slow, Reply(200, raw=b"", headers={"Content-Length": "x"}), completion("ok")][n]

    with FakeServer(script) as server:
        (answer,) = ask(policy(server, timeout=0.3))
    assert answer.text == "ok"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(raw=b"<html>gateway</html>"), "not JSON"),
        (Reply(raw=b"\xff\xfe"), "not JSON"),
        (Reply(raw=b""), "not JSON"),
        (Reply(body=["a list"]), "not JSON"),
        (Reply(body={}), "no choices"),
        (Reply(body={"choices": []}), "no choices"),
        (Reply(body={"choices": ["text"]}), "no choices"),
        (Reply(body={"choices": [{"message": "text"}]}), "no content"),
        (completion(None), "no content"),
    ],
)
def test_a_malformed_reply_is_retried_then_a_fault(reply: Reply, words: str) -> None:
    with FakeServer(lambda body, n: reply) as server, pytest.raises(PolicyFault, match=words):
        ask(policy(server))
    assert len(server.bodies) == 3


def test_a_reasoning_parser_that_took_everything_leaves_an_empty_answer() -> None:
    reply = completion(None, "length")
    reply.body["choices"][0]["message"]["reasoning_content"] = "still thinking"
    with FakeServer(lambda body, n: reply) as server:
        (answer,) = ask(policy(server))
    assert (answer.text, answer.finish_reason) == ("", "length")


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
        "the request exceeds the available context size, try increasing it",
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        "Input length (5000 tokens) exceeds the maximum allowed length (4096 tokens).",
    ],
)
def test_a_prompt_too_long_for_the_server_is_an_overflow(text: str) -> None:
    with (
        FakeServer(lambda body, n: Reply(400, {"error": {"message": text}})) as server,
        pytest.raises(ContextOverflow, match="too long"),
    ):
        ask(policy(server))
    assert len(server.bodies) == 1


def test_overflow_words_count_in_refusals_only() -> None:
    assert overflows(400, "Maximum Context Length is 5")
    assert not overflows(500, "maximum context length is 5")
    assert not overflows(400, "seed is not supported")


def test_the_protocols_prompt_limit_is_checked_by_the_servers_count() -> None:
    with FakeServer(lambda body, n: completion("x")) as server:
        assert ask(policy(server), request(dataclasses.replace(GREEDY, max_prompt_tokens=11)))[0].text == "x"
        with pytest.raises(ContextOverflow, match="11 tokens, the protocol allows 10"):
            ask(policy(server), request(dataclasses.replace(GREEDY, max_prompt_tokens=10)))


def test_an_answer_that_the_server_shortened_to_fit_its_context_is_an_overflow() -> None:
    listing = Reply(body={"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 75}]})  # 11 of the prompt, 64 new
    with FakeServer(lambda body, n: completion("x"), listing) as server:
        assert ask(policy(server))[0].text == "x"
        with pytest.raises(ContextOverflow, match="11 prompt tokens and 65 new ones exceed the model's context of 75"):
            ask(policy(server), request(dataclasses.replace(GREEDY, max_new_tokens=65)))


def test_another_bad_request_is_a_fault_at_once() -> None:
    with (
        FakeServer(lambda body, n: Reply(400, {"error": "seed is not supported"})) as server,
        pytest.raises(PolicyFault, match="seed is not supported"),
    ):
        ask(policy(server))
    assert len(server.bodies) == 1


@pytest.mark.parametrize(("status", "words"), [(401, "OPENAI_API_KEY"), (403, "OPENAI_API_KEY"), (404, "/v1")])
def test_a_refused_key_or_model_stops_the_run(status: int, words: str) -> None:
    with (
        FakeServer(lambda body, n: Reply(status, {"error": "no"})) as server,
        pytest.raises(SeedBenchError, match=words),
    ):
        ask(policy(server))
    assert len(server.bodies) == 1


def test_the_key_is_sent_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")

    async def work(opened: OpenAIPolicy) -> tuple[str, str]:
        with pytest.raises(PolicyFault) as fault:
            await opened.act(request())
        return json.dumps(opened.identity()), str(fault.value)

    with FakeServer(lambda body, n: Reply(500, {"error": "bad key sk-secret"})) as server:
        identity, error = using(policy(server), work)
    assert server.headers[0]["authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in identity
    assert "bad key ***" in error


def test_concurrency_is_bounded() -> None:
    with FakeServer(lambda body, n: dataclasses.replace(completion("x"), delay=0.05)) as server:
        answers = ask(policy(server, concurrency=3), *(request(seed=seed) for seed in range(12)))
    assert len(answers) == 12
    assert server.most_at_once == 3


def test_the_served_model_is_found_and_named() -> None:
    async def identity(opened: OpenAIPolicy) -> dict[str, Any]:
        return opened.identity()

    listing = Reply(body={"data": [{"id": "org/Model-7B", "owned_by": "vllm", "max_model_len": 4096}, {"no": "id"}]})
    with FakeServer(lambda body, n: completion("x"), listing) as server:
        found = policy(server)
        assert using(found, identity) == {
            "kind": "openai",
            "name": "Model-7B",
            "model": "org/Model-7B",
            "server": "vllm",
            "context": 4096,
        }
        assert found.name == "Model-7B"


def test_a_served_path_is_not_shown() -> None:
    async def identity(opened: OpenAIPolicy) -> str:
        return json.dumps(opened.identity())

    shown = []
    for path in ("/home/me/run-1/step_10", "/home/me/run-2/step_10"):
        with FakeServer(lambda body, n: completion("x"), models(path)) as server:
            shown.append(using(policy(server), identity))
    assert "step_10@" in shown[0]
    assert "/home" not in shown[0]
    assert shown[0] != shown[1]


def test_one_of_several_models_must_be_named() -> None:
    with FakeServer(lambda body, n: completion("x"), models("alpha", "beta")) as server:
        with pytest.raises(UsageError, match=r"2 models \(alpha, beta\)"):
            ask(policy(server))
        ask(OpenAIPolicy(f"{server.url}#beta"))
        ask(OpenAIPolicy(server.url, model="alpha"))
        with pytest.raises(UsageError, match="did you mean 'beta'"):
            ask(OpenAIPolicy(f"{server.url}#betta"))
    assert [body["model"] for body in server.bodies] == ["beta", "alpha"]


def test_a_gateway_without_a_model_list_works_when_the_model_is_named() -> None:
    with FakeServer(lambda body, n: completion("x"), Reply(404, {})) as server:
        assert ask(OpenAIPolicy(server.url, model="m"))[0].text == "x"
        with pytest.raises(SeedBenchError, match="/v1"):
            ask(policy(server))


@pytest.mark.parametrize(
    ("listing", "words"),
    [
        (Reply(401, {}), "OPENAI_API_KEY"),
        (Reply(503, {"detail": "loading"}), r"not ready.*loading"),
        (Reply(raw=b"<html>hello</html>"), "no model list"),
        (models(), r"0 models \(none\)"),
    ],
)
def test_a_server_that_cannot_serve_is_refused_at_open(listing: Reply, words: str) -> None:
    with (
        FakeServer(lambda body, n: completion("x"), listing) as server,
        pytest.raises(SeedBenchError, match=words),
    ):
        ask(policy(server))


def test_an_unreachable_server_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody answers there
        url = f"http://user:secret@127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(SeedBenchError, match=r"does not answer.*start the server") as error:
            ask(OpenAIPolicy(url))
    assert url.replace("user:secret@", "") in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "url", ["localhost:8000/v1", "ftp://host/v1", "http://", "", "http://host:99999/v1", "http://[1/v1"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="http://localhost:8000/v1"):
        OpenAIPolicy(url)


def test_back_off_doubles_with_jitter_from_the_seed_alone() -> None:
    waits = [back_off(3, attempt, 0.5, None) for attempt in range(8)]
    assert waits == [back_off(3, attempt, 0.5, None) for attempt in range(8)]
    assert all(0.5 <= wait / min(0.5 * 2**attempt, 30.0) < 1.5 for attempt, wait in enumerate(waits))
    assert back_off(3, 0, 0.5, None) != back_off(4, 0, 0.5, None)
    assert back_off(3, 0, 0.5, 9.0) == 9.0
    assert 15.0 <= back_off(3, 5000, 0.5, None) < 45.0


def test_retry_after_reads_seconds_and_dates() -> None:
    assert retry_after({"retry-after": "12"}) == 12.0
    assert retry_after({"retry-after": "-1"}) == 0.0
    assert retry_after({"retry-after": "86400"}) == 600.0
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({}) is None
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    assert 95.0 < (retry_after({"retry-after": later}) or 0.0) <= 100.0

"""What is sent to an OpenAI-compatible server, and its replies, which come from outside and may hold anything."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeGuard

import httpx

from seedbench.errors import SeedBenchError
from seedbench.policies.base import Request, Response, Sampled, Sampling
from seedbench.policies.prompts import check_length
from seedbench.policies.sampling import cut_at_stop
from seedbench.types import Usage
from seedbench.ui.text import inert

_NO_DEFAULTS = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
_LONGEST_BACK_OFF = 30.0
_LONGEST_RETRY_AFTER = 600.0
# How servers say that a prompt does not fit; there is no common code.
_OVERFLOW_WORDS = (
    "context length",
    "context_length",
    "context size",
    "context window",
    "exceed_context",
    "maximum context",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "input length",
    "max_model_len",
    "maximum allowed length",
    "too many tokens",
)


class Refusal(Exception):
    """A reply that says OK and holds no answer; worth another attempt."""


@dataclass(frozen=True, slots=True)
class Served:
    """A model in a server's list."""

    model: str
    owner: str
    """`owned_by` of the list: vllm and sglang put their own names there."""
    context: int | None
    """`max_model_len` of the list, in tokens, where the server tells."""

    @property
    def is_known(self) -> bool:
        """Whether it is an engine whose extra fields are known (see `seedbench.policies.openai`)."""
        return self.owner in {"vllm", "sglang"}


def chat_body(served: Served, request: Request, *, record: bool = False) -> dict[str, Any]:
    """The body of a chat completion. Raises SeedBenchError where the protocol asks for what the server cannot do."""
    sampling, messages = request.sampling, request.messages
    body: dict[str, Any] = {
        "model": served.model,
        "messages": [{"role": message.role, "content": message.content} for message in messages],
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_new_tokens,
        "seed": request.seed % 2**31,
    }
    if messages and messages[-1].role == "assistant":
        if not served.is_known:
            raise SeedBenchError(
                "the protocol lets one answer grow, and the server is not known to continue a message (vLLM and SGLang"
                " are): use such a server, or a protocol whose context is 'window' or 'chat'."
            )
        body |= {"add_generation_prompt": False, "continue_final_message": True}
    if served.is_known:
        body |= _NO_DEFAULTS
        if sampling.stop:
            body["stop"] = list(sampling.stop)
    if sampling.top_k > 0:
        body["top_k"] = sampling.top_k
    if sampling.thinking != "default":
        body["chat_template_kwargs"] = {"enable_thinking": sampling.thinking == "on"}
    if record:
        body |= {"logprobs": True, "return_token_ids": True}
    return body


def read_models(reply: httpx.Response) -> list[Served] | None:
    """The models of a `GET /models` reply; None where it is no such list."""
    data = read_json(reply)
    entries = data.get("data") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        return None
    return [
        Served(
            model=entry["id"],
            owner=str(entry.get("owned_by") or ""),
            context=length if isinstance(length := entry.get("max_model_len"), int) else None,
        )
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("id"), str)
    ]


def read_reply(
    reply: httpx.Response, sampling: Sampling, *, context: int | None = None, record: bool = False
) -> Response:
    """The answer in a chat completion, with its stop string; with `record` also its tokens.

    Raises Refusal on a reply of another shape, and ContextOverflow where the server counted more prompt tokens than the
    protocol allows, or than leave room for an answer in `context` (it is known only now; vLLM shortens the answer).
    """
    data = read_json(reply)
    if not isinstance(data, dict):
        raise Refusal(f"the reply is not JSON ({inert(reply.text.strip(), 80) or 'empty'})")
    usage = _usage(data.get("usage"))
    check_length(usage.prompt_tokens, sampling, context)
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise Refusal("the reply has no choices")
    choice = choices[0]
    text = _content(choice)
    ended_by = choice.get("stop_reason", choice.get("matched_stop"))
    if isinstance(ended_by, str) and ended_by in sampling.stop and not text.endswith(ended_by):
        text += ended_by
    text, stopped = cut_at_stop(text, sampling.stop)
    finish_reason = "length" if choice.get("finish_reason") == "length" and not stopped else "stop"
    sampled = _sampled(data, choice, sampling) if record else None
    return Response(text=text, usage=usage, finish_reason=finish_reason, sampled=sampled)


def overflows(status: int, text: str) -> bool:
    """Whether a refusal says that the prompt does not fit the model's context."""
    lowered = text.lower()
    return status in {400, 413, 422} and any(words in lowered for words in _OVERFLOW_WORDS)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that `Retry-After` asks for (a number or a date), at most ten minutes; None without it."""
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    return min(max(seconds, 0.0), _LONGEST_RETRY_AFTER)


def back_off(seed: int, attempt: int, first: float, asked: float | None) -> float:
    """Seconds before attempt `attempt` + 1: first * 2^attempt, times 0.5 to 1.5, at least what was asked.

    The jitter spreads the retries of many episodes, and comes from the request's seed alone.
    """
    jitter = 0.5 + random.Random(f"{seed}:{attempt}").random()
    return max(min(first * 2.0 ** min(attempt, 30), _LONGEST_BACK_OFF) * jitter, asked or 0.0)


def nested(data: Any, *keys: str) -> Any:
    """The value behind keys of nested objects; None where one of them is missing."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def read_json(reply: httpx.Response) -> Any:
    """A reply's JSON value; None where it is none."""
    try:
        return reply.json()
    except ValueError:  # also UnicodeDecodeError
        return None


def _sampled(data: dict[str, Any], choice: dict[str, Any], sampling: Sampling) -> Sampled:
    """The tokens of a reply that was asked for `return_token_ids` and `logprobs`. Raises Refusal where they lack."""
    prompt: object = data.get("prompt_token_ids")
    ids: object = choice.get("token_ids")
    entries: object = nested(choice, "logprobs", "content")
    if not _are(prompt, int) or not _are(ids, int) or not _are(entries, dict) or len(entries) != len(ids):
        raise Refusal("the reply lacks token ids or a log-probability for each (vLLM 0.11 and later give them)")
    logprobs = [nested(entry, "logprob") for entry in entries]
    if not _are(logprobs, int | float):
        raise Refusal("the reply has a log-probability that is no number")
    greedy = sampling.temperature == 0.0
    return Sampled(tuple(prompt), tuple(ids), tuple(0.0 if greedy else float(value) for value in logprobs))


def _are(values: object, kind: Any) -> TypeGuard[list[Any]]:
    return isinstance(values, list) and all(isinstance(value, kind) for value in values)


def _content(choice: dict[str, Any]) -> str:
    message = choice.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return content
    thought = message.get("reasoning_content") or message.get("reasoning") if isinstance(message, dict) else None
    if content is None and thought:
        return ""  # a reasoning parser took everything: the model has said nothing outside its thoughts
    raise Refusal("the reply has no content")


def _usage(data: object) -> Usage:
    if not isinstance(data, dict):
        return Usage()
    counts = [data.get("prompt_tokens"), data.get("completion_tokens")]
    prompt, generated = (count if isinstance(count, int) and count >= 0 else 0 for count in counts)
    return Usage(prompt, generated)

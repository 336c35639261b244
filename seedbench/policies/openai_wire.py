"""Reading an OpenAI-compatible server's replies, which come from outside and may hold anything."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from seedbench.policies.base import ContextOverflow, Response, Sampling
from seedbench.policies.sampling import cut_at_stop
from seedbench.types import Usage
from seedbench.ui.text import inert

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


def read_models(reply: httpx.Response) -> list[Served] | None:
    """The models of a `GET /models` reply; None where it is no such list."""
    data = _json(reply)
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


def read_reply(reply: httpx.Response, sampling: Sampling) -> Response:
    """The answer in a chat completion, with its stop string.

    Raises Refusal on a reply of another shape, and ContextOverflow where the server counted more prompt
    tokens than the protocol allows (it is known only now).
    """
    data = _json(reply)
    if not isinstance(data, dict):
        raise Refusal(f"the reply is not JSON ({inert(reply.text.strip(), 80) or 'empty'})")
    usage = _usage(data.get("usage"))
    if 0 < sampling.max_prompt_tokens < usage.prompt_tokens:
        raise ContextOverflow(
            f"the prompt has {usage.prompt_tokens} tokens, the protocol allows {sampling.max_prompt_tokens}."
        )
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
    return Response(text=text, usage=usage, finish_reason=finish_reason)


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
    return max(min(first * 2.0**attempt, _LONGEST_BACK_OFF) * jitter, asked or 0.0)


def _json(reply: httpx.Response) -> Any:
    try:
        return reply.json()
    except ValueError:  # also UnicodeDecodeError
        return None


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

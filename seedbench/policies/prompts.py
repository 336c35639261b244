"""The tokens of a prompt. A conversation keeps the tokens that were sampled in it.

Text does not determine tokens: a response that is decoded and tokenised again may come back in other pieces than those
that were drawn. So where the rendered prompt of a turn begins with the last turn's prompt and response, its ids begin
with the ids that were fed and drawn then, and only what was added is tokenised. Where it does not (a window over the
past, a template that rewrites earlier turns, a response cut inside a token), the whole text is tokenised anew.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.base import ContextOverflow, Request, Sampling
from seedbench.types import Message
from seedbench.ui.text import inert

_Episode = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Asked:
    request: Request
    text: str
    ids: list[int]


@dataclass(frozen=True, slots=True)
class _Said:
    """A turn that was answered: the text up to the end of the response, and the tokens behind it."""

    text: str
    prompt: list[int]
    sampled: list[int]
    response: str


class PromptTokens:
    """Turns requests into token ids, and remembers the tokens of each episode's last turn until told to forget.

    `template`: the source of the tokenizer's chat template. `name`: the model's, for messages. `eos`: ids that end a
    response beside the tokenizer's own end-of-sequence token.
    """

    def __init__(self, tokenizer: Any, template: str, *, name: str, eos: Collection[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._name = name
        self._eos = frozenset({*eos, tokenizer.eos_token_id})
        self._asked: dict[_Episode, _Asked] = {}
        self._said: dict[_Episode, _Said] = {}

    def prompt(self, request: Request) -> list[int]:
        """The ids to feed for a request; never empty of what its episode has already been fed, where that fits.

        Raises SeedBenchError where the template refuses the messages, UsageError for a thinking mode it lacks.
        """
        text = self.render(request.messages, request.sampling.thinking)
        episode = _episode(request)
        before = self._said.get(episode) if request.turn else None
        ids = (before and self._continued(before, text)) or self._encode(text)
        self._asked[episode] = _Asked(request, text, ids)
        return ids

    def said(self, request: Request, ids: Sequence[int], text: str) -> None:
        """Note the answer to the last `prompt(request)`: the ids drawn, the end token included, and the response."""
        asked = self._asked.get(_episode(request))
        if asked is not None and asked.request is request:
            del self._asked[_episode(request)]
            self._said[_episode(request)] = _Said(asked.text + text, asked.ids, list(ids), text)

    def forget(self, task_sha256: str, repeat: int) -> None:
        """Drop what is known of an episode."""
        self._asked.pop((task_sha256, repeat), None)
        self._said.pop((task_sha256, repeat), None)

    def encode(self, messages: Sequence[Message], thinking: str = "default") -> list[int]:
        """The ids of messages that continue nothing. Raises as `prompt`."""
        return self._encode(self.render(messages, thinking))

    def render(self, messages: Sequence[Message], thinking: str = "default") -> str:
        """The prompt's text by the chat template, with the generation prompt. Raises as `prompt`.

        An assistant message at the end is one that the answer continues: its text follows the generation prompt.
        """
        grown = messages[-1].content if messages[-1].role == "assistant" else ""
        shown = [
            {"role": message.role, "content": message.content} for message in (messages[:-1] if grown else messages)
        ]
        options = _thinking_options(thinking, self._template, self._name)
        try:
            text = self._tokenizer.apply_chat_template(shown, add_generation_prompt=True, tokenize=False, **options)
        except Exception as error:  # a template raises what its author likes
            raise SeedBenchError(
                f"the chat template of {self._name} refuses the prompt ({inert(str(error), 200)}): "
                "use a protocol whose message roles it accepts."
            ) from error
        return f"{text}{grown}"

    def _continued(self, before: _Said, text: str) -> list[int] | None:
        """The ids of `text` as a continuation of what was fed and drawn; None where it is none, token for token."""
        if not text.startswith(before.text):
            return None
        rest, sampled = text[len(before.text) :], before.sampled
        if sampled and sampled[-1] in self._eos:
            marker = self._decode(sampled[-1:])
            if self._decode(sampled[:-1]) != before.response:
                return None
            if rest.startswith(marker):
                added = self._encode(rest[len(marker) :])
            else:  # the end token is no part of this text: an answer goes on, or turns end with another one
                sampled, added = sampled[:-1], self._encode(rest)
        elif self._decode(sampled) == before.response:
            added = self._encode(rest)
        else:
            return None
        # A tokenizer that puts a space before every text, or rewrites characters, does not add up piece by piece.
        fits = self._decode([*sampled, *added]) == before.response + rest
        return [*before.prompt, *sampled, *added] if fits else None

    def _encode(self, text: str) -> list[int]:
        # The template writes every special token itself.
        return cast("list[int]", self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def check_length(tokens: int, sampling: Sampling, context: int | None) -> None:
    """Raise ContextOverflow where a prompt of `tokens` does not fit the protocol, or with its answer the model."""
    limit = sampling.max_prompt_tokens
    if 0 < limit < tokens:
        raise ContextOverflow(f"the prompt has {tokens} tokens, the protocol allows {limit}.")
    if context is not None and tokens + sampling.max_new_tokens > context:
        raise ContextOverflow(
            f"{tokens} prompt tokens and {sampling.max_new_tokens} new ones exceed the model's context of {context}."
        )


def _episode(request: Request) -> _Episode:
    return (request.task.sha256, request.repeat)


def _thinking_options(thinking: str, template: str, name: str) -> dict[str, bool]:
    """Arguments of the chat template for a protocol's thinking mode (on, off or default)."""
    if thinking == "default":
        return {}
    if "enable_thinking" in template:
        return {"enable_thinking": thinking == "on"}
    if thinking == "on":
        raise UsageError(
            f"the protocol turns thinking on, but the chat template of {name} has no such switch: "
            "use a protocol with thinking = 'default'."
        )
    return {}

"""Prompt tokens: conversations go on with the tokens that were sampled, everything else is tokenised anew."""

import dataclasses
from typing import Any

import pytest

from seedbench.policies.base import Request
from seedbench.policies.prompts import PromptTokens
from seedbench.types import Message
from tests.eval.asking import request
from tests.tiny_model import TEMPLATE, tokenizer

END = "<|im_end|>"
SYSTEM = Message("system", "You are in a room.")
# Rewrites what was said before the last turn, as templates that drop earlier thoughts do.
FORGETFUL = TEMPLATE.replace(
    "message['content'] }}",
    "(message['content'].split('</think>')[-1] if message.role == 'assistant' else message['content']) }}",
)


@pytest.fixture(scope="module")
def words() -> Any:
    return tokenizer()


def asked(*contents: str, turn: int | None = None, repeat: int = 0, first: Message = SYSTEM) -> Request:
    """A request with user and assistant messages in alternation behind the system message."""
    roles = ("user", "assistant")
    messages = (first, *(Message(roles[number % 2], text) for number, text in enumerate(contents)))
    number = len(contents) // 2 if turn is None else turn
    return dataclasses.replace(request(), messages=messages, turn=number, repeat=repeat)


def prompts(words: Any, template: str = TEMPLATE) -> PromptTokens:
    words.chat_template = template
    return PromptTokens(words, template, name="tiny", eos=(words.eos_token_id,))


def anew(words: Any, one: Request) -> list[int]:
    messages = [dataclasses.asdict(message) for message in one.messages]
    return list(words.apply_chat_template(messages, add_generation_prompt=True)["input_ids"])


def by_letters(words: Any, text: str) -> list[int]:
    """The tokens of a text, a piece a byte: what sampling may give and tokenising never does."""
    return [words.convert_tokens_to_ids(piece) for byte in text.split(" ") for piece in byte]


def test_a_first_turn_is_the_templates_text(words: Any) -> None:
    one = asked("open the fridge 1")
    assert prompts(words).prompt(one) == anew(words, one) == prompts(words).encode(one.messages)


def test_a_conversation_goes_on_with_the_tokens_that_were_drawn(words: Any) -> None:
    tokens = prompts(words)
    first = asked("look")
    start = tokens.prompt(first)
    drawn = [*by_letters(words, "opendesk"), words.eos_token_id]
    tokens.said(first, drawn, "opendesk")
    second = asked("look", "opendesk", "You see a desk 1.")
    grown = tokens.prompt(second)
    text = tokens.render(second.messages)
    assert grown[: len(start) + len(drawn)] == [*start, *drawn]
    assert words.decode(grown) == text  # the end marker stands there once
    assert grown[len(start) + len(drawn) :] == words(text.partition(f"opendesk{END}")[2])["input_ids"]
    assert grown != anew(words, second)
    # A third turn goes on from the second.
    tokens.said(second, by_letters(words, "look"), "look")  # cut by the token limit: no end token
    third = asked("look", "opendesk", "You see a desk 1.", "look", "Nothing happens.")
    ids = tokens.prompt(third)
    assert ids[: len(grown) + 4] == [*grown, *by_letters(words, "look")]
    assert ids[len(grown) + 4] == words.eos_token_id
    assert words.decode(ids) == tokens.render(third.messages)


def test_an_end_token_that_the_text_lacks_is_left_out(words: Any) -> None:
    tokens = prompts(words)
    first = asked("look")
    start = tokens.prompt(first)
    drawn = by_letters(words, "search")
    tokens.said(first, [*drawn, words.eos_token_id], "search")
    grown = asked("look", "search\n\nYou see a desk 1.\n\n", turn=1)
    ids = tokens.prompt(grown)
    rest = words("\n\nYou see a desk 1.\n\n")["input_ids"]
    assert ids == [*start, *drawn, *rest]
    # The answer that goes on has the grown text before it.
    tokens.said(grown, by_letters(words, "answer"), "answer")
    again = asked("look", "search\n\nYou see a desk 1.\n\nanswer\n\nmore\n\n", turn=2)
    assert tokens.prompt(again) == [*ids, *by_letters(words, "answer"), *words("\n\nmore\n\n")["input_ids"]]


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (asked("another window", turn=1), "a window never begins with what was asked"),
        (asked("look", "open", "You see"), "the response was cut"),
        (asked("look", "opendesk", "You see", turn=0), "a first turn continues nothing"),
        (asked("look", "opendesk", "You see", repeat=1), "another episode"),
    ],
)
def test_what_continues_nothing_is_tokenised_anew(words: Any, second: Request, why: str) -> None:
    tokens = prompts(words)
    first = asked("look")
    tokens.prompt(first)
    tokens.said(first, by_letters(words, "opendesk"), "open" if "cut" in why else "opendesk")
    assert tokens.prompt(second) == anew(words, second)


def test_a_template_that_rewrites_what_was_said_is_tokenised_anew(words: Any) -> None:
    tokens = prompts(words, FORGETFUL)
    first = asked("look")
    tokens.prompt(first)
    said = "<think>hm</think>go"
    tokens.said(first, [*words(said)["input_ids"], words.eos_token_id], said)
    second = asked("look", said, "You see")
    ids = tokens.prompt(second)
    assert ids == anew(words, second)
    assert "hm" not in words.decode(ids)


def test_special_tokens_inside_a_response_do_not_survive(words: Any) -> None:
    tokens = prompts(words)
    first = asked("look")
    tokens.prompt(first)
    start = words.convert_tokens_to_ids("<|im_start|>")
    tokens.said(first, [*by_letters(words, "go"), start, *by_letters(words, "on"), words.eos_token_id], "goon")
    second = asked("look", "goon", "You see")
    assert tokens.prompt(second) == anew(words, second)


def test_only_the_answer_to_the_last_prompt_counts_and_forgetting_forgets(words: Any) -> None:
    drawn = [*by_letters(words, "go"), words.eos_token_id]
    second = asked("look", "go", "You see")

    tokens = prompts(words)
    tokens.prompt(asked("look"))
    tokens.said(asked("look"), drawn, "go")  # equal, but not what was asked
    assert tokens.prompt(second) == anew(words, second)

    tokens = prompts(words)
    first = asked("look")
    tokens.prompt(first)
    tokens.said(first, drawn, "go")
    assert tokens.prompt(second) != anew(words, second)
    tokens.forget(first.task.sha256, 0)
    assert tokens.prompt(second) == anew(words, second)


def test_tokenizers_that_do_not_add_up_piece_by_piece_start_anew() -> None:
    from tokenizers import decoders, normalizers, pre_tokenizers

    words = tokenizer()
    words.backend_tokenizer.normalizer = normalizers.NFC()
    first, second = asked("look"), asked("look", "go", "cafe\u0301")  # NFC joins the accent
    tokens = prompts(words)
    start = tokens.prompt(first)
    drawn = [*by_letters(words, "go"), words.eos_token_id]
    tokens.said(first, drawn, "go")
    assert tokens.prompt(second) == anew(words, second)
    plain = asked("look", "go", "cafe")
    tokens.prompt(first)
    tokens.said(first, drawn, "go")
    assert tokens.prompt(plain)[: len(start) + 3] != anew(words, plain)[: len(start) + 3]

    spaced = tokenizer()  # puts a space before every text
    spaced.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    spaced.backend_tokenizer.decoder = decoders.ByteLevel()
    tokens = prompts(spaced)
    tokens.prompt(first)
    tokens.said(first, by_letters(spaced, "go"), "go")
    grown = asked("look", "go\n\nYou see", turn=1)
    messages = [dataclasses.asdict(message) for message in grown.messages[:-1]]
    text = spaced.apply_chat_template(messages, add_generation_prompt=True, tokenize=False) + "go\n\nYou see"
    assert tokens.prompt(grown) == spaced(text)["input_ids"]

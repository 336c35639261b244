"""Protocol files: what is asked, how answers are read, what the hash covers, what a user can get wrong."""

from typing import Any

import pytest

from seedbench.errors import UsageError
from seedbench.policies.base import Sampling
from seedbench.protocol import Past, load_protocol, shipped_protocols
from seedbench.types import Message
from tests.eval.helpers import protocol

SHIPPED = ["alfworld/chat@1", "alfworld/quick@1", "alfworld/seed-put@1", "alfworld/seed@1", "alfworld/verl-agent@1"]
ADMISSIBLE = ("go to desk 1", "help", "look")


def past(count: int) -> list[Past]:
    return [Past(f"saw {n}", ADMISSIBLE, f"<action>did {n}</action>", f"did {n}") for n in range(count)]


def now(count: int) -> Past:
    return Past(f"saw {count}", ADMISSIBLE)


# What is shipped


def test_shipped_protocols() -> None:
    assert [name for name in shipped_protocols() if name.startswith("alfworld/")] == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_protocol_renders_every_turn(name: str) -> None:
    loaded = load_protocol(name)
    assert loaded.name == name
    for count in range(4):
        start = Past("Welcome.\n\nsaw 0\nYour task is to: put a mug in the sink.", ADMISSIBLE)
        messages = loaded.messages("put a mug in the sink", past(count), now(count) if count else start)
        text = "\n".join(message.content for message in messages)
        assert f"saw {count}" in messages[-1].content
        assert "go to desk 1" in messages[-1].content
        assert "help" not in text
        assert "{{" not in text
        assert "{%" not in text
        if loaded.settings.context.kind == "window":
            assert "put a mug in the sink" in messages[-1].content


@pytest.mark.parametrize(
    ("name", "steps", "history", "dialect"),
    [
        ("alfworld/seed", 30, 5, "2.1.2"),
        ("alfworld/seed-put", 30, 5, "2.1.1"),
        ("alfworld/verl-agent", 50, 2, "2.1.2"),
    ],
)
def test_settings_are_those_of_the_papers(name: str, steps: int, history: int, dialect: str) -> None:
    settings = load_protocol(name).settings
    assert (settings.limits.steps, settings.context.history) == (steps, history)
    assert settings.dialect is not None
    assert settings.dialect.name == dialect


def test_sampling_of_seed() -> None:
    assert load_protocol("alfworld/seed").sampling() == Sampling(
        temperature=0.4, max_new_tokens=512, max_prompt_tokens=2048, top_p=1.0, top_k=0, stop=(), thinking="default"
    )


def test_version_may_be_left_out() -> None:
    assert load_protocol("alfworld/seed").hash == load_protocol("alfworld/seed@1").hash


def test_unknown_protocol_offers_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown protocol 'alfworld/sead': did you mean 'alfworld/seed'\?"):
        load_protocol("alfworld/sead")


def test_hashes_of_shipped_protocols_differ() -> None:
    assert len({load_protocol(name).hash for name in SHIPPED}) == len(SHIPPED)


# Context


@pytest.mark.parametrize("history", [0, 1, 2, 5])
def test_window_shows_exactly_the_last_steps(history: int) -> None:
    asked = protocol(context={"history": history})
    for count in range(1, 8):
        (message,) = asked.messages("task", past(count), now(count))
        shown = "".join(f"{n + 1}did {n};" for n in range(max(0, count - history), count))
        assert message == Message("user", f"{count + 1}:{shown}saw {count}")


def test_first_template_serves_only_the_first_turn() -> None:
    (message,) = protocol().messages("do it", [], now(0))
    assert message.content == "do it saw 0 go to desk 1,look"


def test_chat_keeps_every_earlier_message() -> None:
    chat = load_protocol("alfworld/chat")
    before: tuple[Message, ...] = ()
    for count in range(6):
        messages = chat.messages("put a mug in the sink", past(count), now(count))
        assert messages[: len(before)] == before
        assert [message.role for message in messages] == ["system", "user", *["assistant", "user"] * count]
        assert all(messages[2 * n + 2].content == f"<action>did {n}</action>" for n in range(count))
        before = messages


def test_suite_without_admissible_commands() -> None:
    (message,) = protocol().messages("do it", [], Past("saw 0", None))
    assert message.content == "do it saw 0"


def test_examples_stand_before_the_first_prompt() -> None:
    turns = [{"user": "asked", "assistant": "answered"}]
    asked = protocol(prompts={"examples": turns})
    first, second, last = asked.messages("do it", [], Past("saw 0", None))
    assert (first, second) == (Message("user", "asked"), Message("assistant", "answered"))
    assert last.content == "do it saw 0"
    assert asked.hash != protocol().hash


# The dialect


def test_dialect_is_checked_against_the_commands() -> None:
    seed, put = load_protocol("alfworld/seed"), load_protocol("alfworld/seed-put")
    new = ["go to desk 1", "help", "look", "move mug 1 to shelf 2"]
    old = ["go to desk 1", "look", "put mug 1 in/on shelf 2"]
    assert seed.dialect_problem(new, start=True) == ""
    assert put.dialect_problem(old, start=True) == ""
    assert "'help' is not admissible" in seed.dialect_problem(old, start=True)
    assert "the commands hold 'put mug 1 in/on '" in seed.dialect_problem(old, start=False)
    assert "the commands hold 'help'" in put.dialect_problem(new, start=True)
    assert "the commands hold 'move mug 1 to '" in put.dialect_problem(["move mug 1 to shelf 2"], start=False)
    assert seed.dialect_problem(["look"], start=False) == ""  # required at the start only
    assert seed.dialect_problem(None, start=True) == ""


# Changed settings


def test_changed_settings_are_in_the_name_and_the_hash() -> None:
    seed = load_protocol("alfworld/seed")
    changed = seed.with_settings(steps=10, temperature=0)
    assert changed.name == "alfworld/seed@1[steps=10;temperature=0.0]"
    assert changed.settings.limits.steps == 10
    assert seed.settings.limits.steps == 30
    assert changed.hash != seed.hash


def test_name_and_hash_do_not_depend_on_the_way_to_the_settings() -> None:
    seed = load_protocol("alfworld/seed")
    there = seed.with_settings(temperature=1, steps=10)
    again = seed.with_settings(steps=20).with_settings(steps=10).with_settings(temperature=1.0)
    assert (there.name, there.hash) == (again.name, again.hash)
    back = there.with_settings(steps=30, temperature=0.4)
    assert (back.name, back.hash) == (seed.name, seed.hash)


def test_nothing_changed_is_the_same_protocol() -> None:
    seed = load_protocol("alfworld/seed")
    for same in (seed.with_settings(), seed.with_settings(steps=None), seed.with_settings(steps=30)):
        assert (same.name, same.hash) == (seed.name, seed.hash)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"stepz": 3}, "unknown protocol setting 'stepz': did you mean 'steps'"),
        ({"steps": 0}, "limits.steps: .*greater than or equal to 1"),
        ({"steps": 2.5}, "limits.steps"),
        ({"temperature": -0.1}, "sampling.temperature"),
        ({"temperature": float("nan")}, "sampling.temperature"),
        ({"temperature": float("inf")}, "sampling.temperature"),
        ({"top_p": 0.0}, "sampling.top_p"),
        ({"thinking": "maybe"}, "sampling.thinking: .*'on', 'off' or 'default'"),
        ({"history": -1}, "context.history"),
        ({"response_tokens": 0}, "limits.response_tokens"),
        ({"kind": "tree"}, "context.kind"),
    ],
)
def test_impossible_settings_are_refused_by_name(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        load_protocol("alfworld/seed").with_settings(**change)

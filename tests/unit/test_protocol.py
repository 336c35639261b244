"""Protocol files: what is asked, how answers are read, what the hash covers, what a user can get wrong."""

from typing import Any

import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.base import Sampling
from seedbench.protocol import Past, load_protocol, shipped_protocols
from seedbench.types import Message
from tests.eval.helpers import protocol

LISTING = ["alfworld/chat@1", "alfworld/quick@1", "alfworld/seed-put@1", "alfworld/seed@1", "alfworld/verl-agent@1"]
CHOOSING = ["alfworld/choose-window@1", "alfworld/choose@1"]
SHIPPED = sorted([*LISTING, *CHOOSING])
WELCOME = "Welcome.\n\nsaw 0\n\nYour task is to: put a mug in the sink."
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
        start = Past(WELCOME, ADMISSIBLE)
        messages = loaded.messages("put a mug in the sink", past(count), now(count) if count else start)
        text = "\n".join(message.content for message in messages)
        assert f"saw {count}" in messages[-1].content
        assert ("go to desk 1" in messages[-1].content) == (name in LISTING)
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


@pytest.mark.parametrize(
    ("name", "begin"),
    [("alfworld/seed@1", "7a4602f54330"), ("alfworld/quick@1", "46b717fed8ff"), ("webshop/seed@1", "dfdecb10110c"),
     ("searchqa/search-r1@1", "64d0c299bdcf")],
)  # fmt: skip
def test_hashes_that_stand_in_runs_stay(name: str, begin: str) -> None:
    assert load_protocol(name).hash.startswith(begin)


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


# Decoding among the admissible actions


def test_choices_are_the_shown_actions_in_order_each_once() -> None:
    choosing = protocol(sampling={"decode": "admissible"})
    answers = ("<think></think><action>left</action>", "<think></think><action>go on</action>")
    assert choosing.choices(("left", "help", "go on", "left")) == answers
    assert load_protocol("alfworld/choose").choices(ADMISSIBLE) == ("go to desk 1",)
    assert protocol().choices(("left", "help")) == ()
    assert protocol().choices(None) == ()
    assert (choosing.sampling().decode, protocol().sampling().decode) == ("admissible", "free")


@pytest.mark.parametrize(
    ("admissible", "reason"),
    [
        (None, "the environment lists none: use a protocol whose decode is 'free'"),
        ((), "the environment lists none"),
        (("help",), "prompts.hide leaves none of those listed"),
        (("Left",), "its parser does not read 'Left' back from '<think></think><action>Left</action>'"),
        (("a</action>",), "its parser does not read"),
        (("search[<your query>]",), r"'search\[<your query>\]' has a blank to fill in: hide it"),
    ],
)
def test_actions_that_cannot_be_chosen(admissible: tuple[str, ...] | None, reason: str) -> None:
    choosing = protocol(sampling={"decode": "admissible"})
    with pytest.raises(
        SeedBenchError, match=f"'counting/small@1' decodes among the admissible actions, and .*{reason}"
    ):
        choosing.choices(admissible)


def test_free_decoding_is_left_out_of_the_content_and_the_other_is_not() -> None:
    seed = load_protocol("alfworld/seed")
    choosing = seed.with_settings(decode="admissible")
    assert "decode" not in seed.content()["sampling"]
    assert choosing.content()["sampling"]["decode"] == "admissible"
    assert choosing.name == "alfworld/seed@1[decode=admissible]"
    assert choosing.hash != seed.hash == choosing.with_settings(decode="free").hash
    with pytest.raises(UsageError, match=r"sampling\.decode"):
        seed.with_settings(decode="freely")


def test_the_prompts_of_choose_hold_the_task_and_what_was_seen_and_no_more() -> None:
    first = "Your task is to: put a mug in the sink\nsaw 0"
    choose, window = load_protocol("alfworld/choose"), load_protocol("alfworld/choose-window")
    turns = [Past(f"saw {n}", ADMISSIBLE, f"did {n}", f"did {n}") for n in range(7)]
    turns[0] = Past(WELCOME, ADMISSIBLE, "did 0", "did 0")
    for asked in (choose, window):
        assert asked.messages("put a mug in the sink", [], turns[0]) == (Message("user", first),)
    assert choose.messages("put a mug in the sink", turns[:2], turns[2]) == (
        Message("user", first),
        Message("assistant", "did 0"),
        Message("user", "saw 1"),
        Message("assistant", "did 1"),
        Message("user", "saw 2"),
    )
    (message,) = window.messages("put a mug in the sink", turns[:2], turns[2])
    assert message.content == f"{first}\n> did 0\nsaw 1\n> did 1\nsaw 2"
    (message,) = window.messages("put a mug in the sink", turns[:6], turns[6])
    shown = "".join(f"saw {n}\n> did {n}\n" for n in range(1, 6))
    assert message.content == f"Your task is to: put a mug in the sink\n{shown}saw 6"


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

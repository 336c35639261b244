"""The protocols that WebShop ships: published settings, and what their prompts show."""

from dataclasses import replace
from pathlib import Path

import pytest

from seedbench.panels import Panel
from seedbench.protocol import Past, Protocol, read_protocol
from seedbench.types import Task
from seedbench_envs.webshop.suite import MINI, SUITE

ANY = Panel("any@1", "any", "test", False, "", ())

# ---- protocols -----------------------------------------------------------------------------------------------

WISH = "Find me easy clean lamps with color: red, and price lower than 20.00 dollars"
START = Past(f"WebShop [SEP] Instruction: [SEP] {WISH} [SEP] Search", ("search[<your query>]",))


def protocol(name: str) -> Protocol:
    return read_protocol(Path(str(SUITE.resources)) / "protocols" / f"{name}@1.toml")


def item(text: str, action: str = "") -> Past:
    shown = f"Instruction: [SEP] {WISH} [SEP] Back to Search [SEP] {text} [SEP] Buy Now"
    return Past(shown, ("click[back to search]", "click[buy now]"), action=action)


@pytest.mark.parametrize("name", ["seed", "verl-agent"])
def test_published_settings(name: str) -> None:
    settings = protocol(name).settings
    assert settings.name == f"webshop/{name}"
    assert settings.suites == ("webshop", "mini-webshop")
    assert (settings.limits.steps, settings.limits.prompt_tokens, settings.limits.response_tokens) == (15, 4096, 512)
    assert (settings.context.kind, settings.context.history) == ("window", 2)
    assert (settings.parser.think_tag, settings.parser.tail, settings.sampling.temperature) == ("think", 20, 0.4)


def test_first_prompt_lists_page_and_actions_and_says_the_task_once() -> None:
    (message,) = protocol("seed").messages(WISH, [], START)
    lines = message.content.splitlines()
    assert f"Your task is to: {WISH}" in lines
    assert message.content.count(WISH) == 1
    assert lines[lines.index("This is step 1 of at most 15. The page in front of you:") + 1] == "Search"
    assert "- search[<your query>]" in lines


def test_later_prompts_show_two_steps_without_the_instruction() -> None:
    past = [replace(START, action="search[a]"), item("P1", "click[p1]"), item("P2", "click[p2]")]
    (message,) = protocol("seed").messages(WISH, past, item("P3"))
    assert message.content.count(WISH) == 1
    assert "search[a]" not in message.content
    assert (
        "[step 2] The page was: Back to Search [SEP] P1 [SEP] Buy Now\n[step 2] You did: click[p1]" in message.content
    )
    assert "[step 3] You did: click[p2]\n" in message.content
    assert "This is step 4. The page in front of you:\nBack to Search [SEP] P3 [SEP] Buy Now\n" in message.content
    assert message.content.index("You have taken 3 of at most 15 steps.") < message.content.index("[step 2]")


def test_history_goes_where_a_prompt_would_be_too_long() -> None:
    long = "word " * 1200  # 6,000 characters
    (short,) = protocol("verl-agent").messages(WISH, [item(long, "click[p1]")], item("P2"))
    assert "[step 1] You did: click[p1]" in short.content
    (cut,) = protocol("verl-agent").messages(WISH, [item(long, "click[p1]")], item(long))
    assert "[step 1]" not in cut.content
    assert "You have taken 1 of at most 15 steps." in cut.content
    assert cut.content.count(long.strip()) == 1
    assert len(cut.content) < 13_000


def test_quick_protocol_answers_with_a_bare_action() -> None:
    quick = protocol("quick")
    messages = quick.messages(WISH, [replace(START, action="search[lamp]")], item("word " * 1000))
    assert [message.role for message in messages] == ["system", *["user", "assistant"] * 3, "user"]
    last = messages[-1].content
    assert last.startswith(f"Your task is to: {WISH}\nYou did: search[lamp]\nYou see: Back to Search [SEP] word")
    assert last.endswith("Actions:\nclick[buy now]\nNext action:")
    assert len(last) < 2000
    for _, example in zip(messages[2::2], range(3), strict=False):
        assert quick.parse(_.content).valid, example


def test_actions_pass_the_parser_unchanged(store: Path) -> None:
    for name in ("seed", "verl-agent", "quick"):
        asked = protocol(name)
        for action in MINI.oracle(ANY, Task("goal/1", "garden", "test", "0" * 64)):
            parsed = asked.parse(asked.format_action(action))
            assert (parsed.action, parsed.valid) == (action, True)

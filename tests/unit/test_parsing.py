"""Parsers with a choice of tags, and protocols in which one answer grows. (One tag: test_protocol_parser.py.)"""

import pytest

from seedbench.parsing import ActionParser, ParsedAction, ParserSettings
from seedbench.protocol import Context, Limits, Past, Prompts, Protocol, ProtocolFile, SamplingSettings
from seedbench.types import Message


def parser(**settings: object) -> ActionParser:
    rules = {"action_tags": ("search", "answer"), "lowercase": False, **settings}
    return ActionParser(ParserSettings.model_validate(rules), asks_thinking=True)


@pytest.mark.parametrize(
    ("response", "action"),
    [
        ("<search>Who?</search>", "<search>Who?</search>"),
        ("so <ANSWER> Paris \n</Answer>.", "<answer>Paris</answer>"),
        ("<answer>a</answer><search>b</search>", "<answer>a</answer>"),
        ("<search>a<search>b</search>", "<search>a<search>b</search>"),
        ("<search>open <answer>x</answer>", "<answer>x</answer>"),
        ("</search>a<search>b</search>", "<search>b</search>"),
    ],
)
def test_the_first_complete_pair_of_any_tag(response: str, action: str) -> None:
    assert parser().parse(response) == ParsedAction(action, True)


@pytest.mark.parametrize("response", ["", "no tags at all, however long the answer is", "<search>never closed"])
def test_no_pair_is_the_empty_action(response: str) -> None:
    assert parser().parse(response) == ParsedAction("", False)


def test_priority_takes_the_tag_that_is_listed_first() -> None:
    both = "<answer>a</answer><search>b</search>"
    assert parser(choose="priority").parse(both).action == "<search>b</search>"
    assert parser(choose="priority").parse("<answer>a</answer>").action == "<answer>a</answer>"


@pytest.mark.parametrize(
    ("response", "valid"),
    [
        ("<search>a</search>", True),
        ("<answer>a</answer><search>b</search>", False),
        ("<search>a</search><search>b</search>", False),
        ("<search>a</search><search>", False),
    ],
)
def test_once_makes_a_second_opening_invalid_but_plays_on(response: str, valid: bool) -> None:
    parsed = parser(once=True).parse(response)
    assert parsed.valid is valid
    assert parsed.action


def test_scripted_answers_come_back_as_they_are() -> None:
    thinking = parser(think_tag="think", once=True)
    assert thinking.parse(thinking.format("<answer>Rome</answer>")) == ParsedAction("<answer>Rome</answer>", True)


def test_a_million_unclosed_tags_take_no_time_worth_noting() -> None:
    assert parser(once=True).parse("<search>" * 1_000_000 + "</answer>" * 9) == ParsedAction("", False)


def growing() -> Protocol:
    settings = ProtocolFile(
        name="t/p",
        version=1,
        summary="s",
        suites=("alfworld",),
        limits=Limits(steps=3, prompt_tokens=0, response_tokens=9),
        context=Context(kind="completion"),
        parser=ParserSettings(),
        sampling=SamplingSettings(temperature=0),
        prompts=Prompts(first="f", later="l"),
        environment={"topk": 3},
    )
    return Protocol(settings, {"f": "Q: {{ instruction }}", "l": "[{{ observation }}]"})


def test_one_answer_grows() -> None:
    protocol = growing()
    first, second, third = (Past(f"o{n}", None, f"r{n}", f"a{n}") for n in range(3))
    assert protocol.messages("why", [], first) == (Message("user", "Q: why"),)
    assert protocol.messages("why", [first], second) == (
        Message("user", "Q: why"),
        Message("assistant", "r0\n\n[o1]\n\n"),
    )
    longer = protocol.messages("why", [first, second], third)
    assert longer[-1].content == "r0\n\n[o1]\n\nr1\n\n[o2]\n\n"
    assert protocol.content()["environment"] == {"topk": 3}

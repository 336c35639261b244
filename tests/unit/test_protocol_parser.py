"""How an action is read from a response: cases by hand."""

import pytest

from seedbench.protocol import load_protocol, shipped_protocols
from tests.eval.helpers import protocol

THINK = "<think>t</think>"
CASES = [  # response, action, valid
    (f"{THINK}<action>go to desk 1</action>", "go to desk 1", True),
    (f"{THINK}<action>\n  go to desk 1\n</action>", "go to desk 1", True),
    (f"{THINK}<action>go to\ndesk 1</action>", "go to\ndesk 1", True),
    (f"{THINK}<ACTION>Go To Desk 1</Action>", "go to desk 1", True),
    (f"{THINK}<action>look</action> or <action>wait</action>", "look", True),
    (f"{THINK}<action><action>look</action></action>", "<action>look", True),
    (f"{THINK}<action></action>", "", True),
    (f"</action>{THINK}<action>look</action>", "look", True),
    ("<action>look</action>", "look", False),
    ("<think>t<action>look</action>", "look", False),
    ("</think><think><action>look</action>", "look", True),
    ("<THINK>t</THINK><action>look</action>", "look", False),
    (f"{THINK}<action>打开 desk 1</action>", "打开 desk 1", False),
    (f"{THINK}想<action>look</action>", "look", False),
    (f"{THINK}ひらく<action>look</action>", "look", True),
    ("", "", False),
    ("LOOK", "look", False),
    (f"{THINK} I would look around in the room", " would look around in the room", False),
    (f"{THINK}<action>go to desk 1", ">t</think><action>go to desk 1", False),
    (f"{THINK}go to desk 1</action>", "t</think>go to desk 1</action>", False),
    (f"{THINK}</action>look<action>", "t</think></action>look<action>", False),
]


@pytest.mark.parametrize(("response", "action", "valid"), CASES)
def test_parser(response: str, action: str, valid: bool) -> None:
    parsed = load_protocol("alfworld/seed").parse(response)
    assert (parsed.action, parsed.valid) == (action, valid)


@pytest.mark.parametrize(
    ("response", "action", "valid"),
    [
        ("look", "look", True),
        (" \n\n  Go to desk 1 \nbecause", "go to desk 1", True),
        ("<action>look</action>", "<action>look</action>", True),
        ("", "", False),
        (" \n ", "", False),
    ],
)
def test_parser_without_an_action_tag(response: str, action: str, valid: bool) -> None:
    bare = protocol(parser={"action_tag": "", "think_tag": ""})
    parsed = bare.parse(response)
    assert (parsed.action, parsed.valid) == (action, valid)
    assert bare.format_action("look") == "look"


def test_thinking_off_drops_the_demand_for_thinking() -> None:
    seed = load_protocol("alfworld/seed")
    assert not seed.parse("<action>look</action>").valid
    assert seed.with_settings(thinking="off").parse("<action>look</action>").valid
    assert not seed.with_settings(thinking="on").parse("<action>look</action>").valid


def test_parser_settings() -> None:
    keeps = protocol(parser={"action_tag": "do.", "think_tag": "", "lowercase": False, "tail": 0})
    assert keeps.parse("<do.>Look</do.>").action == "Look"
    assert keeps.parse("<dox>Look</dox>").action == ""
    tail = protocol(parser={"tail": 4})
    assert tail.parse("please LOOK").action == "look"


@pytest.mark.parametrize(
    "unit", ["<action>", "</action>", "<", "<think>", "<action></think>", "a", "<action>x</actio>"]
)
def test_parser_takes_a_megabyte_in_linear_time(unit: str) -> None:
    response = unit * (1_000_000 // len(unit))
    parsed = load_protocol("alfworld/seed").parse(response)  # a quadratic parser would take minutes here
    assert (parsed.action, parsed.valid) == (response[-30:], False)


@pytest.mark.parametrize("name", list(shipped_protocols()))
@pytest.mark.parametrize("action", ["go to desk 1", "look", "<answer>move mug 1</answer>"])
def test_scripted_answers_pass_the_parser(name: str, action: str) -> None:
    loaded = load_protocol(name)
    if loaded.settings.parser.action_tags and not action.startswith("<"):
        pytest.skip("this protocol's actions carry their tag")
    parsed = loaded.parse(loaded.format_action(action))
    assert (parsed.action, parsed.valid) == (action, True)

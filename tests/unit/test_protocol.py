"""Protocol files: what is asked, how answers are read, what the hash covers, what a user can get wrong."""

from pathlib import Path
from typing import Any

import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.base import Sampling
from seedbench.protocol import Past, Protocol, ProtocolFile, load_protocol, shipped_protocols
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


# The parser, cases by hand: response, action, valid

THINK = "<think>t</think>"
CASES = [
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


@pytest.mark.parametrize("unit", ["<action>", "</action>", "<", "<think>", "<action></think>", "a", "<action>x</actio>"])
def test_parser_takes_a_megabyte_in_linear_time(unit: str) -> None:
    response = unit * (1_000_000 // len(unit))
    parsed = load_protocol("alfworld/seed").parse(response)  # a quadratic parser would take minutes here
    assert (parsed.action, parsed.valid) == (response[-30:], False)


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("action", ["go to desk 1", "look", "move mug 1 to shelf 2"])
def test_scripted_answers_pass_the_parser(name: str, action: str) -> None:
    loaded = load_protocol(name)
    parsed = loaded.parse(loaded.format_action(action))
    assert (parsed.action, parsed.valid) == (action, True)


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


# Files of users

FILE = """
name = "mine/short"
version = 2
summary = "mine"
suites = ["alfworld"]
[limits]
steps = 3
prompt_tokens = 100
response_tokens = 10
[context]
kind = "window"
history = 1
[parser]
action_tag = "action"
reject = "[0-9]{5}"
[sampling]
temperature = 0.5
[prompts]
first = "first.txt"
later = "later.txt"
hide = ["help"]
[dialect]
name = "x"
requires = ["look"]
excludes = ["^a", "b$"]
"""


def write(folder: Path, text: str = FILE, first: str = "{{ instruction }}", later: str = "{{ observation }}") -> str:
    folder.mkdir(exist_ok=True)
    (folder / "mine.toml").write_text(text)
    (folder / "first.txt").write_text(first)
    (folder / "later.txt").write_text(later)
    return str(folder / "mine.toml")


def test_user_file(tmp_path: Path) -> None:
    mine = load_protocol(write(tmp_path))
    assert mine.name == "mine/short@2"
    assert mine.messages("go", [], now(0)) == (Message("user", "go"),)
    assert mine.messages("go", past(1), now(1)) == (Message("user", "saw 1"),)
    assert not mine.parse("<action>look 12345</action>").valid
    assert "the commands hold 'b'" in mine.dialect_problem(["look", "club"], start=True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("steps = 3", "steps = 4"),
        ("prompt_tokens = 100", "prompt_tokens = 101"),
        ("response_tokens = 10", "response_tokens = 11"),
        ('kind = "window"', 'kind = "chat"'),
        ("history = 1", "history = 2"),
        ('action_tag = "action"', 'action_tag = "act"'),
        ('action_tag = "action"', 'think_tag = "think"'),
        ('action_tag = "action"', "lowercase = false"),
        ('action_tag = "action"', "tail = 29"),
        ("{5}", "{6}"),
        ("temperature = 0.5", "temperature = 0.6"),
        ("temperature = 0.5", "temperature = 0.5\ntop_p = 0.9"),
        ("temperature = 0.5", "temperature = 0.5\ntop_k = 5"),
        ("temperature = 0.5", 'temperature = 0.5\nstop = ["x"]'),
        ("temperature = 0.5", 'temperature = 0.5\nthinking = "off"'),
        ('hide = ["help"]', "hide = []"),
        ('requires = ["look"]', "requires = []"),
        ('excludes = ["^a", "b$"]', 'excludes = ["^a"]'),
        ('name = "x"', 'name = "y"'),
        ("version = 2", "version = 3"),
        ('suites = ["alfworld"]', 'suites = ["alfworld", "webshop"]'),
    ],
)
def test_every_setting_changes_the_hash(tmp_path: Path, old: str, new: str) -> None:
    assert FILE.count(old) == 1
    one, other = write(tmp_path / "one"), write(tmp_path / "other", FILE.replace(old, new))
    assert load_protocol(one).hash != load_protocol(other).hash


def test_template_text_changes_the_hash_and_file_names_do_not(tmp_path: Path) -> None:
    plain = load_protocol(write(tmp_path / "a")).hash
    assert load_protocol(write(tmp_path / "b", first="{{ instruction }}!")).hash != plain
    assert load_protocol(write(tmp_path / "c", later="{{ observation }}!")).hash != plain
    swapped = write(tmp_path / "d", first="{{ observation }}", later="{{ instruction }}")
    assert load_protocol(swapped).hash != plain
    renamed = Path(write(tmp_path / "e", f"# a comment\n{FILE}".replace("first.txt", "start.txt")))
    (renamed.parent / "first.txt").rename(renamed.parent / "start.txt")
    renamed = renamed.rename(renamed.with_name("renamed.toml"))
    assert load_protocol(str(renamed)).hash == plain


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("steps = 3", "stepz = 3", "limits.stepz: Extra inputs"),
        ("steps = 3", "stepz = 3", "limits.steps: Field required"),
        ("steps = 3", 'steps = "three"', "limits.steps"),
        ("steps = 3", "steps = ", "is not a TOML file"),
        ("[sampling]", "[sampelling]", "sampelling"),
        ('kind = "window"', 'kind = "windows"', "context.kind: .*'window' or 'chat'"),
        ('suites = ["alfworld"]', "suites = []", "suites"),
        ("version = 2", "version = 0", "version"),
        ("{5}", "{5", None),
        ("[0-9]{5}", "[0-9", "a pattern is no regular expression"),
        ('"^a"', '"("', "a pattern is no regular expression"),
        ('first = "first.txt"', 'first = "none.txt"', "the template 'none.txt' is not beside mine.toml"),
        ('first = "first.txt"', 'first = "../first.txt"', "must lie beside mine.toml"),
        ('first = "first.txt"', 'first = "/etc/hostname"', "must lie beside mine.toml"),
        ('first = "first.txt"', 'first = "."', "the template '.' is not beside mine.toml"),
    ],
)
def test_wrong_user_files_are_refused_by_name(tmp_path: Path, old: str, new: str, reason: str | None) -> None:
    assert FILE.count(old) == 1
    file = write(tmp_path, FILE.replace(old, new))
    if reason is None:  # odd but a regular expression
        load_protocol(file)
        return
    with pytest.raises(SeedBenchError, match=reason):
        load_protocol(file)


def test_missing_file() -> None:
    with pytest.raises(UsageError, match=r"there is no protocol file 'none.toml'"):
        load_protocol("none.toml")


@pytest.mark.parametrize("name", ["mine.toml", "first.txt"])
def test_files_that_are_no_text(tmp_path: Path, name: str) -> None:
    file = write(tmp_path)
    (tmp_path / name).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SeedBenchError, match=r"is not a TOML file|is not UTF-8 text"):
        load_protocol(file)


def test_template_that_does_not_compile(tmp_path: Path) -> None:
    with pytest.raises(SeedBenchError, match="a template does not compile"):
        load_protocol(write(tmp_path, first="{% for %}"))


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ obsrvation }}", "template first.txt: 'obsrvation' is undefined"),
        ("{{ observation.size }}", "has no attribute 'size'"),
        ("{{ observation + 1 }}", "template first.txt"),
        ("{{ 1 // 0 }}", "template first.txt"),
        ("{% include 'later.txt' %}", "template first.txt"),
        ("{% for n in range(10 ** 9) %}{% endfor %}", "template first.txt"),
    ],
)
def test_template_that_does_not_render(tmp_path: Path, template: str, reason: str) -> None:
    mine = load_protocol(write(tmp_path, first=template))
    with pytest.raises(SeedBenchError, match=reason):
        mine.messages("go", [], now(0))


@pytest.mark.parametrize(
    "template",
    [
        "{{ observation.__class__ }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ admissible.append('x') }}",
        "{{ cycler.__init__.__globals__.os.popen('true') }}",
        "{{ self.__init__.__globals__ }}",
        "{{ '{0.__class__}'.format(observation) }}",
        "{{ messages.__globals__ }}",
    ],
)
def test_templates_cannot_reach_python(tmp_path: Path, template: str) -> None:
    mine = load_protocol(write(tmp_path, first=template))
    with pytest.raises(SeedBenchError, match="protocol 'mine/short@2': template first.txt"):
        mine.messages("go", [], now(0))


def test_observations_are_text_not_templates(tmp_path: Path) -> None:
    mine = load_protocol(write(tmp_path, first="{{ observation }}"))
    hostile = "{{ 1 + 1 }}{% raw %}<b>&amp;\ud800"
    assert mine.messages("go", [], Past(hostile, None))[0].content == hostile


def test_content_can_be_read_back(tmp_path: Path) -> None:
    mine = load_protocol(write(tmp_path))
    content = mine.content()
    assert content["prompts"]["first"] == "{{ instruction }}"
    roles = {role: content["prompts"][role] for role in ("first", "later")}
    settings = {**content, "prompts": {**content["prompts"], "first": "first", "later": "later"}}
    assert Protocol(ProtocolFile.model_validate(settings), roles).hash == mine.hash

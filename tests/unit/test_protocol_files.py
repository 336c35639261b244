"""Protocol files of users: what the hash covers, what is refused, what templates cannot do."""

from pathlib import Path

import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.protocol import Past, Protocol, ProtocolFile, load_protocol
from seedbench.types import Message

ADMISSIBLE = ("go to desk 1", "help", "look")


def past(count: int) -> list[Past]:
    return [Past(f"saw {n}", ADMISSIBLE, f"<action>did {n}</action>", f"did {n}") for n in range(count)]


def now(count: int) -> Past:
    return Past(f"saw {count}", ADMISSIBLE)


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
        ("temperature = 0.5", 'temperature = 0.5\ndecode = "admissible"'),
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
        ('kind = "window"', 'kind = "windows"', "context.kind: .*'window', 'chat' or 'completion'"),
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
    with pytest.raises(SeedBenchError, match=r"protocol 'mine/short@2': template first\.txt"):
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

"""`seedbench view --html`: one static page, complete, inert, readable without colours."""

import dataclasses
import io
import json
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from seedbench.errors import SeedBenchError, UsageError
from seedbench.traces import Token, Trace
from seedbench.types import Episode, Message, Outcome, Turn
from seedbench.ui.page import write_page
from seedbench.ui.text import inert
from seedbench.ui.traces import render_trace
from seedbench.ui.viewer import TEXT_LIMIT
from tests.eval.helpers import Command, command_line, said
from tests.unit.test_trace_view import BASE, TOKENS, TRACE, changed, training_run

VOID = {"meta", "br"}
HOSTILE = "</div></details><script>alert(1)</script>\x1b[2J\u202e\"'><img src=x onerror=y> {{ 7*7 }} & \ud800"


class Parsed(HTMLParser):
    """The elements of a page: tag, attributes, the tags around it and the text inside; refuses unbalanced tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[int] = []
        self.elements: list[tuple[str, dict[str, str | None], list[str], list[str]]] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        around = [self.elements[number][0] for number in self.open]
        self.elements.append((tag, dict(attrs), around, []))
        if tag not in VOID:
            self.open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        assert self.elements[self.open.pop()][0] == tag

    def handle_data(self, data: str) -> None:
        for number in self.open:
            self.elements[number][3].append(data)

    def texts(self, tag: str, kind: str = "") -> list[str]:
        return [
            "".join(text)
            for name, attrs, _, text in self.elements
            if name == tag and set(kind.split()) <= set((attrs.get("class") or "").split())
        ]

    def facts(self) -> dict[str, str]:
        return dict(zip(self.texts("dt"), self.texts("dd"), strict=True))


def parsed(folder: Path, *entries: Episode | Trace) -> Parsed:
    file = folder / "page.html"
    write_page(file, "Episodes of run", "so many", entries)
    return Parsed(file.read_text(encoding="utf-8"))


def tokens_of(page: Parsed) -> list[tuple[str, str | None, str | None]]:
    return [("".join(text), a.get("class"), a["title"]) for tag, a, _, text in page.elements if "title" in a]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_line(monkeypatch, capsys)


def test_a_trajectory_is_told_whole(tmp_path: Path) -> None:
    page = parsed(tmp_path, TRACE)
    assert page.texts("title") == page.texts("h1") == ["Episodes of run"]
    assert page.texts("h2") == ["1. train/heat-Egg/trial_1"]
    assert page.facts() == {
        "family": "heat", "outcome": "solved, score 1", "tokens": "120 prompt, 9 generated", "seed": "77, repeat 3",
        "instruction": "heat some egg.", "update": "12, group 3", "reward": "10", "skill": "Open the fridge first.",
    }  # fmt: skip
    assert page.texts("h3") == ["start", "turn 1 · advantage +1.25", "turn 2 · advantage −0.50", "turn 3"]
    assert page.texts("code") == ["go to bed 1", "look", "(no action)"]
    assert page.texts("strong") == ["[invalid: not in the protocol's form]"]
    assert page.texts("div", "text") == [
        "You are in a kitchen.", "<action>go to bed 1</action>∎", "You arrive.", "look", "Nothing happens.",
        "plain words", "What?",
    ]  # fmt: skip


def test_tokens_carry_colour_underline_and_numbers(tmp_path: Path) -> None:
    assert tokens_of(parsed(tmp_path, TRACE)) == [
        ("<action>", "gated", "Δ +0.06, gate 0.57, log p −0.50"),
        ("go to", "more1 gated", "Δ +0.30, gate 0.82, log p −1.00"),
        (" bed", "less2", "Δ −0.70, gate 0.03, log p −1.50"),
        (" 1", "more3 gated", "Δ +2.50, gate 1.00, log p −0.20"),
        ("</action>", "less3", "Δ −2.00, gate 0.00, log p −0.10"),
        ("∎", None, "Δ +0.00, gate 0.50, log p −0.10"),
        ("lo", None, "Δ –, gate –, log p –"),
        ("ok", None, "Δ –, gate –, log p −0.25"),
    ]


def test_the_numbers_are_there_without_a_pointer(tmp_path: Path) -> None:
    page = parsed(tmp_path, TRACE)
    cells = page.texts("td")
    rows = [(name, *cells[3 * at : 3 * at + 3]) for at, name in enumerate(page.texts("th", "text"))]
    assert rows[2] == (" bed", "−0.70", "0.03", "−1.50")
    assert [tuple(row) for row in rows] == [
        (text, *(title or "").replace("Δ ", "").replace("gate ", "").replace("log p ", "").split(", "))
        for text, _, title in tokens_of(page)
    ]


def test_the_colours_are_the_terminals(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    write_page(file, "", "", [TRACE])
    style = Parsed(file.read_text()).texts("style")[0]
    console = Console(file=io.StringIO(), width=200, force_terminal=True, color_system="truecolor")
    console.print(render_trace(TRACE, console))
    terminal = console.file.getvalue()  # type: ignore[attr-defined]
    for name, edge in (("more1", "+0.1"), ("more3", "+2"), ("less2", "−0.5"), ("less3", "−2")):
        ground = style.partition(f".{name} {{ background: #")[2][:6]
        red, green, blue = bytes.fromhex(ground)
        assert f";48;2;{red};{green};{blue}m {edge} \x1b" in terminal


def test_line_breaks_and_split_characters_join_to_the_response(tmp_path: Path) -> None:
    tokens = (Token("\n\n  a", -1.0, 0.0, 0.5), Token("", -1.0, 9.0, 1.0), Token("é\t", -1.0, 0.0, 0.5))
    turn = Turn("\n\n  aé\t", "a", True, True, "\nfirst line empty")
    episode = dataclasses.replace(BASE, turns=(turn,))
    page = parsed(tmp_path, changed(episode=episode, tokens=(tokens,), advantage=(0.0,)))
    assert page.texts("div", "response") == [turn.response]
    assert page.texts("div", "text")[-1] == turn.observation
    assert page.texts("th", "text") == ["⏎⏎  a", "é\t"]


@pytest.mark.parametrize(
    ("notes", "skill"),
    [
        ({"skill": None, "analysis": "Sorry."}, "none: the analysis could not be read"),
        ({"skill": None}, "none: the trajectory was not analysed"),
        ({}, "none: no skill was asked for"),
    ],
)
def test_why_there_is_no_skill(tmp_path: Path, notes: dict[str, str | None], skill: str) -> None:
    plain = tuple(tuple(token._replace(delta=None, gate=None) for token in turn) for turn in TOKENS)
    page = parsed(tmp_path, changed(notes=notes, tokens=plain))
    assert page.facts()["skill"] == skill
    assert page.facts().get("analysis") == notes.get("analysis")
    assert page.texts("p", "legend") == ["No token was scored behind a skill."]


def test_an_evaluation_has_prompts_metrics_and_errors_but_no_tokens(tmp_path: Path) -> None:
    turn = Turn("I say look", "look", True, False, "Hm.", "0" * 64, (Message("system", "Be brief."),), "length")
    error = dataclasses.replace(
        BASE, turns=(turn,), outcome=Outcome.INFRA_ERROR, error="server gone", metrics={"price": 0.5}
    )
    page = parsed(tmp_path, error)
    assert (page.facts()["error"], page.facts()["price"], "skill" in page.facts()) == ("server gone", "0.5", False)
    assert page.texts("div", "text") == ["You are in a kitchen.", "Be brief.", "I say look", "Hm."]
    assert page.texts("strong") == ["[inadmissible: not accepted by the environment]  [finish reason: length]"]
    assert page.texts("h4").count("system") == 1
    assert (tokens_of(page), page.texts("p", "legend"), page.texts("summary")) == (
        [],
        [],
        ["1 turn in 1.5 s", "prompt"],
    )


def test_text_from_outside_stays_text(tmp_path: Path) -> None:
    turn = Turn(HOSTILE, HOSTILE, True, True, HOSTILE, prompt=(Message(HOSTILE, HOSTILE),), finish_reason=HOSTILE)
    episode = dataclasses.replace(
        BASE, task=HOSTILE, family=HOSTILE, instruction=HOSTILE, first_observation=HOSTILE, error=HOSTILE,
        turns=(turn, turn),
    )  # fmt: skip
    trace = changed(
        notes={"skill": None, "analysis": HOSTILE, HOSTILE: HOSTILE},
        episode=episode, tokens=((Token(HOSTILE, -1.0, 1.0, 0.99),), ()), advantage=(0.0, None),
    )  # fmt: skip
    file = tmp_path / "page.html"
    write_page(file, HOSTILE, HOSTILE, [trace])
    text = file.read_text(encoding="utf-8")
    page, tame = Parsed(text), parsed(tmp_path, changed(episode=BASE))
    assert {tag for tag, *_ in page.elements} - {tag for tag, *_ in tame.elements} <= {"strong"}
    names = {name for _, attrs, _, _ in page.elements for name in attrs}
    assert names == {"lang", "charset", "name", "content", "http-equiv", "class", "id", "aria-labelledby", "title",
                     "scope", "open"}  # fmt: skip
    assert not {"\x1b", "\u202e"} & set(text)
    shown = inert(HOSTILE)
    assert page.texts("div", "text").count(shown) == 6  # start; two prompts and observations; tokens
    assert page.texts("h1") == page.texts("title") == [shown]
    assert page.texts("h2") == [f"1. {shown}"]
    assert page.texts("th", "text") == [shown]


def test_nothing_is_loaded_or_run(tmp_path: Path) -> None:
    page = parsed(tmp_path, TRACE, BASE)
    assert not {"script", "link", "img", "iframe", "form", "a"} & {tag for tag, *_ in page.elements}
    policies = [attrs["content"] for _, attrs, _, _ in page.elements if "http-equiv" in attrs]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert "url(" not in page.texts("style")[0]


def test_headings_descend_one_by_one_and_ids_are_unique(tmp_path: Path) -> None:
    page = parsed(tmp_path, TRACE, TRACE, BASE)
    levels = [int(tag[1]) for tag, *_ in page.elements if tag in {"h1", "h2", "h3", "h4"}]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = [attrs["id"] for _, attrs, _, _ in page.elements if "id" in attrs]
    assert ids == ["e1", "e2", "e3"] == [a["aria-labelledby"] for tag, a, _, _ in page.elements if tag == "article"]
    details = [attrs for tag, attrs, around, _ in page.elements if tag == "details" and around[-1] == "article"]
    assert ["open" in attrs for attrs in details] == [True, False, False]


def test_endless_texts_are_cut(tmp_path: Path) -> None:
    long = (Token("x" * (TEXT_LIMIT - 5), -1.0, 1.0, 0.99), Token("yyyyy", -1.0, 0.0, 0.5), *[Token("z", -1, 0, 0)] * 9)
    episode = dataclasses.replace(BASE, first_observation="o" * 30_000)
    page = parsed(tmp_path, changed(tokens=(long, (), ()), episode=episode))
    assert page.texts("div", "response") == ["x" * (TEXT_LIMIT - 5) + "yyyyy"]
    assert page.texts("p", "dim") == ["… (9 more tokens)"]
    assert page.texts("div", "text")[0] == "o" * TEXT_LIMIT + "… (10,000 more characters)"
    one = parsed(tmp_path, changed(tokens=((Token("x" * 30_000, -1.0, 1.0, 0.99),), (), ())))
    assert one.texts("div", "response") == ["x" * TEXT_LIMIT + "… (10,000 more characters)"]


def test_a_page_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    def torn() -> Iterator[Episode]:
        yield BASE
        raise SeedBenchError("the log has changed")

    parsed(tmp_path, BASE)
    before = (tmp_path / "page.html").read_bytes()
    with pytest.raises(SeedBenchError, match="the log has changed"):
        write_page(tmp_path / "page.html", "", "", torn())
    assert (tmp_path / "page.html").read_bytes() == before
    write_page(tmp_path / "page.html", "", "", [])
    assert (tmp_path / "page.html").read_bytes() != before
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_only_pages_are_written(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    for name in (other, tmp_path / "html", tmp_path / ".html"):
        with pytest.raises(UsageError, match=r"the name of a page ends in \.html"):
            write_page(name, "", "", [BASE])
    assert other.read_text() == "mine"
    (tmp_path / "folder.html").mkdir()
    for name in (tmp_path / "folder.html", other / "page.html", tmp_path / "no" / "page.html"):
        with pytest.raises(SeedBenchError, match=r"cannot write the page '.*page.html|cannot write the page '.*folder"):
            write_page(name, "", "", [BASE])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.html", "notes.txt"]


def test_the_command_selects_as_in_the_terminal(cli: Command, tmp_path: Path) -> None:
    run, file = training_run(tmp_path, 1, 20), tmp_path / "page.html"
    for options, tasks, updates in (
        ([], ["1. train/heat-Egg/trial_1", "2. train/look-Mug/trial_2"], ["20, group 3"] * 2),
        (["--update", 1, "--solved"], ["1. train/heat-Egg/trial_1"], ["1, group 3"]),
        (["--failed"], ["1. train/look-Mug/trial_2"], ["20, group 3"]),
        (["--family", "look", "--outcome", "step_limit"], ["1. train/look-Mug/trial_2"], ["20, group 3"]),
        (["--limit", 1], ["1. train/heat-Egg/trial_1"], ["20, group 3"]),
    ):
        told = cli("view", run, "--html", file, *options)
        assert (told.code, told.err) == (0, "")
        assert told.out == f"{file}: {len(tasks)} of 2 episodes\n"
        page = Parsed(file.read_text(encoding="utf-8"))
        assert page.texts("h2") == tasks
        assert [text for text in page.texts("dd") if text.endswith("group 3")] == updates
        assert page.texts("p")[0] == f"{len(tasks)} of 2 episodes"


def test_the_command_on_an_evaluation(cli: Command, tmp_path: Path) -> None:
    manifest = {"settings": {"policy": {}}, "policy": {"name": "seed"}, "sessions": []}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    others = [dataclasses.replace(BASE, repeat=number, seed=number) for number in range(3)]
    (tmp_path / "episodes.jsonl").write_text("".join(json.dumps(one.to_json()) + "\n" for one in others))
    file = tmp_path / "page.html"
    assert cli("view", tmp_path, "--html", file, "--limit", 2).out == f"{file}: 2 of 3 episodes\n"
    page = Parsed(file.read_text(encoding="utf-8"))
    assert [text for text in page.texts("dd") if "repeat" in text] == ["0, repeat 0", "1, repeat 1"]


def test_the_command_writes_nothing_where_nothing_is_selected(cli: Command, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    told = cli("view", training_run(tmp_path, 1), "--html", file, "--family", "cool")
    assert told.out.startswith("No episode is selected. The run has 2:")
    assert not file.exists()
    assert said(cli("view", tmp_path, "--html", tmp_path / "page.txt"), 2).endswith("e.g. `--html view.html`.")

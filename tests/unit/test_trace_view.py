"""`seedbench view` on a training run: skill, advantages, tokens shaded by Delta, at every width, inert."""

import dataclasses
import gzip
import io
import json
from pathlib import Path
from typing import Any, Literal

import pytest
from rich.cells import cell_len
from rich.console import Console

from seedbench.traces import Token, Trace, trace_file
from seedbench.types import Episode, Outcome, Turn, Usage
from seedbench.ui.traces import render_trace
from seedbench.ui.viewer import TEXT_LIMIT
from tests.eval.helpers import Command, command_line, said

BASE = Episode(
    "train/heat-Egg/trial_1", "0" * 64, "heat", 3, 77, Outcome.SOLVED, True, 1.0,
    "heat some egg.", "You are in a kitchen.",
    (
        Turn("<action>go to bed 1</action>", "go to bed 1", True, True, "You arrive."),
        Turn("look", "look", True, True, "Nothing happens."),
        Turn("plain words", "", False, None, "What?"),
    ),
    Usage(120, 9), 1.5,
)  # fmt: skip
# Gates for beta 5, Delta of both signs in every shade, and tokens that were not distilled.
TOKENS = (
    (
        Token("<action>", -0.5, 0.06, 0.574443),
        Token("go to", -1.0, 0.3, 0.817574),
        Token(" bed", -1.5, -0.7, 0.029312),
        Token(" 1", -0.2, 2.5, 0.999996),
        Token("</action>", -0.1, -2.0, 0.000045),
        Token("", -0.1, 0.0, 0.5),
    ),
    (Token("lo", None, None, None), Token("ok", -0.25, None, None)),
    (),
)
TRACE = Trace(12, 3, 10.0, (1.25, -0.5, None), {"skill": "Open the fridge first."}, BASE, TOKENS)

System = Literal["standard", "256", "truecolor"]


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_line(monkeypatch, capsys)


def shown(trace: Trace = TRACE, width: int = 110, colors: System | None = None, **options: Any) -> str:
    console = Console(
        width=width, file=io.StringIO(), force_terminal=colors is not None, color_system=colors, **options
    )
    with console.capture() as capture:
        console.print(render_trace(trace, console, "1/4"))
    return capture.get()


def lines(**options: Any) -> list[str]:
    """Without the frame and its padding."""
    return [line.strip("│ ") for line in shown(**options).splitlines()]


def changed(**fields: Any) -> Trace:
    return dataclasses.replace(TRACE, **fields)


# what is shown


def test_header_and_turns_without_colours() -> None:
    text = lines()
    for row in (
        "task         train/heat-Egg/trial_1", "family       heat", "outcome      solved, score 1",
        "update       12, group 3", "reward       10", "skill        Open the fridge first.",
    ):  # fmt: skip
        assert row in text
    assert "«…»: gate over .5, likelier behind the skill." in " ".join(text)
    first, second, third = (at for at, line in enumerate(text) if line.startswith("turn "))
    assert text[first].startswith("turn 1 · advantage +1.25 ──")
    assert text[second].startswith("turn 2 · advantage −0.50 ──")
    assert text[third].startswith("turn 3 ──")
    # -3.4 / 6, 0.16 / 6 and 2.92137 / 6
    figures = " ".join(text[first + 1 : first + 3])
    assert figures == (
        "response: 6 tokens; mean log p −0.57; mean Δ +0.03; mean gate 0.49, 3 over .5;"
        " highest '1' 1.00 (Δ +2.50), lowest '</action>' 0.00 (Δ −2.00)"
    )
    assert text[first + 3] == "«<action>go to» bed« 1»</action>∎"
    assert text[first + 4 : first + 6] == ["> go to bed 1", "You arrive."]
    assert text[second + 1 : second + 3] == ["response: 2 tokens; mean log p −0.25", "look"]
    assert text[third + 1 : third + 3] == ["response", "plain words"]  # no tokens: as the episode has it


def test_an_analysis_that_could_not_be_read_is_shown() -> None:
    text = lines(trace=changed(notes={"skill": None, "analysis": "Sorry, I cannot.\n{", "lost": {"words": 3}}))
    at = text.index("skill        none: the analysis could not be read")
    assert text[at + 1 : at + 4] == ["analysis     Sorry, I cannot.", "{", 'lost         {"words": 3}']
    assert "analysis     (no answer)" in lines(trace=changed(notes={"skill": None, "analysis": ""}))
    assert not [line for line in lines() if line.startswith("analysis")]
    assert not [line for line in lines(trace=changed(notes={})) if line.startswith("skill")]


def test_without_a_teacher_the_legend_says_so() -> None:
    plain = tuple(tuple(token._replace(delta=None, gate=None) for token in turn) for turn in TOKENS)
    text = lines(trace=changed(tokens=plain, advantage=(None, None, None), notes={}))
    assert "legend       no token was scored behind a skill" in text
    assert "<action>go to bed 1</action>∎" in text
    assert [line.strip("─ ") for line in text if line.startswith("turn ")] == ["turn 1", "turn 2", "turn 3"]


def test_deltas_without_gates_are_not_marked() -> None:
    bare = tuple(tuple(token._replace(gate=None) for token in turn) for turn in TOKENS)
    text = lines(trace=changed(tokens=bare))
    assert "<action>go to bed 1</action>∎" in text
    assert "response: 6 tokens; mean log p −0.57; mean Δ +0.03" in text
    assert "\x1b[30;104mgo to\x1b[0m" not in shown(trace=changed(tokens=bare), colors="standard")
    assert "\x1b[94mgo to\x1b[0m" in shown(trace=changed(tokens=bare), colors="standard")


@pytest.mark.parametrize(
    ("colors", "styles"),
    [
        ("standard", {"go to": "94", " bed": "30;101", " 1": "97;44", "</action>": "97;41"}),
        (
            "truecolor",
            {
                "go to": "38;2;0;0;0;48;2;214;230;247",
                " bed": "38;2;0;0;0;48;2;234;143;132",
                " 1": "38;2;255;255;255;48;2;29;95;174",
                "</action>": "38;2;255;255;255;48;2;169;42;34",
            },
        ),
    ],
)
def test_tokens_are_shaded_by_delta(colors: System, styles: dict[str, str]) -> None:
    text = shown(colors=colors)
    response = next(line for line in text.splitlines() if line.startswith("  <action>"))
    assert response.rstrip() == "  <action>" + "".join(f"\x1b[{s}m{t}\x1b[0m" for t, s in styles.items()) + "∎"
    for edge in ("−2", "−0.5", "−0.1", "+0.1", "+0.5", "+2"):
        assert f"m {edge} \x1b[0m" in text
    assert "«" not in text


def test_shades_differ_where_there_are_256_colours() -> None:
    text = shown(colors="256")
    shades = [text.partition(f" {edge} \x1b[0m")[0].rpartition("\x1b")[2] for edge in ("−0.1", "+0.1", "−2", "+2")]
    assert len(set(shades)) == 4


def test_a_terminal_without_colours_marks_gates_by_signs() -> None:
    text = shown(colors="truecolor", no_color=True)
    assert "«<action>go to» bed« 1»</action>∎" in text


# what must not be shown


@pytest.mark.parametrize("colors", [None, "truecolor"])
def test_nothing_shown_acts_on_the_terminal(colors: System | None) -> None:
    nasty = "\x1b[2J\x07\r\u202e[red]"
    token = Token(nasty, -1.0, 1.0, 0.99)
    turn = Turn(nasty, nasty, True, True, nasty)
    trace = changed(
        notes={"skill": nasty, nasty: nasty, "analysis": nasty},
        episode=dataclasses.replace(BASE, task=nasty, family=nasty, turns=(turn,)),
        tokens=((token, token),),
        advantage=(0.0,),
    )
    text = shown(trace, width=200, colors=colors)
    visible = "<1b>[2J<07><0d><202e>[red]"
    assert not {"\x07", "\r", "\u202e", "\x1b[2J"} & set(text)
    assert "\x1b[2J" not in text
    assert text.count(visible) >= 8
    no_skill = shown(changed(notes={"skill": None, "analysis": nasty}), width=200, colors=colors)
    assert f"analysis     {visible}" in no_skill.replace("\x1b[0m", "").replace("\x1b[2m", "")


def test_endless_texts_are_cut() -> None:
    tokens = ((Token("x" * (TEXT_LIMIT - 5), -1.0, 1.0, 0.99), Token("y" * 100, -1.0, None, None)), (), ())
    text = lines(trace=changed(tokens=tokens, notes={"skill": None, "analysis": "z" * 30_000}))
    response = "".join(line for line in text if line.startswith(("«x", "xx", "x»")))
    assert "".join(text).count("z") == TEXT_LIMIT
    assert "… (10,000 more characters)" in "".join(text)
    # With the two marks, which count.
    assert response == f"«{'x' * (TEXT_LIMIT - 5)}»yyy… (cut after 20,000 characters)"


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    wide = "漢字" * 40
    tokens = ((*TOKENS[0], Token(wide, -1.0, 3.0, 1.0)), *TOKENS[1:])
    for colors in (None, "standard"):
        text = shown(changed(tokens=tokens, notes={"skill": wide}), width=width, no_color=True, colors=colors)
        plain = "".join(part.partition("m")[2] if i else part for i, part in enumerate(text.split("\x1b[")))
        assert max(map(cell_len, plain.splitlines())) <= width
        assert plain.replace("\n", "").replace(" ", "").count("漢") >= 40


# the command


def training_run(folder: Path, *updates: int) -> Path:
    """A training run's folder as the viewer needs it, with a solved and a failed trajectory an update."""
    (folder / "training.json").write_text("{}")
    for update in updates:
        failed = dataclasses.replace(
            BASE, task="train/look-Mug/trial_2", family="look", outcome=Outcome.STEP_LIMIT, success=False, score=0.0
        )
        traces = [dataclasses.replace(TRACE, update=update, episode=episode) for episode in (BASE, failed)]
        path = trace_file(folder, update)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress("".join(json.dumps(t.to_json()) + "\n" for t in traces).encode()))
    return folder


def test_the_latest_traces_unless_an_update_is_named(cli: Command, tmp_path: Path) -> None:
    run = training_run(tmp_path, 1, 10, 20)
    told = cli("view", run)
    assert (told.code, told.err, told.out.count("update       20, group 3")) == (0, "", 2)
    assert cli("view", run, "--update", 10).out.count("update       10, group 3") == 2
    assert said(cli("view", run, "--update", 7), 2).endswith("has no traces of update 7; it has those of 1, 10, 20.")


@pytest.mark.parametrize(
    ("options", "families"),
    [
        (["--solved"], ["heat"]),
        (["--failed"], ["look"]),
        (["--family", "look"], ["look"]),
        (["--outcome", "step_limit"], ["look"]),
        (["--task", "EGG"], ["heat"]),
        (["--limit", 1], ["heat"]),
        (["--solved", "--family", "look"], []),
    ],
)
def test_selection(cli: Command, tmp_path: Path, options: list[object], families: list[str]) -> None:
    told = cli("view", training_run(tmp_path, 1), *options)
    assert told.code == 0
    assert [line.split()[2] for line in told.out.splitlines() if line.startswith("│ family ")] == families
    if not families:
        assert "No episode is selected. The run has 2: by outcome solved 1, step limit 1;" in told.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--solved", "--failed"], "--failed shows no 'solved' episode"),
        (["--solved", "--outcome", "failed"], "--solved shows no 'failed' episode"),
        (["--outcome", "solvd"], "unknown outcome 'solvd': did you mean 'solved'?"),
    ],
)
def test_contradicting_options(cli: Command, tmp_path: Path, options: list[str], message: str) -> None:
    assert message in said(cli("view", training_run(tmp_path, 1), *options), 2)


def test_a_folder_without_traces_and_one_that_is_no_run(cli: Command, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        message = said(cli("view", folder), 2)
        assert "is not a run folder (no manifest.json) and not a training run (no training.json)" in message
    message = said(cli("view", training_run(tmp_path)), 2)
    assert f"`seedbench view {tmp_path}/validation/update-000000`" in message


def test_a_validation_is_a_run_folder(cli: Command, tmp_path: Path) -> None:
    validation = tmp_path / "validation" / "update-000010"
    validation.mkdir(parents=True)
    manifest = {"settings": {"policy": {}}, "policy": {"name": "seed"}, "sessions": []}
    (validation / "manifest.json").write_text(json.dumps(manifest))
    (validation / "episodes.jsonl").write_text(json.dumps(BASE.to_json()) + "\n")
    told = cli("view", validation, "--solved")
    assert (told.code, "task         train/heat-Egg/trial_1" in told.out, "legend" in told.out) == (0, True, False)
    message = said(cli("view", validation, "--update", 10), 2)
    assert message.startswith("--update chooses the traces of a training run")

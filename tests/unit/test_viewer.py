"""The episode viewer: what it selects, what it shows, and that nothing shown acts on a terminal."""

import dataclasses
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from rich.cells import cell_len
from rich.console import Console

from seedbench.errors import SeedBenchError, UsageError
from seedbench.types import Episode, Message, Outcome, Turn, Usage
from seedbench.ui.viewer import KEYS, TEXT_LIMIT, EpisodeIndex, Selection, page, render_episode, scan, select

LOOK = Turn("", "look", True, True, "Nothing happens.")
BASE = Episode(
    "", "", "", 0, 812345678901234567, Outcome.SOLVED, True, 1.0,
    "put some egg in the fridge.", "You are in the middle of a room.", (), Usage(12345, 678), 12.34,
)  # fmt: skip


def turn(response: str = "", action: str = "look", **rest: object) -> Turn:
    return dataclasses.replace(LOOK, response=response, action=action, **rest)  # type: ignore[arg-type]


def episode(number: int, family: str, outcome: Outcome = Outcome.SOLVED, error: str = "") -> Episode:
    solved, name = outcome is Outcome.SOLVED, f"valid_unseen/{family}-Egg/trial_{number}"
    facts = {
        "task": name,
        "task_sha256": f"{number:064x}",
        "family": family,
        "outcome": outcome,
        "error": error,
    }
    return dataclasses.replace(BASE, success=solved, score=float(solved), **facts)  # type: ignore[arg-type]


def played(*turns: Turn, **rest: object) -> Episode:
    return dataclasses.replace(RUN[0], turns=turns, **rest)  # type: ignore[arg-type]


RUN = (
    episode(1, "heat"),
    episode(2, "look", Outcome.STEP_LIMIT),
    episode(3, "heat", Outcome.FAILED),
    episode(4, "cool", Outcome.INFRA_ERROR, error="server gone"),
    episode(5, "heat", Outcome.CONTEXT_OVERFLOW),
)


def write(folder: Path, *parts: Episode | str) -> Path:
    log = folder / "episodes.jsonl"
    lines = [part if isinstance(part, str) else json.dumps(part.to_json()) + "\n" for part in parts]
    log.write_text("".join(lines), encoding="utf-8")
    return log


def shown(one: Episode, width: int = 100, position: str = "", colors: bool = False) -> str:
    system: Literal["standard"] | None = "standard" if colors else None
    console = Console(width=width + 20, file=io.StringIO(), force_terminal=colors, color_system=system)
    with console.capture() as capture:
        console.print(render_episode(one, width, position))
    return capture.get()


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def numbers(episodes: Iterator[Episode]) -> list[int]:
    return [int(one.task_sha256, 16) for one in episodes]


@pytest.mark.parametrize(
    ("restrictions", "expected"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"family": "heat"}, [1, 3, 5]),
        ({"failed": True}, [2, 3, 5]),
        ({"failed": True, "family": "heat"}, [3, 5]),
        ({"outcome": "infra_error"}, [4]),
        ({"outcome": Outcome.FAILED}, [3]),
        ({"failed": True, "outcome": "step_limit"}, [2]),
        ({"task": "COOL-egg"}, [4]),
        ({"task": "trial_", "family": "look"}, [2]),
        ({"family": "clean"}, []),
    ],
)
def test_select(restrictions: dict[str, object], expected: list[int], tmp_path: Path) -> None:
    assert numbers(select(RUN, **restrictions)) == expected  # type: ignore[arg-type]
    index = EpisodeIndex(write(tmp_path, *RUN), Selection(**restrictions))  # type: ignore[arg-type]
    assert numbers(index[at] for at in range(len(index))) == expected


def test_unknown_outcome_offers_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown outcome 'step-limit': did you mean 'step_limit'\?"):
        select(RUN, outcome="step-limit")


@pytest.mark.parametrize("outcome", ["solved", "infra_error"])
def test_contradicting_restrictions_are_refused(outcome: str) -> None:
    with pytest.raises(UsageError, match=f"--failed shows no '{outcome}' episode"):
        select(RUN, failed=True, outcome=outcome)


def test_index_reads_back_what_was_written(tmp_path: Path) -> None:
    index = EpisodeIndex(write(tmp_path, *RUN))
    assert [index[at] for at in (4, 0, 2, 1, 3)] == [RUN[at] for at in (4, 0, 2, 1, 3)]
    assert len(index) == 5
    with pytest.raises(IndexError):
        index[5]


def test_offsets_count_bytes_not_characters(tmp_path: Path) -> None:
    log, words = tmp_path / "episodes.jsonl", "œuf 卵 🥚 \ud83d"
    named = [dataclasses.replace(one, instruction=words).to_json() for one in RUN]
    lines = [(json.dumps(one, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass") for one in named]
    log.write_bytes(b"".join(lines))
    index = EpisodeIndex(log, Selection(family="heat"))
    assert numbers(index[at] for at in range(3)) == [1, 3, 5]
    assert [offset for offset, _ in scan(log)] == [sum(map(len, lines[:at])) for at in range(5)]
    assert {one.instruction for _, one in scan(log)} == {words}


@pytest.mark.parametrize("torn", ['{"task": "valid', json.dumps(RUN[2].to_json()), '{"task": \n', "\n"])
def test_torn_last_line_is_left_out(tmp_path: Path, torn: str) -> None:
    index = EpisodeIndex(write(tmp_path, *RUN[:2], torn))
    assert [index[at] for at in range(len(index))] == list(RUN[:2])


@pytest.mark.parametrize("wrong", ["not json\n", "\n", "[1]\n", '{"task": "x"}\n', "[" * 100_000 + "\n"])
def test_wrong_line_in_the_middle_is_named(tmp_path: Path, wrong: str) -> None:
    log = write(tmp_path, RUN[0], wrong, RUN[1])
    with pytest.raises(SeedBenchError, match=r"episodes\.jsonl, line 2: not an episode"):
        EpisodeIndex(log)


def test_whole_record_of_another_shape_is_not_taken_for_a_torn_one(tmp_path: Path) -> None:
    with pytest.raises(SeedBenchError, match="line 2"):
        EpisodeIndex(write(tmp_path, RUN[0], '{"task": "x", "turns": []}\n'))


def test_missing_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(SeedBenchError, match=r"cannot read the episode log .*nowhere: No such file"):
        EpisodeIndex(tmp_path / "nowhere")


def test_an_attempt_made_again_counts_once(tmp_path: Path) -> None:
    broken = episode(1, "heat", Outcome.INFRA_ERROR, error="server gone")
    index = EpisodeIndex(write(tmp_path, broken, RUN[1], RUN[0]))
    assert [index[at] for at in range(len(index))] == [RUN[1], RUN[0]]
    assert index.outcomes == {Outcome.STEP_LIMIT: 1, Outcome.SOLVED: 1}
    assert len(EpisodeIndex(index._path, Selection(outcome="infra_error"))) == 0


def test_log_that_changes_while_it_is_shown(tmp_path: Path) -> None:
    log = write(tmp_path, *RUN)
    index = EpisodeIndex(log)
    log.write_text("x\n")
    with pytest.raises(SeedBenchError, match="has changed while it was shown"):
        index[3]


def test_episode_shows_its_facts() -> None:
    text = shown(dataclasses.replace(RUN[1], turns=(turn(),) * 3, metrics={"a": 1 / 3, "b": 1.0}), position="3/134")
    rows = [row.strip("│ \n") for row in text.split("\n")]
    assert rows[0].startswith("╭─ episode 3/134 ─")
    assert [row.split(None, 1) for row in rows[1:9]] == [
        ["task", "valid_unseen/look-Egg/trial_2"],
        ["family", "look"],
        ["outcome", "step limit, score 0"],
        ["metrics", "a 0.333333, b 1"],
        ["turns", "3 in 12.3 s"],
        ["tokens", "12,345 prompt, 678 generated"],
        ["seed", "812345678901234567, repeat 0"],
        ["instruction", "put some egg in the fridge."],
    ]
    assert "  You are in the middle of a room." in text
    assert "error   " not in text
    assert "metrics" not in shown(RUN[3])
    assert "error        server gone" in shown(RUN[3])
    assert [row.split()[1] for row in rows if row.startswith("turn ") and "─" in row] == ["1", "2", "3"]


@pytest.mark.parametrize("width", [60, 100, 200])
def test_no_line_is_wider_than_asked(width: int) -> None:
    long = turn("word " * 200, "go " * 60, valid=False, admissible=False, observation="x" * 500)
    text = shown(played(long, instruction="i" * 300), width)
    assert max(cell_len(row) for row in text.split("\n")) == width
    assert text.count("x") >= 500


def test_turn_shows_response_action_and_observation_in_order() -> None:
    one = turn("<think>hm</think>\n<action>go on</action>", "go on", observation="You arrive.")
    rows = [row.rstrip() for row in shown(played(one)).split("\n")]
    start = rows.index("response") + 1
    expected = ["  <think>hm</think>", "  <action>go on</action>", "> go on", "  You arrive."]
    assert rows[start : start + 4] == expected


def test_scripted_response_is_not_shown_twice() -> None:
    assert "response" not in shown(played(turn("", "look"), turn("look\n", "look")))


def test_prompt_is_shown_where_it_was_kept() -> None:
    kept = (Message("system", "Be brief."), Message("user", "What now?\nChoose."))
    rows = [row.rstrip() for row in shown(played(turn(prompt=kept), turn())).split("\n")]
    start = rows.index("prompt, system")
    expected = ["prompt, system", "  Be brief.", "prompt, user", "  What now?", "  Choose."]
    assert rows[start : start + 5] == expected
    assert sum(row.startswith("prompt, ") for row in rows) == 2


INVALID = "  [invalid: not in the protocol's form]"
INADMISSIBLE = "  [inadmissible: not accepted by the environment]"


@pytest.mark.parametrize(
    ("facts", "markers"),
    [
        ({}, ""),
        ({"admissible": None, "finish_reason": "stop"}, ""),
        ({"valid": False, "admissible": None}, INVALID),
        ({"admissible": False}, INADMISSIBLE),
        ({"valid": False, "action": ""}, INVALID),
        ({"finish_reason": "length"}, "  [finish reason: length]"),
        ({"valid": False, "admissible": False}, INVALID + INADMISSIBLE),
    ],
)
def test_markers(facts: dict[str, object], markers: str) -> None:
    rows = [row.rstrip() for row in shown(played(turn(**facts)), 120).split("\n")]  # type: ignore[arg-type]
    action = facts.get("action", "look") or "(no action)"
    assert [row for row in rows if row.startswith(">")] == [f"> {action}{markers}"]


@pytest.mark.parametrize(
    ("before", "thinking", "after"),
    [
        ("", "<think>a</think>", "b"),
        ("", "a</think>", "b"),
        ("b", "<think>a</think>", "c"),
        ("b", "<think>a", ""),
    ],
)
def test_thinking_alone_is_dimmed(before: str, thinking: str, after: str) -> None:
    text = shown(played(turn(before + thinking + after)), colors=True)
    assert f"  {before}\x1b[2;3m{thinking}\x1b[0m{after}" in text


def test_action_is_emphasised() -> None:
    text = shown(played(turn("so <action>look</action>")), colors=True)
    assert "so \x1b[1m<action>look</action>\x1b[0m" in text
    assert "\x1b[1;36m> look\x1b[0m" in text


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("[bold red]x[/bold red][link=http://x]y[/link]:smile:", None),
        ("[/nothing] [[", None),
        (r"$\frac{1}{2}$ \input{/etc/passwd} 50\% & \\", None),
        ("<script>alert(1)</script>&amp;<b>", None),
        ("\x1b[2J\x1b]0;title\x07\x9b31m", "<1b>[2J<1b>]0;title<07><9b>31m"),
        ("shown\rhidden\x08", "shown<0d>hidden<08>"),
        ("abc\u202edef\u200b", "abc<202e>def<200b>"),
        ("\ud83d", "<d83d>"),
    ],
)
def test_text_from_outside_is_inert_everywhere(raw: str, safe: str | None) -> None:
    safe = raw if safe is None else safe
    prompt = (Message(f"{raw} role", f"{raw} p"),)
    hostile = turn(f"{raw} r", f"{raw} a", observation=f"{raw} o", prompt=prompt, finish_reason=f"{raw} f")
    facts = {"task": "t", "family": "m", "instruction": "i", "first_observation": "b", "error": "e"}
    text = shown(played(hostile, **{name: f"{raw} {mark}" for name, mark in facts.items()}), 300)
    for mark in "raoptmibe":
        assert f"{safe} {mark}" in text
    assert f"prompt, {safe[:15]}" in text
    assert "[finish reason: " in text
    assert all(char.isprintable() or char == "\n" for char in text)


def test_a_response_cannot_pass_for_the_viewers_own_lines() -> None:
    forged = "ok\nturn 2 ─────\n> take gold\n╭─ episode 2/2 ─╮"
    one = turn(forged, "look\n> take gold", observation=forged)
    rows = [row.rstrip() for row in shown(played(one)).split("\n")]
    own = [row for row in rows if row and not row.startswith(("  ", "│", "╰", "╭"))]
    assert own == ["turn 1 " + "─" * 93, "response", "> look > take gold"]
    assert sum(row.startswith("╭") for row in rows) == 1


def test_endless_line_is_cut_with_a_note() -> None:
    text = shown(played(turn("x" * 1_000_000, "y" * 1_000_000, observation="z" * 1_000_000)))
    assert (text.count("x"), text.count("z")) == (TEXT_LIMIT, TEXT_LIMIT)
    joined = "".join(text.split())
    assert joined.count("…(980,000morecharacters)") == 2
    assert "…(999,500morecharacters)" in joined


def terminal(width: int = 100) -> Console:
    return Console(width=width, file=io.StringIO(), force_terminal=True, force_interactive=True)


def typed(*keys: str, end: type[BaseException] = EOFError) -> Callable[[str], str]:
    waiting = iter(keys)

    def ask(prompt: str) -> str:
        assert prompt.endswith("(Enter next, p previous, q quit, ? help) ")
        try:
            return next(waiting)
        except StopIteration:
            raise end from None

    return ask


def output(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def visited(console: Console) -> list[str]:
    return [row.split()[2] for row in output(console).split("\n") if row.startswith("╭─ episode")]


@pytest.mark.parametrize(
    ("keys", "positions", "message"),
    [
        (["q", "n"], "1", ""),
        ([], "1", ""),
        (["", "n", "p", "q"], "1232", ""),
        (["5", "n", "p"], "154", "this was the last episode (q: quit)"),
        (["p", " 3 "], "13", "this is the first episode"),
        (["0", "6", "2"], "12", "no episode 6: expected 1 to 5"),
        (["?"], "1", KEYS),
        (["9" * 5000], "1", f"unknown key '{'9' * 20}… (4,980 more characters)': {KEYS}"),
        (["[b]\x1b"], "1", f"unknown key '[b]<1b>': {KEYS}"),
    ],
)
@pytest.mark.parametrize("end", [EOFError, KeyboardInterrupt])
def test_keys(tmp_path: Path, keys: list[str], positions: str, message: str, end: type[BaseException]) -> None:
    console = terminal(150)
    page(EpisodeIndex(write(tmp_path, *RUN)), console, input_=typed(*keys, end=end))
    assert visited(console) == [f"{position}/5" for position in positions]
    assert message in output(console).split("\n")


@pytest.mark.parametrize("forced", [False, True])
def test_all_are_printed_where_there_is_no_terminal(
    tmp_path: Path, forced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if forced:
        monkeypatch.setenv("FORCE_COLOR", "1")
    console = Console(width=100, file=io.StringIO())
    page(
        EpisodeIndex(write(tmp_path, *RUN), Selection(family="heat")),
        console,
        input_=typed(end=AssertionError),
    )
    assert visited(console) == ["1/3", "2/3", "3/3"]
    assert "--limit" not in output(console)
    assert ("\x1b" in output(console)) is forced


def test_limit_bounds_and_says_so(tmp_path: Path) -> None:
    index = EpisodeIndex(write(tmp_path, *RUN))
    console = Console(width=100, file=io.StringIO())
    page(index, console, limit=2, input_=typed(end=AssertionError))
    assert visited(console) == ["1/2", "2/2"]
    assert output(console).rstrip().endswith("2 of 5 selected episodes (--limit)")
    console = terminal()
    page(index, console, limit=2, input_=typed("3", "", ""))
    assert visited(console) == ["1/2", "2/2"]
    with pytest.raises(UsageError, match="--limit 0: expected 1 or more"):
        page(index, console, limit=0)


def test_nothing_selected_says_what_there_is(tmp_path: Path) -> None:
    for console in (terminal(300), Console(width=300, file=io.StringIO())):
        page(
            EpisodeIndex(write(tmp_path, *RUN), Selection(family="clean")),
            console,
            input_=typed(end=AssertionError),
        )
        assert output(console) == (
            "No episode is selected. The run has 5: by outcome solved 1, step limit 1, failed 1, "
            "infra error 1, context overflow 1; by family heat 3, look 1, cool 1.\n"
        )


def test_run_without_an_episode_says_so(tmp_path: Path) -> None:
    console = Console(width=300, file=io.StringIO())
    page(EpisodeIndex(write(tmp_path, '{"task')), console, input_=typed(end=AssertionError))
    assert output(console) == "No episode to show: this run has not finished one yet.\n"

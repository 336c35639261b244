"""What a user can get wrong: one sentence that says what to do, exit code 1 or 2, nothing lost.

Exit code 2 is a request that cannot be right, 1 a right request that failed (errors.py).
"""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from seedbench.panels import load_panel
from seedbench_envs.alfworld.library import library
from tests.eval.helpers import Command, command_line, read_summary, said, seedbench

MINI = "mini-alfworld/valid_unseen"
N = len(load_panel(MINI).tasks)
EVAL = ("eval", "random", "-p", MINI, "--limit", 12, "-q", "--out")


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mini_store: Path) -> Command:
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return command_line(monkeypatch, capsys)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def own_store(tmp_path: Path, mini_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the generated games that a test may damage."""
    store = tmp_path / "store"
    shutil.copytree(mini_store / "mini-alfworld", store / "mini-alfworld")
    monkeypatch.setenv("SEEDBENCH_DATA", str(store))
    return store


# Names


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--panel", "mini-alfworld/valid_unsen"], "unknown panel 'mini-alfworld/valid_unsen': did you mean '{mini}'?"),
        (["--panel", "other/test"], "unknown panel 'other/test': "),
        (["--panel", "none.jsonl"], "there is no panel file 'none.jsonl'."),
        (["--protocol", "alfworld/sead"], "unknown protocol 'alfworld/sead': did you mean 'alfworld/seed'?"),
        (["--protocol", "none.toml"], "there is no protocol file 'none.toml'."),
        (["--families", "heet"], "unknown family 'heet': did you mean 'heat'? Known: clean, cool, heat, look, pick"),
        (["--engine", "natve"], "unknown engine 'natve': did you mean 'native'? Known: native, reference."),
        (["--limit", "0"], "the limit must be at least 1, not 0."),
        (["--limit", "-5"], "the limit must be at least 1, not -5."),
        (["--thinking", "maybe"], "protocol 'alfworld/seed@1': sampling.thinking: Input should be 'on', 'off' or"),
        (["--temperature", "inf"], "protocol 'alfworld/seed@1': sampling.temperature: "),
        (["--protocol", "alfworld/seed-put"], "the protocol 'alfworld/seed-put@1' is for alfworld, the panel"),
    ],
)
def test_eval_refuses_wrong_names_and_values(cli: Command, out: Path, words: list[str], sentence: str) -> None:
    panel = [] if "--panel" in words else ["--panel", MINI]
    told = cli("eval", "oracle", *panel, *words, "-q", "--out", out)
    assert sentence.format(mini=MINI) in said(told, 2)
    assert told.out == ""
    assert not out.exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--repeats", "0"],
        ["--concurrency", "0"],
        ["--steps", "0"],
        ["--seed", "x"],
        ["--temperature", "-1"],
        ["--temperature", "nan"],
        ["--nope"],
    ],
)
def test_eval_refuses_wrong_options(cli: Command, out: Path, words: list[str]) -> None:
    told = cli("eval", "oracle", "--panel", MINI, *words, "--out", out)
    assert told.code == 2
    assert words[0] in told.err
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["table", "{run}", "--layout", "alfwrld"], 2, "unknown table layout 'alfwrld': did you mean 'alfworld'?"),
        (["table", "{run}", "--format", "markdwn"], 2, "unknown table format 'markdwn': did you mean 'markdown'?"),
        (["table", "{run}", "{run}", "--labels", "one"], 2, "--labels names 1 rows for 2 runs."),
        (["table", "{empty}"], 1, "summary.json is missing: expected a run folder"),
        (["table", "{empty}/none"], 1, "expected a run folder"),
        (["view", "{empty}"], 2, "is not a run folder (no manifest.json)"),
        (["view", "{run}", "--outcome", "solvd"], 2, "unknown outcome 'solvd': did you mean 'solved'?"),
        (["panels", "show", "mini-alfworld/trian"], 2, "did you mean 'mini-alfworld/train'?"),
        (["panels", "check", "nope"], 2, "unknown panel 'nope'"),
        (["panels", "make", MINI, "--out", "{empty}/p.jsonl", "--name", "a b"], 2, "'a b@1' is no panel name"),
        (["panels", "make", MINI, "--out", "{empty}/p.json", "--name", "a"], 2, "ends in .jsonl or .jsonl.gz"),
        (["protocols", "show", "alfworld/chta"], 2, "did you mean 'alfworld/chat'?"),
        (["data", "check", "alfwrld"], 2, "unknown suite 'alfwrld': did you mean 'alfworld'?"),
        (["data", "fetch", "alfwrld"], 2, "unknown suite 'alfwrld': did you mean 'alfworld'?"),
        (["data", "fetch", "alfworld", "--from", "{empty}/none"], 1, "does not exist"),
        (["data", "fetch", "alfworld", "--from", "{empty}"], 1, "holds no ALFWorld games"),
        (["validate", "alfwrld"], 2, "unknown suite 'alfwrld': did you mean 'alfworld'?"),
        (["validate", "mini-alfworld", "--engine", "natve"], 2, "unknown engine 'natve': did you mean 'native'?"),
        (["models", "get", "smollm"], 2, "did you mean 'smollm2-135m'?"),
    ],
)
def test_other_verbs(cli: Command, tmp_path: Path, words: list[str], code: int, sentence: str) -> None:
    run, empty = tmp_path / "run", tmp_path / "empty"
    empty.mkdir()
    assert cli(*EVAL, run).code == 0
    told = cli(*(word.format(run=run, empty=empty) for word in words))
    assert sentence in said(told, code)
    assert list(empty.iterdir()) == []


# Policies


@pytest.mark.parametrize("policy", ["oracle", "random", "replay:{run}", "openai:http://127.0.0.1:9/v1"])
@pytest.mark.parametrize(("option", "value"), [("--adapter", "lora"), ("--dtype", "float16")])
def test_options_that_only_local_models_take(
    cli: Command, tmp_path: Path, out: Path, policy: str, option: str, value: str
) -> None:
    """Ignored, they would leave the score of one thing under the name of another."""
    run = tmp_path / "stored"
    assert cli(*EVAL, run).code == 0
    name = policy.format(run=run)
    told = cli("eval", name, "--panel", MINI, option, value, "-q", "--out", out)
    assert said(told, 2).startswith(f"{option} is for local models, and '{name}' is none")
    assert not out.exists()


def weights(folder: Path, *names: str) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    for name in names:
        (folder / name).write_bytes(b"\x80\x04.")
    return folder


@pytest.mark.parametrize(
    ("policy", "code", "sentence"),
    [
        ("orcle", 2, "unknown policy 'orcle': did you mean 'oracle'?"),
        ("./no/such/folder", 2, "'./no/such/folder'"),
        ("./missing", 2, "./missing: there is no such folder"),
        ("replay:missing", 2, "'missing' is not a run folder"),
        ("openai:http://127.0.0.1:9/v1", 1, "http://127.0.0.1:9/v1 does not answer"),
        ("openai:", 2, ""),
        ("openai:ftp://x", 2, ""),
        ("{without}", 1, "holds no model.safetensors"),
        ("{pickle}", 1, "holds its weights in pickle files only, which could run code when read: save them as"),
        ("{empty}", 1, "holds no config.json"),
    ],
)
def test_policies_that_are_none(cli: Command, tmp_path: Path, out: Path, policy: str, code: int, sentence: str) -> None:
    folders = {
        "without": weights(tmp_path / "without"),
        "pickle": weights(tmp_path / "pickle", "pytorch_model.bin"),
        "empty": tmp_path / "empty",
    }
    folders["empty"].mkdir()
    told = cli("eval", policy.format(**folders), "--panel", MINI, "-q", "--out", out)
    assert sentence in said(told, code)
    assert not out.exists()


def test_hub_that_cannot_be_reached(cli: Command, out: Path) -> None:
    told = cli("eval", "someone/some-model", "--panel", MINI, "-q", "--out", out)
    assert "'someone/some-model' is no folder here and the model hub did not deliver it" in said(told, 1)
    assert not out.exists()


def test_a_bare_address_is_told_its_form(cli: Command, out: Path) -> None:
    told = cli("eval", "http://127.0.0.1:9/v1", "--panel", MINI, "-q", "--out", out)
    assert "write openai:http://127.0.0.1:9/v1" in said(told, 2)
    assert not out.exists()


# Data


def test_missing_games(cli: Command, tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDBENCH_DATA", str(tmp_path / "nothing"))
    told = cli("eval", "oracle", "--panel", "alfworld/valid_unseen", "-q", "--out", out)
    assert "are not in the store" in said(told, 1)
    assert "`seedbench data fetch alfworld`" in told.err
    assert not out.exists()
    assert "seedbench data fetch alfworld" in said(cli("data", "check", "alfworld"), 1)
    assert "seedbench data fetch alfworld" in said(cli("validate", "alfworld"), 1)


def remove_two(pack: Path, panel: str) -> list[str]:
    """Take the first two games of a panel out of a pack; their ids."""
    tasks = [task.id for task in load_panel(panel).tasks[:2]]
    with sqlite3.connect(pack) as connection:
        connection.executemany("DELETE FROM games WHERE task = ?", [(task,) for task in tasks])
    connection.close()
    return tasks


def test_two_games_too_few(cli: Command, own_store: Path, out: Path) -> None:
    tasks = remove_two(own_store / "mini-alfworld" / "games-2.1.2.sqlite", MINI)
    told = cli("eval", "oracle", "--panel", MINI, "-q", "--out", out)
    assert f"{N - 2} of {N} tasks are in the store; missing {', '.join(tasks)}" in said(told, 1)
    assert not out.exists()
    assert f"{N - 2} of {N} tasks" in said(cli("data", "check", "mini-alfworld"), 1)
    assert f"{N - 2} of {N} tasks" in said(cli("panels", "check", MINI), 1)
    validated = cli("validate", "mini-alfworld")
    assert f"the first: {tasks[0]}" in said(validated, 1)
    assert f"{MINI}@1: the oracle wins {N - 2} of {N}" in validated.out


def test_132_instead_of_134_games(
    cli: Command, tmp_path: Path, out: Path, official_games: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    shutil.copytree(official_games / "alfworld", store / "alfworld")
    monkeypatch.setenv("SEEDBENCH_DATA", str(store))
    remove_two(store / "alfworld" / "games-2.1.2.sqlite", "alfworld/valid_unseen")
    told = cli("eval", "oracle", "--panel", "alfworld/valid_unseen", "-q", "--out", out)
    assert "alfworld/valid_unseen@1: 132 of 134 tasks are in the store; missing valid_unseen/" in said(told, 1)
    assert "seedbench data fetch alfworld" in told.err
    assert not out.exists()
    assert "132 of 134 tasks" in said(cli("data", "check", "alfworld"), 1)


def test_changed_game(cli: Command, own_store: Path, out: Path) -> None:
    with sqlite3.connect(own_store / "mini-alfworld" / "games-2.1.2.sqlite") as connection:
        connection.execute("UPDATE games SET sha256 = ? WHERE split = 'valid_unseen'", ("0" * 64,))
    connection.close()
    told = cli("eval", "oracle", "--panel", MINI, "-q", "--out", out)
    assert f"the content of {N} tasks differs from the panel" in said(told, 1)
    assert not out.exists()


def test_store_that_is_no_store(cli: Command, own_store: Path, out: Path) -> None:
    (own_store / "mini-alfworld" / "games-2.1.2.sqlite").write_bytes(b"SQLite format 3\x00" + b"damaged" * 1000)
    assert "is not a readable game store" in said(cli("eval", "oracle", "--panel", MINI, "-q", "--out", out), 1)
    assert cli("doctor").code == 0
    assert cli("data", "list").code == 0
    assert not out.exists()


@pytest.mark.parametrize("cut", [0, 1, 1000, -1])
def test_truncated_game_is_not_imported(cli: Command, own_store: Path, tmp_path: Path, cut: int) -> None:
    task = load_panel(MINI).tasks[0].id
    game = tmp_path / "games" / task / "game.tw-pddl"
    game.parent.mkdir(parents=True)
    game.write_bytes(library("mini", "2.1.2").read(task)[:cut])
    told = cli("data", "fetch", "alfworld", "--from", tmp_path / "games")
    assert task in said(told, 1)
    assert "nothing was imported" in told.err
    assert not (own_store / "alfworld").exists()


# Files of users

PROTOCOL = """
name = "mine/p"
version = 1
summary = "x"
suites = ["mini-alfworld"]
limits = { steps = 2, prompt_tokens = 0, response_tokens = 5 }
context = { kind = "window" }
parser = {}
sampling = { temperature = 0 }
prompts = { first = "a.jinja", later = "a.jinja" }
"""


def test_protocol_file_with_a_typo(cli: Command, tmp_path: Path, out: Path) -> None:
    file = tmp_path / "mine.toml"
    words = ("eval", "oracle", "--panel", MINI, "--protocol", file, "-q", "--out", out)
    file.write_text(PROTOCOL.replace("steps", "stepz"))
    assert said(cli(*words), 2) == (
        "protocol 'mine.toml': limits.steps: Field required; limits.stepz: Extra inputs are not permitted."
    )
    file.write_text(PROTOCOL)
    assert said(cli(*words), 1) == "protocol 'mine/p': the template 'a.jinja' is not beside mine.toml."


def test_template_that_fails_while_it_runs(tmp_path: Path, out: Path, mini_store: Path) -> None:
    """Found at the first prompt; the corrected file may use the same run folder."""
    folder = tmp_path / "protocol"
    folder.mkdir()
    file = folder / "mine.toml"
    file.write_text(PROTOCOL)
    before = (
        "from seedbench.policies import random_\n"
        "random_.RandomPolicy.needs_prompt = True  # a scripted stand-in for a model"
    )
    words = ("eval", "random", "--panel", MINI, "--limit", 6, "--protocol", file, "-q", "--out", out)
    (folder / "a.jinja").write_text("{{ obsrvation }}")
    done = seedbench(*words, before=before)
    assert (done.returncode, done.stderr) == (
        1,
        "error: protocol 'mine/p@1': template a.jinja: 'obsrvation' is undefined.\n",
    )
    (folder / "a.jinja").write_text("{{ observation }}")
    assert seedbench(*words, before=before).returncode == 0
    assert read_summary(out)["episodes"] == 6


def test_panel_file_that_was_changed(cli: Command, tmp_path: Path, out: Path) -> None:
    file = tmp_path / "mine.jsonl"
    assert cli("panels", "make", MINI, "--out", file, "--name", "mine/p", "--limit", 3).code == 0
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-1]))
    assert "the panel file 'mine.jsonl' was changed" in said(cli("eval", "oracle", "-p", file, "-q", "--out", out), 1)
    file.write_text("not a panel")
    assert "'mine.jsonl' is not a panel file" in said(cli("panels", "show", file), 1)


def test_hostile_names_are_shown_inert(cli: Command, tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    header = {"name": "\x1b[31mred", "version": 1, "suite": "mini-alfworld", "split": "x", "official": False}
    header["dialect"] = "2.1.2"
    row = {"id": "a\x1b]0;title\x07\u202e", "family": "heat", "sha256": "00"}
    file.write_text(json.dumps(header) + "\n" + json.dumps(row) + "\n")
    shown = cli("panels", "show", file)
    assert shown.code == 0
    refused = cli("eval", "oracle", "-p", file, "-q", "--out", tmp_path / "run")
    assert "0 of 1 tasks are in the store" in said(refused, 1)
    for text in (shown.out, refused.err):
        assert not set("\x1b\x07\u202e") & set(text)
        assert "<1b>[31mred@1" in text

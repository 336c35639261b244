"""Run folders that do not fit, disks that are full, engines that break: one sentence, and nothing is lost."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from seedbench.runs import LOG, MANIFEST, SUMMARY, read_episodes
from tests.eval.helpers import Command, command_line, read_summary, said, seedbench

MINI = "mini-alfworld/valid_unseen"
EVAL = ("eval", "random", "-p", MINI, "--limit", 12, "-q", "--out")


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mini_store: Path) -> Command:
    return command_line(monkeypatch, capsys)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"


# Run folders


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("words", "difference"),
    [
        (["--seed", 1], "seed was 0, now 1"),
        (["--repeats", 2], "repeats was 1, now 2"),
        (["--limit", 6], f'panel.name was "{MINI}@1[limit=12]", now "{MINI}@1[limit=6]"'),
        (["--protocol", "alfworld/chat"], 'protocol.name was "alfworld/seed@1", now "alfworld/chat@1"'),
        (["--steps", 3], 'protocol.name was "alfworld/seed@1", now "alfworld/seed@1[steps=3]"'),
        (["--engine", "reference"], 'engine was "native", now "reference"'),
    ],
)
def test_run_of_other_settings(cli: Command, out: Path, words: list[object], difference: str) -> None:
    assert cli(*EVAL, out).code == 0
    before = snapshot(out)
    sentence = said(cli(*EVAL, out, *words), 2)
    assert sentence.startswith(f"'{out}' holds a run with other settings: ")
    assert difference in sentence
    assert snapshot(out) == before


def test_run_of_another_policy(cli: Command, out: Path) -> None:
    assert cli(*EVAL, out).code == 0
    before = snapshot(out)
    told = cli("eval", "oracle", *EVAL[2:], out)
    assert 'policy.kind was "random", now "oracle"' in said(told, 2)
    assert snapshot(out) == before


@pytest.mark.parametrize("damage", ["log", "manifest"])
def test_damaged_run(cli: Command, out: Path, damage: str) -> None:
    assert cli(*EVAL, out).code == 0
    if damage == "log":
        lines = (out / LOG).read_bytes().splitlines(keepends=True)
        (out / LOG).write_bytes(lines[0] + b"\x00" * 50 + b"\n" + b"".join(lines[2:]))
        sentence = "line 2 is damaged"
    else:
        (out / MANIFEST).write_text("{")
        sentence = "manifest.json' is damaged"
    before = snapshot(out)
    assert sentence in said(cli(*EVAL, out), 1)
    assert snapshot(out) == before
    assert cli("table", out).code == 0  # the summary is whole


def test_damaged_summary_is_made_anew(cli: Command, out: Path) -> None:
    assert cli(*EVAL, out).code == 0
    before = read_summary(out)
    (out / SUMMARY).write_text("{}")
    assert "summary.json is not a run's summary" in said(cli("table", out), 1)
    assert cli(*EVAL, out).code == 0
    assert read_summary(out) == before


def test_file_where_the_run_should_be(cli: Command, out: Path) -> None:
    out.write_text("mine")
    assert "is a file; choose a folder with --out" in said(cli(*EVAL, out), 2)
    assert "cannot write the run folder" in said(cli(*EVAL, out / "deeper"), 1)
    assert out.read_text() == "mine"


def test_foreign_folder(cli: Command, out: Path) -> None:
    out.mkdir()
    (out / SUMMARY).write_text("mine")
    assert "is not empty and holds no run manifest" in said(cli(*EVAL, out), 2)
    assert snapshot(out) == {SUMMARY: b"mine"}


def test_name_that_the_file_system_refuses(cli: Command, tmp_path: Path) -> None:
    assert "File name too long" in said(cli(*EVAL, tmp_path / ("x" * 300)), 1)


# A disk that is full


@pytest.mark.parametrize("room", [150_000, 60_000, 1_000, 0])
def test_full_disk(tmp_path: Path, mini_store: Path, room: int) -> None:
    """A limit on the size of files: the system's own short writes and refusals, in a process of its own."""
    words = ("eval", "random", "-p", MINI, "--steps", 10, "-q", "--out")
    before = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))"
    )
    whole, full = tmp_path / "whole", tmp_path / "full"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    assert seedbench(*words, whole).returncode == 0
    done = seedbench(*words, full, before=before, env=environment)
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("error: cannot write ")
    assert "File too large. Free space and run the same command again" in done.stderr
    assert done.stderr.count("\n") == 1
    log = (full / LOG).read_bytes() if (full / LOG).exists() else b""
    assert log == b"" or log.endswith(b"\n")
    kept = list(read_episodes(full)) if log else []
    assert bool(kept) == (room > 50_000)
    assert not list(full.glob(".*.tmp"))
    assert seedbench(*words, full).returncode == 0
    assert read_summary(full) == read_summary(whole)
    assert {e.key for e in kept} < {e.key for e in read_episodes(full)}


# Infrastructure


def test_infra_errors_over_the_threshold(cli: Command, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from seedbench_envs.alfworld.env import ALFWorldEnv

    step: Callable[..., object] = ALFWorldEnv.step

    def fragile(self: ALFWorldEnv, action: str) -> object:
        if "look_at" in self._task:
            raise RuntimeError("engine gone.")
        return step(self, action)

    monkeypatch.setattr(ALFWorldEnv, "step", fragile)
    told = cli(*EVAL, out)  # two of the twelve: too few to break off, too many to pass
    assert said(told, 1) == (
        "2 of 12 episodes ended in infrastructure errors, outside the rates; run the same command again to try them"
        " again."
    )
    assert read_summary(out)["outcomes"]["infra_error"] == 2
    assert read_summary(out)["success"]["micro"]["n"] == 10
    told = cli("eval", "random", "-p", MINI, "--families", "look", "-q", "--out", out.with_name("look"))
    assert "ended in infrastructure errors (the last: environment: RuntimeError: engine gone). They" in said(told, 1)
    monkeypatch.undo()
    assert cli(*EVAL, out).code == 0
    assert read_summary(out)["outcomes"]["infra_error"] == 0

"""What the verbs print, by the real entry point; what goes wrong is in test_bad_input.py."""

import csv
import io
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from seedbench import __version__
from seedbench.panels import load_panel
from seedbench.protocol import load_protocol
from seedbench.runs import LOG, finished, read_episodes
from tests.eval.helpers import Command, command, command_line, read_summary, seedbench, size, wait_until

MINI = "mini-alfworld/valid_unseen"


def n(split: str) -> int:
    """Games in a generated split."""
    return len(load_panel(f"mini-alfworld/{split}").tasks)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mini_store: Path) -> Command:
    return command_line(monkeypatch, capsys)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, mini_store: Path) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    for name in ("oracle", "random"):
        done = seedbench("eval", name, "-p", MINI, "--limit", 12, "-q", "--out", folder / name)
        assert done.returncode == 0, done.stderr
    return {name: folder / name for name in ("oracle", "random")}


# The whole program


def test_version(cli: Command) -> None:
    assert cli("--version") == (0, f"seedbench {__version__}\n", "")
    assert seedbench("--version").stdout == f"seedbench {__version__}\n"


def test_console_script_and_module_are_the_same() -> None:
    script = Path(command("x")[0]).with_name("seedbench")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == seedbench("--version").stdout


@pytest.mark.parametrize(
    "words", [[], *([verb] for verb in ("eval", "table", "view", "validate", "data", "panels", "protocols", "models"))]
)
def test_help(cli: Command, words: list[str]) -> None:
    told = cli(*words, "--help")
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("Usage: seedbench")
    assert told == cli(*words, "-h")


# eval


def test_eval(cli: Command, tmp_path: Path) -> None:
    told = cli("eval", "oracle", "--panel", MINI, "--out", tmp_path / "run")
    assert told.code == 0
    summary = read_summary(tmp_path / "run")
    assert summary["success"]["micro"]["n"] == summary["outcomes"]["solved"] == len(load_panel(MINI).tasks)
    assert "not official" in told.out
    for name in ("Pick", "Look", "Clean", "Heat", "Cool", "Pick2", "Micro", "Macro"):
        assert name in told.out
    assert told.out.endswith(f"run: {tmp_path / 'run'}  (summary.json, episodes.jsonl, manifest.json)\n")
    assert f"oracle · {MINI}@1 · alfworld/seed@1" in told.err  # progress goes beside the result
    assert f"{n('valid_unseen')}/{n('valid_unseen')} episodes" in told.err


def test_eval_quiet_shows_the_result_alone(cli: Command, tmp_path: Path) -> None:
    told = cli("eval", "oracle", "-p", MINI, "--limit", 6, "--out", tmp_path / "run", "-q")
    assert (told.code, told.err) == (0, "")
    assert "100.0" in told.out


def test_eval_options_reach_the_run(cli: Command, tmp_path: Path) -> None:
    told = cli(
        *("eval", "random", "-p", MINI, "-q", "--out", tmp_path / "run", "--families", "heat, look", "--limit", 5),
        *("--protocol", "alfworld/verl-agent", "--steps", 3, "--repeats", 2, "--seed", 9, "--temperature", 0),
        *("--concurrency", 2, "--shuffle", 1, "--keep-prompts"),
    )
    assert told.code == 0
    summary = read_summary(tmp_path / "run")
    assert summary["panel"]["name"] == f"{MINI}@1[families=look,heat;limit=5]"
    assert summary["protocol"]["name"] == "alfworld/verl-agent@1[steps=3;temperature=0.0]"
    assert (summary["episodes"], summary["repeats"], summary["seed"]) == (10, 2, 9)
    assert {len(episode.turns) for episode in read_episodes(tmp_path / "run")} <= {1, 2, 3}


def test_eval_continues(cli: Command, tmp_path: Path) -> None:
    words = ("eval", "random", "-p", MINI, "--limit", 12, "--out", tmp_path / "run")
    assert cli(*words).code == 0
    before = read_summary(tmp_path / "run")
    lines = (tmp_path / "run" / LOG).read_bytes().splitlines(keepends=True)
    (tmp_path / "run" / LOG).write_bytes(b"".join(lines[:5]) + lines[5][:99])
    told = cli(*words)
    assert "12 episodes" in told.err
    assert "5 from before" in told.err
    assert read_summary(tmp_path / "run") == before


def test_eval_makes_a_folder_of_its_own(cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("eval", "oracle", "-p", MINI, "--limit", 6, "-q").code == 0
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["oracle--mini-alfworld-valid_unseen@1-limit=6"]


def test_eval_of_a_panel_file(cli: Command, tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    told = cli("panels", "make", MINI, "--out", file, "--name", "mine/heat", "--families", "heat", "--limit", 4)
    assert told.code == 0
    assert f"{file}: mine/heat@1, 4 tasks, hash" in told.out
    assert cli("eval", "oracle", "-p", file, "-q", "--out", tmp_path / "run").code == 0
    panel = read_summary(tmp_path / "run")["panel"]
    assert (panel["name"], panel["n"], panel["official"]) == ("mine/heat@1", 4, False)


def test_official_games(cli: Command, tmp_path: Path, official_games: Path) -> None:
    sizes = {"pick": 24, "look": 18, "clean": 31, "heat": 23, "cool": 21, "pick2": 17}
    assert cli("eval", "oracle", "-p", "alfworld/valid_unseen", "-q", "--out", tmp_path / "unseen").code == 0
    success = read_summary(tmp_path / "unseen")["success"]
    assert {family: (value["n"], value["rate"]) for family, value in success["families"].items()} == {
        family: (n, 1.0) for family, n in sizes.items()
    }
    assert cli("eval", "oracle", "-p", "alfworld/valid_seen", "-q", "--out", tmp_path / "seen").code == 0
    assert read_summary(tmp_path / "seen")["outcomes"]["solved"] == 140


def test_old_wording(cli: Command, tmp_path: Path, official_games: Path) -> None:
    words = ("eval", "oracle", "-p", "alfworld/valid_unseen-put", "--protocol", "alfworld/seed-put", "--limit", 12)
    assert cli(*words, "-q", "--out", tmp_path / "run").code == 0
    assert read_summary(tmp_path / "run")["outcomes"]["solved"] == 12


def test_interrupt(tmp_path: Path, mini_store: Path) -> None:
    out = tmp_path / "run"
    # A background job may have been started with interrupts off.
    before = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    words = command("eval", "random", "-p", MINI, "--repeats", 100, "--out", out, before=before)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: size(out / LOG) > 200_000)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert err.endswith("interrupted; run the same command again to continue.\n")
    assert read_summary(out)["episodes"] == len(finished(out)) > 0


# table and view


def test_table_formats(cli: Command, runs: dict[str, Path]) -> None:
    outputs: dict[str, str] = {}
    for format in ("terminal", "markdown", "latex", "csv", "json"):
        told = cli("table", *runs.values(), "--format", format)
        assert (told.code, told.err) == (0, "")
        assert "oracle" in told.out
        assert "random" in told.out
        outputs[format] = told.out
    assert cli("table", *runs.values()).out == outputs["terminal"]
    assert "| oracle " in outputs["markdown"]
    assert r"\begin{tabular}" in outputs["latex"]
    assert len(list(csv.reader(io.StringIO(outputs["csv"])))) > 2
    assert json.loads(outputs["json"])
    assert len(set(outputs.values())) == 5


def test_policies_of_one_name_are_told_apart_by_their_folders(cli: Command, runs: dict[str, Path]) -> None:
    copied = shutil.copytree(runs["oracle"], runs["oracle"].parent / "copied")
    told = cli("table", runs["oracle"], copied, "--format", "csv")
    assert {line["label"] for line in csv.DictReader(io.StringIO(told.out))} == {runs["oracle"].name, "copied"}


def test_table_labels(cli: Command, runs: dict[str, Path]) -> None:
    told = cli("table", *runs.values(), "--labels", "ceiling, floor", "--format", "markdown")
    assert "\n| ceiling | oracle |" in told.out
    assert "\n| floor | random |" in told.out


def test_view(cli: Command, runs: dict[str, Path]) -> None:
    told = cli("view", runs["random"])
    assert (told.code, told.err) == (0, "")
    assert "episode 12/12" in told.out
    heat = cli("view", runs["random"], "--family", "heat", "--failed", "--limit", 1)
    assert heat.code == 0
    assert 0 < len(heat.out) < len(told.out)


# panels and protocols


def test_panels_list(cli: Command) -> None:
    lines = cli("panels", "list").out.splitlines()
    (line,) = [line for line in lines if line.startswith("alfworld/valid_unseen@1 ")]
    assert line.split()[1:] == [
        *("134", "tasks", load_panel("alfworld/valid_unseen").hash[:12], "pick", "24", "look", "18", "clean", "31"),
        *("heat", "23", "cool", "21", "pick2", "17"),
    ]
    unofficial = ("mini-", "searchqa/context@", "searchqa/mix@")  # these two are of a small corpus, and a sample
    assert all(("not official" in line) == line.startswith(unofficial) for line in lines)


def test_panels_show(cli: Command) -> None:
    told = cli("panels", "show", "alfworld/valid_unseen", "--families", "heat", "--limit", 2)
    head, *tasks = told.out.splitlines()
    part = load_panel("alfworld/valid_unseen").subset(["heat"], 2)
    assert head == f"{part.name}: 2 tasks, suite alfworld, split valid_unseen, hash {part.hash}"
    assert [line.split() for line in tasks] == [["heat", task.sha256[:12], task.id] for task in part.tasks]


def test_panels_check(cli: Command) -> None:
    told = cli("panels", "check", "mini-alfworld/train", MINI)
    assert told.out.splitlines() == [
        "mini-alfworld/train@1 and mini-alfworld/valid_unseen@1: no shared tasks",
        f"mini-alfworld/train@1: all {n('train')} tasks identical to the stored data",
        f"mini-alfworld/valid_unseen@1: all {n('valid_unseen')} tasks identical to the stored data",
    ]
    assert told.code == 0


def test_protocols(cli: Command) -> None:
    listed = cli("protocols", "list").out
    for name in ("seed", "verl-agent", "chat"):
        loaded = load_protocol(f"alfworld/{name}")
        assert f"{loaded.name} " in listed
        shown = cli("protocols", "show", f"alfworld/{name}").out
        assert shown.startswith(f"{loaded.name}  hash {loaded.hash}\n")
        assert "--- first" in shown
        assert ("--- system" in shown) == (name == "chat")


# data, doctor, validate, models


def test_data(cli: Command) -> None:
    listed = cli("data", "list")
    (line,) = [line for line in listed.out.splitlines() if line.startswith("mini-alfworld")]
    assert line.split()[1] == "ok"
    assert "generated, not official" in line
    checked = cli("data", "check", "mini-alfworld")
    assert (checked.code, checked.err) == (0, "")
    assert "every content hash is right" in checked.out
    assert cli("data", "fetch", "mini-alfworld").code == 0


def test_doctor(cli: Command) -> None:
    told = cli("doctor")
    assert (told.code, told.err) == (0, "")
    for word in (f"seedbench {__version__}", "cores", "GiB free", "torch", "mini-alfworld", "smollm2-135m"):
        assert word in told.out


def test_doctor_on_an_empty_machine(cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDBENCH_DATA", str(tmp_path / "nothing" / "here"))
    told = cli("doctor")
    assert told.code == 0
    assert "seedbench data fetch alfworld" in told.out
    assert "seedbench models get smollm2-135m" in told.out


def test_validate(cli: Command) -> None:
    told = cli("validate", "mini-alfworld")
    assert (told.code, told.err) == (0, "")
    assert told.out.splitlines() == [
        f"mini-alfworld/{split}@1: the oracle wins {n(split)} of {n(split)}"
        for split in ("train-medium", "train-small", "train", "valid_seen-medium", "valid_seen-small", "valid_seen",
                      "valid_unseen-medium", "valid_unseen-small", "valid_unseen")
    ]  # fmt: skip


def test_models(cli: Command) -> None:
    assert "smollm2-135m" in cli("models", "list").out


# Readers that go away, or can read little


def test_output_that_knows_ascii_only(runs: dict[str, Path]) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for words in (["protocols", "show", "alfworld/seed"], ["table", runs["random"]], ["view", runs["random"]]):
        done = seedbench(*words, env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        assert len(done.stdout) > 500


@pytest.mark.parametrize(
    "words",
    [
        ["panels", "show", "alfworld/train"],
        ["panels", "list"],
        ["protocols", "show", "alfworld/seed"],
        ["view", "{random}"],
        ["table", "{random}"],
        ["eval", "random", "-p", MINI, "--limit", "6", "--out", "{out}"],
    ],
)
def test_output_into_head(tmp_path: Path, runs: dict[str, Path], words: list[str]) -> None:
    filled = [word.format(out=tmp_path / "run", **runs) for word in words]
    process = subprocess.Popen(command(*filled), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    process.wait(60)
    assert "Traceback" not in err
    assert "Exception" not in err
    assert "BrokenPipe" not in err


def test_progress_into_head(tmp_path: Path, mini_store: Path) -> None:
    """Whoever reads the progress goes away: the run ends without a word and can be continued."""
    out = tmp_path / "run"
    read, write = os.pipe()
    words = command("eval", "random", "-p", MINI, "--repeats", 5, "--out", out)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=write, text=True) as process:
        os.close(write)
        with os.fdopen(read, encoding="utf-8") as progress:
            assert progress.readline().startswith("random · ")
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in printed
    done = seedbench("eval", "random", "-p", MINI, "--repeats", 5, "--out", out, "-q")
    assert (done.returncode, read_summary(out)["episodes"]) == (0, 5 * n("valid_unseen"))


def test_full_device_behind_the_output() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("panels", "list"), stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    assert (
        done.stderr
        == "error: cannot read or write: No space left on device. Free space, mend it or choose another place.\n"
    )

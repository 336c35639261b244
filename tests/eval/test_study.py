"""`seedbench study`: what it refuses, what it runs, how it goes on."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.study import plan as planning
from seedbench.study.plan import check, chosen, eval_command, evaluation, plan, train_command
from seedbench.study.run import is_evaluated, last_update, state
from tests.eval.helpers import REPOSITORY, wait_until
from tests.eval.studies import STUDY, calls, command, installed, overrides, played, read_study, run
from tests.train.helpers import echo


@pytest.fixture(autouse=True, scope="module")
def _echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with echo(tmp_path_factory.mktemp("echo")):
        yield


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return installed(tmp_path / "script", monkeypatch)


PANELS = ", ".join(f'p{number} = "echo/test"' for number in range(100))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("name =", "nane =", "starts.0.nane is no key of a study"),
        ("[0, 1]", '"0"', 'study.seeds: Input should be a valid array, not "0"'),
        ('["grpo", "gigpo"]', '["grpo", "gripo"]', "unknown method 'gripo': did you mean 'grpo'"),
        ('["grpo", "gigpo"]', '["grpo", "grpo"]', "'grpo' names 2 cells or starts"),
        ('["grpo", "gigpo"]', '["grpo", "gigpo"]\nlabel = "warm"', "'warm' names 3 cells or starts"),
        (
            '["grpo", "gigpo"]',
            '["grpo"]\nlabel = "Warm"',
            "'Warm' names 2 cells or starts (upper and lower case are one)",
        ),
        ('"echo/test" }', '"echo/test", Unseen = "echo/test" }', "'unseen' names 2 evaluation.panels"),
        ('"echo/test" }', f'"x", {PANELS} }}', "evaluation.panels: Dictionary should"),
        ('start = "warm"', 'start = "wram"', "unknown start 'wram': did you mean 'warm'"),
        ('method = "sft"', 'method = "sft"\nstart = "warm"', "unknown start 'warm'"),
        ("echo/test", "echo/tset", "unknown panel 'echo/tset': did you mean 'echo/test'"),
        ("echo/test", "mini-alfworld/valid_seen", "of suite mini-alfworld, the study of echo"),
        ("echo/choose", "alfworld/seed", "the protocol 'alfworld/seed' is for alfworld, mini-alfworld"),
        ("updates = 2", "updates = 2\nseed = 3", "the setting 'seed' is the study's to choose: use seeds"),
        ("updates = 2", "data.fraction = 0.2", "the setting 'data.fraction' is the study's to choose: use fractions"),
        ("updates = 2", "updates = ", "is not a TOML file"),
        ('name = "small"', 'name = "../small"', "study.name: String should match pattern"),
    ],
)
def test_what_cannot_be_right_is_refused_in_a_sentence(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    at = STUDY.index("[[starts]]") if old == "name =" else 0
    with pytest.raises(UsageError, match=re.escape(sentence)):
        read_study(tmp_path, STUDY[:at] + STUDY[at:].replace(old, new, 1))


def test_the_documented_study_is_one(tmp_path: Path) -> None:
    text = (REPOSITORY / "docs" / "studies.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```toml\n(.*?)^```", text, re.M | re.S)
    study = read_study(tmp_path, example)
    assert len(plan(study, tmp_path)) == 2 + 2 * 5 + 5 + 5 * 5 + 3


ABLATION = """
[[cells]]
methods = ["seed"]
label = "no-stage1"
seeds = [4]
fractions = [0.2, 1.0]
reading = "draws"
settings = { method.stage1.run = false, data.families = ["pick"] }

[evaluation]"""


def test_the_matrix_and_its_commands(tmp_path: Path) -> None:
    study = read_study(tmp_path, STUDY.replace("\n[evaluation]", ABLATION))
    jobs = plan(study, tmp_path / "out")
    assert [job.name for job in jobs] == [
        "warm", "grpo-s0", "grpo-s1", "gigpo-s0", "gigpo-s1", "no-stage1-f20-s4", "no-stage1-s4",
    ]  # fmt: skip
    words = train_command(study, jobs[5])
    settings = overrides(words)
    assert settings == [
        'protocol.name="echo/choose"', "updates=2", "optimiser.lr=0.001", "method.stage1.run=false",
        'data.families=["pick"]', "data.fraction=0.2", 'data.reading="draws"',
    ]  # fmt: skip
    assert words[: words.index("--set")] == ["train", "--method", "seed", "--suite", "echo", "--model", "tiny:xs"]
    assert train_command(study, jobs[1])[6] == str(tmp_path / "out" / "starts" / "warm" / "final")
    assert "updates=2" not in train_command(study, jobs[0])  # the study's settings are its cells'
    assert [job.name for job in chosen(jobs, ["gigpo", "grpo-s1"])] == ["warm", "grpo-s1", "gigpo-s0", "gigpo-s1"]
    assert [job.name for job in chosen(jobs, ["no-stage1"])] == ["no-stage1-f20-s4", "no-stage1-s4"]
    with pytest.raises(UsageError, match="unknown cell 'gigpu': did you mean 'gigpo'"):
        chosen(jobs, ["gigpu"])


def test_an_evaluation_at_another_temperature_is_another_one(tmp_path: Path) -> None:
    study = read_study(tmp_path, STUDY.replace('"echo/test" }', '"echo/test" }\ntemperature = 0.4'))
    job = next(job for job in plan(study, tmp_path) if job.name == "grpo-s0")
    words = eval_command(study, job, "unseen")
    assert words[words.index("--temperature") + 1] == "0.4"
    played(evaluation(job, "unseen"), 2)  # at the protocol's own temperature
    assert not is_evaluated(study, job, "unseen")
    shutil.rmtree(evaluation(job, "unseen"))
    played(evaluation(job, "unseen"), 2, study.asked)
    assert is_evaluated(study, job, "unseen")


def test_runs_everything_once(script: Path, tmp_path: Path) -> None:
    study, out = read_study(tmp_path), tmp_path / "out"
    assert run(study, out)[0] == {}
    names = ["grpo-s0", "grpo-s1", "gigpo-s0", "gigpo-s1"]
    everything = sorted(["train warm", *(f"{word} {name}" for word in ("train", "eval") for name in names)])
    assert calls(script) == everything
    assert (script / "calls").read_text().startswith("train warm\n")
    assert {state(study, job) for job in plan(study, out)} == {"finished"}
    failures, told = run(study, out)
    assert (failures, calls(script)) == ({}, everything)
    assert "grpo-s0: finished before" in told
    used = [json.loads(line) for line in (out / "usage.jsonl").read_text().splitlines()]
    assert sorted({line["run"] for line in used}) == sorted(["warm", *names])
    assert all(0 < line["cpu_seconds"] < 10 for line in used)
    # One evaluation is lost, another is not whole: they alone are made again.
    shutil.rmtree(out / "runs" / "grpo-s0" / "evaluation")
    (out / "runs" / "gigpo-s1" / "evaluation" / "unseen" / "summary.json").unlink()
    shutil.rmtree(out / "runs" / "gigpo-s1" / "evaluation")
    run(study, out)
    assert calls(script) == sorted([*everything, "eval grpo-s0", "eval gigpo-s1"])


def test_a_failing_run_is_reported_and_the_others_go_on(script: Path, tmp_path: Path) -> None:
    (script / "grpo-s1.fail").touch()
    read_study(tmp_path)
    with pytest.raises(SeedBenchError, match=r"1 of 5 runs failed: grpo-s1\..*mend the cause"):
        command(tmp_path / "s.toml", tmp_path / "out")
    study = read_study(tmp_path)
    states = {job.name: state(study, job) for job in plan(study, tmp_path / "out")}
    assert states == dict.fromkeys(states, "finished") | {"grpo-s1": "missing"}
    assert "Not finished: grpo-s1." in (tmp_path / "out" / "report" / "report.md").read_text()
    failures, _ = run(study, tmp_path / "out")
    assert failures == {"grpo-s1": "train ended with code 1:\n  one line\n  error: it cannot be done."}
    (script / "grpo-s1.fail").unlink()
    assert run(study, tmp_path / "out")[0] == {}


def test_what_needs_a_start_that_failed_is_not_run(script: Path, tmp_path: Path) -> None:
    (script / "warm.fail").touch()
    failures, _ = run(read_study(tmp_path), tmp_path / "out")
    assert calls(script) == ["train warm"]
    assert failures["gigpo-s1"] == "not run: its start 'warm' failed."


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupt_is_passed_on_and_the_same_command_continues(
    script: Path, tmp_path: Path, sent: signal.Signals
) -> None:
    study, out = read_study(tmp_path), tmp_path / "out"
    (script / "grpo-s0.wait").touch()
    code = (
        "import pathlib, sys, tests.train.helpers as helpers\nfrom rich.console import Console\n"
        f"held = helpers.echo(pathlib.Path({str(tmp_path / 'suite')!r}))\nheld.__enter__()\n"
        "from seedbench.study import plan, run, spec\n"
        f"plan.COMMAND = {planning.COMMAND!r}\nstudy = spec.load_study(pathlib.Path({str(tmp_path / 's.toml')!r}))\n"
        f"out = pathlib.Path({str(out)!r})\njobs = plan.plan(study, out)\nplan.check(study, jobs, out, 1)\n"
        "try:\n    run.Runner(study, out, 1, Console(stderr=True)).run(jobs)\n"
        "except KeyboardInterrupt:\n    sys.exit(130)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
    wait_until((script / "waiting").exists)
    os.kill(process.pid, sent)
    _, told = process.communicate(timeout=60)
    killed = sent == signal.SIGKILL
    assert (process.returncode, "Traceback" in told) == (-9 if killed else 130, False)
    assert ("stopping" in told) != killed
    wait_until((script / "stopped").exists)
    assert state(study, plan(study, out)[1]) == "begun"
    assert calls(script) == ["train grpo-s0", "train warm"]  # nothing more was begun
    (script / "grpo-s0.wait").unlink()
    assert run(study, out, workers=1)[0] == {}
    assert calls(script).count("train grpo-s0") == 2
    assert calls(script).count("train warm") == 1


def test_changed_settings_of_a_run_cell_are_refused_with_the_difference(script: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(read_study(tmp_path), out)
    changed = read_study(tmp_path, STUDY.replace("1e-3", "2e-3"))
    with pytest.raises(UsageError, match=r"grpo-s0' was trained .*: optimiser\.lr was 0\.001, now 0\.002\. Give the"):
        check(changed, plan(changed, out), out, 1)
    more = read_study(tmp_path, STUDY.replace("[0, 1]", "[0, 1, 2]").replace('"gigpo"]', '"gigpo", "seed"]'))
    assert set(check(more, plan(more, out), out, 1)) == {"warm", "grpo", "gigpo", "seed"}
    assert set(json.loads((out / "study.json").read_text())["cells"]) == {"warm", "grpo", "gigpo", "seed"}


def test_evaluating_on_what_was_trained_on_is_refused(script: Path, tmp_path: Path) -> None:
    study = read_study(tmp_path, STUDY.replace("echo/test", "echo/train"))
    with pytest.raises(UsageError, match=r"evaluation\.panels\.unseen 'echo/train' shares 12 tasks"):
        check(study, plan(study, tmp_path / "out"), tmp_path / "out", 1)


def test_what_the_training_refuses_is_refused_before_anything_runs(tmp_path: Path) -> None:
    """Asked of the real `seedbench train`."""
    text = STUDY.replace('"echo"', '"mini-alfworld"').replace("echo/choose", "alfworld/choose")
    text = text.replace("echo/test", "mini-alfworld/valid_unseen-small").replace("optimiser.lr", "optimiser.lrr")
    study = read_study(tmp_path, text)
    with pytest.raises(UsageError, match=r"cell 'grpo' cannot be trained: unknown key in \[optimiser\] 'lrr'"):
        check(study, plan(study, tmp_path / "out")[1:2], tmp_path / "out", 1)


def test_what_a_dry_run_says_is_what_a_training_records(tmp_path: Path) -> None:
    from seedbench_trainers.recipes import resolve
    from seedbench_trainers.setup import bound_settings

    text = STUDY.replace('"echo"', '"mini-alfworld"').replace("echo/choose", "alfworld/choose")
    study = read_study(tmp_path, text.replace("echo/test", "mini-alfworld/valid_unseen-small"))
    job = next(job for job in plan(study, tmp_path / "out") if job.name == "gigpo-s1")
    config = resolve("gigpo", "mini-alfworld", job.model, overrides=overrides(train_command(study, job)), seed=1)
    job.folder.mkdir(parents=True)
    (job.folder / "training.json").write_text(json.dumps({"settings": bound_settings(config)}))
    asked = check(study, [job], tmp_path / "out", 1)["gigpo"]
    assert (asked["optimiser"]["lr"], asked["rollout"]["tasks"]) == (1e-3, 16)
    (job.folder / "training.json").write_text(json.dumps({"settings": {**bound_settings(config), "updates": 3}}))
    with pytest.raises(UsageError, match="updates was 3, now 2"):
        check(study, [job], tmp_path / "out", 1)


def test_damaged_record(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text('{"cells": {"grpo": "x"}}')
    study = read_study(tmp_path)
    with pytest.raises(SeedBenchError, match=r"study\.json' is damaged \(TypeError\); delete it"):
        check(study, plan(study, tmp_path), tmp_path, 1)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"report": True, "dry_run": True}, "--dry-run and --report do different things"),
        ({"packed": Path("p"), "report": True}, "--report and --pack do different things"),
        ({"packed": Path("p"), "only": ["grpo"]}, "--pack takes what is finished of all cells"),
        ({"source": Path("p")}, "--from names what --report is rebuilt from"),
    ],
)
def test_options_that_exclude_each_other(tmp_path: Path, asked: dict[str, Any], sentence: str) -> None:
    read_study(tmp_path)
    with pytest.raises(UsageError, match=sentence):
        command(tmp_path / "s.toml", tmp_path / "out", **asked)


def test_torn_and_missing_journals(tmp_path: Path) -> None:
    assert last_update(tmp_path) == -1
    (tmp_path / "metrics.jsonl").write_text('{"update": 3, "metrics": {}}\n{"update": 4, "met')
    assert last_update(tmp_path) == 3

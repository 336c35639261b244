"""Checkpoints and validation of a run: what is kept, what it is called, and that `seedbench eval` finds the same."""

from pathlib import Path
from typing import Any

import pytest

from seedbench.runs import SUMMARY
from seedbench_trainers.setup import validation_folder
from tests.eval.helpers import Command, command_line, logged
from tests.train.helpers import config, metric, read, run, weights


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], model: Path) -> Command:
    return command_line(monkeypatch, capsys)


def _evaluated(cli: Command, checkpoint: Path, out: Path, protocol: str, *more: object) -> dict[str, Any]:
    words = ("eval", checkpoint, "-p", "echo/test", "--protocol", f"echo/{protocol}", "--device", "cpu", "-q")
    told = cli(*words, "--out", out, *more)
    assert (told.code, told.err) == (0, "")
    summary: dict[str, Any] = read(out / SUMMARY)
    return summary


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol": "choose"},
        {"protocol": "chat-free", "method": "sft", "options": {"episodes": 12}, "update": {"mini_batch": 6}},
        {"protocol": "chat", "lora": {"rank": 4, "alpha": 8}},
    ],
    ids=["window", "conversation, free", "lora"],
)
def test_the_last_validation_is_what_eval_finds(
    cli: Command, model: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    validation = {"limit": 6, "repeats": 3, "temperature": 0.7, "seed": 5}
    final = run(config(model, validate=True, validation=validation, updates=3, **changes), tmp_path / "run")
    theirs = validation_folder(tmp_path / "run", 3)
    more = ("--limit", 6, "--repeats", 3, "--temperature", 0.7, "--seed", 5, "--batch-size", 5)
    summary = _evaluated(cli, final, tmp_path / "eval", changes["protocol"], *more)
    held = read(theirs / SUMMARY)
    for key in ("panel", "protocol", "success", "score", "outcomes", "seed", "repeats", "usage"):
        assert summary.get(key) == held.get(key)
    assert logged(tmp_path / "eval") == logged(theirs)
    assert metric(tmp_path / "run", "validation/success")[-1] == summary["success"]["micro"]["rate"]
    assert metric(tmp_path / "run", "validation/n") == [18, 18]
    ours, known = summary["policy"]["identity"], held["policy"]["identity"]
    assert {**ours, "name": ""} == {**known, "name": ""}  # the very weights
    assert 0 < summary["success"]["micro"]["n"] == 18


def test_periodic_validations_are_where_they_are_due(model: Path, tmp_path: Path) -> None:
    run(config(model, validate=True, validation={"every": 2, "limit": 2}, updates=5), tmp_path)
    found = sorted(path.name for path in (tmp_path / "validation").iterdir())
    assert found == [f"update-00000{n}" for n in (0, 2, 4, 5)]
    run(config(model, validate=True, validation={"before": False, "limit": 2}, updates=1), tmp_path / "late")
    assert [path.name for path in (tmp_path / "late" / "validation").iterdir()] == ["update-000001"]


def test_best_and_final_are_labelled_and_can_be_evaluated(cli: Command, model: Path, tmp_path: Path) -> None:
    """Of a method that gets worse again, best is not final."""
    settings = config(
        model, validate=True, validation={"every": 1}, updates=8, optimiser={"lr": 2e-3},
        rollout={"tasks": 6, "group": 8},
    )  # fmt: skip
    run(settings, tmp_path / "run")
    rates = metric(tmp_path / "run", "validation/success")
    best, final = (read(tmp_path / "run" / name / "seedbench.json") for name in ("best", "final"))
    assert [final[key] for key in ("label", "method", "update")] == ["final", "grpo", 8]
    first = rates.index(max(rates))
    assert first > 0
    said = [best[key] for key in ("label", "method", "update", "validation/success")]
    assert said == ["best of validation", "grpo", first, max(rates)]
    summary = _evaluated(cli, tmp_path / "run" / "best", tmp_path / "eval", "choose", "--batch-size", 64)
    assert summary["success"]["micro"]["rate"] == max(rates)


@pytest.mark.parametrize("keep", [1, 3])
def test_the_last_few_checkpoints_are_kept(model: Path, tmp_path: Path, keep: int) -> None:
    settings = config(model, updates=5, rollout={"tasks": 1, "group": 2}, checkpoints={"every": 1, "keep": keep})
    run(settings, tmp_path)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == [f"update-00000{n}" for n in range(6 - keep, 6)]
    states = [read(tmp_path / "checkpoints" / name / "state.json") for name in names]
    assert [state["update"] for state in states] == list(range(6 - keep, 6))
    assert not [path for path in tmp_path.rglob(".*") if path.name != ".lock"]  # no drafts


def test_checkpoints_come_when_they_are_due(model: Path, tmp_path: Path) -> None:
    run(config(model, updates=5, rollout={"tasks": 1, "group": 2}, checkpoints={"every": 2, "keep": 9}), tmp_path)
    assert sorted(path.name[-1] for path in (tmp_path / "checkpoints").iterdir()) == ["2", "4", "5"]


def test_lora_leaves_an_adapter_that_changed_and_a_base_that_did_not(model: Path, tmp_path: Path) -> None:
    lora = {"rank": 2, "alpha": 4, "targets": ("q_proj", "v_proj")}
    final = run(config(model, updates=1, lora=lora), tmp_path)
    assert {path.name for path in final.iterdir()} >= {"adapter_config.json", "adapter_model.safetensors"}
    tensors = weights(final)
    assert len(tensors) == 2 * 2 * 2  # layers, modules, halves
    assert all({*tensor.shape} & {2} for tensor in tensors.values())
    assert any(float(tensor.abs().max()) > 0 for name, tensor in tensors.items() if "lora_B" in name)
    assert not (final / "model.safetensors").exists()
    assert read(final / "adapter_config.json")["base_model_name_or_path"] == str(model)

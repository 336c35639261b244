"""An interrupted or killed run that was continued equals one that was not: weights and journal, to the bit."""

import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaForCausalLM

from seedbench_trainers.journal import METRICS
from seedbench_trainers.rollouts import RolloutPlan
from seedbench_trainers.update import Updater
from tests.eval.helpers import Command, command_line, logged, wait_until
from tests.train.helpers import (
    EchoEnv,
    EchoSuite,
    assert_same_weights,
    config,
    ended,
    numbers,
    process,
    read,
    recipe,
    run,
)

SMALL: dict[str, Any] = {
    "updates": 4, "validate": True, "rollout": {"tasks": 2, "group": 3}, "validation": {"every": 2, "limit": 4},
    "update": {"mini_batch": 4}, "checkpoints": {"every": 0},
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no reference": {"options": {"kl_coefficient": 0.0}},
    "lora": {"lora": {"rank": 4, "alpha": 8}},
    "conversation": {"protocol": "chat", "optimiser": {"schedule": "cosine", "warmup": 0.5}},
    "sft": {"method": "sft", "options": {"episodes": 8, "noise": 0.5}},
}


@contextmanager
def _interrupting(owner: type, name: str, nth: int) -> Iterator[None]:
    """Ctrl-C at the n-th call of a method, before it does anything."""
    calls, real = 0, getattr(owner, name)

    def interrupted(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise KeyboardInterrupt
        return real(*args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        yield
    assert calls == nth


@pytest.fixture
def uninterrupted(model: Path, tmp_path: Path) -> Callable[..., Path]:
    """Trains a configuration in one go; its folder."""

    def train(**changes: Any) -> Path:
        return run(config(model, **{**SMALL, **changes}), tmp_path / "whole").parent

    return train


def _continued(model: Path, out: Path, owner: type, name: str, nth: int, **changes: Any) -> Path:
    settings = config(model, **{**SMALL, **changes})
    with _interrupting(owner, name, nth), pytest.raises(KeyboardInterrupt):
        run(settings, out)
    assert not (out / "final" / "seedbench.json").exists() or name == "reset"
    return run(settings, out)


def _assert_same(whole: Path, parts: Path) -> None:
    assert numbers(whole) == numbers(parts)
    assert_same_weights(whole / "final", parts / "final")
    best = [path / "best" / "seedbench.json" for path in (whole, parts)]
    assert best[0].exists() == best[1].exists()
    assert not best[0].exists() or _timeless(best[0]) == _timeless(best[1])
    assert read(whole / "training.json")["totals"].keys() == read(parts / "training.json")["totals"].keys()
    assert len(read(parts / "training.json")["sessions"]) == 2


def _timeless(label: Path) -> dict[str, Any]:
    """What a checkpoint says of itself, less the seconds."""
    said: dict[str, Any] = read(label)
    return {**said, "cost": {**said["cost"], "seconds": 0, "gpu_seconds": 0}}


@pytest.mark.parametrize("kind", KINDS)
def test_interrupted_in_an_update(model: Path, tmp_path: Path, uninterrupted: Callable[..., Path], kind: str) -> None:
    changes = KINDS[kind]
    owner, name = (Updater, "update") if kind == "sft" else (RolloutPlan, "collect")
    _continued(model, tmp_path / "parts", owner, name, 3, **changes)
    _assert_same(uninterrupted(**changes), tmp_path / "parts")


@pytest.mark.parametrize("episode", [4, 4 + 6 + 3, 4 + 6 + 6 + 4, 4 + 6 + 6 + 4 + 6 + 6 + 4])
def test_interrupted_among_episodes(
    model: Path, tmp_path: Path, uninterrupted: Callable[..., Path], episode: int
) -> None:
    """In the first validation, in roll-outs, in the validation after update 2 and in the last one."""
    changes = {"rollout": {"tasks": 2, "group": 3, "batch_size": 2}}  # of four episodes two have ended by then
    _continued(model, tmp_path / "parts", EchoEnv, "reset", episode, **changes)
    whole = uninterrupted(**changes)
    _assert_same(whole, tmp_path / "parts")
    for name in ("update-000000", "update-000002", "update-000004"):
        one, other = (logged(folder / "validation" / name) for folder in (whole, tmp_path / "parts"))
        assert one == other


def test_interrupted_while_the_optimiser_steps_waits_for_the_step(
    model: Path, tmp_path: Path, uninterrupted: Callable[..., Path]
) -> None:
    """The signal comes in the middle of update 3, whose second step is still made."""
    real, calls = Updater._apply, 0

    def apply(self: Updater) -> float:
        nonlocal calls
        calls += 1
        if calls == 5:
            signal.raise_signal(signal.SIGTERM)
        return real(self)

    settings = config(model, **SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Updater, "_apply", apply)
        with pytest.raises(KeyboardInterrupt):
            run(settings, tmp_path / "parts")
    assert calls == 6
    (saved,) = (tmp_path / "parts" / "checkpoints").iterdir()
    state = read(saved / "state.json")
    assert (state["update"], state["logged"], state["optimiser_steps"]) == (3, False, 6)
    run(settings, tmp_path / "parts")
    _assert_same(uninterrupted(), tmp_path / "parts")


def test_interrupted_in_the_warm_start_and_after_it(
    model: Path, tmp_path: Path, uninterrupted: Callable[..., Path]
) -> None:
    changes = {"warmstart": {"updates": 3, "episodes": 8, "lr": 1e-3}}
    settings = config(model, **{**SMALL, **changes})
    parts = tmp_path / "parts"
    for nth in (2, 4):  # in the stage, which then has 2 updates left; in update 2 of the run itself
        with _interrupting(Updater, "update", nth), pytest.raises(KeyboardInterrupt):
            run(settings, parts)
    run(settings, parts)
    whole = uninterrupted(**changes)
    assert numbers(whole / "warmstart") == numbers(parts / "warmstart")
    assert numbers(whole) == numbers(parts)
    assert_same_weights(whole / "final", parts / "final")


def test_a_finished_run_is_left_as_it_is(model: Path, tmp_path: Path) -> None:
    settings = config(model, **SMALL)
    final = run(settings, tmp_path)
    before, journal = (final / "model.safetensors").read_bytes(), (tmp_path / METRICS).read_bytes()
    with _interrupting(Updater, "update", 0):
        run(settings, tmp_path)
    assert (final / "model.safetensors").read_bytes() == before
    assert (tmp_path / METRICS).read_bytes() == journal


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], model: Path) -> Command:
    return command_line(monkeypatch, capsys)


def _lines(folder: Path) -> int:
    path = folder / METRICS
    return path.read_bytes().count(b"\n") if path.is_file() else 0


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_is_told_to_stop_or_killed(
    cli: Command, suite: EchoSuite, model: Path, tmp_path: Path, sent: signal.Signals
) -> None:
    settings = config(model, **{**SMALL, "updates": 30, "checkpoints": {"every": 4, "keep": 2}})
    words = ("train", "--method", "grpo", "--recipe", recipe(tmp_path, settings), "-q", "--out")
    child = process(suite.folder, *words, tmp_path / "parts")
    wait_until(lambda: _lines(tmp_path / "parts") >= 7)  # updates 0 to 6: past the checkpoint of update 4
    code, err = ended(child, sent)
    assert not (tmp_path / "parts" / "final").exists()
    if sent == signal.SIGTERM:
        assert (code, err) == (130, "interrupted; run the same command again to continue.\n")
    else:
        assert code == -signal.SIGKILL
    assert cli(*words, tmp_path / "parts", "--resume").code == 0
    assert cli(*words, tmp_path / "whole").code == 0
    assert numbers(tmp_path / "whole") == numbers(tmp_path / "parts")
    assert_same_weights(tmp_path / "whole" / "final", tmp_path / "parts" / "final")


def test_validations_behind_the_checkpoint_are_made_again(model: Path, tmp_path: Path) -> None:
    """Weights may come out otherwise the second time, so that episodes of the first do not count for them."""
    settings = config(model, **{**SMALL, "checkpoints": {"every": 2, "keep": 2}})
    with _interrupting(RolloutPlan, "collect", 4), pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path)
    shutil.rmtree(tmp_path / "checkpoints" / "update-000003")  # as after a kill
    validations = tmp_path / "validation"
    for name in ("update-000003", "update-000004"):
        shutil.copytree(validations / "update-000002", validations / name)
    kept = (validations / "update-000002" / "episodes.jsonl").stat().st_mtime_ns
    run(settings, tmp_path)
    assert not (validations / "update-000003").exists()
    second, last = (read(validations / f"update-00000{n}" / "manifest.json")["settings"]["policy"] for n in (2, 4))
    assert (second["update"], last.get("update")) == (2, None)  # of the final weights, not the copy
    assert (validations / "update-000002" / "episodes.jsonl").stat().st_mtime_ns == kept


def test_killed_while_the_tiny_model_is_written(suite: EchoSuite, tmp_path: Path) -> None:
    settings = config("tiny:xs", **SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LlamaForCausalLM, "save_pretrained", _half_saved)
        with pytest.raises(KeyboardInterrupt):
            run(settings, tmp_path)
    assert (run(settings, tmp_path) / "model.safetensors").is_file()


def _half_saved(model: Any, folder: Path) -> None:
    model.config.save_pretrained(folder)
    raise KeyboardInterrupt

"""Training that ends by environment steps, and what checkpoints say of what was trained and what it cost."""

from pathlib import Path
from typing import Any

import pytest

from seedbench.errors import UsageError
from seedbench.types import Message, Usage
from seedbench_trainers.checks import base_model, refuse_contradictions
from seedbench_trainers.toolbox import Toolbox
from seedbench_trainers.update import Updater
from tests.eval.helpers import Command, command_line
from tests.train.helpers import EchoSuite, config, metric, numbers, read, run

# An update plays 4 tasks x 4 episodes of one step each: 16 environment steps.
SMALL: dict[str, Any] = {
    "updates": 10, "validate": True, "validation": {"limit": 4}, "optimiser": {"schedule": "linear"},
    "track": {"traces": 1},
}  # fmt: skip


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_line(monkeypatch, capsys)


def test_ends_after_the_update_that_reaches_the_budget(model: Path, tmp_path: Path) -> None:
    run(config(model, **SMALL, budget={"environment_steps": 33}), tmp_path / "short")
    assert metric(tmp_path / "short", "steps/environment") == [16, 32, 48]
    assert sorted(path.name for path in (tmp_path / "short" / "validation").iterdir()) == [
        "update-000000",
        "update-000003",
    ]
    assert (tmp_path / "short" / "traces" / "update-000003.jsonl.gz").is_file()
    run(config(model, **SMALL), tmp_path / "long")
    both = [numbers(tmp_path / name) for name in ("short", "long")]
    last = {k: v for k, v in both[0][3][2].items() if not k.startswith("validation/")}
    assert (both[0][:3], last) == (both[1][:3], both[1][3][2])  # the schedule is over `updates` in both


def test_a_budget_beyond_the_updates_changes_nothing(model: Path, tmp_path: Path) -> None:
    run(config(model, updates=2, budget={"environment_steps": 1000}), tmp_path)
    assert metric(tmp_path, "steps/environment") == [16, 32]


def test_an_interrupted_budget_goes_on_and_ends_where_it_would_have(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(model, **SMALL, budget={"environment_steps": 40}, checkpoints={"every": 0})
    run(settings, tmp_path / "whole")
    real, calls = Updater.update, []

    def interrupted(self: Updater, samples: Any, number: int) -> Any:
        calls.append(number)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(self, samples, number)

    monkeypatch.setattr(Updater, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "parts")
    run(settings, tmp_path / "parts")
    assert calls == [0, 1, 1, 2]
    assert numbers(tmp_path / "parts") == numbers(tmp_path / "whole")
    run(settings, tmp_path / "parts")  # nothing is left to do
    assert len(calls) == 4


def test_methods_without_roll_outs_have_no_such_budget(model: Path) -> None:
    settings = config(model, method="sft", budget={"environment_steps": 40})
    with pytest.raises(UsageError, match=r"budget\.environment_steps is 40, but sft plays no roll-outs"):
        refuse_contradictions(settings)


def test_dry_run_names_the_budget(cli: Command) -> None:
    words = ("train", "--method", "grpo", "--suite", "mini-alfworld", "--dry-run")
    told = cli(*words, "--set", "budget.environment_steps=60000")
    assert "[budget]\nenvironment_steps = 60000\n" in told.out
    assert "# budget: ends after the first update at which 60,000 environment steps were played\n" in told.out
    assert "# budget" not in cli(*words).out


def test_checkpoints_say_what_they_are_began_from_and_cost(model: Path, tmp_path: Path) -> None:
    stage: dict[str, Any] = {"method": "sft", "updates": 1, "update": {"mini_batch": 4}, "options": {"episodes": 8}}
    warm = run(config(model, **stage), tmp_path / "warm")
    made = config(
        warm, updates=2, seed=7, validate=True, validation={"limit": 4, "every": 1},
        data={"fraction": 0.5, "reading": "games"}, rollout={"tasks": 2, "group": 4},
    )  # fmt: skip
    final = read(run(made, tmp_path / "run") / "seedbench.json")
    totals = read(tmp_path / "run" / "training.json")["totals"]
    cost = final.pop("cost")
    start = final.pop("start")
    assert final == {
        "label": "final", "model": model.name, "method": "grpo", "recipe": "", "suite": "echo", "seed": 7,
        "update": 2, "updates": 2, "data": {"panel": "echo/train", "fraction": 0.5, "reading": "games"},
    }  # fmt: skip
    assert (start["label"], start["method"], start["update"], "start" in start) == ("final", "sft", 1, False)
    assert start["cost"]["environment_steps"] == 0 < start["cost"]["trained_tokens"]
    assert (cost["environment_steps"], cost["gpu_seconds"]) == (16, 0)
    assert cost["generated_tokens"] == totals["tokens/generated"] > 0
    assert cost["prompt_tokens"] == totals["tokens/prompt"] > 0
    assert cost["seconds"] == pytest.approx(totals["seconds"], abs=1e-3)
    about = [read(tmp_path / "run" / "validation" / f"update-00000{n}" / "manifest.json")["policy"] for n in (0, 1, 2)]
    assert about[0]["trained"]["method"] == "sft"  # what was scored before the first update
    assert [a["trained"]["label"] for a in about[1:]] == ["validation", "validation"]
    assert [a["trained"]["cost"]["environment_steps"] for a in about[1:]] == [8, 16]


def test_the_model_behind_a_checkpoint_is_the_one_that_was_named(tmp_path: Path) -> None:
    (tmp_path / "final").mkdir()
    assert base_model(str(tmp_path / "final")) == "final"
    (tmp_path / "final" / "seedbench.json").write_text('{"model": "tiny:l", "method": "sft"}')
    assert base_model(str(tmp_path / "final")) == "tiny:l"
    assert base_model("Qwen/Qwen2.5-3B-Instruct") == "Qwen/Qwen2.5-3B-Instruct"


def test_answers_outside_episodes_are_counted_once(
    model: Path, suite: EchoSuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An analysis costs tokens: they stand in the totals of the update that asked for it."""
    from seedbench.policies.base import Sampling
    from seedbench_trainers.methods.grpo import GRPO

    spent: list[Usage] = []
    signals, asked = GRPO.signals, Toolbox.asked

    def asking(self: GRPO, batch: Any, tools: Any) -> Any:
        tools.ask([(Message("user", "game 1: say left"),)] * 3, Sampling(temperature=0.0, max_new_tokens=2))
        return signals(self, batch, tools)

    def noting(self: Toolbox) -> Usage:
        spent.append(asked(self))
        return spent[-1]

    run(config(model, updates=1), tmp_path / "plain")
    monkeypatch.setattr(GRPO, "signals", asking)
    monkeypatch.setattr(Toolbox, "asked", noting)
    run(config(model, updates=1), tmp_path / "asking")
    assert len(spent) == 1
    assert spent[0].prompt_tokens > 0 < spent[0].generated_tokens <= 6
    for name, more in (("prompt", spent[0].prompt_tokens), ("generated", spent[0].generated_tokens)):
        plain, with_answers = (metric(tmp_path / run, f"tokens/{name}") for run in ("plain", "asking"))
        assert with_answers == [plain[0] + more]

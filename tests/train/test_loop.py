"""The loop as a whole on a suite that any correct trainer solves: identity and determinism, the data fraction."""

from pathlib import Path
from typing import Any, ClassVar

import pytest

from seedbench_trainers.advantages import Array
from seedbench_trainers.methods.grpo import GRPO
from seedbench_trainers.records import Batch
from seedbench_trainers.setup import training_panel
from tests.train.helpers import (
    SIZES,
    assert_same_weights,
    config,
    method_installed,
    metric,
    numbers,
    read,
    run,
    weights,
)

SMALL: dict[str, Any] = {"rollout": {"tasks": 2, "group": 3}, "updates": 2}


class Flipped(GRPO):
    """GRPO with the wrong sign."""

    name: ClassVar[str] = "flipped"

    def advantages(self, batch: Batch) -> list[Array]:
        return [-values for values in super().advantages(batch)]


def _success(model: Path, out: Path, lr: float = 2e-3, **changes: Any) -> list[float]:
    """Validation success before and after some updates."""
    run(config(model, validate=True, checkpoints={"every": 0}, optimiser={"lr": lr}, **changes), out)
    return metric(out, "validation/success")


@pytest.mark.parametrize("method", ["grpo", "gigpo"])
def test_a_trivial_environment_is_solved(model: Path, tmp_path: Path, method: str) -> None:
    before, after = _success(model, tmp_path, method=method, updates=12, rollout={"tasks": 6, "group": 8})
    rates = metric(tmp_path, "rollout/success")
    assert 0.25 <= before <= 0.75
    assert rates[0] < 0.7
    assert (after, rates[-1] > 0.95) == (1.0, True)


def test_the_wrong_sign_unlearns(model: Path, tmp_path: Path) -> None:
    # A faster one gives one answer to everything before it has looked at the prompt: half right, and equal groups.
    with method_installed("flipped", Flipped):
        _, after = _success(model, tmp_path, 5e-4, method="flipped", updates=12, rollout={"tasks": 6, "group": 8})
    assert after < 0.2
    assert metric(tmp_path, "rollout/success")[-1] < 0.2


def test_sft_solves_it_with_free_decoding(model: Path, tmp_path: Path) -> None:
    before, after = _success(
        model, tmp_path, method="sft", protocol="free", updates=40, update={"mini_batch": 24}, options={"episodes": 48}
    )
    assert (before, after) == (0.0, 1.0)


def test_one_seed_one_result(model: Path, tmp_path: Path) -> None:
    settings = config(model, validate=True, **SMALL)
    one, again = (run(settings, tmp_path / name) for name in ("one", "again"))
    assert numbers(one.parent) == numbers(again.parent)
    assert_same_weights(one, again)
    other = run(config(model, validate=True, seed=1, **SMALL), tmp_path / "other")
    assert numbers(other.parent)[1:] != numbers(one.parent)[1:]
    assert not all(bool((a == b).all()) for a, b in zip(weights(one).values(), weights(other).values(), strict=True))


def test_the_last_minibatch_and_every_epoch_count(model: Path, tmp_path: Path) -> None:
    settings = config(model, updates=1, rollout={"tasks": 2, "group": 3}, update={"mini_batch": 4, "epochs": 3})
    run(settings, tmp_path)
    (record,) = numbers(tmp_path)[1:]
    assert record[1] == 3 * 2  # 4 samples and 2, three times
    assert record[2]["optim/steps"] == 6


def test_totals_add_up(model: Path, tmp_path: Path) -> None:
    run(config(model, protocol="chat", **SMALL), tmp_path)
    assert metric(tmp_path, "episodes") == [6, 12]
    assert metric(tmp_path, "steps/environment") == [18, 36]
    totals = read(tmp_path / "training.json")["totals"]
    assert (totals["episodes"], totals["steps/environment"]) == (12, 36)
    trained = metric(tmp_path, "update/tokens")
    assert metric(tmp_path, "tokens/trained") == [trained[0], sum(trained)]


def test_a_share_of_the_games_is_nested_and_makes_all_updates(model: Path, tmp_path: Path) -> None:
    panels = [training_panel(config(model, data={"fraction": share})) for share in (0.2, 0.5, 1.0)]
    assert [len(panel.tasks) for panel in panels] == [2, 6, SIZES["train"]]
    names = [{task.id for task in panel.tasks} for panel in panels]
    assert names[0] < names[1] < names[2]
    settings = config(model, data={"fraction": 0.2}, **SMALL)
    assert settings.planned_updates == 2
    run(settings, tmp_path)
    record = read(tmp_path / "training.json")
    assert (record["panel"]["name"], record["panel"]["n"]) == ("echo/train@1[limit=2]", 2)
    assert record["panel"]["hash"] == panels[0].hash
    assert record["settings"]["data"]["reading"] == "games"


def test_a_share_of_the_draws_uses_all_games_and_makes_fewer_updates(model: Path, tmp_path: Path) -> None:
    settings = config(model, data={"fraction": 0.4, "reading": "draws"}, updates=5, rollout={"tasks": 2, "group": 2})
    assert settings.planned_updates == 2
    assert len(training_panel(settings).tasks) == SIZES["train"]
    run(settings, tmp_path)
    assert [record[0] for record in numbers(tmp_path)] == [0, 1, 2]
    assert read(tmp_path / "training.json")["panel"]["name"] == "echo/train@1"

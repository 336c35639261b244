"""The skill matters: on two-action turns where it names the right action, its Delta has the right sign, and SEED learns
faster than GRPO. Everything is the policy's own: it plays, reads the end of its episode, and writes the skill."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbench_trainers.records import Batch
from tests.train import helpers
from tests.train.helpers import metric, run
from tests.train.hidden import TURNS, Tutor, hidden, right_word
from tests.train.teaching import watched

OWN: dict[str, Any] = {
    "stage1": {"run": False}, "analysis_style": "brief", "analysis_tokens": 96, "skill_position": "end",
    "kl_coefficient": 0.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A policy after the short SFT on prompts with skills and on analyses, which knows nothing of the games."""
    folder = tmp_path_factory.mktemp("hidden")
    with hidden(folder / "suite"), helpers.method_installed("tutor", Tutor):
        model = helpers.build_model(folder / "model")
        settings = helpers.config(
            model, method="tutor", protocol="hidden", updates=80, update={"mini_batch": 32}, checkpoints={"every": 0},
            optimiser={"lr": 3e-3, "schedule": "cosine", "warmup": 0.05},
        )  # fmt: skip
        yield run(settings, folder / "tutor")


def _trained(taught: Path, out: Path, method: str, seed: int, **options: Any) -> list[float]:
    """Success of the roll-outs of 6 updates on the games of one word, 4 groups of 4 each."""
    settings = helpers.config(
        taught, method=method, protocol="hidden", updates=6, seed=seed, optimiser={"lr": 1e-3},
        data={"families": ["pick"]}, checkpoints={"every": 0}, track={"traces": 0}, options=options,
    )  # fmt: skip
    run(settings, out)
    return metric(out, "rollout/success")


def _deltas(batch: Batch) -> tuple[list[float], list[float]]:
    """Delta of the tokens that choose the word: of right actions, and of wrong ones."""
    found: tuple[list[float], list[float]] = ([], [])
    for sample in batch.samples:
        episode = batch.trajectories[sample.trajectory].episode
        wrong = episode.turns[sample.turns[0]].action != right_word(episode)
        found[wrong].append(float((sample.signals["teacher"] - sample.logprobs)[0]))
    return found


def test_delta_is_positive_on_the_right_action_and_negative_on_the_wrong_one(taught: Path, tmp_path: Path) -> None:
    """Over all games of both words, with skills that the policy wrote; most of its episodes failed."""
    settings = helpers.config(
        taught, method="seed", protocol="hidden", updates=1, rollout={"tasks": 8, "group": 4}, track={"traces": 0},
        options={**OWN, "teacher": "snapshot"},
    )  # fmt: skip
    with watched() as batches:
        run(settings, tmp_path / "run")
    right, wrong = _deltas(batches[0])
    assert len(right) + len(wrong) == 32 * TURNS
    assert min(len(right), len(wrong)) > 32
    assert np.mean(right) > 0.3
    assert min(right) > 0
    assert max(wrong) < -1
    assert metric(tmp_path / "run", "skill/parsed") == [1.0]
    assert {t.notes["skill"] for t in batches[0].trajectories} == {"Say left.", "Say right."}


@pytest.mark.parametrize("seed", [0, 1])
def test_seed_learns_faster_than_grpo(taught: Path, tmp_path: Path, seed: int) -> None:
    """All six turns must be right, 1 episode in 64 at first: groups without variance teach GRPO nothing, and SEED
    learns from the right turns of failures. At the paper's weight, 0.01."""
    plain = _trained(taught, tmp_path / "grpo", "grpo", seed, kl_coefficient=0.0)
    seeded = _trained(taught, tmp_path / "seed", "seed", seed, **OWN)
    assert plain[0] == seeded[0] < 0.2
    assert seeded[-1] >= 0.6
    assert all(ours >= theirs for ours, theirs in zip(seeded, plain, strict=True))
    assert np.mean(seeded) > np.mean(plain) + 0.15


def test_a_skill_that_names_the_wrong_action_teaches_that(taught: Path, tmp_path: Path) -> None:
    """The control: what SEED gains is what the skill says."""
    file = tmp_path / "wrong.toml"
    file.write_text('[families]\npick = "Say right."\n')
    wrong = _trained(taught, tmp_path / "run", "seed", 1, **{**OWN, "skill": str(file)})
    assert wrong[-1] == 0.0

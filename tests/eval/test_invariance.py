"""Same seed, same run: whatever the batch size, the concurrency or the order (on generated games)."""

from pathlib import Path
from typing import Any

import pytest

from seedbench.evaluate import Evaluation, evaluate
from seedbench.panels import load_panel
from seedbench.policies import ModelOptions, make_policy
from seedbench.policies.base import Policy
from seedbench.protocol import load_protocol
from seedbench.runs import read_episodes
from seedbench.ui.live import Progress
from tests.eval.helpers import without_seconds
from tests.tiny_model import build

PANEL = load_panel("mini-alfworld/valid_unseen").subset(limit=8)
PROTOCOL = load_protocol("alfworld/quick").with_settings(temperature=1.0, steps=4)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("models") / "tiny")


def outcome(policy: Policy, out: Path, **settings: Any) -> tuple[dict[str, Any], dict[Any, Any]]:
    """Summary and episodes, seconds aside."""
    summary = evaluate(Evaluation(PANEL, PROTOCOL, policy, out, **{"repeats": 2, **settings}), Progress())
    episodes = {e.key: {**e.to_json(), "seconds": 0} for e in read_episodes(out)}
    return without_seconds(summary), episodes


VARIANTS = [
    {"concurrency": 1},
    {"concurrency": 16},
    {"concurrency": 16, "shuffle": 1},
    {"concurrency": 3, "shuffle": 2},
]


@pytest.mark.parametrize("name", ["oracle", "random"])
def test_scripted_policies(tmp_path: Path, mini_store: Path, name: str) -> None:
    results = [
        outcome(make_policy(name, PANEL, ModelOptions()), tmp_path / str(index), **settings)
        for index, settings in enumerate(VARIANTS)
    ]
    assert all(result == results[0] for result in results)
    assert results[0][0]["episodes"] == 16
    other = outcome(make_policy(name, PANEL, ModelOptions()), tmp_path / "seed", seed=1)
    played = [
        [[turn["action"] for turn in episode["turns"]] for episode in one[1].values()] for one in (results[0], other)
    ]
    assert (played[0] == played[1]) == (name == "oracle")


def test_model(tmp_path: Path, mini_store: Path, checkpoint: Path) -> None:
    def run(folder: str, batch_size: int, **settings: Any) -> tuple[dict[str, Any], dict[Any, Any]]:
        options = ModelOptions(batch_size=batch_size, device="cpu")
        return outcome(make_policy(str(checkpoint), PANEL, options), tmp_path / folder, **settings)

    expected = run("plain", 8, concurrency=16)
    summary, episodes = expected
    assert summary["tokens"]["generated"] > 16 * 4
    responses = [turn["response"] for episode in episodes.values() for turn in episode["turns"]]
    assert len(set(responses)) > len(responses) / 2  # it has something to say

    assert run("one at a time", 1, concurrency=1) == expected
    assert run("batches of one", 1, concurrency=16) == expected
    assert run("large batches", 32, concurrency=16) == expected
    assert run("large batches of few", 32, concurrency=5) == expected
    assert run("another order", 8, concurrency=16, shuffle=1) == expected

"""The package's stage 2 against an independent computation of the same equations, on recorded batches, in float64."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from seedbench_trainers.base import Tokens
from seedbench_trainers.config import TrainConfig
from seedbench_trainers.losses import reduce_term
from seedbench_trainers.methods.seed import SEED
from seedbench_trainers.records import Batch, Sample, Trajectory
from tests.golden.seed_numbers import stage2
from tests.train.episodes import episode

CONFIG = TrainConfig.model_validate(
    {"method": "seed", "suite": "s", "model": "m", "updates": 1, "data": {"panel": "p"}, "protocol": {"name": "q"}}
)
Record = dict[str, Any]


def recordings() -> Iterator[Record]:
    """Seeded batches: 4 groups of 8 trajectories of 1 to 6 turns, ratios far outside the clip range on both sides,
    Deltas of both signs, trajectories without a skill, and a group whose returns are all equal."""
    for seed in range(5):
        draw = np.random.default_rng(seed)
        turns = draw.integers(1, 7, 32)
        lengths = [draw.integers(1, 9, count) for count in turns]  # tokens a turn
        count = np.array([part.sum() for part in lengths])
        n = int(count.sum())
        reward = np.where(draw.random(32) < 0.4, 10.0, 0.0)
        reward[8:16] = 10.0 * (seed % 2)
        theta = -draw.exponential(1.0, n)
        yield {
            "reward": reward,
            "group": np.repeat(np.arange(4), 8),
            "lengths": lengths,
            "trajectory": np.repeat(np.arange(32), count),
            "theta": theta,
            "old": theta + draw.normal(0, 0.6, n),
            "ref": theta + draw.normal(0, 0.5, n),
            "skill": theta + draw.normal(0.1, 0.7, n),
            "m": np.repeat(draw.random(32) < 0.7, count).astype(np.float64),
        }


def _samples(record: Record) -> Batch:
    """One sample a turn, in the order of the flat arrays."""
    batch = Batch([], [])
    for k, lengths in enumerate(record["lengths"]):
        played = episode([("look", "...")] * len(lengths))
        group, reward = int(record["group"][k]), float(record["reward"][k])
        batch.trajectories.append(Trajectory(played, group, (), reward, (0.0,) * len(lengths)))
        for turn, length in enumerate(lengths):
            batch.samples.append(
                Sample(np.zeros(1 + length, np.int32), ((1, 1 + int(length)),), np.zeros(length, np.float32),
                       trajectory=k, turns=(turn,))
            )  # fmt: skip
    return batch


def _rows(values: Any, samples: Sequence[Sample]) -> torch.Tensor:
    """Flat values as (B, L), a row a sample, float64."""
    rows = torch.zeros(len(samples), max(sample.length for sample in samples), dtype=torch.float64)
    at = 0
    for row, sample in zip(rows, samples, strict=True):
        row[: sample.length] = torch.tensor(np.asarray(values[at : at + sample.length], np.float64))
        at += sample.length
    return rows


def _ours(record: Record, method: SEED) -> dict[str, Any]:
    batch = _samples(record)
    advantages = method.advantages(batch)
    spread = [float(advantages[s.trajectory][s.turns[0]]) for s in batch.samples for _ in range(s.length)]
    named = {"advantage": spread, "ref": record["ref"], "teacher": record["skill"], "distil": record["m"]}
    signals = {name: _rows(values, batch.samples) for name, values in named.items()}
    mask = _rows(np.ones(len(record["theta"])), batch.samples)
    theta = _rows(record["theta"], batch.samples).requires_grad_(True)
    values = method.loss(Tokens(theta, _rows(record["old"], batch.samples), mask, None, signals))
    parts = {}
    for term in method.terms():
        where = signals[term.mask] * mask if term.mask else mask
        total, count = reduce_term(values[term.name], where, term.average)
        parts[term.name] = (term.weight, total / count.clamp_min(1))
    loss = torch.stack([weight * value for weight, value in parts.values()]).sum()
    (slope,) = torch.autograd.grad(loss, theta)
    kept = mask.bool()
    return {
        "advantage": np.asarray(spread),
        "l_rl": (parts["policy"][1] + parts["kl"][0] * parts["kl"][1]).item(),
        "l_opd": parts["distil"][1].item(),
        "distil": values["distil"][kept].detach().numpy(),
        "loss": loss.item(),
        "slope": slope[kept].numpy(),
    }


@pytest.mark.parametrize("record", list(recordings()), ids=lambda record: f"{len(record['theta'])} tokens")
@pytest.mark.parametrize("changes", [{}, {"weight": 0.5, "beta": 1.0, "kl_coefficient": 0.1}])
def test_stage_two_agrees_to_a_millionth(record: Record, changes: dict[str, float]) -> None:
    expected = stage2(
        record, changes.get("kl_coefficient", 0.01), changes.get("weight", 0.01), changes.get("beta", 5.0)
    )
    ours = _ours(record, SEED(SEED.Settings.model_validate({"watch_entropy": False, **changes}), CONFIG))
    for name in ("advantage", "l_rl", "l_opd", "loss", "slope"):
        np.testing.assert_allclose(ours[name], expected[name], rtol=1e-6, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(ours["slope"], expected["slope"], rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(ours["distil"], expected["gate"] * expected["delta"], rtol=1e-6, atol=1e-12)


def test_the_recordings_reach_every_branch() -> None:
    """Else agreement would say little: both clips, the dual clip, open and closed gates, tokens without a skill."""
    for record in recordings():
        found = stage2(record)
        rho, a = np.exp(record["theta"] - record["old"]), found["advantage"]
        cases = [(a > 0) & (rho > 1.2), (a < 0) & (rho < 0.8), (a < 0) & (rho > 3), a == 0, found["gate"] > 0.9,
                 found["gate"] < 0.1, record["m"] == 0, record["m"] == 1]  # fmt: skip
        assert all(case.any() for case in cases)

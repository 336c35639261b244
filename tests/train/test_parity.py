"""What is scored is what was sampled: parity of log-probabilities, masks, micro-batches, schedule and normalisers."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seedbench_trainers.base import Term
from seedbench_trainers.checks import agent_protocol, make_method
from seedbench_trainers.config import Optimiser, TrainConfig
from seedbench_trainers.methods.grpo import GRPO
from seedbench_trainers.records import Batch, Sample
from seedbench_trainers.setup import training_panel
from seedbench_trainers.toolbox import Toolbox
from seedbench_trainers.trainee import Trainee, load_trainee
from seedbench_trainers.update import Updater, learning_rate, normaliser
from seedbench_trainers.view import TrainView
from tests.train.helpers import PROTOCOLS, config, metric, run


class Bench:
    """A trainee with its tools, as the loop has them, without the loop."""

    def __init__(self, settings: TrainConfig, model: Path, out: Path) -> None:
        self.settings = settings
        method = make_method(settings)
        assert isinstance(method, GRPO)
        self.method = method
        self.trainee: Trainee = load_trainee(settings, str(model), reference=method.needs_reference)
        panel, protocol = training_panel(settings), agent_protocol(settings)
        self.tools = Toolbox(settings, panel, protocol, out, self.trainee, method, TrainView())
        self.updater = Updater(self.trainee, method, settings, settings.planned_updates)

    def batch(self) -> Batch:
        """The first iteration's samples with their signals; advantages are drawn, for untrained models win nothing."""
        batch = self.method.gather(self.tools, 0)
        if self.method.needs_reference:
            self.tools.fill_reference(batch.samples)
        self.method.signals(batch, self.tools)
        drawn = np.random.default_rng(0)
        for sample in batch.samples:
            sample.signals["advantage"] = sample.spread(drawn.normal(size=len(sample.spans)).tolist())
        return batch

    def gradients(self, samples: list[Sample]) -> list[torch.Tensor]:
        """Of one optimiser step over the samples, which is not made."""
        kept: list[torch.Tensor] = []

        def keep() -> float:
            kept.extend(p.grad.clone() for p in self.trainee.parameters if p.grad is not None)
            return 0.0

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.updater, "_apply", keep)
            self.updater.update(samples, 0)
        return kept


def _bench(model: Path, out: Path, **changes: Any) -> Bench:
    changes = {"rollout": {"tasks": 3, "group": 4}, **changes}
    return Bench(config(model, **changes), model, out)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rollout_and_training_agree_on_log_probabilities(model: Path, tmp_path: Path, protocol: str) -> None:
    run(config(model, protocol=protocol, updates=2, rollout={"tasks": 3, "group": 4}), tmp_path)
    parity = metric(tmp_path, "policy/parity")
    assert len(parity) == 2
    assert 0 < max(parity) < 1e-4
    # At the first step the ratio is 1 for every token.
    assert metric(tmp_path, "policy/ratio_max") == pytest.approx([1.0, 1.0], abs=1e-4)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_parity_at_other_temperatures(model: Path, tmp_path: Path, temperature: float) -> None:
    rollout = {"tasks": 2, "group": 3, "temperature": temperature}
    run(config(model, protocol="chat-free", updates=1, rollout=rollout), tmp_path)
    assert 0 < metric(tmp_path, "policy/parity")[0] < 1e-4


def test_parity_notices_weights_that_did_not_sample(model: Path, tmp_path: Path) -> None:
    bench = _bench(model, tmp_path)
    batch = bench.batch()
    with torch.no_grad():
        for parameter in bench.trainee.parameters:
            parameter.mul_(1.01)
    assert bench.updater.update(batch.samples, 0)["policy/parity"] > 1e-4


@pytest.mark.parametrize("protocol", ["choose-3", "chat-free"])
def test_micro_batches_change_no_gradient(model: Path, tmp_path: Path, protocol: str) -> None:
    found = []
    for tokens in (1, 150, 100_000):
        bench = _bench(model, tmp_path, protocol=protocol, update={"tokens": tokens}, optimiser={"lr": 1e-4})
        batch = bench.batch()
        gradients = bench.gradients(batch.samples)
        bench.updater.update(batch.samples, 0)
        found.append((gradients, [p.detach().clone() for p in bench.trainee.parameters]))
    (gradients, weights), *others = found
    assert max(float(g.abs().max()) for g in gradients) > 1e-4
    for theirs, changed in others:
        assert max(float((a - b).abs().max()) for a, b in zip(gradients, theirs, strict=True)) < 1e-6
        assert max(float((a - b).abs().max()) for a, b in zip(weights, changed, strict=True)) < 1e-5


def test_only_sampled_tokens_are_trained_on(model: Path, tmp_path: Path) -> None:
    """A term masked everywhere leaves gradients of exactly 0, and one token's mask lets through that token alone."""
    bench = _bench(model, tmp_path, protocol="chat-free", options={"kl_coefficient": 0.0})
    batch = bench.batch()
    policy = Term("policy", mask="open")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.method, "terms", lambda: [policy])
        for sample in batch.samples:
            sample.signals["open"] = np.zeros(sample.length, dtype=np.float32)
        assert all(float(g.abs().max()) == 0.0 for g in bench.gradients(batch.samples))
        batch.samples[0].signals["open"][2] = 1.0
        gradients = bench.gradients(batch.samples)
        assert max(float(g.abs().max()) for g in gradients) > 0
        # What the other tokens say of themselves does not matter.
        for sample in batch.samples:
            closed = sample.signals["open"] == 0
            sample.signals["advantage"][closed] = 99.0
            sample.logprobs[closed] = -7.0
        again = bench.gradients(batch.samples)
    assert all(torch.equal(a, b) for a, b in zip(gradients, again, strict=True))


def test_tokens_after_a_response_have_no_part_in_its_gradient(model: Path, tmp_path: Path) -> None:
    """The advantage of the first turn alone: what was observed and said later may be anything."""
    bench = _bench(model, tmp_path, protocol="chat-free", options={"kl_coefficient": 0.0, "watch_entropy": False})
    batch = bench.batch()
    for sample in batch.samples:
        first = sample.spans[0][1] - sample.spans[0][0]
        sample.signals["advantage"][:] = 0.0
        sample.signals["advantage"][:first] = 1.0
    gradients = bench.gradients(batch.samples)
    for sample in batch.samples:
        sample.ids[sample.spans[0][1] :] = 5
    again = bench.gradients(batch.samples)
    assert max(float(g.abs().max()) for g in gradients) > 1e-4
    assert max(float((a - b).abs().max()) for a, b in zip(gradients, again, strict=True)) < 1e-7


@pytest.mark.parametrize(
    ("schedule", "warmup", "rates"),
    [
        ("constant", 0.0, [2.0, 2.0, 2.0, 2.0]),
        ("linear", 0.0, [2.0, 1.5, 1.0, 0.5]),
        ("cosine", 0.0, [2.0, 1 + math.sqrt(0.5), 1.0, 1 - math.sqrt(0.5)]),
        ("constant", 0.5, [0.0, 1.0, 2.0, 2.0]),
        ("linear", 0.5, [0.0, 1.0, 2.0, 1.0]),
    ],
)
def test_learning_rate_by_hand(schedule: str, warmup: float, rates: list[float]) -> None:
    settings = Optimiser.model_validate({"lr": 2.0, "schedule": schedule, "warmup": warmup})
    assert [learning_rate(settings, share) for share in (0.0, 0.25, 0.5, 0.75)] == pytest.approx(rates)


@pytest.mark.parametrize(
    ("optimiser", "rates"),
    [
        ({"lr": 1e-3, "schedule": "linear"}, [1e-3, 7.5e-4, 5e-4, 2.5e-4]),
        ({"lr": 1e-3, "warmup": 0.5}, [5e-4, 1e-3, 1e-3, 1e-3]),
        ({"lr": 1e-3, "warmup": 0.5, "schedule": "linear"}, [5e-4, 1e-3, 5e-4, 2.5e-4]),
        ({"lr": 1e-3, "warmup": 0.2, "schedule": "cosine"}, [5e-4 * (1 + math.cos(math.pi * 0.375))]),
    ],
)
def test_every_update_has_its_rate(model: Path, tmp_path: Path, optimiser: dict[str, Any], rates: list[float]) -> None:
    """No update is wasted at rate 0."""
    run(config(model, updates=len(rates), rollout={"tasks": 2, "group": 2}, optimiser=optimiser), tmp_path)
    assert metric(tmp_path, "optim/lr") == pytest.approx(rates)


def _sample(mask: list[float]) -> Sample:
    size = len(mask)
    return Sample(
        ids=np.zeros(size + 1, dtype=np.int32), spans=((1, size + 1),), logprobs=np.zeros(size, dtype=np.float32),
        signals={"m": np.asarray(mask, dtype=np.float32)},
    )  # fmt: skip


def test_normaliser_by_hand() -> None:
    samples = [_sample([1, 0.5, 0]), _sample([0, 0]), _sample([2])]
    assert normaliser(Term("t"), samples) == 6
    assert normaliser(Term("t", mask="m"), samples) == 3
    assert normaliser(Term("t", average="sequence"), samples) == 3
    assert normaliser(Term("t", mask="m", average="sequence"), samples) == 2
    assert normaliser(Term("t", mask="m"), [_sample([0])]) == 1  # nothing to divide by

"""GRPO and GiGPO as methods: settings, signals on samples, terms and the loss."""

from typing import Any, cast

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from seedbench.errors import UsageError
from seedbench.types import Episode, Outcome, Turn, Usage
from seedbench_trainers.base import Tokens, Tools
from seedbench_trainers.config import TrainConfig
from seedbench_trainers.methods.gigpo import GiGPO, GiGPOSettings, anchors, step_returns
from seedbench_trainers.methods.grpo import GRPO, GRPOSettings
from seedbench_trainers.records import Batch, Sample, Trajectory

TOOLS = cast("Tools", None)  # neither method asks for any


def _config(group: int = 4) -> TrainConfig:
    data: dict[str, Any] = {"panel": "p"}
    return TrainConfig.model_validate(
        {
            "method": "grpo", "suite": "s", "model": "m", "updates": 1,
            "data": data, "protocol": {"name": "q"}, "rollout": {"group": group},
        }
    )  # fmt: skip


def _grpo(**settings: Any) -> GRPO:
    return GRPO(GRPOSettings(**settings), _config())


def _trajectory(
    group: int, reward: float, penalties: tuple[float, ...], observations: tuple[str, ...] = ()
) -> Trajectory:
    texts = observations or ("",) * (len(penalties) + 1)
    turns = tuple(Turn(response="r", action="a", valid=True, admissible=True, observation=text) for text in texts[1:])
    episode = Episode(
        task="t", task_sha256="0", family="f", repeat=0, seed=0, outcome=Outcome.FAILED, success=False, score=0.0,
        instruction="", first_observation=texts[0], turns=turns, usage=Usage(), seconds=0.0,
    )  # fmt: skip
    return Trajectory(episode=episode, group=group, prompts=(), reward=reward, penalties=penalties)


def _sample(trajectory: int, turns: tuple[int, ...], lengths: tuple[int, ...]) -> Sample:
    """A prompt token before each span."""
    spans, at = [], 0
    for length in lengths:
        spans.append((at + 1, at + 1 + length))
        at += 1 + length
    return Sample(
        ids=np.zeros(at, dtype=np.int32), spans=tuple(spans), logprobs=np.zeros(sum(lengths), dtype=np.float32),
        trajectory=trajectory, turns=turns,
    )  # fmt: skip


def test_signals_spread_each_turns_advantage_over_its_tokens() -> None:
    batch = Batch(
        [
            _trajectory(0, 10.0, (0.0, 0.5)),
            _trajectory(1, 0.0, (0.0,)),
            _trajectory(0, 0.0, (0.0, 0.0)),
            _trajectory(1, 0.0, (0.0,)),
        ],
        [_sample(0, (0, 1), (2, 1)), _sample(2, (1,), (3,)), _sample(1, (0,), (1,)), _sample(3, (0,), (2,))],
    )
    metrics = _grpo(std=False).signals(batch, TOOLS)
    # Group 0: means 9.75 and 0, so 4.875; its turns' scores are 10, 9.5 and 0, 0. Group 1 is flat.
    signals = [sample.signals["advantage"].tolist() for sample in batch.samples]
    assert signals == [[5.125, 5.125, 4.625], [-4.875] * 3, [0.0], [0.0, 0.0]]
    assert metrics["groups/zero_variance"] == 0.5
    assert metrics["advantage/abs"] == pytest.approx((5.125 + 4.625 + 2 * 4.875) / 6)


def test_turns_that_left_no_tokens_still_count_in_their_group() -> None:
    batch = Batch([_trajectory(0, 1.0, (0.0,)), _trajectory(0, 0.0, (0.0,))], [_sample(0, (0,), (1,))])
    _grpo(std=False).signals(batch, TOOLS)
    assert batch.samples[0].signals["advantage"].tolist() == [0.5]


def _tokens(**signals: torch.Tensor) -> Tokens:
    logp = torch.log(torch.tensor([[0.5, 0.5, 0.9], [0.2, 1.0, 1.0]])).requires_grad_(True)
    return Tokens(
        logprobs=logp,
        old=torch.log(torch.tensor([[0.5, 0.25, 0.3], [0.8, 1.0, 1.0]])),
        mask=torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]),
        entropy=torch.full((2, 3), 0.7, requires_grad=True),
        signals={"advantage": torch.tensor([[1.0, 1.0, -2.0], [-1.0, 0.0, 0.0]]), **signals},
    )


def test_loss_terms_and_statistics() -> None:
    method = _grpo(kl_coefficient=0.1, entropy_coefficient=0.01, clip_low=0.2, clip_high=0.2)
    reference = torch.log(torch.tensor([[0.5, 0.25, 0.9], [0.2, 1.0, 1.0]]))
    values = method.loss(_tokens(ref=reference))
    # Ratios 1, 2, 3, 1/4: -1; cut at 1.2; 3 * 2 (not above the dual clip); cut at 0.8.
    torch.testing.assert_close(values["policy"], torch.tensor([[-1.0, -1.2, 6.0], [0.8, 0.0, 0.0]]))
    torch.testing.assert_close(values["ratio"], torch.tensor([[1.0, 2.0, 3.0], [0.25, 1.0, 1.0]]))
    assert values["clipped"].tolist() == [[0, 1, 0], [1, 0, 0]]
    half = 0.5 - 1 + np.log(2)  # of exp(d) - 1 - d at d = -ln 2
    torch.testing.assert_close(values["kl"], torch.tensor([[0.0, half, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float32))
    assert values["old_kl"][0, 1].item() == pytest.approx(2 - 1 - np.log(2))  # d = ln ratio = ln 2
    assert [(term.name, term.weight, term.average) for term in method.terms()] == [
        ("policy", 1.0, "token"), ("kl", 0.1, "token"), ("entropy", -0.01, "token"),
    ]  # fmt: skip
    assert all(values[name].requires_grad for name in ("policy", "kl", "entropy"))
    assert not any(values[name].requires_grad for name in ("ratio", "clipped", "old_kl"))


def test_terms_without_weight_are_left_out() -> None:
    method = _grpo(kl_coefficient=0.0, average="sequence")
    values = method.loss(_tokens())
    assert [(term.name, term.average) for term in method.terms()] == [("policy", "sequence")]
    assert "kl" not in values
    assert not values["entropy"].requires_grad  # watched only
    assert not method.needs_reference
    assert method.needs_entropy
    assert not _grpo(watch_entropy=False).needs_entropy
    assert _grpo(watch_entropy=False, entropy_coefficient=0.1).needs_entropy


def test_the_loss_is_minimised_by_making_good_tokens_likelier() -> None:
    tokens = _tokens()
    loss = _grpo(kl_coefficient=0.0).loss(tokens)["policy"]
    (loss * tokens.mask).sum().backward()  # type: ignore[no-untyped-call]
    gradient = tokens.logprobs.grad
    assert gradient is not None
    torch.testing.assert_close(gradient, torch.tensor([[-1.0, 0.0, 6.0], [0.0, 0.0, 0.0]]))


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match=r"rollout\.group is 1, but grpo compares attempts"):
        GRPO(GRPOSettings(), _config(group=1))
    GRPO(GRPOSettings(std=True), _config(group=2))
    for wrong in ({"dual_clip": 1.0}, {"clip_low": 1.0}, {"kl_coefficient": -1.0}, {"clip_hi": 0.3}):
        with pytest.raises(ValidationError):
            GRPOSettings.model_validate(wrong)


def test_a_subclass_changes_the_advantage_of_tokens() -> None:
    class Halved(GRPO):
        def token_advantage(self, tokens: Tokens) -> torch.Tensor:
            return 0.5 * tokens.signals["advantage"]

    tokens = _tokens()
    settings = GRPOSettings(kl_coefficient=0.0)
    whole = GRPO(settings, _config()).loss(tokens)["policy"]
    torch.testing.assert_close(Halved(settings, _config()).loss(tokens)["policy"], 0.5 * whole)


def test_gigpo_adds_the_step_advantage() -> None:
    batch = Batch(
        [
            _trajectory(0, 8.0, (0.0, 0.0), ("start", "fridge", "won")),
            _trajectory(0, 0.0, (0.0, 1.0), ("start", "desk", "start")),
        ],
        [_sample(0, (0,), (1,)), _sample(0, (1,), (2,)), _sample(1, (0, 1), (1, 1))],
    )
    settings = GiGPOSettings(std=False, step_norm="mean", gamma=0.5, step_weight=2.0)
    GiGPO(settings, _config()).signals(batch, TOOLS)
    # Episode part: scores 8, 8 and 0, -1, of mean (8 - 0.5) / 2 = 3.75. Step part: in "start" 4 and 0.
    signals = [sample.signals["advantage"].tolist() for sample in batch.samples]
    assert signals == [[4.25 + 2 * 2.0], [4.25, 4.25], [-3.75 - 2 * 2.0, -4.75]]


def test_gigpo_with_weight_zero_is_grpo() -> None:
    batch = Batch(
        [_trajectory(0, 3.0, (0.0, 0.1)), _trajectory(0, 1.0, (0.0,)), _trajectory(0, 1.0, (0.0,))],
        [_sample(0, (0, 1), (1, 1))],
    )
    plain = _grpo().advantages(batch)
    assert [a.tolist() for a in GiGPO(GiGPOSettings(step_weight=0.0), _config()).advantages(batch)] == [
        a.tolist() for a in plain
    ]


def test_anchors_are_what_turns_answer_and_penalties_stay_at_their_turn() -> None:
    trajectory = _trajectory(0, 8.0, (0.0, 1.0), ("start", "fridge", "end"))
    assert anchors(trajectory) == ["start", "fridge"]
    assert step_returns(trajectory, 0.5).tolist() == [4.0, 7.0]
    assert step_returns(_trajectory(0, 8.0, ()), 0.5).tolist() == []

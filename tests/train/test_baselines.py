"""The baselines: their losses by hand and by autograd, where they are GRPO, and what policies are asked."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from seedbench.errors import UsageError
from seedbench_trainers.base import Tokens
from seedbench_trainers.config import TrainConfig
from seedbench_trainers.distillation import GatedSettings
from seedbench_trainers.losses import reduce_term
from seedbench_trainers.methods.grpo import GRPO, GRPOSettings
from seedbench_trainers.methods.grpo_opsd import GRPOOPSD, GRPOOPSDSettings
from seedbench_trainers.methods.opid import OPID, OPIDSettings
from seedbench_trainers.methods.opsd import OPSD
from seedbench_trainers.methods.rlsd import RLSD, RLSDSettings
from seedbench_trainers.methods.sdar import SDAR
from seedbench_trainers.methods.skill_grpo import SkillGRPO
from seedbench_trainers.methods.skill_sd import SkillSD, SkillSDSettings
from seedbench_trainers.skills.insertion import holds_skill
from seedbench_trainers.traces import read_traces
from tests.train.helpers import assert_same_weights, config, metric, numbers, run
from tests.train.teaching import fed, static_file, static_text, tokens, watched

LN2 = math.log(2)


def _config(**changes: Any) -> TrainConfig:
    return config("m", **changes)


def _given(teacher: float = 0.5) -> Tokens:
    """A solved token with Delta = ln(teacher / .25), a failed one with Delta = ln .5, and one without a skill."""
    return tokens(student=[[0.25, 0.5, 0.5]], teacher=[[teacher, 0.25, 1.0]], distil=[[1, 1, 0]],
                  advantage=[[1.0, -2.0, 1.0]])  # fmt: skip


def _slope(value: torch.Tensor, given: Tokens) -> list[float]:
    (slope,) = torch.autograd.grad((value * given.signals["distil"]).sum(), given.logprobs)
    return list(map(float, slope[0]))


def test_sdar_is_seed_with_static_skills() -> None:
    method = SDAR(GatedSettings(beta=1.0), _config())
    given = _given()
    values = method.loss(given)["distil"]
    assert values[0, :2].tolist() == pytest.approx([2 / 3 * LN2, -1 / 3 * LN2])
    assert _slope(values, given) == pytest.approx([-2 / 3, -1 / 3, 0.0])
    assert (method.settings.skill, GatedSettings().beta, GatedSettings().weight) == ("static", 5.0, 0.01)


def test_opsd_has_no_policy_term() -> None:
    weights = {term.name: term.weight for term in OPSD(OPSD.Settings(), _config()).terms()}
    assert weights == {"kl": 0.01, "distil": 0.01}
    with pytest.raises(UsageError, match=r"method\.weight must be above 0"):
        OPSD(GatedSettings(weight=0.0), _config())


def test_as_published_has_one_gradient_for_every_teacher() -> None:
    method = GRPOOPSD(GRPOOPSDSettings(form="as_published"), _config())
    slopes = []
    for teacher in (0.5, 0.01, 0.9):
        given = _given(teacher)
        values = method.loss(given)["distil"]
        assert values[0, 0].item() == pytest.approx(0.5 * math.log(teacher / 0.25))
        slopes.append(_slope(0.01 * values, given))
    assert slopes[0] == slopes[1] == slopes[2] == pytest.approx([-0.005, -0.005, 0.0])


def test_reverse_kl_follows_the_teacher() -> None:
    """d/dl of sg[l_S - l_T] l_S is l_S - l_T: ln 1/2 where the teacher is twice as sure, ln 2 where half."""
    method = GRPOOPSD(GRPOOPSDSettings(form="reverse_kl"), _config())
    given = _given()
    assert _slope(method.loss(given)["distil"], given) == pytest.approx([-LN2, LN2, 0.0])
    other = _given(0.25)
    assert _slope(method.loss(other)["distil"], other) == pytest.approx([0.0, LN2, 0.0])


def test_reverse_kl_is_the_gradient_of_the_divergence() -> None:
    """Summed over all tokens of a distribution by their probability, it is the exact gradient of KL(pi || teacher)."""
    logits = torch.tensor([0.3, -1.0, 0.8, 0.0], dtype=torch.float64, requires_grad=True)
    teacher = torch.log_softmax(torch.tensor([1.0, 0.2, -0.5, 0.1], dtype=torch.float64), 0)
    student = torch.log_softmax(logits, 0)
    exact = torch.autograd.grad((student.exp() * (student - teacher)).sum(), logits, retain_graph=True)[0]
    signals = {"advantage": torch.zeros(1, 4), "ref": student.detach()[None], "teacher": teacher[None]}
    given = Tokens(student[None], student.detach()[None], torch.ones(1, 4), None, signals)
    values = GRPOOPSD(GRPOOPSDSettings(), _config()).loss(given)["distil"]
    sampled = torch.autograd.grad((student.detach().exp() * values[0]).sum(), logits)[0]
    torch.testing.assert_close(sampled, exact)


def test_skill_sd_by_hand() -> None:
    """rho = 2 and 1; e = ln 1/2 and ln 2, so that exp(-e) - 1 + e is 1 - ln 2 and ln 2 - 1/2."""
    given = tokens(student=[[0.25, 0.5]], teacher=[[0.5, 0.25]], distil=[[1, 1]], old=[[0.125, 0.5]])
    method = SkillSD(SkillSDSettings(), _config())
    values = method.loss(given)["distil"]
    assert values[0].tolist() == pytest.approx([2 * (1 - LN2), LN2 - 0.5], abs=1e-6)
    # d/dl of rho k: rho k + rho (1 - exp(-e)), as exp(-e) = 2 and 1/2.
    expected = [2 * (1 - LN2) + 2 * (1 - 2.0), (LN2 - 0.5) + (1 - 0.5)]
    assert _slope(values, given) == pytest.approx(expected, abs=1e-6)
    assert [t.weight for t in method.terms() if t.name == "distil"] == [0.001]


def test_skill_sd_clamps() -> None:
    """e = -25 is cut to -20, exp(20) to 10; a log-ratio of 30 to 20. Cut values have no gradient of their own."""
    student = torch.tensor([[-30.0, -1.0]], requires_grad=True)
    values = _skill_sd(student, old=[[-30.0, -31.0]], teacher=[[-5.0, -1.0]])
    assert values[0].tolist() == pytest.approx([10.0, 0.0])
    (slope,) = torch.autograd.grad(values.sum(), student)
    assert slope[0].tolist() == pytest.approx([10.0, 0.0])  # through rho alone; then k = 0 and its slope is 0
    wide = _skill_sd(torch.tensor([[-1.0]]), old=[[-31.0]], teacher=[[-2.0]])
    assert wide.item() / math.exp(-1.0) == pytest.approx(math.exp(20.0), rel=1e-5)  # k3 at e = 1 is exp(-1)


def _skill_sd(student: torch.Tensor, old: list[list[float]], teacher: list[list[float]]) -> torch.Tensor:
    """Values of Skill-SD's term for log-probabilities."""
    signals = {"advantage": torch.zeros_like(student), "ref": student.detach(), "teacher": torch.tensor(teacher)}
    given = Tokens(student, torch.tensor(old), torch.ones_like(student).detach(), None, signals)
    return SkillSD(SkillSDSettings(), _config()).loss(given)["distil"]


def test_rlsd_scales_advantages_by_hand() -> None:
    """lam = .5. Token 1: A = 1, exp(Delta) = 2 cut to 1.2; token 2: A = -2, exp(-Delta) = 2 cut to 1.2; no skill: A."""
    method = RLSD(RLSDSettings(), _config())
    assert method.token_advantage(_given())[0].tolist() == pytest.approx([1.1, -2.2, 1.0])
    assert method.token_advantage(_given(0.125))[0, 0].item() == pytest.approx(0.9)  # exp(ln 1/2) cut to .8
    assert method.token_advantage(_given(0.275))[0, 0].item() == pytest.approx(1.05)  # exp(ln 1.1) is inside
    assert not method.token_advantage(_given()).requires_grad


def test_rlsd_lam_falls_linearly_to_zero() -> None:
    method = RLSD(RLSDSettings(), _config())
    found = []
    for iteration in (0, 50, 99, 100, 149):
        method._iteration = iteration
        found.append((method.lam, method.teaches, method.fresh))
    assert [lam for lam, _, _ in found] == pytest.approx([0.5, 0.25, 0.005, 0.0, 0.0])
    assert [teaches for _, teaches, _ in found] == [True, True, True, False, False]
    assert [fresh for _, _, fresh in found] == [("teacher",)] * 3 + [()] * 2


def test_opid_adds_delta_by_hand() -> None:
    method = OPID(OPIDSettings(weight=0.1), _config())
    assert method.token_advantage(_given())[0].tolist() == pytest.approx([1 + 0.1 * LN2, -2 - 0.1 * LN2, 1.0])
    assert not method.token_advantage(_given()).requires_grad
    assert (OPIDSettings().weight, OPIDSettings().skill) == (0.001, "rules")


@pytest.mark.parametrize("kind", [RLSD, OPID])
def test_their_terms_are_grpos(kind: type[RLSD | OPID]) -> None:
    assert kind(kind.Settings(), _config()).terms() == GRPO(GRPOSettings(), _config()).terms()


def test_the_scaled_advantage_enters_the_clipped_objective() -> None:
    """Ratio 2 and advantage 1.1: the loss is -1.2 * 1.1, as a GRPO of that advantage has it."""
    given = tokens(student=[[0.25]], teacher=[[0.5]], distil=[[1]], old=[[0.125]], advantage=[[1.0]])
    assert RLSD(RLSDSettings(), _config()).loss(given)["policy"].item() == pytest.approx(-1.2 * 1.1)


def test_distilled_tokens_alone_are_averaged_over() -> None:
    """Two of three tokens have a skill; each of the two counts one half, whatever the batch's other tokens."""
    given = _given()
    method = GRPOOPSD(GRPOOPSDSettings(form="as_published"), _config())
    (term,) = (term for term in method.terms() if term.name == "distil")
    total, count = reduce_term(method.loss(given)["distil"], given.signals[term.mask] * given.mask, term.average)
    assert count.item() == 2
    assert total.item() == pytest.approx(0.5 * LN2 - 0.5 * LN2)


# Whole runs on the trivial suite


@pytest.mark.parametrize(
    ("method", "options"),
    [("rlsd", {"lam": 0.0}), ("opid", {"weight": 0.0}), ("sdar", {"weight": 0.0}), ("skill_sd", {"weight": 0.0})],
)
def test_without_influence_they_are_grpo_bit_for_bit(
    model: Path, tmp_path: Path, method: str, options: dict[str, Any]
) -> None:
    plain = run(config(model, updates=2, protocol="choose-3"), tmp_path / "grpo")
    other = run(config(model, updates=2, protocol="choose-3", method=method, options=options), tmp_path / method)
    assert_same_weights(plain, other)
    assert numbers(plain.parent) == numbers(other.parent)


@pytest.mark.parametrize("method", ["grpo_opsd", "opid", "opsd", "rlsd", "sdar", "seed", "skill_grpo", "skill_sd"])
def test_every_method_runs_by_name_and_keeps_the_skill(model: Path, tmp_path: Path, method: str) -> None:
    options: dict[str, Any] = {"skill": static_file(tmp_path), "skill_position": "end"}
    settings = config(model, method=method, protocol="chat", updates=1, options=options, validate=True, seed=2)
    with watched() as batches:
        run(settings, tmp_path / "run")
    assert metric(tmp_path / "run", "optim/grad_norm")[0] > 0
    for batch in batches:
        for trajectory in batch.trajectories:
            assert trajectory.notes["skill"] == static_text(trajectory.episode.family)
        assert len(batch.samples) == len(batch.trajectories)  # a conversation is one sample
    assert len(batches) == (method != "skill_grpo")


def test_skill_grpo_asks_with_the_skill_in_training_alone(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = fed(monkeypatch)
    prompt = SkillGRPO.prompt
    rewritten: list[Any] = []

    def kept(self: SkillGRPO, task: Any, messages: Any) -> Any:
        rewritten.append(prompt(self, task, messages))
        return rewritten[-1]

    monkeypatch.setattr(SkillGRPO, "prompt", kept)
    settings = config(
        model, method="skill_grpo", protocol="choose-3", updates=1, validate=True,
        options={"skill": static_file(tmp_path), "skill_position": "end"},
    )  # fmt: skip
    run(settings, tmp_path / "run")
    assert len(rewritten) == 16 * 3
    assert all(map(holds_skill, rewritten))
    training = [messages for messages in asked if holds_skill(messages)]
    assert sorted(map(repr, training)) == sorted(map(repr, rewritten))
    assert len(asked) - len(training) == 2 * 8 * 3  # two validations
    assert metric(tmp_path / "run", "policy/parity")[0] < 1e-4  # what was scored is what was asked
    traces = read_traces(tmp_path / "run", 1)
    assert len(traces) == 4
    assert all(trace.notes["skill"] == static_text(trace.episode.family) for trace in traces)

"""SEED's stage 2: the distillation term by hand and by autograd, and whole runs of it on the trivial suite."""

from pathlib import Path
from typing import Any

import pytest
import torch

from seedbench.errors import UsageError
from seedbench.evaluate import evaluate
from seedbench.runs import read_episodes
from seedbench_trainers import validation
from seedbench_trainers.base import Tokens
from seedbench_trainers.losses import reduce_term
from seedbench_trainers.methods.seed import SEED, SEEDSettings
from seedbench_trainers.records import Batch
from seedbench_trainers.skills.insertion import holds_skill
from tests.train import helpers
from tests.train.helpers import assert_same_weights, config, metric, run
from tests.train.teaching import NO_STAGE1, fed, grpo_numbers, static_file, static_text, tokens, watched


def _seed(**settings: Any) -> SEED:
    return SEED(SEEDSettings(**settings), config("m", method="seed", options={**NO_STAGE1, **settings}))


def _term(method: SEED, given: Tokens) -> torch.Tensor:
    """The distillation term as the update reduces it, without its weight."""
    total, count = reduce_term(method.loss(given)["distil"], given.signals["distil"] * given.mask, "token")
    return total / count.clamp_min(1)


# The term


def test_the_term_by_hand() -> None:
    """Three distilled tokens. Delta = ln 2, ln 1/2 and 0; with beta = 1 the gates are 2/3, 1/3 and 1/2."""
    given = tokens(student=[[0.25, 0.5, 0.5], [0.5, 0.5, 1.0]], teacher=[[0.5, 0.25, 0.5], [0.9, 0.5, 1.0]],
                   distil=[[1, 1, 1], [0, 0, 0]])  # fmt: skip
    method = _seed(beta=1.0, kl_coefficient=0.0)
    values = method.loss(given)["distil"]
    ln2 = torch.log(torch.tensor(2.0)).item()
    assert values[0].tolist() == pytest.approx([2 / 3 * ln2, -1 / 3 * ln2, 0.0])
    assert _term(method, given).item() == pytest.approx((2 / 3 - 1 / 3) * ln2 / 3)
    assert [(term.name, term.weight, term.mask) for term in method.terms()] == [
        ("policy", 1.0, ""), ("distil", 0.01, "distil"),
    ]  # fmt: skip


def test_the_gradient_is_gate_weighted_negative_log_likelihood() -> None:
    """-mean(m g grad l), and nothing through the gate or the teacher, for any beta."""
    given = tokens(student=[[0.25, 0.5, 0.5], [0.5, 0.5, 1.0]], teacher=[[0.5, 0.25, 0.5], [0.9, 0.5, 1.0]],
                   distil=[[1, 1, 0], [1, 0, 0]])  # fmt: skip
    for beta in (0.5, 5.0):
        student = given.logprobs
        (slope,) = torch.autograd.grad(_term(_seed(beta=beta), given), student)
        delta = given.signals["teacher"] - student.detach()
        expected = -torch.sigmoid(beta * delta) * given.signals["distil"] / 3
        torch.testing.assert_close(slope, expected)


def test_no_gradient_flows_through_the_gate() -> None:
    """With a gate that followed the student, the slope would hold (1 - g) g beta Delta as well."""
    given = tokens(student=[[0.2]], teacher=[[0.6]], distil=[[1]])
    (slope,) = torch.autograd.grad(_term(_seed(beta=5.0), given), given.logprobs)
    gate = 1 / (1 + 3.0**-5)  # Delta = ln 3
    assert slope.item() == pytest.approx(-gate)
    open_gate = torch.sigmoid(5.0 * (given.signals["teacher"] - given.logprobs))
    (through,) = torch.autograd.grad((open_gate * (given.signals["teacher"] - given.logprobs)).sum(), given.logprobs)
    assert abs(through.item() - slope.item()) > 0.01


def test_an_uninformative_skill_halves_the_likelihood() -> None:
    """Delta = 0: value 0, gradient that of half the negative log-likelihood."""
    given = tokens(student=[[0.2, 0.7], [0.9, 0.4]], teacher=[[0.2, 0.7], [0.9, 0.4]], distil=[[1, 1], [1, 1]])
    term = _term(_seed(), given)
    (slope,) = torch.autograd.grad(term, given.logprobs)
    (likelihood,) = torch.autograd.grad(-given.logprobs.mean(), given.logprobs)
    assert term.item() == 0.0
    torch.testing.assert_close(slope, 0.5 * likelihood)


def test_without_a_skill_nothing_is_distilled() -> None:
    given = tokens(student=[[0.2, 0.7]], teacher=[[1.0, 1.0]], distil=[[0, 0]])
    (slope,) = torch.autograd.grad(_term(_seed(), given), given.logprobs)
    assert slope.tolist() == [[0.0, 0.0]]


def test_styles_of_the_two_stages_must_agree() -> None:
    with pytest.raises(UsageError, match=r"stage 1 teaches the analysis prompt 'full', and stage 2 asks with 'brief'"):
        SEED(SEEDSettings(analysis_style="brief"), config("m", method="seed", options=NO_STAGE1))
    with pytest.raises(UsageError, match=r"unknown source of skills 'onw': did you mean 'own'\? Known: a TOML file"):
        SEED(SEEDSettings(skill="onw"), config("m", method="seed", options=NO_STAGE1))


# Whole runs


def test_with_weight_zero_it_is_grpo_bit_for_bit(model: Path, tmp_path: Path) -> None:
    plain = run(config(model, updates=2, protocol="choose-3"), tmp_path / "grpo")
    none = run(
        config(model, updates=2, protocol="choose-3", method="seed", options={**NO_STAGE1, "weight": 0.0}),
        tmp_path / "seed",
    )
    assert_same_weights(plain, none)
    assert helpers.numbers(none.parent) == helpers.numbers(plain.parent)


def test_analyses_that_cannot_be_read_distil_nothing(model: Path, tmp_path: Path) -> None:
    """An untrained model writes no JSON: with any weight the run is GRPO's, and the log says why."""
    options = {**NO_STAGE1, "weight": 100.0, "analysis_tokens": 4, "analysis_style": "brief"}
    plain = run(config(model, updates=2, protocol="choose-3"), tmp_path / "grpo")
    unread = run(config(model, updates=2, protocol="choose-3", method="seed", options=options), tmp_path / "seed")
    assert_same_weights(plain, unread)
    assert metric(unread.parent, "skill/parsed") == [0.0, 0.0]
    assert metric(unread.parent, "loss/distil") == [0.0, 0.0]
    assert metric(unread.parent, "gradient/distil") == [0.0, 0.0]
    assert metric(unread.parent, "skill/asked") == [16.0, 16.0]


def test_a_skill_changes_the_run_and_its_figures_are_logged(model: Path, tmp_path: Path) -> None:
    plain = run(config(model, updates=1, protocol="choose-3"), tmp_path / "grpo")
    with watched() as batches:
        run(
            config(model, updates=1, protocol="choose-3", method="seed", options={"skill": "rules", "weight": 1.0}),
            tmp_path / "seed",
        )
    (batch,) = batches
    weights = [helpers.weights(folder) for folder in (plain, tmp_path / "seed" / "final")]
    assert any(not torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    deltas = torch.cat([torch.tensor(s.signals["teacher"] - s.logprobs) for s in batch.samples])
    assert metric(tmp_path / "seed", "teacher/delta") == [pytest.approx(deltas.mean().item(), abs=1e-6)]
    assert metric(tmp_path / "seed", "teacher/open") == [pytest.approx((deltas > 0).float().mean().item(), abs=1e-6)]
    assert metric(tmp_path / "seed", "teacher/gate") == [
        pytest.approx(torch.sigmoid(5 * deltas).mean().item(), abs=1e-5)
    ]
    (record,) = grpo_numbers(tmp_path / "seed")
    episodes = [trajectory.episode for trajectory in batch.trajectories]
    assert {episode.success for episode in episodes} == {True, False}
    for part in ("solved", "unsolved", *(episode.family for episode in episodes)):
        assert record[f"skill/parsed/{part}"] == 1.0
        assert record[f"teacher/delta/{part}"] == pytest.approx(_mean_delta(batch, part), abs=1e-6)
    assert record["skill/words"] > 3
    assert record["gradient/distil"] > 0
    assert record["gradient/policy"] > 0


def _mean_delta(batch: Batch, part: str) -> float:
    """Over tokens of trajectories of an outcome or a family."""
    kept = []
    for sample in batch.samples:
        episode = batch.trajectories[sample.trajectory].episode
        if part in ("solved" if episode.success else "unsolved", episode.family):
            kept.append(torch.tensor(sample.signals["teacher"] - sample.logprobs))
    return torch.cat(kept).mean().item()


def test_snapshot_and_current_teacher_are_one_at_the_first_step(model: Path, tmp_path: Path) -> None:
    """One optimiser step: equal. From the second step on the current teacher has moved."""
    options = {"skill": "rules", "weight": 1.0}
    found: dict[tuple[str, int], Any] = {}
    for teacher in ("current", "snapshot"):
        for epochs in (1, 2):
            settings = config(
                model, method="seed", protocol="choose-3", updates=1, update={"epochs": epochs}, rollout={"tasks": 2},
                options={**options, "teacher": teacher},
            )  # fmt: skip
            found[teacher, epochs] = helpers.weights(run(settings, tmp_path / f"{teacher}-{epochs}"))

    def apart(epochs: int) -> float:
        one, other = found["current", epochs], found["snapshot", epochs]
        return max(float((one[name] - other[name]).abs().max()) for name in one)

    assert apart(1) < 1e-5
    assert apart(2) > 1e-4


def test_no_skill_reaches_a_plain_prompt(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training's own prompts and everything that a validation asks are plain; the teacher's prompts are not."""
    asked = fed(monkeypatch)
    settings = config(
        model, validate=True, method="seed", protocol="choose-3", updates=2, options={"skill": "rules", "weight": 1.0}
    )
    with watched() as batches:
        run(settings, tmp_path / "run")
    prompts = [prompt for batch in batches for t in batch.trajectories for prompt in t.prompts]
    assert len(prompts) == 2 * 16 * 3
    assert not any(map(holds_skill, prompts))
    assert all("teacher" in sample.contexts for batch in batches for sample in batch.samples)
    assert asked
    assert not any(map(holds_skill, asked))
    prompts = [turn.prompt for episode in _evaluated(settings, tmp_path) for turn in episode.turns]
    assert len(prompts) == 8 * 3
    assert all(prompts)
    assert not any(map(holds_skill, prompts))


def _evaluated(settings: Any, folder: Path) -> Any:
    """The trained policy's episodes under `eval --keep-prompts`."""
    import dataclasses

    from seedbench.policies.transformers_ import TransformersPolicy
    from seedbench.protocol import load_protocol
    from seedbench.ui.live import Progress

    policy = TransformersPolicy(str(folder / "run" / "final"), device="cpu", dtype="float32")
    job = validation.evaluation(settings, load_protocol("echo/choose-3"), policy, folder / "eval")
    evaluate(dataclasses.replace(job, keep_prompts=True), Progress())
    return read_episodes(folder / "eval")


def test_the_ablation_with_static_skills_reads_a_file(model: Path, tmp_path: Path) -> None:
    with watched() as batches:
        options = {"skill": static_file(tmp_path), "weight": 1.0}
        run(config(model, method="seed", protocol="choose-3", updates=1, options=options), tmp_path / "run")
    assert all(t.notes["skill"] == static_text(t.episode.family) for t in batches[0].trajectories)
    assert not (tmp_path / "run" / "stage1").exists()

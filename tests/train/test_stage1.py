"""Stage 1: the run that it makes, its samples and loss, and the whole of SEED in one command on the trivial suite."""

import json
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from seedbench.errors import SeedBenchError, UsageError
from seedbench.runs import read_episodes
from seedbench.types import Episode
from seedbench_trainers.base import Tokens
from seedbench_trainers.methods.seed import SEED, SEEDSettings
from seedbench_trainers.methods.skill_sft import SkillSFT, to_sample
from seedbench_trainers.skills.analysis import Analysis, analysis_prompt, parse_analysis
from seedbench_trainers.skills.annotate import annotated, read_annotations
from seedbench_trainers.skills.insertion import skill_block
from seedbench_trainers.skills.rules import analyse
from seedbench_trainers.stage1 import Annotated, Stage1, is_stage1, stage1_config
from tests.train import helpers
from tests.train.episodes import episode
from tests.train.helpers import config, metric, read, run

SMALL: dict[str, Any] = {"tasks": 4, "repeats": 2, "style": "brief"}
STAGE1: dict[str, Any] = {**SMALL, "epochs": 2.0, "lr": 1e-3, "mini_batch": 4, "holdout": 0.25}
SEED_OPTIONS: dict[str, Any] = {"analysis_style": "brief", "analysis_tokens": 4, "stage1": STAGE1}


def _sft(model: Path, **changes: Any) -> Any:
    options = changes.pop("options", {})
    return config(
        model, method="skill_sft", protocol="choose-3", options={**SMALL, **options},
        **{"updates": 2, "update": {"mini_batch": 4}, **changes},
    )  # fmt: skip


# The stage's configuration


def test_updates_are_passes_over_what_is_left_to_train_on(suite: Any) -> None:
    """4 games x 2 less a quarter held out are 6; with half of the samples acting 12; two passes in fours."""
    base = config("m", method="seed", options=SEED_OPTIONS)
    made = stage1_config(base, Stage1(**STAGE1), "start")
    assert made.updates == 2 * 6 // 4
    assert stage1_config(base, Stage1(**{**STAGE1, "acting": 0.5}), "start").updates == 2 * 12 // 4
    assert (made.method, made.model, made.update.mini_batch, made.optimiser.lr) == ("skill_sft", "start", 4, 1e-3)
    assert made.warmstart.updates == 0
    assert (made.data, made.seed, made.protocol) == (base.data, base.seed, base.protocol)
    assert made.options["style"] == "brief"
    # No more games than there are: 12, of which a quarter is 3.
    assert stage1_config(base, Stage1(holdout=0.0, mini_batch=1, epochs=1.0), "start").updates == 12 * 8
    part = config("m", method="seed", options=SEED_OPTIONS, data={"fraction": 0.25})
    assert stage1_config(part, Stage1(holdout=0.0, mini_batch=1, epochs=1.0), "start").updates == 3 * 8
    # A share of the draws is stage 2's alone.
    drawn = config("m", method="seed", options=SEED_OPTIONS, updates=10, data={"fraction": 0.2, "reading": "draws"})
    made = stage1_config(drawn, Stage1(**STAGE1), "start")
    assert made.planned_updates == made.updates == 3


def test_collected_episodes_decide_the_updates(model: Path, tmp_path: Path) -> None:
    run(_sft(model), tmp_path)
    stage = Stage1(collected=str(tmp_path / "rollouts"), holdout=0.0, mini_batch=1, epochs=1.0)
    assert stage1_config(config(model, method="seed", options=SEED_OPTIONS), stage, "start").updates == 8
    with pytest.raises(UsageError, match="holds no episode log"):
        stage1_config(config(model, method="seed", options=SEED_OPTIONS), Stage1(collected=str(tmp_path)), "start")


@pytest.mark.parametrize(
    ("options", "stages"), [({}, 1), ({"stage1": {**STAGE1, "run": False}}, 0), ({"skill": "rules"}, 0)]
)
def test_when_it_is_run(suite: Any, tmp_path: Path, options: dict[str, Any], stages: int) -> None:
    asked: list[Any] = []

    def train(config: Any, folder: str) -> str:
        asked.append((config.method, folder))
        return "trained"

    settings = config("m", method="seed", options={**SEED_OPTIONS, **options})
    method = SEED(SEEDSettings.model_validate(settings.options), settings)
    assert method.prepare("m", train) == ("trained" if stages else "m")
    assert asked == [("skill_sft", "stage1")] * stages
    (tmp_path / "seedbench.json").write_text(json.dumps({"method": "skill_sft"}))
    assert method.prepare(str(tmp_path), train) == str(tmp_path)  # it was done before
    assert len(asked) == stages


@pytest.mark.parametrize("content", ["", "{", "[]", '{"method": "sft"}', None])
def test_what_is_no_result_of_stage_one(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "seedbench.json").write_text(content)
    assert not is_stage1(tmp_path)


# Samples and loss


def test_a_sample_is_the_analysis_prompt_and_the_annotation(model: Path) -> None:
    from seedbench.policies.checkpoint import locate
    from seedbench.policies.loading import load
    from seedbench.policies.prompts import PromptTokens

    loaded = load(locate(str(model)), device="cpu", dtype="float32")
    prompts = PromptTokens(loaded.tokenizer, loaded.template, name="tiny", eos=loaded.eos)
    tools: Any = SimpleNamespace(loaded=loaded, encode=lambda messages: tuple(prompts.encode(messages)))
    played, analysis = episode([("left", "say right")]), Analysis("it failed", "say right")
    sample = to_sample(played, analysis, "brief", tools)
    ((start, end),) = sample.spans
    assert tuple(sample.ids[:start]) == tools.encode(analysis_prompt(played, style="brief"))
    assert (end, sample.ids[-1]) == (len(sample.ids), loaded.tokenizer.eos_token_id)
    assert parse_analysis(loaded.tokenizer.decode(sample.ids[start : end - 1])) == analysis
    assert sample.allowed == ()


def test_the_loss_is_the_mean_negative_log_likelihood(suite: Any) -> None:
    method = SkillSFT(Annotated(), config("m", method="skill_sft"))
    logprobs = torch.tensor([[-1.0, -3.0]], requires_grad=True)
    values = method.loss(Tokens(logprobs, torch.zeros(1, 2), torch.ones(1, 2), None, {}))
    assert values["nll"].tolist() == [[1.0, 3.0]]
    assert values["probability"][0].tolist() == pytest.approx([np.exp(-1.0), np.exp(-3.0)])
    assert [(term.name, term.weight, term.mask, term.average) for term in method.terms()] == [("nll", 1.0, "", "token")]
    with pytest.raises(UsageError, match="more passes over the annotations are more updates"):
        config("m", method="skill_sft", update={"epochs": 2})


@pytest.mark.parametrize(("method", "options"), [("skill_sft", {"collected": "/nowhere"}),
                                                 ("seed", {"stage1": {"collected": "/nowhere"}})])  # fmt: skip
def test_what_was_collected_is_looked_for_before_anything_is_trained(method: str, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="'/nowhere', which stage 1 is to learn from, is no run folder"):
        config("m", method=method, options=options)


# The stage alone


def test_collect_annotate_learn(model: Path, tmp_path: Path) -> None:
    """Four games twice, all annotated by the rules; a quarter is held out; the loss falls on both parts."""
    final = run(_sft(model, updates=51, options={"holdout": 0.25}), tmp_path)
    episodes = list(read_episodes(tmp_path / "rollouts"))
    assert len(episodes) == 8
    assert {e.family for e in episodes} == set(helpers.FAMILIES.values())
    assert len(read_annotations(tmp_path / "rollouts")) == len(annotated(tmp_path / "rollouts")) == 8
    assert is_stage1(final)
    losses, held_out = metric(tmp_path, "loss/nll"), metric(tmp_path, "holdout/nll")
    assert len(held_out) == 2  # before the first and before the last update
    assert losses[-1] < 0.8 * losses[0]
    assert held_out[1] < 0.9 * held_out[0]
    assert metric(tmp_path, "demonstrations/tokens")[0] > 4 * 5  # two keys, two texts, the end


def test_held_out_trajectories_are_not_trained_on(model: Path, tmp_path: Path) -> None:
    batches = _gathered(model, tmp_path, {"holdout": 0.25}, updates=6)
    trained = {sample.ids.tobytes() for batch in batches for sample in batch.samples}
    held_out = {sample.ids.tobytes() for sample in batches[0].method._held_out}
    assert (len(batches[0].method._held_out), len(batches[0].method._data.samples)) == (2, 6)
    everything = {sample.ids.tobytes() for sample in batches[0].method._data.samples}
    assert trained == everything
    # Two episodes of the tiny suite may be alike, and one of them held out; but not both.
    assert held_out - trained


def test_acting_is_mixed_in(model: Path, tmp_path: Path) -> None:
    """Half of the samples are turns of demonstrations, with the choices that the protocol allows."""
    batches = _gathered(model, tmp_path, {"holdout": 0.25, "acting": 0.5, "acting_noise": 0.0}, updates=1)
    data = batches[0].method._data
    acting = [sample for sample in data.samples if sample.allowed]
    assert (len(data.samples), len(acting)) == (12, 6)
    for sample in acting:
        played = data.trajectories[sample.trajectory].episode
        assert played.success
        assert len(played.turns) == 3
    assert all(not sample.signals for sample in data.samples)


@pytest.mark.parametrize(("share", "skilled"), [(0.0, 0), (0.5, 4), (1.0, 8)])
def test_a_share_of_the_acting_stands_behind_the_rules_skill(
    model: Path, tmp_path: Path, share: float, skilled: int
) -> None:
    options = {"holdout": 0.0, "acting": 0.5, "acting_noise": 0.0}
    plain = _acting(model, tmp_path / "plain", options)
    told = _acting(model, tmp_path / "told", {**options, "acting_skill": share})
    assert len(told) == len(plain) == 8
    tokenizer = AutoTokenizer.from_pretrained(model)
    changed = 0
    for (before, _), (after, played) in zip(plain, told, strict=True):
        # The response and the choices that it had are the same, whatever stands before.
        assert [after.ids[a:b].tolist() for a, b in after.spans] == [before.ids[a:b].tolist() for a, b in before.spans]
        assert after.allowed == before.allowed
        if after.ids.tobytes() != before.ids.tobytes():
            changed += 1
            skill = analyse(played, None, played.family).skill
            block = tokenizer(f"\n{skill_block(skill)}", add_special_tokens=False)["input_ids"]
            ids, longer = before.ids.tolist(), after.ids.tolist()
            assert any(longer == [*ids[:at], *block, *ids[at:]] for at in range(len(ids)))
    assert changed == skilled


def test_a_skill_that_makes_a_sample_too_long_is_left_out(model: Path, tmp_path: Path) -> None:
    options = {"holdout": 0.0, "acting": 0.5, "acting_noise": 0.0}
    plain = _acting(model, tmp_path / "plain", options)
    # The annotations may have any length, the acting samples no more than the shortest has without a skill.
    limits = chain([8192], repeat(min(len(sample.ids) for sample, _ in plain)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SkillSFT, "_limit", lambda self, tools: next(limits))
        told = _acting(model, tmp_path / "told", {**options, "acting_skill": 1.0})
    assert [sample.ids.tolist() for sample, _ in told] == [sample.ids.tolist() for sample, _ in plain]


def _acting(model: Path, out: Path, options: dict[str, Any]) -> list[tuple[Any, Episode]]:
    """Acting samples of the stage, with their episodes."""
    data = _gathered(model, out, options, updates=1)[0].method._data
    return [(sample, data.trajectories[sample.trajectory].episode) for sample in data.samples if sample.allowed]


def test_samples_that_are_too_long_are_left_out_and_told_of(model: Path, tmp_path: Path) -> None:
    with pytest.raises(SeedBenchError, match=r"no annotated trajectory to learn from: .* or raise max_length \(20\)"):
        run(_sft(model, options={"max_length": 20}), tmp_path)


class _Batches(list[Any]):
    """Batches that a method gathered, each with the method."""


def _gathered(model: Path, out: Path, options: dict[str, Any], updates: int) -> list[Any]:
    gather, batches = SkillSFT.gather, _Batches()

    def kept(self: SkillSFT, tools: Any, iteration: int) -> Any:
        batch = gather(self, tools, iteration)
        batches.append(SimpleNamespace(samples=list(batch.samples), method=self))
        return batch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SkillSFT, "gather", kept)
        run(_sft(model, updates=updates, options=options), out)
    return batches


# SEED, both stages


def test_both_stages_in_one_run(model: Path, tmp_path: Path) -> None:
    final = run(config(model, method="seed", protocol="choose-3", updates=1, options=SEED_OPTIONS), tmp_path)
    stage = tmp_path / "stage1"
    assert is_stage1(stage / "final")
    assert not is_stage1(final)
    assert read(stage / "training.json")["settings"]["updates"] == 3
    assert len(metric(stage, "loss/nll")) == 3
    assert metric(tmp_path, "skill/asked") == [16.0]
    start = helpers.weights(stage / "final")
    assert any(not torch.equal(start[name], value) for name, value in helpers.weights(final).items())


def test_the_reference_is_the_policy_after_stage_one(model: Path, tmp_path: Path) -> None:
    """Before the first step the KL penalty is 0: were the reference the untrained model, it would not be."""
    run(config(model, method="seed", protocol="choose-3", updates=1, options=SEED_OPTIONS), tmp_path)
    assert metric(tmp_path, "loss/kl") == [pytest.approx(0.0, abs=1e-9)]
    before, after = helpers.weights(model), helpers.weights(tmp_path / "stage1" / "final")
    assert max(float((before[name] - after[name]).abs().max()) for name in before) > 1e-4


@pytest.mark.parametrize("where", ["collecting", "annotating", "training"])
def test_an_interrupted_stage_goes_on_where_it_stopped(model: Path, tmp_path: Path, where: str) -> None:
    """The result is that of a run that never stopped, and nothing is played or annotated twice."""
    settings = _sft(model, updates=4, checkpoints={"every": 2})
    whole = run(settings, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        _interrupt(patch, where)
        with pytest.raises(KeyboardInterrupt):
            run(settings, tmp_path / "broken")
    episodes = len(list(read_episodes(tmp_path / "broken" / "rollouts")))
    assert episodes == {"collecting": 3, "annotating": 8, "training": 8}[where]
    again = run(settings, tmp_path / "broken")
    logged = [e.key for e in read_episodes(tmp_path / "broken" / "rollouts")]
    notes = [note.key for note in read_annotations(tmp_path / "broken" / "rollouts")]
    assert len(logged) == len(set(logged)) == len(notes) == len(set(notes)) == 8
    helpers.assert_same_weights(whole, again)


def _interrupt(patch: pytest.MonkeyPatch, where: str) -> None:
    """Press Ctrl-C in the fourth episode, annotation or update."""
    from seedbench.runs import Run
    from seedbench_trainers.skills import annotate
    from seedbench_trainers.update import Updater

    holder, name = {
        "collecting": (Run, "append"), "annotating": (annotate, "_append"), "training": (Updater, "update"),
    }[where]  # fmt: skip
    original, calls = getattr(holder, name), [0]

    def counted(*args: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == 4:
            raise KeyboardInterrupt
        return original(*args, **options)

    patch.setattr(holder, name, counted)

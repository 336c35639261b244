"""Stage 1 of SEED: SFT on (finished trajectory -> summary and skill), arXiv 2607.14777, section 3.

    L = -E sum_l log pi(s_l | x_tau, s_<l)          over the tokens of the annotation alone

Its first update collects roll-outs of the model that it starts from and has them annotated; both lie in the run folder
(`rollouts/` is a run of `seedbench eval`, `annotations.jsonl` stands in it) and are gone on with where they stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from seedbench.errors import SeedBenchError, UsageError
from seedbench.evaluate import Evaluation, evaluate
from seedbench.rollout import derive_seed
from seedbench.runs import MANIFEST, read_manifest
from seedbench.types import Episode
from seedbench.ui.live import Progress
from seedbench_trainers import base
from seedbench_trainers.config import TrainConfig
from seedbench_trainers.demonstrations import demonstrate
from seedbench_trainers.methods.sft import part, taken
from seedbench_trainers.records import Batch, Sample, Trajectory, in_context
from seedbench_trainers.skills.analysis import Analysis, Style, analysis_prompt, format_analysis
from seedbench_trainers.skills.analyzers import make_analyzer, oracle_plan
from seedbench_trainers.skills.annotate import annotate, annotated
from seedbench_trainers.skills.insertion import insert_skill
from seedbench_trainers.skills.rules import analyse
from seedbench_trainers.stage1 import Annotated, check_collected

if TYPE_CHECKING:
    import torch

_SPLIT_SEED = 2026
_HOLDOUT_EVERY = 50
"""Updates between measurements of the held-out loss."""


class SkillSFT(base.Method):
    """Teaches a policy to write hindsight skills about trajectories."""

    name: ClassVar[str] = "skill_sft"
    summary: ClassVar[str] = "SEED's stage 1: SFT on hindsight skills of collected trajectories (arXiv 2607.14777)"
    Settings: ClassVar[type[base.Settings]] = Annotated
    samples_policy: ClassVar[bool] = False
    settings: Annotated

    def __init__(self, settings: Any, config: TrainConfig) -> None:
        super().__init__(settings, config)
        if config.update.epochs != 1:
            raise UsageError("skill_sft: update.epochs must be 1; more passes over the annotations are more updates.")
        check_collected(self.settings)
        self._data: Batch | None = None
        self._held_out: list[Sample] = []
        self._iteration = 0

    def gather(self, tools: base.Tools, iteration: int) -> Batch:
        """The next samples of the annotated trajectories, and of acting demonstrations where they are mixed in.

        Raises SeedBenchError where nothing was annotated, and as `evaluate` and `annotate`.
        """
        self._iteration = iteration
        if self._data is None:
            self._data = self._prepared(tools)
        size = self.config.update.mini_batch or len(self._data.samples)
        return part(self._data, taken(len(self._data.samples), iteration * size, size, self.config.seed))

    def signals(self, batch: Batch, tools: base.Tools) -> base.Metrics:
        """Figures: tokens to learn, and from time to time the held-out loss in nats a token."""
        figures = {"demonstrations/tokens": float(sum(sample.length for sample in batch.samples))}
        if self._held_out and self._iteration % _HOLDOUT_EVERY == 0:
            figures["holdout/nll"] = float(-np.concatenate(tools.score(self._held_out)).mean())
        return figures

    def terms(self) -> Sequence[base.Term]:
        """One term: the negative log-likelihood, a mean over tokens."""
        return (base.Term("nll"),)

    def loss(self, tokens: base.Tokens) -> Mapping[str, torch.Tensor]:
        """-log pi of every response token, and the probability that the policy gives it."""
        return {"nll": -tokens.logprobs, "probability": tokens.logprobs.detach().exp()}

    def _prepared(self, tools: base.Tools) -> Batch:
        options, limit = self.settings, self._limit(tools)
        pairs = tools.once(lambda: self._pairs(tools))
        samples = [to_sample(episode, analysis, options.style, tools) for episode, analysis in pairs]
        fitting = [(pair[0], sample) for pair, sample in zip(pairs, samples, strict=True) if len(sample.ids) <= limit]
        data = Batch(
            [Trajectory(episode, number, (), 0.0, ()) for number, (episode, _) in enumerate(fitting)],
            [replace(sample, trajectory=number) for number, (_, sample) in enumerate(fitting)],
        )
        self._hold_out(data)
        tools.note(
            f"{len(data.samples):,} annotated trajectories to learn from, {len(self._held_out):,} held out,"
            f" {len(pairs) - len(fitting):,} left out: longer than {limit:,} tokens"
        )
        if not data.samples:
            raise SeedBenchError(
                "stage 1 has no annotated trajectory to learn from: look at the reasons in"
                f" '{self._folder(tools)}', or raise"
                f" max_length ({options.max_length})."
            )
        if options.acting:
            self._mix_in(data, tools)
        return data

    def _pairs(self, tools: base.Tools) -> list[tuple[Episode, Analysis]]:
        """The episodes that were annotated, and how: collected and annotated now where they are not yet."""
        options, folder = self.settings, self._collected(tools)
        annotate(folder, make_analyzer(options.analyzer, tools.panel, style=options.style), note=tools.note)
        # By task, not as the file has them: with a server, their order is a matter of luck.
        return sorted(annotated(folder), key=lambda pair: pair[0].key)

    def _folder(self, tools: base.Tools) -> Path:
        return Path(self.settings.collected).expanduser() if self.settings.collected else tools.out / "rollouts"

    def _limit(self, tools: base.Tools) -> int:
        """Longest sample in tokens."""
        limit, context = self.settings.max_length, tools.loaded.context
        return limit if context is None else min(limit, context)

    def _collected(self, tools: base.Tools) -> Path:
        """The folder of collected roll-outs, made now where none was given."""
        options, folder = self.settings, self._folder(tools)
        if options.collected or self._iteration:  # they were made before the first update
            return folder
        # Weights are those of the start until then, even if a continued run has loaded them from its checkpoint.
        begun = read_manifest(folder)["settings"]["policy"] if (folder / MANIFEST).is_file() else None
        job = Evaluation(
            panel=tools.panel.subset(limit=options.tasks),
            protocol=tools.protocol.with_settings(temperature=options.temperature),
            policy=tools.policy(identity=begun),
            out=folder,
            repeats=options.repeats,
            seed=self.config.seed,
            concurrency=self.config.rollout.batch_size,
        )
        evaluate(job, Progress())
        return folder

    def _hold_out(self, data: Batch) -> None:
        """Move a seeded share of the samples out of the training data."""
        count = round(self.settings.holdout * len(data.samples))
        order = sorted(range(len(data.samples)), key=lambda number: derive_seed(_SPLIT_SEED, number))
        self._held_out = [data.samples[number] for number in sorted(order[:count])]
        data.samples = [data.samples[number] for number in sorted(order[count:])]

    def _mix_in(self, data: Batch, tools: base.Tools) -> None:
        """Add a seeded choice of acting demonstrations, so that the policy does not forget how to act."""
        options = self.settings
        wanted = round(len(data.samples) * options.acting / (1 - options.acting))
        acting = tools.once(
            lambda: demonstrate(
                tools.panel, tools.protocol, tools.loaded,
                episodes=wanted, noise=options.acting_noise, seed=derive_seed(self.config.seed, "acting"),
            )
        )  # fmt: skip
        shift, samples = len(data.trajectories), acting.samples
        chosen = sorted(range(len(samples)), key=lambda number: derive_seed(self.config.seed, "mixed", number))[:wanted]
        skilled = set(chosen[: round(options.acting_skill * len(chosen))])
        plan = oracle_plan(tools.panel)
        data.trajectories += acting.trajectories
        for number in chosen:
            sample = samples[number]
            if number in skilled:
                trajectory = acting.trajectories[sample.trajectory]
                told = behind_skill(sample, trajectory, plan(trajectory.episode), tools)
                sample = told if len(told.ids) <= self._limit(tools) else sample
            data.samples.append(replace(sample, trajectory=sample.trajectory + shift, signals={}))


def behind_skill(sample: Sample, trajectory: Trajectory, plan: Sequence[str] | None, tools: base.Tools) -> Sample:
    """An acting sample whose prompt holds the rules' skill of its trajectory."""
    episode = trajectory.episode
    skill = analyse(episode, plan, episode.family).skill
    asked = insert_skill(trajectory.prompts[sample.turns[0]], skill, instruction=episode.instruction)
    return in_context(sample, tools.encode(asked))


def to_sample(episode: Episode, analysis: Analysis, style: Style, tools: base.Tools) -> Sample:
    """The analysis prompt and, as the response, the annotation with the end token."""
    tokenizer = tools.loaded.tokenizer
    prompt = tools.encode(analysis_prompt(episode, style=style))
    response = (
        *tokenizer(format_analysis(analysis), add_special_tokens=False)["input_ids"],
        tokenizer.eos_token_id,
    )
    return Sample(
        ids=np.asarray((*prompt, *response), dtype=np.int32),
        spans=((len(prompt), len(prompt) + len(response)),),
        logprobs=np.zeros(len(response), dtype=np.float32),
        turns=(0,),
    )

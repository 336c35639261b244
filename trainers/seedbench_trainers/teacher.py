"""The teacher of a distillation: the policy itself behind a prompt with a skill.

The same response tokens are scored in that context; the signals `teacher` (log-probabilities) and `distil` (mask)
carry the result, and a method's loss says what becomes of them. A sample without a skill has mask 0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from seedbench_trainers.base import Metrics, Tools
from seedbench_trainers.records import Batch, Floats, Sample, in_context
from seedbench_trainers.skills.insertion import Position, insert_skill

if TYPE_CHECKING:
    from seedbench.protocol import Protocol

CONTEXT, MASK = "teacher", "distil"
"""Names of the context and its scores, and of the mask."""


def place_skills(batch: Batch, skills: Sequence[str | None], tools: Tools, position: Position) -> Metrics:
    """Give every sample whose trajectory has a skill its skill context, `contexts["teacher"]`.

    A skill that makes the sample longer than the model's context has no place: the sample stays without it, and
    `skill/lost` is the share of such samples. Nothing is ever cut from a prompt. `skills`: one a trajectory.
    """
    context = tools.loaded.context
    lost = placed = 0
    for sample in batch.samples:
        skill = skills[sample.trajectory]
        if not skill:
            continue
        trajectory = batch.trajectories[sample.trajectory]
        plain, told = trajectory.prompts[sample.turns[0]], trajectory.episode.instruction
        asked = insert_skill(plain, skill, position, instruction=told, protocol=tools.protocol.name)
        skilled = in_context(sample, tools.encode(asked))
        if context is not None and len(skilled.ids) > context:
            lost += 1
            continue
        sample.contexts[CONTEXT] = skilled
        placed += 1
    return {"skill/lost": lost / max(1, lost + placed)}


def fill_masks(batch: Batch, tools: Tools, *, action_only: bool) -> None:
    """Write the mask `distil`, 1 for response tokens that have a skill context, and zeros into `teacher`."""
    for sample in batch.samples:
        sample.signals[CONTEXT] = np.zeros(sample.length, dtype=np.float32)
        if CONTEXT not in sample.contexts:
            sample.signals[MASK] = np.zeros(sample.length, dtype=np.float32)
        elif action_only:
            sample.signals[MASK] = action_mask(sample, tools.protocol, tools.loaded.tokenizer)
        else:
            sample.signals[MASK] = np.ones(sample.length, dtype=np.float32)


def fill_teacher(batch: Batch, tools: Tools) -> None:
    """Score the skill contexts by the snapshot into `teacher`."""
    present = [sample for sample in batch.samples if CONTEXT in sample.contexts]
    scores = tools.score([sample.contexts[CONTEXT] for sample in present])
    for sample, values in zip(present, scores, strict=True):
        sample.signals[CONTEXT] = values


def action_mask(sample: Sample, protocol: Protocol, tokenizer: object) -> Floats:
    """1 (L,) for the tokens of each response from the tag of the action on, 0 before and where it never opens.

    A protocol without tags has no reasoning to leave out: all 1.
    """
    rules = protocol.settings.parser
    names = rules.action_tags or ((rules.action_tag,) if rules.action_tag else ())
    if not names:
        return np.ones(sample.length, dtype=np.float32)
    openings = [f"<{name}>".lower() for name in names]
    return np.concatenate(
        [_from_tag(sample.ids[start:end].tolist(), openings, tokenizer) for start, end in sample.spans]
    )


def _from_tag(ids: list[int], openings: Sequence[str], tokenizer: object) -> Floats:
    """1 from the token on that holds the first character of the first opening."""

    def text(count: int) -> str:
        return str(tokenizer.decode(ids[:count], skip_special_tokens=True)).lower()  # type: ignore[attr-defined]

    whole = text(len(ids))
    places = [at for opening in openings if (at := whole.find(opening)) >= 0]
    mask = np.zeros(len(ids), dtype=np.float32)
    if places:
        # The most tokens whose text ends before the tag: the length of a text grows with its tokens.
        mask[bisect_right(range(1, len(ids) + 1), min(places), key=lambda count: len(text(count))) :] = 1.0
    return mask


def describe_teacher(batch: Batch, beta: float | None) -> Metrics:
    """Mean Delta and share of tokens with Delta > 0 (a gate over one half): over all, by success, by family.

    Delta is taken beside the policy that sampled. With `beta`, the sharpness of a gate, also the mean gate.
    """
    parts: dict[str, list[Floats]] = {}
    for sample in batch.samples:
        mask = sample.signals[MASK] > 0
        if not mask.any():
            continue
        episode = batch.trajectories[sample.trajectory].episode
        delta = (sample.signals[CONTEXT] - sample.logprobs)[mask]
        for name in ("", "/solved" if episode.success else "/unsolved", f"/{episode.family}"):
            parts.setdefault(name, []).append(delta)
    figures: Metrics = {}
    for name, deltas in parts.items():
        values = np.concatenate(deltas).astype(np.float64)
        figures[f"teacher/delta{name}"] = float(values.mean())
        figures[f"teacher/open{name}"] = float((values > 0).mean())
        if beta is not None and not name:
            figures["teacher/gate"] = float((0.5 + 0.5 * np.tanh(0.5 * beta * values)).mean())
    return figures

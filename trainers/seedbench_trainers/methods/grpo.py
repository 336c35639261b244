"""GRPO: advantages relative to the group, the clipped importance ratio, a KL penalty to the start.

L = -E min(rho A, clip(rho, 1 - low, 1 + high) A) + beta KL(pi || pi_ref) - eta H, arXiv 2402.03300, with the dual clip
of arXiv 1912.09729. Differences between papers and releases are settings, and the papers' are the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from seedbench.errors import UsageError
from seedbench_trainers.advantages import Array, group_relative, turn_scores, write_signal, zero_variance
from seedbench_trainers.base import Method, Metrics, Settings, Term, Tokens, Tools
from seedbench_trainers.records import Batch

if TYPE_CHECKING:
    from torch import Tensor

    from seedbench_trainers.config import TrainConfig


class GRPOSettings(Settings):
    """Settings of GRPO, and of the methods that build on it."""

    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """The importance ratio is cut below 1 - this."""
    clip_high: float = Field(default=0.2, gt=0)
    """The importance ratio is cut above 1 + this."""
    dual_clip: float = Field(default=3.0, ge=0)
    """Where the advantage is negative, the ratio counts at most this much; 0: without bound."""
    kl_coefficient: float = Field(default=0.01, ge=0)
    """Weight of the KL penalty; 0: none, and no reference is scored."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """Estimate of the KL divergence at a token."""
    kl_clamp: float = Field(default=0.0, ge=0)
    """Largest size of a token's KL estimate (the releases: 10); 0: without bound."""
    entropy_coefficient: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus."""
    watch_entropy: bool = True
    """Log the entropy even where it has no weight; it costs a few per cent of an update."""
    average: Literal["token", "sequence"] = "token"
    """Average over all tokens of a mini-batch, or over each sample's and then over samples."""
    advantages_over: Literal["trajectories", "steps"] = "trajectories"
    """What has the same weight in a group's mean and std: trajectories (the papers) or steps (the releases)."""
    std: bool = True
    """Divide advantages by the group's standard deviation."""

    @field_validator("dual_clip")
    @classmethod
    def _above_one(cls, value: float) -> float:
        if 0 < value <= 1:
            raise ValueError("must be above 1, e.g. 3, or 0 for no dual clip")
        return value


class GRPO(Method):
    """Group-relative policy optimisation.

    Methods that build on it override `advantages` (a value a turn), `token_advantage` (a value a token), or add to
    `signals`, `terms` and `loss`.
    """

    name: ClassVar[str] = "grpo"
    summary: ClassVar[str] = "GRPO: group-relative advantages, clipped ratio, KL to the start (arXiv 2402.03300)"
    Settings: ClassVar[type[Settings]] = GRPOSettings
    settings: GRPOSettings

    def __init__(self, settings: Any, config: TrainConfig) -> None:
        super().__init__(settings, config)
        if config.rollout.group < 2:
            raise UsageError(
                f"rollout.group is {config.rollout.group}, but {self.name} compares attempts at one task:"
                " set it to 2 or more (the papers: 8)."
            )

    @property
    def needs_reference(self) -> bool:
        """True with a KL penalty."""
        return self.settings.kl_coefficient > 0

    @property
    def needs_entropy(self) -> bool:
        """True with an entropy bonus, or where the entropy is only watched."""
        return self.settings.entropy_coefficient > 0 or self.settings.watch_entropy

    def advantages(self, batch: Batch) -> list[Array]:
        """The advantage of every turn: one array (T,) a trajectory of the batch."""
        options = self.settings
        advantages = [np.zeros(0)] * len(batch.trajectories)
        for group in batch.groups():
            scores = [turn_scores(batch.trajectories[index]) for index in group]
            relative = group_relative(scores, over=options.advantages_over, std=options.std)
            for index, values in zip(group, relative, strict=True):
                advantages[index] = values
        return advantages

    def signals(self, batch: Batch, tools: Tools) -> Metrics:
        """Fill the signal `advantage`; figures: share of groups without variance, mean size of an advantage."""
        advantages = self.advantages(batch)
        write_signal(batch, "advantage", advantages)
        flat = [zero_variance([turn_scores(batch.trajectories[i]) for i in group]) for group in batch.groups()]
        sizes = np.abs(np.concatenate([*advantages, np.zeros(0)]))
        return {
            "groups/zero_variance": float(np.mean(flat)) if flat else 0.0,
            "advantage/abs": float(sizes.mean()) if len(sizes) else 0.0,
        }

    def terms(self) -> Sequence[Term]:
        """policy, then kl and entropy where they have a weight."""
        options = self.settings
        weights = {"policy": 1.0, "kl": options.kl_coefficient, "entropy": -options.entropy_coefficient}
        return [Term(name, weight, average=options.average) for name, weight in weights.items() if weight]

    def token_advantage(self, tokens: Tokens) -> Tensor:
        """The advantage (B, L) of every token, without gradient."""
        return tokens.signals["advantage"]

    def loss(self, tokens: Tokens) -> Mapping[str, Tensor]:
        """Values of the terms; statistics: ratio, clipped, old_kl and ref_kl (nats), entropy."""
        from seedbench_trainers.losses import clipped_ratio, kl

        options = self.settings
        surrogate = clipped_ratio(
            tokens.logprobs, tokens.old, self.token_advantage(tokens),
            options.clip_low, options.clip_high, options.dual_clip,
        )  # fmt: skip
        values = {
            "policy": surrogate.values,
            "ratio": surrogate.ratio,
            "clipped": surrogate.clipped,
            # The snapshot sampled the tokens: KL(snapshot || policy).
            "old_kl": kl(tokens.old, tokens.logprobs.detach(), "k3"),
        }
        if self.needs_reference:
            values["kl"] = kl(tokens.logprobs, tokens.signals["ref"], options.kl_estimator, options.kl_clamp)
            values["ref_kl"] = values["kl"].detach()
        if tokens.entropy is not None:
            values["entropy"] = tokens.entropy if options.entropy_coefficient else tokens.entropy.detach()
        return values

"""Skill-SD, arXiv 2604.10674: GRPO plus an importance-weighted k3 estimate of the reverse KL to the teacher.

L = L_rl + 0.001 * rho * (exp(-e) - 1 + e),   e = l_theta - l_teacher, in [-20, 20]; the estimate at most 10
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from seedbench_trainers.base import Settings, Tokens
from seedbench_trainers.distillation import Distillation, DistillationSettings

if TYPE_CHECKING:
    from torch import Tensor


class SkillSDSettings(DistillationSettings):
    """Settings of the distillation with Skill-SD's weight."""

    weight: float = Field(default=0.001, ge=0)
    """Weight of the distillation term."""
    distil_clamp: float = Field(default=10.0, gt=0)
    """Largest estimate at a token, in nats."""


class SkillSD(Distillation):
    """Distils static skills by a reverse KL that is corrected for off-policy tokens."""

    name: ClassVar[str] = "skill_sd"
    summary: ClassVar[str] = "Skill-SD: GRPO plus an importance-weighted reverse KL to static skills (arXiv 2604.10674)"
    Settings: ClassVar[type[Settings]] = SkillSDSettings
    settings: SkillSDSettings

    def distil(self, tokens: Tokens, teacher: Tensor) -> Tensor:
        """rho * k3(l_theta, l_teacher), with gradient through both factors."""
        from seedbench_trainers.losses import kl

        ratio = (tokens.logprobs - tokens.old).clamp(-20, 20).exp()
        return ratio * kl(tokens.logprobs, teacher, "k3", self.settings.distil_clamp)

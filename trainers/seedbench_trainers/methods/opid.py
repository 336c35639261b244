"""OPID, arXiv 2606.26790: the teacher's Delta is a bonus inside the clipped objective.

A_t = A + 0.001 * Delta_t, with skills from an analyzer that is not the policy
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from seedbench_trainers.base import Settings, Tokens
from seedbench_trainers.distillation import DistillationSettings, Taught, delta
from seedbench_trainers.teacher import MASK

if TYPE_CHECKING:
    from torch import Tensor


class OPIDSettings(DistillationSettings):
    """Settings of the teacher with OPID's weight and source."""

    weight: float = Field(default=0.001, ge=0)
    """Weight of Delta beside the advantage; 0 is GRPO."""
    skill: str = "rules"
    """The analyzer outside the policy is the deterministic one unless a server is named (openai:URL[#MODEL])."""


class OPID(Taught):
    """GRPO with a dense bonus from hindsight."""

    name: ClassVar[str] = "opid"
    summary: ClassVar[str] = "OPID: GRPO with the teacher's Delta added to token advantages (arXiv 2606.26790)"
    Settings: ClassVar[type[Settings]] = OPIDSettings
    settings: OPIDSettings

    @property
    def teaches(self) -> bool:
        """True with a weight."""
        return self.settings.weight > 0

    def token_advantage(self, tokens: Tokens) -> Tensor:
        """A + weight * Delta (B, L); where no skill was had, A itself."""
        advantage = super().token_advantage(tokens)
        if not self.teaches:
            return advantage
        return advantage + self.settings.weight * tokens.signals[MASK] * delta(tokens)

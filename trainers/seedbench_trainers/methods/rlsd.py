"""RLSD: the teacher scales the advantage of a token instead of adding a term.

A_t = A * [(1 - lam) + lam * clip(exp(sign(A) * Delta_t), 0.8, 1.2)],   lam: 0.5 -> 0 over the first 100 updates
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from seedbench_trainers.base import Settings, Tokens, Tools
from seedbench_trainers.distillation import Taught, TeacherSettings, delta
from seedbench_trainers.records import Batch
from seedbench_trainers.teacher import MASK

if TYPE_CHECKING:
    from torch import Tensor


class RLSDSettings(TeacherSettings):
    """Settings of the teacher, and how far it moves an advantage."""

    lam: float = Field(default=0.5, ge=0, le=1)
    """Share of the scaled advantage at the first update; 0 is GRPO."""
    lam_updates: int = Field(default=100, ge=1)
    """Updates over which it falls linearly to 0; from there on no skill is asked for."""
    scale_low: float = Field(default=0.8, gt=0, le=1)
    """Smallest factor."""
    scale_high: float = Field(default=1.2, ge=1)
    """Largest factor."""


class RLSD(Taught):
    """GRPO with advantages scaled by the teacher."""

    name: ClassVar[str] = "rlsd"
    summary: ClassVar[str] = "RLSD: GRPO whose token advantages are scaled by a teacher with static skills"
    Settings: ClassVar[type[Settings]] = RLSDSettings
    settings: RLSDSettings
    _iteration = 0

    @property
    def lam(self) -> float:
        """lam of the present update."""
        return self.settings.lam * max(0.0, 1 - self._iteration / self.settings.lam_updates)

    @property
    def teaches(self) -> bool:
        """True until lam is 0."""
        return self.lam > 0

    def gather(self, tools: Tools, iteration: int) -> Batch:
        """As GRPO; takes note of the update, on which lam depends."""
        self._iteration = iteration
        return super().gather(tools, iteration)

    def token_advantage(self, tokens: Tokens) -> Tensor:
        """A_t (B, L); where no skill was had, A itself."""
        advantage = super().token_advantage(tokens)
        if not self.teaches:
            return advantage
        options = self.settings
        moved = (advantage.sign() * delta(tokens)).clamp(-20, 20).exp().clamp(options.scale_low, options.scale_high)
        return advantage * (1 + tokens.signals[MASK] * self.lam * (moved - 1))

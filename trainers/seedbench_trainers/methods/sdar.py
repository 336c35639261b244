"""SDAR, arXiv 2605.15155: GRPO plus gated distillation from static skills.

    L = L_rl + 0.01 * sigmoid(5 Delta) * (l_teacher - l_theta), the gate detached.

SEED is SDAR with skills of the policy's own and the start from stage 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from seedbench_trainers.base import Settings, Tokens
from seedbench_trainers.distillation import Distillation, GatedSettings, gated

if TYPE_CHECKING:
    from torch import Tensor


class SDAR(Distillation):
    """Distils static skills, gated token by token."""

    name: ClassVar[str] = "sdar"
    summary: ClassVar[str] = "SDAR: GRPO plus gated distillation from static skills (arXiv 2605.15155)"
    Settings: ClassVar[type[Settings]] = GatedSettings
    settings: GatedSettings

    def distil(self, tokens: Tokens, teacher: Tensor) -> Tensor:
        """g * (l_teacher - l_theta), with the gate detached."""
        return gated(tokens, teacher, self.settings.beta)

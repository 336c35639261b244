"""OPSD as the comparisons run it: gated distillation from static skills and the KL penalty, no policy gradient.

L = 0.01 * sigmoid(5 Delta) * (l_teacher - l_theta) + beta_KL * KL
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from seedbench.errors import UsageError
from seedbench_trainers.base import Term
from seedbench_trainers.config import TrainConfig
from seedbench_trainers.methods.sdar import SDAR


class OPSD(SDAR):
    """SDAR without the reward."""

    name: ClassVar[str] = "opsd"
    summary: ClassVar[str] = "OPSD: distillation from static skills alone, no reward"

    def __init__(self, settings: Any, config: TrainConfig) -> None:
        super().__init__(settings, config)
        if not self.teaches:
            raise UsageError("opsd learns from its teacher alone: method.weight must be above 0, e.g. 0.01.")

    def terms(self) -> Sequence[Term]:
        """SDAR's terms without the policy gradient."""
        return [term for term in super().terms() if term.name != "policy"]

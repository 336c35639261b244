"""GRPO+OPSD: a sampled reverse KL to the teacher beside the reward, in the published form and in the one it means.

`as_published` adds 0.01 * sigmoid(0) * (l_teacher - l_theta). The teacher has no gradient there, so that the term is
half a negative log-likelihood whatever the teacher says. `reverse_kl` is the score-function form of
KL(pi_theta || pi_teacher) at sampled tokens, sg[l_theta - l_teacher] * l_theta, whose gradient does depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from seedbench_trainers.base import Settings, Tokens
from seedbench_trainers.distillation import Distillation, DistillationSettings

if TYPE_CHECKING:
    from torch import Tensor


class GRPOOPSDSettings(DistillationSettings):
    """Settings of the distillation, and its form."""

    form: Literal["reverse_kl", "as_published"] = "reverse_kl"
    """See the module."""


class GRPOOPSD(Distillation):
    """GRPO with an ungated distillation term."""

    name: ClassVar[str] = "grpo_opsd"
    summary: ClassVar[str] = "GRPO+OPSD: GRPO plus ungated distillation from static skills"
    Settings: ClassVar[type[Settings]] = GRPOOPSDSettings
    settings: GRPOOPSDSettings

    def distil(self, tokens: Tokens, teacher: Tensor) -> Tensor:
        """The form's values; sigmoid(0) is one half."""
        if self.settings.form == "as_published":
            return 0.5 * (teacher - tokens.logprobs)
        return (tokens.logprobs.detach() - teacher) * tokens.logprobs

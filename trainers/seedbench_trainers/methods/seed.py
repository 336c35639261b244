"""SEED: self-evolving on-policy distillation, arXiv 2607.14777.

    L = L_rl + lambda * L_opd        L_opd = E[m * g * (sg[l_skill] - l_theta)]        g = sigmoid(beta * Delta)

The policy that sampled a trajectory also analyses it; the skill it writes goes back into the prompt, the same tokens
are scored once more, and where the skill makes them likelier the gate opens. The gradient is -E[m * g * grad l_theta]:
gate-weighted negative log-likelihood. Stage 1 (`stage1`) teaches a policy to write skills first.

The equations use the current policy as the teacher (`teacher = "current"`, the default); the release scores the skill
context once an iteration by the policy that sampled (`teacher = "snapshot"`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from seedbench.errors import UsageError
from seedbench_trainers.base import Settings, Tokens, Trainer
from seedbench_trainers.distillation import Distillation, GatedSettings, gated
from seedbench_trainers.skills.sources import OWN
from seedbench_trainers.stage1 import Stage1, check_collected, run_stage1

if TYPE_CHECKING:
    from torch import Tensor

    from seedbench_trainers.config import TrainConfig


class SEEDSettings(GatedSettings):
    """Settings of the distillation, and of stage 1."""

    skill: str = OWN
    """own: the policy's analysis (the paper); another source: the ablation without on-policy skills, which needs no
    stage 1."""
    stage1: Stage1 = Stage1()
    """Stage 1; `stage1.run = false` is the ablation without SFT."""


class SEED(Distillation):
    """Distils the policy's own hindsight, gated token by token."""

    name: ClassVar[str] = "seed"
    summary: ClassVar[str] = (
        "SEED: GRPO plus gated distillation from the policy's own hindsight skills (arXiv 2607.14777)"
    )
    Settings: ClassVar[type[Settings]] = SEEDSettings
    settings: SEEDSettings

    def __init__(self, settings: Any, config: TrainConfig) -> None:
        super().__init__(settings, config)
        options = self.settings
        if self._has_stage1:
            check_collected(options.stage1)
        if self._has_stage1 and options.stage1.style != options.analysis_style:
            raise UsageError(
                f"seed: stage 1 teaches the analysis prompt '{options.stage1.style}', and stage 2 asks with"
                f" '{options.analysis_style}': set method.stage1.style and method.analysis_style alike."
            )

    @property
    def _has_stage1(self) -> bool:
        return self.settings.stage1.run and self.settings.skill == OWN

    def prepare(self, model: str, train: Trainer) -> str:
        """Run stage 1, unless it is off, no skill is the policy's own, or `model` is already its result."""
        return run_stage1(self.config, self.settings.stage1, model, train) if self._has_stage1 else model

    def distil(self, tokens: Tokens, teacher: Tensor) -> Tensor:
        """g * (sg[l_skill] - l_theta), with the gate detached."""
        return gated(tokens, teacher, self.settings.beta)

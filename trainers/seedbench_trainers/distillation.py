"""What the self-distillation methods share: settings, and when skills are asked for and scored.

The teacher is the policy itself with a skill in its prompt (`teacher.py`).

    Delta = sg[l_teacher - l_theta]        gate = sigmoid(beta * Delta)        (arXiv 2607.14777, section 3)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from seedbench.errors import unknown
from seedbench_trainers.base import Metrics, Settings, Term, Tokens, Tools
from seedbench_trainers.methods.grpo import GRPO, GRPOSettings
from seedbench_trainers.records import Batch
from seedbench_trainers.skills.sources import SOURCES, is_server, skills_of
from seedbench_trainers.teacher import CONTEXT, MASK, describe_teacher, fill_masks, fill_teacher, place_skills

if TYPE_CHECKING:
    from torch import Tensor

    from seedbench_trainers.config import TrainConfig


class TeacherSettings(GRPOSettings):
    """Settings of GRPO, and of the teacher."""

    skill: str = "static"
    """Where skills come from: static (files by family), own (the policy's analysis of its trajectory), rules (the
    deterministic analyzer), openai:URL[#MODEL] (an analyzer behind a server), or a file of static skills."""
    skill_position: Literal["after_task", "end"] = "after_task"
    """Where the skill stands in the prompt: behind the line with the task (the papers), or at its end."""
    teacher: Literal["current", "snapshot"] = "current"
    """Whose weights score the skill context: those being trained (the paper), or those that sampled (the releases).
    Both are the same at the first optimiser step of an update."""
    mask: Literal["response", "action"] = "response"
    """Which tokens the teacher judges: the whole response, or only its action."""
    analyze: Literal["all", "failed", "solved"] = "all"
    """Which trajectories get a skill."""
    analysis_tokens: int = Field(default=4096, ge=1)
    """Longest analysis, where one is asked for."""
    analysis_prompt_tokens: int = Field(default=16384, ge=1)
    """Longest prompt of an analysis; steps are left out from the middle of longer ones."""
    analysis_style: Literal["full", "brief"] = "full"
    """Wording of the analysis prompt; brief is for models with a small context."""


class DistillationSettings(TeacherSettings):
    """Settings of the teacher, and the weight of what it says."""

    weight: float = Field(default=0.01, ge=0)
    """Weight of the distillation (lambda); 0 leaves GRPO alone, and no skill is asked for."""


class GatedSettings(DistillationSettings):
    """Settings of the distillation with a gate."""

    beta: float = Field(default=5.0, ge=0)
    """Sharpness of the gate sigmoid(beta * Delta)."""


class Taught(GRPO):
    """GRPO with a teacher's scores at hand: the signals `teacher` and `distil` (mask) of every sample."""

    Settings: ClassVar[type[Settings]] = TeacherSettings
    settings: TeacherSettings

    def __init__(self, settings: Any, config: TrainConfig) -> None:
        super().__init__(settings, config)
        skill = self.settings.skill
        if skill not in SOURCES and not is_server(skill) and not Path(skill).expanduser().is_file():
            raise unknown("source of skills", skill, [*SOURCES, "openai:URL", "a TOML file"])

    @property
    def teaches(self) -> bool:
        """Whether the teacher has any influence at present; without, no skill is asked for."""
        return True

    @property
    def fresh(self) -> tuple[str, ...]:
        """The teacher, where it is the current policy."""
        return (CONTEXT,) if self.settings.teacher == "current" and self.teaches else ()

    def signals(self, batch: Batch, tools: Tools) -> Metrics:
        """GRPO's signals, then `teacher` and `distil`; figures on skills."""
        metrics = super().signals(batch, tools)
        if not self.teaches:
            return metrics
        skills, figures = skills_of(batch, tools, self.settings)
        for trajectory, skill in zip(batch.trajectories, skills, strict=True):
            trajectory.notes["skill"] = skill
        figures |= place_skills(batch, skills, tools, self.settings.skill_position)
        fill_masks(batch, tools, action_only=self.settings.mask == "action")
        if not self.fresh:
            fill_teacher(batch, tools)
        return metrics | figures

    def after(self, batch: Batch) -> Metrics:
        """Delta and gate over the batch; see `describe_teacher`."""
        return describe_teacher(batch, getattr(self.settings, "beta", None)) if self.teaches else {}


class Distillation(Taught):
    """A method with a distillation term. Subclasses say what its value at a token is (`distil`)."""

    Settings: ClassVar[type[Settings]] = DistillationSettings
    settings: DistillationSettings

    @property
    def teaches(self) -> bool:
        """True with a weight."""
        return self.settings.weight > 0

    @property
    def tracked_terms(self) -> bool:
        """True where something is distilled: the terms' gradients are worth comparing."""
        return self.teaches

    def terms(self) -> Sequence[Term]:
        """GRPO's terms and distil, averaged over its own masked tokens."""
        weight, average = self.settings.weight, self.settings.average
        return [*super().terms(), *([Term("distil", weight, MASK, average)] if weight else [])]

    @abstractmethod
    def distil(self, tokens: Tokens, teacher: Tensor) -> Tensor:
        """Values (B, L) of the distillation term; `teacher` has no gradient."""

    def loss(self, tokens: Tokens) -> Mapping[str, Tensor]:
        """GRPO's values and the distillation's."""
        values = dict(super().loss(tokens))
        if self.teaches:
            values["distil"] = self.distil(tokens, tokens.signals[CONTEXT])
        return values


def delta(tokens: Tokens) -> Tensor:
    """Delta = l_teacher - l_theta (B, L) in nats, without gradient; it means something under the mask alone."""
    return tokens.signals[CONTEXT] - tokens.logprobs.detach()


def gated(tokens: Tokens, teacher: Tensor, beta: float) -> Tensor:
    """g * (l_teacher - l_theta) (B, L), g = sigmoid(beta * Delta) in (0, 1), detached: the gradient is -g grad."""
    gate = (beta * (teacher - tokens.logprobs.detach())).sigmoid()
    return gate * (teacher - tokens.logprobs)

"""Skill-GRPO: GRPO with static skills in the policy's own prompt while it trains.

It is evaluated without them as every method is, and with them (the starred row of the tables) by
`seedbench eval skills:CHECKPOINT`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from seedbench.types import Message, Task
from seedbench_trainers.base import Metrics, Settings, Tools
from seedbench_trainers.config import TrainConfig
from seedbench_trainers.methods.grpo import GRPO, GRPOSettings
from seedbench_trainers.records import Batch
from seedbench_trainers.skills.insertion import insert_skill
from seedbench_trainers.skills.static import static_skill


class SkillGRPOSettings(GRPOSettings):
    """Settings of GRPO, and of the skills."""

    skill: str = "static"
    """static (the files that ship, by family), or a file of static skills."""
    skill_position: Literal["after_task", "end"] = "after_task"
    """Where the skill stands in the prompt."""


class SkillGRPO(GRPO):
    """GRPO whose roll-outs are asked with a skill."""

    name: ClassVar[str] = "skill_grpo"
    summary: ClassVar[str] = "Skill-GRPO: GRPO with static skills in the training prompt"
    Settings: ClassVar[type[Settings]] = SkillGRPOSettings
    settings: SkillGRPOSettings

    def __init__(self, settings: Any, config: TrainConfig) -> None:
        super().__init__(settings, config)
        self._file = "" if self.settings.skill == "static" else self.settings.skill

    def signals(self, batch: Batch, tools: Tools) -> Metrics:
        """As GRPO; takes note of the skill that each trajectory was asked with."""
        for trajectory in batch.trajectories:
            trajectory.notes["skill"] = static_skill(self.config.suite, trajectory.episode.family, self._file)
        return super().signals(batch, tools)

    def prompt(self, task: Task, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """The messages with the skill of the task's family."""
        skill = static_skill(self.config.suite, task.family, self._file)
        return insert_skill(messages, skill, self.settings.skill_position)

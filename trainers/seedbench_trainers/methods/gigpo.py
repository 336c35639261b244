"""GiGPO: GRPO whose advantage has a second part, the turn beside other turns in the same state.

A = A_episode + w * A_step, arXiv 2505.10978; the rest is GRPO. A state is known by the observation that the
turn answers, as in the paper and its release: where an environment says the same in different states (a refused
action), they count as one.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from seedbench_trainers.advantages import Array, discounted_returns, gigpo_steps
from seedbench_trainers.base import Settings
from seedbench_trainers.methods.grpo import GRPO, GRPOSettings
from seedbench_trainers.records import Batch, Trajectory


class GiGPOSettings(GRPOSettings):
    """Settings of GRPO, and of the second part."""

    step_weight: float = Field(default=1.0, ge=0)
    """Weight w of the step advantage; 0 is GRPO."""
    gamma: float = Field(default=0.95, ge=0, le=1)
    """Discount of the returns that are compared in a state."""
    step_norm: Literal["mean_std", "mean"] = "mean_std"
    """Whether step advantages are divided by the standard deviation in their state."""


class GiGPO(GRPO):
    """Group-in-group policy optimisation."""

    name: ClassVar[str] = "gigpo"
    summary: ClassVar[str] = "GiGPO: GRPO with advantages among turns in the same state as well (arXiv 2505.10978)"
    Settings: ClassVar[type[Settings]] = GiGPOSettings
    settings: GiGPOSettings

    def advantages(self, batch: Batch) -> list[Array]:
        """GRPO's advantage of every turn plus w times the step advantage."""
        options = self.settings
        advantages = super().advantages(batch)
        for group in batch.groups():
            members = [batch.trajectories[index] for index in group]
            returns = [step_returns(trajectory, options.gamma) for trajectory in members]
            steps = gigpo_steps(returns, [anchors(trajectory) for trajectory in members], norm=options.step_norm)
            for index, values in zip(group, steps, strict=True):
                advantages[index] = advantages[index] + options.step_weight * values
        return advantages


def step_returns(trajectory: Trajectory, gamma: float) -> Array:
    """Discounted returns (T,) of a trajectory whose reward comes with its last turn, minus each turn's own penalty."""
    rewards = np.zeros(len(trajectory.penalties))
    rewards[-1:] = trajectory.reward
    return discounted_returns(rewards, gamma) - np.asarray(trajectory.penalties, dtype=np.float64)


def anchors(trajectory: Trajectory) -> list[str]:
    """The observation that each turn (T,) answers."""
    turns = trajectory.episode.turns
    return [trajectory.episode.first_observation, *(turn.observation for turn in turns)][: len(turns)]

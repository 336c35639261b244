"""The roll-outs of an iteration: which tasks are drawn, what their episodes return, and the batch they make."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

from seedbench.panels import Panel
from seedbench.policies.base import Policy
from seedbench.protocol import Protocol
from seedbench.rollout import derive_seed
from seedbench.types import Episode, Outcome, Task, Turn
from seedbench_trainers.advantages import Array, zero_variance
from seedbench_trainers.collect import Attempt, Played, Rewrite, play, unbroken
from seedbench_trainers.config import Reward, TrainConfig
from seedbench_trainers.distributed import World
from seedbench_trainers.records import Batch, Trajectory, merge_turns

Elsewhere = Callable[[Sequence[Attempt], int], list[Played]]
"""Plays attempts of an iteration, whose number is given, on other machines; broken episodes included."""


def drawn(panel: Panel, seed: int, first: int, count: int) -> list[Task]:
    """Draws number `first` to `first + count - 1` of an endless sequence in which every pass has each task once.

    They depend on the numbers alone, wherever a run was resumed.
    """
    size = len(panel.tasks)
    tasks: list[Task] = []
    while len(tasks) < count:
        number, at = divmod(first + len(tasks), size)
        order = list(panel.tasks)
        Random(derive_seed(seed, "order", number)).shuffle(order)
        tasks += order[at : at + count - len(tasks)]
    return tasks


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """What stays the same in all roll-outs of a run."""

    config: TrainConfig
    panel: Panel
    protocol: Protocol
    policy: Callable[[], Policy]
    """Makes the policy of an iteration: the frozen snapshot."""
    rewrite: Rewrite | None
    told: Callable[[Episode], None]
    elsewhere: Elsewhere | None = None
    """Plays them in the place of `policy`."""
    world: World = field(default_factory=World)

    def collect(self, iteration: int) -> Batch:
        """Play `group` episodes of each of `tasks` drawn tasks; see `collect.play` for what it raises."""
        settings = self.config.rollout
        tasks = drawn(self.panel, self.config.seed, iteration * settings.tasks, settings.tasks)
        played = self._play(tasks, iteration, 0)
        discarded: list[Episode] = []
        count = len(tasks)
        for again in range(settings.resample):
            flat = _flat_groups(played, self.config.reward)
            if not flat:
                break
            # Other tasks, from a sequence of their own, so that the plan of draws does not depend on luck.
            first = (iteration * settings.resample + again) * settings.tasks
            others = drawn(self.panel, derive_seed(self.config.seed, "resample"), first, len(flat))
            count += len(others)
            fresh = self._play(others, iteration, (again + 1) * settings.tasks)
            discarded += [p.episode for p in played if p.attempt.group in flat]
            played = [p for p in played if p.attempt.group not in flat] + fresh
        batch = to_batch(played, self.config.reward)
        batch.discarded = discarded
        batch.broken = count * settings.group - len(played) - len(discarded)
        return batch

    def _play(self, tasks: Sequence[Task], iteration: int, first_group: int) -> list[Played]:
        size = self.config.rollout.group
        attempts = [
            Attempt(
                task,
                repeat=group * size + member,
                group=group,
                seed=derive_seed(self.config.seed, "train", iteration, group, member, task.sha256),
            )
            for group, task in enumerate(tasks, start=first_group)
            for member in range(size)
        ]
        if self.elsewhere is not None:
            return unbroken(self.elsewhere(attempts, iteration))
        return play(
            attempts, self.panel, self.protocol, self.policy(), rewrite=self.rewrite, told=self.told, world=self.world
        )  # fmt: skip


def to_batch(played: Sequence[Played], reward: Reward) -> Batch:
    """Trajectories and samples of finished episodes, in the order given."""
    batch = Batch([], [])
    for index, one in enumerate(played):
        batch.trajectories.append(
            Trajectory(
                episode=one.episode,
                group=one.attempt.group,
                prompts=one.prompts,
                reward=episode_return(one.episode, reward),
                penalties=tuple(turn_penalty(turn, reward) for turn in one.episode.turns),
            )
        )
        batch.samples += merge_turns(one.sampled, index)
    return batch


def episode_return(episode: Episode, reward: Reward) -> float:
    """scale * success, or scale * score."""
    return reward.scale * (float(episode.success) if reward.of == "success" else episode.score)


def turn_penalty(turn: Turn, reward: Reward) -> float:
    """What a turn loses: the penalty if its action is invalid under the reward's rule, else 0."""
    refused = reward.invalid == "inadmissible" and turn.admissible is False
    return reward.invalid_penalty if refused or not turn.valid else 0.0


def _flat_groups(played: Sequence[Played], reward: Reward) -> set[int]:
    """Groups of which no group-relative advantage can come: `advantages.zero_variance`."""
    scores: dict[int, list[Array]] = defaultdict(list)
    for one in played:
        penalties = np.asarray([turn_penalty(turn, reward) for turn in one.episode.turns], dtype=np.float64)
        scores[one.attempt.group].append(episode_return(one.episode, reward) - penalties)
    return {group for group, arrays in scores.items() if zero_variance(arrays)}


def describe(batch: Batch) -> dict[str, float]:
    """Figures of a batch for the log: rates in [0, 1], means an episode or a response, token counts."""
    episodes = [t.episode for t in batch.trajectories]
    turns = [turn for episode in episodes for turn in episode.turns]
    n, asked = max(1, len(episodes)), max(1, len(turns))
    won: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for episode in episodes:
        count[episode.family] += 1
        won[episode.family] += episode.success
    return {
        "rollout/success": sum(e.success for e in episodes) / n,
        "rollout/score": sum(e.score for e in episodes) / n,
        "rollout/return": sum(t.reward - sum(t.penalties) for t in batch.trajectories) / n,
        "rollout/turns": len(turns) / n,
        "rollout/response_tokens": sum(turn.usage.generated_tokens for turn in turns) / asked,
        "rollout/invalid": sum(not turn.valid for turn in turns) / asked,
        "rollout/truncated": sum(turn.finish_reason == "length" for turn in turns) / asked,
        "rollout/discarded": float(len(batch.discarded)),
        "rollout/broken": float(batch.broken),
        "rollout/overflow": sum(e.outcome is Outcome.CONTEXT_OVERFLOW for e in episodes) / n,
        **{f"rollout/success/{family}": won[family] / count[family] for family in count},
    }

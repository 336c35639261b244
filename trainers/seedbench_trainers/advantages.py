"""Advantages: how well a turn did beside the other attempts at the same task. Pure functions on arrays.

A group is a list with one array a trajectory, of shape (T,), one entry a turn. The score of a turn is the return of
its trajectory minus the turn's own penalty, which neither paper nor releases spread over other turns.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from seedbench_trainers.records import Batch, Trajectory

Array = NDArray[np.float64]
Group = Sequence[NDArray[Any]]
Over = Literal["trajectories", "steps"]
Norm = Literal["mean_std", "mean"]

_EQUAL = 1e-9
"""Scores that lie this close are the same score, rounded differently."""


def zero_variance(scores: Group) -> bool:
    """Whether a group teaches nothing: one trajectory alone, or the same score at every turn."""
    values = [float(value) for array in scores for value in array]
    alone = sum(len(array) > 0 for array in scores) < 2
    return alone or max(values) - min(values) <= _EQUAL


def group_relative(
    scores: Group, *, over: Over = "trajectories", std: bool = True, eps: float = 1e-6, ddof: int = 1
) -> list[Array]:
    """Advantage of every turn: (score - mean) / (std + eps), with mean and std of its group.

    GRPO, arXiv 2402.03300, section 4.1.2; without the division, arXiv 2503.20783. A trajectory without turns does not
    count. A group of one, and a group of equal scores, gets zeros.

    Args:
        scores: scores of one group; its trajectories are attempts at one task.
        over: trajectories: each has the same weight, whatever its length, so that without penalties these are mean and
            std of the returns (the papers' definition); steps: each turn has the same weight (the releases').
        std: divide by the standard deviation.
        eps: added to it.
        ddof: 1: unbiased, as torch.std; 0: not. It counts trajectories or turns, after `over`.

    Returns:
        One array (T,) a trajectory, in the order given.
    """
    if zero_variance(scores):
        return [np.zeros(len(array)) for array in scores]
    kept = [np.asarray(array, dtype=np.float64) for array in scores if len(array)]
    values = np.concatenate(kept)
    if over == "steps":
        count, weights = len(values), np.full(len(values), 1 / len(values))
    else:
        count, weights = len(kept), np.concatenate([np.full(len(a), 1 / (len(kept) * len(a))) for a in kept])
    mean = weights @ values
    variance = weights @ (values - mean) ** 2 * count / (count - ddof)
    divisor = np.sqrt(variance) + eps if std else 1.0
    return [(np.asarray(array, dtype=np.float64) - mean) / divisor for array in scores]


def discounted_returns(rewards: NDArray[Any], gamma: float) -> Array:
    """R_t = r_t + gamma * R_(t+1) of one trajectory: (T,) -> (T,), gamma in [0, 1]."""
    returns, ahead = np.zeros(len(rewards)), 0.0
    for turn in reversed(range(len(rewards))):
        ahead = float(rewards[turn]) + gamma * ahead
        returns[turn] = ahead
    return returns


def gigpo_steps(
    returns: Group, anchors: Sequence[Sequence[Hashable]], *, norm: Norm = "mean_std", eps: float = 1e-6, ddof: int = 1
) -> list[Array]:
    """GiGPO's step advantage: a turn's discounted return beside those of the group's turns in the same state.

    arXiv 2505.10978, equation 7. A state seen once, and a state whose returns are all equal, gets
    zeros. One trajectory that comes back to a state is compared with itself, as in the paper.

    Args:
        returns: discounted returns of one group.
        anchors: what tells the states apart, an entry a turn: the observation that the turn answers.
        norm: mean_std: (R - mean) / (std + eps); mean: R - mean.
        eps: added to the standard deviation.
        ddof: 1: unbiased standard deviation; 0: not.

    Returns:
        One array (T,) a trajectory, in the order given.
    """
    states: dict[Hashable, list[tuple[int, int]]] = {}
    for row, keys in enumerate(anchors):
        for turn, key in enumerate(keys):
            states.setdefault(key, []).append((row, turn))
    advantages = [np.zeros(len(array)) for array in returns]
    for places in states.values():
        values = [np.asarray([returns[row][turn]]) for row, turn in places]
        relative = group_relative(values, over="steps", std=norm == "mean_std", eps=eps, ddof=ddof)
        for (row, turn), value in zip(places, relative, strict=True):
            advantages[row][turn] = value[0]
    return advantages


def turn_scores(trajectory: Trajectory) -> Array:
    """Scores (T,) of a trajectory's turns: its return minus each turn's penalty."""
    return trajectory.reward - np.asarray(trajectory.penalties, dtype=np.float64)


def write_signal(batch: Batch, name: str, values: Group) -> None:
    """Write turn values, one array (T,) a trajectory of the batch, to the response tokens of the turns."""
    for sample in batch.samples:
        sample.signals[name] = sample.spread([float(values[sample.trajectory][turn]) for turn in sample.turns])

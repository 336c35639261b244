"""Advantages against numbers worked out by hand and against torch and scipy."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import zscore

from seedbench_trainers.advantages import discounted_returns, gigpo_steps, group_relative, zero_variance


def _group(*scores: list[float]) -> list[np.ndarray]:
    return [np.asarray(values) for values in scores]


def test_over_trajectories_it_is_mean_and_std_of_the_returns_whatever_their_lengths() -> None:
    group = _group([10.0], [0.0] * 5, [0.0, 0.0], [10.0, 10.0, 10.0])
    advantages = group_relative(group, eps=0)
    std = math.sqrt(100 / 3)  # of 10, 0, 0, 10: squared deviations 4 * 25, over n - 1
    for values, expected in zip(advantages, (5, -5, -5, 5), strict=True):
        np.testing.assert_allclose(values, expected / std)
    assert [len(values) for values in advantages] == [1, 5, 2, 3]


def test_over_steps_it_is_torch_mean_and_unbiased_std_of_all_steps() -> None:
    group = _group([10.0, 9.9], [0.0, 0.0, -0.1], [10.0])
    flat = torch.tensor(np.concatenate(group))
    expected = (flat - flat.mean()) / (flat.std() + 1e-6)
    np.testing.assert_allclose(np.concatenate(group_relative(group, over="steps")), expected.numpy(), rtol=1e-12)


def test_longer_trajectories_weigh_more_over_steps_only() -> None:
    group = _group([1.0, 1.0, 1.0], [0.0])
    assert [v[0] for v in group_relative(group, over="steps", std=False)] == [0.25, -0.75]
    assert [v[0] for v in group_relative(group, over="trajectories", std=False)] == [0.5, -0.5]


@pytest.mark.parametrize("ddof", [0, 1])
def test_ddof_and_eps(ddof: int) -> None:
    group = _group([3.0], [1.0], [2.0], [7.0])
    exact = np.concatenate(group_relative(group, eps=0, ddof=ddof))
    np.testing.assert_allclose(exact, zscore([3, 1, 2, 7], ddof=ddof))
    assert np.concatenate(group_relative(_group([1.0], [0.0]), eps=0.5, ddof=0)).tolist() == [0.5, -0.5]


def test_a_penalty_lowers_its_own_turn() -> None:
    plain, punished = group_relative(_group([1.0, 1.0], [1.0, 0.0]), std=False)
    assert plain.tolist() == [0.25, 0.25]
    assert punished.tolist() == [0.25, -0.75]


@pytest.mark.parametrize("over", ["trajectories", "steps"])
@pytest.mark.parametrize("std", [True, False])
def test_groups_that_teach_nothing_get_zeros(over: str, std: bool) -> None:
    alone, equal = _group([10.0, 9.9]), _group([0.1 + 0.2], [0.3, 0.3])
    for group in (alone, equal, _group([], [5.0]), _group([]), []):
        assert zero_variance(group)
        advantages = group_relative(group, over=over, std=std)  # type: ignore[arg-type]
        assert [values.tolist() for values in advantages] == [[0.0] * len(values) for values in group]
    assert not zero_variance(_group([1.0], [0.0]))
    assert not zero_variance(_group([1.0, 0.9], [1.0]))


def test_a_trajectory_without_turns_does_not_count() -> None:
    advantages = group_relative(_group([1.0], [], [0.0]), std=False)
    assert [values.tolist() for values in advantages] == [[0.5], [], [-0.5]]


def test_discounted_returns() -> None:
    assert discounted_returns(np.asarray([0.0, 0.0, 8.0]), 0.5).tolist() == [2.0, 4.0, 8.0]
    assert discounted_returns(np.asarray([1.0, 2.0, 4.0]), 1.0).tolist() == [7.0, 6.0, 4.0]
    assert discounted_returns(np.asarray([1.0, 2.0]), 0.0).tolist() == [1.0, 2.0]
    assert discounted_returns(np.zeros(0), 0.9).tolist() == []


RETURNS = _group([4.0, 8.0], [0.0, 0.0, 0.0], [6.0])
ANCHORS = [["start", "fridge"], ["start", "desk", "start"], ["start"]]


def test_gigpo_compares_turns_in_the_same_state_only() -> None:
    # start: 4, 0, 0, 6, of mean 2.5; fridge and desk were seen once.
    first, second, third = gigpo_steps(RETURNS, ANCHORS, norm="mean")
    assert first.tolist() == [1.5, 0.0]
    assert second.tolist() == [-2.5, 0.0, -2.5]
    assert third.tolist() == [3.5]


def test_gigpo_divides_by_the_spread_of_the_state() -> None:
    scaled = gigpo_steps(RETURNS, ANCHORS, eps=0)
    std = math.sqrt((2.25 + 6.25 + 6.25 + 12.25) / 3)
    np.testing.assert_allclose(scaled[0], [1.5 / std, 0.0])
    np.testing.assert_allclose(scaled[2], [3.5 / std])


def test_gigpo_states_of_equal_returns_get_zeros() -> None:
    assert [a.tolist() for a in gigpo_steps(_group([3.0], [3.0]), [["x"], ["x"]])] == [[0.0], [0.0]]

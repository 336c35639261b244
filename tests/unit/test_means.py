"""The interval of a mean score against scipy, numbers worked by hand, and in a small simulation."""

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student
from scipy.stats import ttest_1samp

from seedbench.statistics import Mean, clustered, mean_score, t_quantile, wilson, wilson_limits

SHARES = st.floats(0, 1) | st.sampled_from([0.0, 0.1, 1 / 3, 0.5, 1.0])
TASKS = st.lists(st.lists(SHARES, max_size=5), max_size=8)


# Student's t


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
def test_t_equals_scipy(level: float) -> None:
    for df in [*range(1, 65), 100, 499, 6909, 10**6]:
        assert t_quantile(df, level) == pytest.approx(student.ppf((1 + level) / 2, df), rel=2e-6)


def test_t_of_one_and_two_degrees_by_formula() -> None:
    for level in (0.1, 0.5, 0.95, 0.99):
        assert t_quantile(1, level) == pytest.approx(math.tan(math.pi / 2 * level), rel=1e-9)
        assert t_quantile(2, level) == pytest.approx(level * math.sqrt(2 / (1 - level**2)), rel=1e-9)


def test_t_falls_to_the_normal_quantile_without_a_step() -> None:
    values = [t_quantile(df) for df in range(1, 200)]
    assert values == sorted(values, reverse=True)
    assert values[0] == pytest.approx(12.7062, abs=1e-4)
    assert values[-1] > 1.959964
    assert t_quantile(10**7) == pytest.approx(1.959964, abs=1e-6)


def test_impossible_degrees_and_levels_are_refused() -> None:
    for df in (0, -1):
        with pytest.raises(ValueError, match="degrees of freedom"):
            t_quantile(df)
    for level in (0.0, 1.0, 95.0):
        with pytest.raises(ValueError, match="level"):
            t_quantile(5, level)
        for scores in ([[0.2], [0.4]], [[0.2], [0.2]], [[1.0]]):
            with pytest.raises(ValueError, match="level"):
                mean_score(scores, level)


# The mean


def test_worked_by_hand() -> None:
    # 0.2, 0.4, 0.6, 0.8: mean 0.5, deviation 0.2581989; 3.1824463 * 0.2581989 / 2 = 0.4108520.
    got = mean_score([[0.2], [0.4], [0.6], [0.8]])
    assert (round(got.mean or 0, 12), got.n) == (0.5, 4)
    assert (got.lo, got.hi) == pytest.approx((0.5 - 0.4108520, 0.5 + 0.4108520), abs=2e-7)


def test_repeats_worked_by_hand() -> None:
    # Three tasks, two attempts each, means 0.25, 0.5, 0.6: mean 0.45, deviation 0.1802776 on two degrees of
    # freedom, 4.3026527 * 0.1802776 / sqrt(3) = 0.4478343. What happens inside a task does not enter.
    got = mean_score([[0.0, 0.5], [0.5, 0.5], [0.9, 0.3]])
    assert (round(got.mean or 0, 12), got.n) == (0.45, 6)
    assert (got.lo, got.hi) == pytest.approx((0.45 - 0.4478343, 0.45 + 0.4478343), abs=2e-7)
    inside = mean_score([[0.25, 0.25], [0.1, 0.9], [0.6, 0.6]])
    assert (inside.lo, inside.hi) == pytest.approx((got.lo, got.hi), abs=1e-12)


def test_unequal_tasks_worked_by_hand() -> None:
    # Attempts 2 and 1, means 0.5 and 0.2: the mean over attempts is 0.4, not 0.35. Deviations of the sums:
    # 2 * 0.1 = 0.2 and -0.2; variance 2 / 1 * 0.08 / 9 = 0.0177778, half 12.7062 * 0.1333333 = 1.6941606.
    got = mean_score([[0.4, 0.6], [0.2]])
    assert got.mean == pytest.approx(0.4, abs=1e-15)
    assert (got.lo, got.hi) == (0.0, 1.0)
    scaled = mean_score([[40.0, 60.0], [20.0]])
    assert (scaled.lo, scaled.hi) == pytest.approx((40 - 169.41606, 40 + 169.41606), abs=1e-3)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=40), st.sampled_from([0.8, 0.95, 0.99]))
def test_one_attempt_a_task_is_the_t_interval_of_scipy(scores: list[float], level: float) -> None:
    if max(scores) - min(scores) < 1e-6 or set(scores) <= {0, 1}:
        return
    expected = ttest_1samp(scores, 0).confidence_interval(level)
    got = mean_score([[score] for score in scores], level)
    lo, hi = expected.low, expected.high
    if min(scores) >= 0 and max(scores) <= 1:
        lo, hi = max(0.0, lo), min(1.0, hi)
    assert (got.lo, got.hi) == pytest.approx((lo, hi), rel=1e-5, abs=1e-9)


def test_nothing_counted_has_no_mean() -> None:
    nothing = Mean(None, 0, 0.0, 1.0)
    assert mean_score([]) == mean_score([[], []]) == nothing
    assert nothing.to_json() == {"mean": None, "n": 0, "ci": [0.0, 1.0]}
    assert mean_score([[], [0.2], [0.4]]) == mean_score([[0.2], [0.4]])


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_scores_that_are_no_numbers_are_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        mean_score([[0.5], [0.2, wrong]])


# Where there is no spread


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=4), min_size=1, max_size=12))
def test_scores_of_all_or_nothing_have_the_interval_of_successes(tasks: list[list[float]]) -> None:
    got, rate = mean_score(tasks), clustered([(int(sum(task)), len(task)) for task in tasks])
    assert (got.mean, got.n, got.lo, got.hi) == (rate.rate, rate.n, rate.lo, rate.hi)


def test_a_hundred_perfect_scores_are_not_certain() -> None:
    got, rate = mean_score([[1.0]] * 100), wilson(100, 100)
    assert (got.lo, got.hi) == (rate.lo, 1.0)
    assert round(got.lo, 4) == 0.9630
    assert mean_score([[1.0] * 5] * 20).lo == pytest.approx(wilson(20, 20).lo, abs=1e-12)


@pytest.mark.parametrize(
    ("tasks", "size"),
    [
        ([[0.5]] * 10, 10),
        ([[0.5, 0.5, 0.5]] * 10, 10),
        ([[0.4, 0.6], [0.5, 0.5], [0.9, 0.1]], 3),  # equal up to rounding
        ([[0.1, 0.7, 0.7]], 1),  # a single task
        ([[0.5] * 10, [0.5]], 121 / 101),
    ],
)
def test_equal_tasks_have_wilson_limits_at_the_number_of_tasks(tasks: list[list[float]], size: float) -> None:
    got = mean_score(tasks)
    assert got.mean == pytest.approx(0.5, abs=1e-12)
    assert (got.lo, got.hi) == pytest.approx(wilson_limits(0.5, size), abs=1e-9)


def test_equal_scores_outside_the_unit_interval_are_all_that_is_known() -> None:
    assert mean_score([[2.5], [2.5]]) == Mean(2.5, 2, 2.5, 2.5)
    assert mean_score([[-1.0, 3.0]]) == Mean(1.0, 2, 1.0, 1.0)


# Invariants


@given(TASKS, st.randoms(use_true_random=False))
def test_bounded_ordered_and_blind_to_order(tasks: list[list[float]], rng: random.Random) -> None:
    got = mean_score(tasks)
    assert mean_score([rng.sample(task, len(task)) for task in rng.sample(tasks, len(tasks))]) == got
    assert got.n == sum(map(len, tasks))
    if got.mean is None:
        assert got == Mean(None, 0, 0.0, 1.0)
    else:
        assert 0.0 <= got.lo <= got.mean <= got.hi <= 1.0


def test_order_changes_no_digit_of_uneven_sums() -> None:
    rng = random.Random(4)
    tasks = [[rng.random() * 10 ** rng.randint(-9, 0) for _ in range(rng.randint(1, 4))] for _ in range(50)]
    got = mean_score(tasks)
    assert len({sum(map(sum, rng.sample(tasks, 50))) for _ in range(50)}) > 1
    for _ in range(50):
        assert mean_score([rng.sample(task, len(task)) for task in rng.sample(tasks, 50)]) == got


# Coverage


def mixture(**parts: float) -> tuple[Callable[[random.Random], float], float]:
    """Scores with their probabilities, given as `_75=0.2` for 0.75: a draw and the true mean."""
    values = [int(name[1:]) / 100 for name in parts]
    weights = list(parts.values())
    return lambda rng: rng.choices(values, weights)[0], math.fsum(v * w for v, w in zip(values, weights, strict=True))


def covered(draw: Callable[[random.Random], float], truth: float, tasks: int, attempts: int = 1) -> float:
    """Share of 1,000 simulated runs whose interval holds the truth; attempts at a task are alike half the time."""
    rng, hits = random.Random(5), 0
    for _ in range(1000):
        scores = []
        for _ in range(tasks):
            usual = draw(rng)
            scores.append([usual if rng.random() < 0.5 else draw(rng) for _ in range(attempts)])
        got = mean_score(scores)
        hits += got.lo <= truth <= got.hi
    return hits / 1000


@pytest.mark.parametrize(
    "parts",
    [
        {"_100": 0.57, "_55": 0.38, "_0": 0.05},  # a rule
        {"_100": 0.3, "_75": 0.2, "_50": 0.2, "_0": 0.3},  # a middling agent
        {"_60": 0.25, "_30": 0.25, "_10": 0.5},  # never a full score
    ],
)
@pytest.mark.parametrize(("tasks", "attempts"), [(30, 1), (100, 1), (30, 4)])
def test_coverage(parts: dict[str, float], tasks: int, attempts: int) -> None:
    assert 0.93 <= covered(*mixture(**parts), tasks, attempts) <= 0.97


def test_ignoring_the_tasks_would_claim_too_much() -> None:
    draw, truth = mixture(_100=0.3, _75=0.2, _50=0.2, _0=0.3)
    assert covered(draw, truth, 30, 4) >= 0.93
    rng, hits = random.Random(6), 0
    for _ in range(500):
        scores = [[score] * 4 for score in (draw(rng) for _ in range(30))]
        naive = mean_score([[score] for task in scores for score in task])
        hits += naive.lo <= truth <= naive.hi
    assert hits / 500 < 0.75


def test_a_few_scores_among_zeros_are_covered_less_often() -> None:
    """What docs/summary.md says of means in which nearly all tasks score the same."""
    few = mixture(_0=0.97, _30=0.02, _100=0.01)
    assert 0.78 <= covered(*few, 100) <= 0.87
    assert 0.88 <= covered(*few, 500) <= 0.94

"""Intervals against scipy, against numbers worked by hand, and in a small simulation."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from seedbench.statistics import Rate, clustered, macro, wilson, wilson_limits

ATTEMPTS = st.lists(
    st.integers(0, 6).flatmap(lambda m: st.tuples(st.integers(0, m), st.just(m))), min_size=1, max_size=12
)


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("n", [1, 2, 5, 17, 18, 23, 134, 3553])
def test_wilson_equals_scipy(n: int, level: float) -> None:
    for successes in sorted({0, 1, n // 3, n // 2, n - 1, n}):
        expected = binomtest(successes, n).proportion_ci(confidence_level=level, method="wilson")
        got = wilson(successes, n, level)
        assert got.rate == successes / n
        assert (got.lo, got.hi) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_of_small_families_at_a_true_80_percent() -> None:
    assert [round(100 * x) for x in wilson_limits(0.8, 23)] == [60, 91]
    assert [round(100 * x) for x in wilson_limits(0.8, 18)] == [57, 92]


def test_limits_at_the_ends_are_exact() -> None:
    for n in range(1, 400):
        assert wilson(0, n).lo == 0.0
        assert wilson(n, n).hi == 1.0


def test_nothing_counted_has_no_rate() -> None:
    nothing = Rate(None, 0, 0.0, 1.0)
    assert wilson(0, 0) == clustered([]) == clustered([(0, 0)]) == nothing
    assert nothing.to_json() == {"rate": None, "n": 0, "ci": [0.0, 1.0]}


def test_impossible_counts_and_levels_are_refused() -> None:
    for successes, n in [(-1, 3), (4, 3), (1, 0)]:
        with pytest.raises(ValueError, match="successes"):
            wilson(successes, n)
        with pytest.raises(ValueError, match="successes"):
            clustered([(successes, n), (0, 2)])
    for level in (0.0, 1.0, -0.1, 95.0):
        with pytest.raises(ValueError, match="level"):
            wilson(1, 2, level)


def test_clustered_worked_by_hand() -> None:
    # Four tasks, three attempts each, successes 3, 0, 2, 1: p = 6/12.
    # Sum (s - p m)^2 = 1.5^2 + 1.5^2 + 0.5^2 + 0.5^2 = 5; variance = 4/3 * 5 / 144 = 0.046296...
    # Design effect = 0.046296 / (0.25 / 12) = 20/9; effective size = 12 / (20/9) = 5.4, between 4 and 12.
    got = clustered([(3, 3), (0, 3), (2, 3), (1, 3)])
    assert (got.rate, got.n) == (0.5, 12)
    assert (got.lo, got.hi) == pytest.approx(wilson_limits(0.5, 5.4), abs=1e-12)


def test_repeats_never_count_as_better_than_independent() -> None:
    # Each task once of two: less spread between tasks than chance would give.
    got = clustered([(1, 2)] * 10)
    assert got == wilson(10, 20)


def test_perfectly_alike_attempts_count_as_one() -> None:
    got = clustered([(4, 4)] * 7 + [(0, 4)] * 3)
    once = wilson(7, 10)
    assert got.n == 40
    assert (got.rate, got.lo, got.hi) == pytest.approx((once.rate, once.lo, once.hi), abs=1e-12)


@pytest.mark.parametrize("share", [0, 1])
def test_all_or_nothing_counts_tasks(share: int) -> None:
    got = clustered([(3 * share, 3)] * 20)
    assert (got.lo, got.hi) == pytest.approx(wilson_limits(share, 20), abs=1e-12)


def test_a_single_task_counts_once_however_often_it_is_tried() -> None:
    got = clustered([(5, 8)])
    assert (got.lo, got.hi) == pytest.approx(wilson_limits(5 / 8, 1), abs=1e-12)


def test_unequal_tasks_count_as_fewer() -> None:
    # Kish: (10 + 1)^2 / (100 + 1) = 121 / 101 tasks.
    got = clustered([(0, 10), (0, 1)])
    assert (got.lo, got.hi) == pytest.approx(wilson_limits(0.0, 121 / 101), abs=1e-12)


@given(st.lists(st.booleans(), min_size=1, max_size=200))
def test_one_attempt_a_task_is_exactly_wilson(successes: list[bool]) -> None:
    assert clustered([(int(s), 1) for s in successes]) == wilson(sum(successes), len(successes))


@given(ATTEMPTS, st.randoms(use_true_random=False))
def test_clustered_is_ordered_bounded_and_blind_to_order(tasks: list[tuple[int, int]], rng: random.Random) -> None:
    got = clustered(tasks)
    shuffled = rng.sample(tasks, len(tasks))
    assert clustered(shuffled) == got
    if got.rate is None:
        return
    independent = wilson(sum(s for s, _ in tasks), got.n)
    assert 0.0 <= got.lo <= got.rate <= got.hi <= 1.0
    assert got.lo <= independent.lo + 1e-12
    assert got.hi >= independent.hi - 1e-12


def test_macro_worked_by_hand() -> None:
    # 5/10 and 18/20, k = 2: shrunk rates 6/12 = 0.5 and 19/22 = 0.8636364, centre 0.6818182;
    # variance (0.25 / 12 + 0.8636364 * 0.1363636 / 22) / 4 = 0.00654661, half width 1.959964 * 0.0809111.
    got = macro([[(1, 1)] * 5 + [(0, 1)] * 5, [(1, 1)] * 18 + [(0, 1)] * 2])
    assert got.n == 30
    assert got.rate == pytest.approx(0.7, abs=1e-12)
    assert (got.lo, got.hi) == pytest.approx((0.5232353, 0.8404010), abs=1e-6)


def test_macro_counts_alike_attempts_once() -> None:
    once = macro([[(1, 1)] * 7 + [(0, 1)] * 3, [(1, 1)] * 4 + [(0, 1)] * 8])
    got = macro([[(5, 5)] * 7 + [(0, 5)] * 3, [(5, 5)] * 4 + [(0, 5)] * 8])
    assert got.n == 110
    assert (got.rate, got.lo, got.hi) == pytest.approx((once.rate, once.lo, once.hi), abs=1e-12)


def test_macro_of_one_family_is_that_family() -> None:
    tasks = [(2, 3), (0, 3), (3, 3)]
    assert macro([tasks]) == clustered(tasks)


def test_macro_needs_every_family() -> None:
    assert macro([[(1, 1), (0, 1)], []]) == Rate(None, 2, 0.0, 1.0)
    assert macro([[(1, 1)], [(0, 0)]]) == Rate(None, 1, 0.0, 1.0)
    assert macro([]) == Rate(None, 0, 0.0, 1.0)


def test_macro_refuses_impossible_counts() -> None:
    with pytest.raises(ValueError, match="successes"):
        macro([[(1, 1)], [(2, 1)]])
    with pytest.raises(ValueError, match="level"):
        macro([[(1, 1)], [(0, 1)]], level=1.5)


@given(st.lists(ATTEMPTS, min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_macro_is_bounded_and_blind_to_the_order_of_tasks(
    families: list[list[tuple[int, int]]], rng: random.Random
) -> None:
    got = macro(families)
    assert macro([rng.sample(tasks, len(tasks)) for tasks in families]) == got
    assert got.rate is None or 0.0 <= got.lo <= got.rate <= got.hi <= 1.0


def test_clustered_coverage() -> None:
    """Task difficulties drawn from a beta distribution: the mean is covered about 95 % of the time."""
    rng = random.Random(1)
    runs, hits, naive_hits = 1000, 0, 0
    for _ in range(runs):
        tasks = []
        for _ in range(30):
            p = rng.betavariate(0.6, 0.4)
            tasks.append((sum(rng.random() < p for _ in range(4)), 4))
        got, naive = clustered(tasks), wilson(sum(s for s, _ in tasks), 120)
        hits += got.lo <= 0.6 <= got.hi
        naive_hits += naive.lo <= 0.6 <= naive.hi
    assert 0.93 <= hits / runs <= 0.975
    assert naive_hits / runs < 0.85  # what ignoring the tasks would claim


UNSEEN = (24, 18, 31, 23, 21, 17)


@pytest.mark.parametrize(
    "rates",
    [
        (0.904, 0.783, 0.795, 0.943, 0.862, 0.882),  # a strong reported method
        (0.174, 0.067, 0.088, 0.074, 0.091, 0.02),  # a weak one
        (0.03,) * 6,
        (0.5,) * 6,
    ],
)
def test_macro_coverage(rates: tuple[float, ...]) -> None:
    rng = random.Random(2)
    runs, hits = 1000, 0
    for _ in range(runs):
        # Only the sum matters where every task is tried once, so tasks of one kind may stand together.
        wins = [sum(rng.random() < p for _ in range(n)) for n, p in zip(UNSEEN, rates, strict=True)]
        got = macro([[(1, 1)] * w + [(0, 1)] * (n - w) for n, w in zip(UNSEEN, wins, strict=True)])
        hits += got.lo <= math.fsum(rates) / 6 <= got.hi
    assert 0.93 <= hits / runs <= 0.985

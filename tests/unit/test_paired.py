"""Paired tests and intervals: against scipy and statsmodels, numbers worked by hand, invariances, small simulations."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from seedbench.statistics.paired import (
    bootstrap,
    detectable,
    holm,
    mcnemar,
    newcombe,
    permutation,
    stratified,
    unseen,
)
from seedbench.statistics.seeds import _multiple, crossed, iqm, iqm_difference, iqm_interval

COUNTS = st.integers(0, 40)
DIFFERENCES = st.lists(st.sampled_from([-1.0, -2 / 3, -1 / 3, 0.0, 1 / 3, 2 / 3, 1.0]), min_size=1, max_size=40)


# McNemar


@given(COUNTS, COUNTS)
def test_mcnemar_equals_scipy(only_a: int, only_b: int) -> None:
    expected = stats.binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    assert mcnemar(only_a, only_b) == pytest.approx(expected, rel=1e-9)
    assert mcnemar(only_b, only_a) == mcnemar(only_a, only_b)


def test_mcnemar_worked_by_hand() -> None:
    assert mcnemar(0, 5) == 2 / 32
    assert mcnemar(1, 5) == pytest.approx(2 * (1 + 6) / 64, rel=1e-15)
    assert mcnemar(3, 3) == mcnemar(0, 0) == 1.0
    assert f"{mcnemar(16, 62):.1e}" == "1.5e-07"
    assert mcnemar(0, 1000) == 2.0**-999  # no underflow on the way
    with pytest.raises(ValueError, match="negative"):
        mcnemar(-1, 3)


def test_mcnemar_equals_statsmodels() -> None:
    tables = pytest.importorskip("statsmodels.stats.contingency_tables", reason="statsmodels is not installed")
    for a, b in [(3, 11), (16, 62), (0, 7), (9, 8)]:
        assert mcnemar(a, b) == pytest.approx(tables.mcnemar([[50, a], [b, 20]], exact=True).pvalue)


# Newcombe's interval


def test_newcombe_of_a_published_table() -> None:
    # Airway hyper-responsiveness before and after (1, 1, 7, 12 of 21), method 10: 0.026 to 0.507.
    assert newcombe(1, 1, 7, 12) == pytest.approx((0.0256, 0.5069), abs=5e-5)


def test_newcombe_worked_by_hand() -> None:
    # 40, 10, 20, 30: rates .5 and .6; Wilson [.40383, .59617] and [.50200, .69060]; phi = (1200 - 200 - 50) /
    # sqrt(50 * 50 * 60 * 40) = .38784. Below: sqrt(.09800^2 - 2 * .38784 * .09800 * .09617 + .09617^2) = .10744,
    # above: sqrt(.09060^2 - 2 * .38784 * .09060 * .09617 + .09617^2) = .10348.
    assert newcombe(40, 10, 20, 30) == pytest.approx((0.1 - 0.10744, 0.1 + 0.10348), abs=5e-5)


def test_newcombe_without_a_margin() -> None:
    # Both always solve: Wilson's lower limit of 134 in 134, and nothing to correlate.
    short = 1 - stats.binomtest(134, 134).proportion_ci(method="wilson").low
    assert newcombe(134, 0, 0, 0) == pytest.approx((-short, short))
    assert newcombe(0, 0, 9, 0)[1] == 1.0
    for counts in [(0, 0, 0, 0), (3, -1, 2, 2)]:
        with pytest.raises(ValueError, match="counts"):
            newcombe(*counts)


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_newcombe_holds_the_difference_and_turns_with_it(both: int, a: int, b: int, neither: int) -> None:
    n = both + a + b + neither
    if n == 0:
        return
    lo, hi = newcombe(both, a, b, neither)
    assert -1 <= lo <= (b - a) / n + 1e-12
    assert (b - a) / n - 1e-12 <= hi <= 1
    assert newcombe(both, b, a, neither) == pytest.approx((-hi, -lo), abs=1e-12)


# Permutation


@given(st.integers(0, 10), st.integers(0, 10), st.integers(0, 30))
def test_permutation_of_binary_differences_is_mcnemar(a: int, b: int, same: int) -> None:
    assert permutation([-1.0] * a + [1.0] * b + [0.0] * same) == pytest.approx(mcnemar(a, b), rel=1e-12)


def test_permutation_worked_by_hand() -> None:
    # 1, 2 and 3: of the 8 signs only +++ and --- reach 6. With -1, 2, 3 (sum 4) four of them do.
    assert permutation([1, 2, 3]) == 2 / 8
    assert permutation([-1, 2, 3]) == 4 / 8
    # Thirds that differ by rounding alone count as equal.
    assert permutation([1 / 3, 2 / 3 - 1 / 3, 1 - 2 / 3]) == 2 / 8


def test_exact_permutation_equals_scipy() -> None:
    values = np.random.default_rng(3).normal(0.4, 1, 11)
    expected = stats.permutation_test((values,), np.sum, permutation_type="samples", n_resamples=np.inf).pvalue
    assert permutation(values) == pytest.approx(expected, rel=1e-12)


def test_drawn_permutation_is_near_the_exact_one() -> None:
    exact = mcnemar(20, 34)  # 54 tasks differ: too many to list
    error = math.sqrt(exact * (1 - exact) / 100_000)
    got = permutation([-1.0] * 20 + [1.0] * 34)
    assert got == pytest.approx(exact, abs=5 * error)
    assert got != exact
    assert permutation([1.0] * 60) == 1 / 100_001  # never 0


@settings(max_examples=30)
@given(DIFFERENCES, st.randoms(use_true_random=False))
def test_permutation_is_blind_to_order_and_sides(values: list[float], rng: object) -> None:
    p = permutation(values, draws=200)
    assert 0 < p <= 1
    assert permutation(values[::-1], draws=200) == permutation([-v for v in values], draws=200) == p


def test_impossible_differences_are_refused() -> None:
    for function in (permutation, bootstrap):
        with pytest.raises(ValueError, match="finite"):
            function([0.5, math.nan])
    with pytest.raises(ValueError, match="at least one task"):
        bootstrap([])


# Bootstrap


def test_bootstrap_equals_scipy_but_for_the_expansion() -> None:
    values = np.random.default_rng(0).choice([-1, -0.5, 0, 0.5, 1], 200, p=[0.1, 0.1, 0.4, 0.2, 0.2])
    scipys = stats.bootstrap((values,), np.mean, n_resamples=10_000, method="percentile", rng=1).confidence_interval
    assert bootstrap(values) == pytest.approx((scipys.low, scipys.high), abs=0.008)


@settings(max_examples=30)
@given(DIFFERENCES)
def test_bootstrap_is_blind_to_order_and_turns_with_the_sides(values: list[float]) -> None:
    lo, hi = bootstrap(values, draws=200)
    assert lo <= math.fsum(values) / len(values) + 0.2
    assert -1 <= lo <= hi <= 1
    assert bootstrap(values[::-1], draws=200) == (lo, hi)
    assert bootstrap([-v for v in values], draws=200) == pytest.approx((-hi, -lo), abs=1e-12)


def test_no_spread_is_not_certainty() -> None:
    # Wilson's upper limit of 0 in 20 is 3.8415 / 23.8415 = .16113.
    assert bootstrap([0.0] * 20) == pytest.approx((-0.16113, 0.16113), abs=5e-6)
    assert unseen(1.0, 20) == pytest.approx((1 - 2 * 0.16113, 1.0), abs=5e-5)


@pytest.mark.parametrize("n", [18, 134])
def test_bootstrap_coverage(n: int) -> None:
    rng = np.random.default_rng(n)
    hits = 0
    for _ in range(400):
        lo, hi = bootstrap(rng.choice([-1, -0.5, 0, 0.5, 1], n, p=[0.1, 0.1, 0.3, 0.2, 0.3]), draws=500)
        hits += lo <= 0.25 <= hi
    assert 0.92 <= hits / 400 <= 0.98


# Power


def test_detectable_solves_connors_formula() -> None:
    for square, n in [(0.3, 240), (0.5, 134), (0.2, 500)]:
        d = detectable(square, n) - 1 / n
        z, w = stats.norm.ppf(0.975), stats.norm.ppf(0.8)
        grown = square + d * d  # agents that differ disagree more
        assert (z * math.sqrt(grown) + w * math.sqrt(grown - d * d)) ** 2 / d**2 == pytest.approx(n, rel=1e-9)
        assert detectable(square, n, binary=False) == pytest.approx(d)


def test_detectable_never_exceeds_the_disagreement_it_needs() -> None:
    # No disagreement: d n = (z + w sqrt(1 - d))^2 with d itself as disagreement; n = 240 gives 7.7721 / 240 = .03238.
    assert detectable(0.0, 240) == pytest.approx(0.03238 + 1 / 240, abs=1e-5)
    assert detectable(0.01, 240) == detectable(0.0, 240)
    assert detectable(0.5, 1) == 1.0


@pytest.mark.parametrize(("square", "n"), [(0.3, 240), (0.5, 134), (0.1, 23)])
def test_power_of_the_exact_test_at_the_detectable_difference(square: float, n: int) -> None:
    d = detectable(square, n)
    disagreement = max(square + d * d, d)
    power = 0.0
    for m in range(n + 1):
        ks = np.arange(m + 1)
        rejected = np.array([mcnemar(int(k), m - int(k)) <= 0.05 for k in ks])
        wins = stats.binom.pmf(ks, m, (disagreement + d) / (2 * disagreement))
        power += stats.binom.pmf(m, n, disagreement) * wins[rejected].sum()
    assert 0.8 <= power <= 0.9


@pytest.mark.parametrize("df", [3, 10, 60])
def test_a_repetition_finds_what_is_detectable_with_seeds(df: int) -> None:
    rng = np.random.default_rng(df)
    t = float(stats.t.ppf(0.975, df))
    first, second = np.sqrt(rng.chisquare(df, (2, 100_000)) / df)  # standard errors of a study and its repetition
    found = _multiple(t, df) * first + rng.standard_normal(100_000) > t * second
    assert 0.79 <= found.mean() <= 0.83
    assert _multiple(1.959964, 10**9) == pytest.approx(1.959964 + 0.841621, abs=1e-5)


# The mean of families


def test_stratified_worked_by_hand() -> None:
    # One family, 1 task only A, 5 only B, 14 alike: Bonett and Price's (2012) shares 2/22 and 6/22, difference 4/22,
    # variance (8/22 - (4/22)^2) / 22 = .0150263; .181818 -+ 1.959964 * .122582.
    one = [-1.0] + [1.0] * 5 + [0.0] * 14
    assert stratified([one]) == pytest.approx((-0.058439, 0.422075), abs=2e-6)
    # And a family of 9 that only B ever solves: k = 2 adds 1/2 to each side. Means 4 / 21 and 9 / 10, squares 7 / 21
    # and 10 / 10, variances (1/3 - 16/441) / 21 and (1 - .81) / 10; half 1.959964 * sqrt(.0331456) / 2.
    lo, hi = stratified([one, [1.0] * 9])
    assert (lo, hi) == pytest.approx((0.545238 - 0.178414, 0.545238 + 0.178414), abs=2e-6)
    assert stratified([[0.5, 0.25]]) == stratified([[0.25, 0.5]])


@settings(max_examples=50)
@given(st.lists(DIFFERENCES, min_size=1, max_size=4))
def test_stratified_holds_the_mean_of_families_and_turns_with_the_sides(families: list[list[float]]) -> None:
    mean = sum(sum(of) / len(of) for of in families) / len(families)
    lo, hi = stratified(families)
    assert -1 <= lo <= mean + 1e-12
    assert mean - 1e-12 <= hi <= 1
    assert lo < hi  # families without a difference are not certain of it
    assert stratified([[-d for d in of] for of in families]) == pytest.approx((-hi, -lo), abs=1e-12)


def test_stratified_needs_tasks() -> None:
    for nothing in ([], [[1.0], []]):
        with pytest.raises(ValueError, match="every family"):
            stratified(nothing)


def test_stratified_coverage() -> None:
    """Six families of ALFWorld's sizes, of which some have hardly a disagreement."""
    rng, hits = np.random.default_rng(3), 0
    only_b = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.4])
    for _ in range(1000):
        families = [
            rng.choice([-1.0, 1.0, 0.0], n, p=[0.05, p, 0.95 - p])
            for n, p in zip((24, 18, 31, 23, 17, 21), only_b, strict=True)
        ]
        lo, hi = stratified(families)
        hits += lo <= (only_b - 0.05).mean() <= hi
    assert 0.93 <= hits / 1000 <= 0.97


# Holm


def test_holm_worked_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_equals_statsmodels() -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest", reason="statsmodels is not installed")
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 12, 30):
        ps = list(np.round(rng.random(size) ** 3, 2))  # some are equal
        assert holm(ps) == pytest.approx(list(multitest.multipletests(ps, method="holm")[1]))


# Seeds


def test_iqm_equals_scipys_trimmed_mean() -> None:
    scores = np.random.default_rng(0).random((5, 7))
    assert iqm(scores) == pytest.approx(stats.trim_mean(scores, 0.25, axis=None))
    assert iqm([0.0, 1.0, 3.0, 100.0]) == 2.0
    with pytest.raises(ValueError, match="at least one"):
        iqm([])


def test_stratified_resampling_worked_by_hand() -> None:
    # Two seeds, one stratum of 0 and 1: the means 0, .5 and 1 come with 1/4, 1/2, 1/4.
    assert iqm_interval([[0.0], [1.0]]) == (0.0, 1.0)
    assert iqm_interval([[0.0], [1.0]], level=0.4) == (0.5, 0.5)
    # A stratum whose seeds agree stays as it is, whatever is drawn in the others.
    assert iqm_interval([[0.4, 0.7], [0.4, 0.7]]) == pytest.approx((0.55, 0.55))


def test_paired_seeds_are_resampled_together() -> None:
    a = np.array([[0.1, 0.2], [0.6, 0.9], [0.3, 0.3], [0.5, 0.2]])
    assert iqm_difference(a, a, paired=True) == (0.0, 0.0)
    lo, hi = iqm_difference(a, a, paired=False)
    assert lo < -0.1
    assert hi > 0.1
    with pytest.raises(ValueError, match="as many"):
        iqm_difference(a, a[:2], paired=True)


def test_crossed_worked_by_hand() -> None:
    # 2 seeds, 3 tasks, differences (.6 .2 .4) and (.2 .2 .2). Task means .4 .2 .3: V_tasks = .01 / 3. Seed means .4
    # and .2: V_seeds = .02 / 2. Residuals (.1 -.1 0) and (-.1 .1 0): .04 over 1 * 2 degrees, V_rest = .02 / 6.
    # V = .01; df = .01^2 / ((.01 / 3)^2 / 2 + .01^2 + (.02 / 6)^2 / 2) = .9, so 1: t = 3, p = 1 - 2 / pi * atan(3).
    got = crossed(np.zeros((2, 3)), [[0.6, 0.2, 0.4], [0.2, 0.2, 0.2]], paired=True)
    assert got.df == 1
    assert got.difference == pytest.approx(0.3)
    assert got.p == pytest.approx(0.20483, abs=1e-5)
    assert (got.lo, got.hi) == pytest.approx((0.3 - 12.7062 * 0.1, 1.0), abs=1e-5)
    # Four seeds, as noisy: more degrees of freedom, and Student's t by scipy.
    b = np.array([[0.6, 0.2, 0.4], [0.2, 0.2, 0.2], [0.5, 0.3, 0.4], [0.3, 0.1, 0.2]])
    got = crossed(np.zeros((4, 3)), b, paired=True)
    seeds, tasks = b.mean(axis=1).var(ddof=1) / 4, b.mean(axis=0).var(ddof=1) / 3
    rest = ((b - b.mean(axis=1, keepdims=True) - b.mean(axis=0) + b.mean()) ** 2).sum() / 6 / 12
    variance = tasks + seeds - rest
    df = math.floor(variance**2 / (tasks**2 / 2 + seeds**2 / 3 + rest**2 / 6))
    assert got.df == df
    assert got.p == pytest.approx(2 * stats.t.sf(b.mean() / math.sqrt(variance), df), rel=1e-6)
    half = stats.t.ppf(0.975, df) * math.sqrt(variance)
    assert (got.lo, got.hi) == pytest.approx((b.mean() - half, b.mean() + half), rel=1e-6)


def test_crossed_turns_with_the_sides_and_ignores_the_order_of_seeds() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.random((3, 40)), rng.random((3, 40))
    for paired in (True, False):
        got, turned = crossed(a, b, paired=paired), crossed(b, a, paired=paired)
        again = crossed(a[::-1], b[::-1], paired=paired)
        assert (turned.difference, turned.lo, turned.hi) == pytest.approx((-got.difference, -got.hi, -got.lo))
        assert (turned.p, again.p) == pytest.approx((got.p, got.p))
    with pytest.raises(ValueError, match="same tasks"):
        crossed(a, b[:, :3], paired=False)


def test_one_seed_a_side_is_the_t_test_over_tasks() -> None:
    rng = np.random.default_rng(6)
    a, b = rng.random((1, 50)), rng.random((1, 50))
    expected = stats.ttest_rel(b[0], a[0])
    got = crossed(a, b, paired=False)
    interval = expected.confidence_interval()
    assert got.df == 49
    assert got.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert (got.lo, got.hi) == pytest.approx((interval.low, interval.high), rel=1e-5)


def test_crossed_families_of_one_seed_are_welchs_test() -> None:
    # The mean of d and -e is half the difference of the means of d and e.
    rng = np.random.default_rng(8)
    d, e = rng.random(12), rng.random(30) ** 2
    got = crossed(np.zeros((1, 42)), [[*d, *-e]], paired=False, families=[0] * 12 + [1] * 30)
    welch = stats.ttest_ind(d, e, equal_var=False)
    assert got.difference == pytest.approx((d.mean() - e.mean()) / 2)
    assert got.df == math.floor(welch.df)
    assert got.p == pytest.approx(2 * stats.t.sf(abs(welch.statistic), got.df))


def test_crossed_families_worked_by_hand() -> None:
    # The two seeds and three tasks of above, twice: the mean is the same; V_tasks and V_rest halve; V_seeds does not.
    b = np.array([[0.6, 0.2, 0.4], [0.2, 0.2, 0.2]])
    got = crossed(np.zeros((2, 6)), np.hstack([b, b]), paired=True, families=list("xxxyyy"))
    tasks, seeds, rest = 0.01 / 6, 0.01, 0.02 / 12
    df = (tasks + seeds - rest) ** 2 / (2 * (tasks / 2) ** 2 / 2 + seeds**2 + 2 * (rest / 2) ** 2 / 2)
    assert got.difference == pytest.approx(0.3)
    assert got.df == max(1, math.floor(df))
    assert got.lo == pytest.approx(0.3 - 12.7062 * math.sqrt(tasks + seeds - rest), abs=1e-5)
    same = crossed(np.zeros((2, 3)), b, paired=True)
    assert crossed(np.zeros((2, 3)), b, paired=True, families=[7, 7, 7]) == same


def test_crossed_without_any_spread() -> None:
    got = crossed(np.zeros((2, 20)), np.zeros((2, 20)), paired=True)
    assert (got.difference, got.p) == (0.0, 1.0)
    assert (got.lo, got.hi) == pytest.approx(unseen(0.0, 20))


@pytest.mark.parametrize("paired", [True, False])
def test_crossed_is_not_fooled_by_seeds(paired: bool) -> None:
    """Equal methods whose seeds vary by 8 points: tasks alone would claim a difference in 20 to 40 % of studies."""
    rng = np.random.default_rng(7)
    claims = naive = 0
    for _ in range(400):
        rates = np.clip(rng.beta(0.8, 0.8, 100) + rng.normal(0, 0.08, (2, 3, 1)), 0, 1)
        solved = (rng.random(rates.shape) < rates).astype(float)
        claims += crossed(solved[0], solved[1], paired=paired).p < 0.05
        by_task = solved[1].mean(axis=0) - solved[0].mean(axis=0)
        naive += stats.ttest_1samp(by_task, 0).pvalue < 0.05
    assert claims / 400 <= 0.08
    assert naive / 400 >= 0.2

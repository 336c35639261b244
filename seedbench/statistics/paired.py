"""Two agents on the same tasks: exact tests, intervals of the difference, and what a panel could have shown.

Differences are always B - A, task by task. No result depends on the order of the tasks, and swapping A and B only
turns the sign: what is drawn at random is drawn from a fixed seed, over sorted values.

- McNemar Q (1947). Note on the sampling error of the difference between correlated proportions. Psychometrika 12:153.
- Newcombe RG (1998). Improved confidence intervals for the difference between binomial proportions based on paired
  data. Statistics in Medicine 17:2635-2650 (method 10).
- Bonett DG, Price RM (2012). Adjusted Wald confidence interval for a difference of binomial proportions based on
  paired data. Journal of Educational and Behavioral Statistics 37:479-488; for k families after Price and Bonett
  (2004), Computational Statistics & Data Analysis 45:449-456.
- Connor RJ (1987). Sample size for testing differences in proportions for the paired-sample design. Biometrics 43:207.
- Edwards AL (1948). Note on the correction for continuity in testing the significance of the difference between
  correlated proportions. Psychometrika 13:185.
- Hesterberg TC (2015). What teachers should know about the bootstrap. American Statistician 69:371-386 (percentiles
  expanded for small samples).
- Phipson B, Smyth GK (2010). Permutation p-values should never be zero. Stat. Appl. Genet. Mol. Biol. 9:39.
- Holm S (1979). A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics 6:65-70.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seedbench.statistics.intervals import wilson_limits
from seedbench.statistics.means import t_quantile

_EXACT_TO = 20
"""Tasks with a difference up to which all 2^n signs are listed."""

_DIGITS = 12
"""Differences of means such as 2/3 - 1/3 are rounded; beyond these digits they count as equal."""

_NORMAL = NormalDist()


def mcnemar(only_a: int, only_b: int) -> float:
    """Two-sided p of the exact McNemar test, from the tasks that only A and only B solves: binomial with share 1/2.

    Raises ValueError for a negative count.
    """
    if min(only_a, only_b) < 0:
        raise ValueError("counts of tasks must not be negative")
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(only_a, only_b), only_a + only_b, 0.5)))


def newcombe(both: int, only_a: int, only_b: int, neither: int, level: float = 0.95) -> tuple[float, float]:
    """Interval of rate(B) - rate(A) for one attempt a task, from how many tasks were solved by whom.

    Newcombe's method 10: Wilson's limits of both rates, put together with their correlation, whose numerator is
    corrected by n/2 where it is positive. Raises ValueError for a negative count or none at all.
    """
    counts = (both, only_a, only_b, neither)
    n = sum(counts)
    if min(counts) < 0 or n == 0:
        raise ValueError("the four counts of tasks must not be negative, nor all 0")
    rate_a, rate_b = (both + only_a) / n, (both + only_b) / n
    (low_a, high_a), (low_b, high_b) = wilson_limits(rate_a, n, level), wilson_limits(rate_b, n, level)
    margins = (both + only_a) * (only_b + neither) * (both + only_b) * (only_a + neither)
    cross = both * neither - only_a * only_b
    phi = (max(cross - n / 2, 0.0) if cross > 0 else cross) / math.sqrt(margins) if margins else 0.0

    def reach(b: float, a: float) -> float:
        return math.sqrt(max(0.0, b * b - 2 * phi * b * a + a * a))

    difference = (only_b - only_a) / n
    lo = difference - reach(rate_b - low_b, high_a - rate_a)
    hi = difference + reach(high_b - rate_b, rate_a - low_a)
    return max(-1.0, lo), min(1.0, hi)


def permutation(differences: ArrayLike, *, seed: int = 0, draws: int = 100_000) -> float:
    """Two-sided p of the paired permutation test: the sign of each task's difference is a coin's, if A and B are equal.

    Args:
        differences: (n,) B - A of each task, a mean over attempts or a score. The statistic is their sum.
        seed: of the random signs.
        draws: random assignments of signs where more than 20 tasks differ (up to 20 all are listed: exact). The
            observed one counts among them, so that p is at least 1 / (draws + 1).

    With one attempt a task and success it is the exact McNemar test. Raises ValueError for a number that is not finite.
    """
    # Not scipy.stats.permutation_test: it knows nothing of equal sizes, and so takes 7 times as long where tasks have
    # some attempts and lists all signs of 16 tasks in 500 times the time; its random p depends on the order of tasks.
    values = _finite(differences)
    sizes, counts = np.unique(np.abs(values[values != 0]), return_counts=True)
    observed = abs(math.fsum(values)) - 1e-9  # equal sums, added in another order
    if counts.sum() <= _EXACT_TO:
        sums = np.zeros(1)
        for size in np.repeat(sizes, counts):
            sums = np.concatenate((sums - size, sums + size))
        return float(np.mean(np.abs(sums) >= observed))
    rng, sums = np.random.default_rng(seed), np.zeros(draws)
    for size, count in zip(sizes, counts, strict=True):  # `count` coins of one size at once
        sums += size * (2.0 * rng.binomial(count, 0.5, draws) - count)
    return float((1 + np.count_nonzero(np.abs(sums) >= observed)) / (1 + draws))


def bootstrap(
    differences: ArrayLike, *, seed: int = 0, draws: int = 10_000, level: float = 0.95
) -> tuple[float, float]:
    """Interval of the mean difference, from `draws` resamples of whole tasks, with all attempts at them.

    Args:
        differences: (n,) B - A of each task, each in [-1, 1].
        seed: of the resamples.
        draws: how many.
        level: coverage, in (0, 1).

    Percentiles, expanded as Hesterberg does so that few tasks are covered as often as many. Where all differences are
    equal a resample says nothing; see `unseen`. Raises ValueError for no difference or one that is not finite.
    """
    from scipy import stats

    values = np.sort(_finite(differences))
    n = len(values)
    if n == 0:
        raise ValueError("an interval needs at least one task")
    if values[0] == values[-1]:
        return unseen(float(values[0]), n, level)
    mirrored = -values[::-1]
    if tuple(values) < tuple(mirrored):  # one of the two orders of A and B is drawn, the other is its mirror
        lo, hi = bootstrap(mirrored, seed=seed, draws=draws, level=level)
        return -hi, -lo
    expanded = 2 * _NORMAL.cdf(math.sqrt(n / (n - 1)) * t_quantile(n - 1, level)) - 1
    drawn = stats.bootstrap(
        (values,), np.mean, n_resamples=draws, batch=1000, method="percentile", confidence_level=expanded, rng=seed
    )
    lo, hi = map(float, drawn.confidence_interval)
    if np.array_equal(values, mirrored):  # its own mirror, and so is its interval
        return (lo - hi) / 2, (hi - lo) / 2
    return lo, hi


def stratified(families: Sequence[ArrayLike], level: float = 0.95) -> tuple[float, float]:
    """Interval of the mean of the families' mean differences, where every family weighs the same.

    Args:
        families: of each family the differences B - A of its tasks, (n,) in [-1, 1].
        level: coverage, in (0, 1).

    Bonett and Price's (2012) adjusted Wald interval for paired proportions, carried over to k families as the same
    authors (2004) do for independent ones: before mean and variance are taken, each family gets 1/k of a task that A
    alone and 1/k of one that B alone solves. Differences that are not -1, 0 or 1 get the greatest that occurs instead.
    Raises ValueError for a family without tasks, or a number that is not finite.
    """
    values = [_finite(family) for family in families]
    if not values or min(map(len, values)) == 0:
        raise ValueError("an interval needs at least one task in every family")
    k, largest = len(values), max(float(np.abs(of).max()) for of in values) or 1.0
    sizes = [len(of) + 2 / k for of in values]
    means = [math.fsum(of) / size for of, size in zip(values, sizes, strict=True)]
    squares = [(math.fsum(of**2) + 2 / k * largest**2) / size for of, size in zip(values, sizes, strict=True)]
    variance = math.fsum((q - m * m) / size for q, m, size in zip(squares, means, sizes, strict=True)) / k**2
    centre, half = math.fsum(means) / k, _NORMAL.inv_cdf((1 + level) / 2) * math.sqrt(variance)
    difference = math.fsum(math.fsum(of) / len(of) for of in values) / k
    return max(-1.0, min(difference, centre - half)), min(1.0, max(difference, centre + half))


def unseen(difference: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Interval of a mean difference in [-1, 1] that all n tasks share: what differed on no task may differ on some.

    Their share is at most Wilson's upper limit of 0 in n, and each of them may be -1 or 1.
    """
    share = wilson_limits(0.0, n, level)[1]
    return max(-1.0, difference * (1 - share) - share), min(1.0, difference * (1 - share) + share)


def detectable(square: float, n: float, *, binary: bool = True, power: float = 0.8, level: float = 0.95) -> float:
    """The smallest true difference, in [0, 1], that a paired test on n tasks finds with probability `power`.

    Args:
        square: mean of the squared differences of the tasks; with one attempt a task, the share of tasks on which the
            two disagree.
        n: tasks, at least 1; where they weigh differently, 1 / the sum of their squared weights.
        binary: whether a task's difference is -1, 0 or 1.
        power: in (0.5, 1).
        level: 1 - size of the two-sided test.

    Solves Connor's (1987) n = (z_level sqrt(q) + z_power sqrt(q - d^2))^2 / d^2 for d, where q = square + d^2: agents
    that differ by d disagree by so much more than they would without. Binary differences cannot be greater than the
    disagreement; where the solution would be, q = d. They get 1/n on top, Edwards' (1948) continuity correction:
    without it the exact test would find them in 75 to 79 % of cases. It is the power of one comparison; Holm's
    correction asks for more.
    """
    z, w = _NORMAL.inv_cdf((1 + level) / 2), _NORMAL.inv_cdf(power)
    if n <= z * z:
        return 1.0
    exact = 1 / n if binary else 0.0
    found = math.sqrt(square) * (w * math.sqrt(n) + z * math.sqrt(n - z * z + w * w)) / (n - z * z)
    if found > 0 and (not binary or found <= square + found**2):
        return min(1.0, found + exact)
    # n d = (z + w sqrt(1 - d))^2 is quadratic in sqrt(1 - d), which is `rest`.
    rest = (math.sqrt(n * (n + w * w - z * z)) - z * w) / (n + w * w)
    return min(1.0, 1 - max(0.0, rest) ** 2 + exact)


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given: rejecting those <= .05 errs in any of them in 5 % at most."""
    adjusted, highest = [1.0] * len(ps), 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = highest
    return adjusted


def _finite(differences: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(np.round(np.asarray(differences, dtype=np.float64), _DIGITS) + 0.0)  # no -0.0
    if not np.isfinite(values).all():
        raise ValueError("a difference must be a finite number")
    return values

"""Several training seeds of each method: is the difference one of the methods, or of the seeds that were drawn?

- Agarwal R, Schwarzer M, Castro PS, Courville A, Bellemare MG (2021). Deep reinforcement learning at the edge of the
  statistical precipice. NeurIPS (interquartile mean, stratified bootstrap).
- Clark HH (1973). The language-as-fixed-effect fallacy. J. Verbal Learning and Verbal Behavior 12:335-359 (both the
  tasks and the seeds are a sample; quasi-F).
- Satterthwaite FE (1946). An approximate distribution of estimates of variance components. Biometrics Bulletin 2:110.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seedbench.statistics.paired import permutation, unseen

PAIRED_FROM = 5
"""Seeds from which differences are taken seed by seed. Of fewer, a paired variance is small by chance so often that 5
to 9 % of equal methods would be told apart; taken as different seeds, 3 % of three seeds and 6 % of two."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Crossed:
    """A difference of means B - A over tasks and seeds."""

    difference: float
    lo: float
    hi: float
    p: float
    df: int
    """Degrees of freedom, between seeds - 1 and tasks - 1: low where the seeds decide."""
    detectable: float
    """The smallest true difference that this test finds in 80 % of studies as noisy as this one."""


def iqm(scores: ArrayLike) -> float:
    """Interquartile mean of all scores, of any shape: a quarter is cut off at each end, rounded down, as in rliable.

    Raises ValueError where there is no score.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.size == 0:
        raise ValueError("an interquartile mean needs at least one score")
    return float(_iqms(values[None])[0])


def iqm_interval(scores: ArrayLike, *, seed: int = 0, draws: int = 10_000, level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of `iqm` from a stratified bootstrap: runs are resampled within each stratum by itself.

    Args:
        scores: (seeds, strata), e.g. the success rate of each training seed on each family; at least 2 seeds.
        seed: of the resamples.
        draws: how many.
        level: coverage, in (0, 1).

    It is rliable's definition, made for strata that were trained apart. A seed that is good on all families at once is
    not seen by it; `crossed` does see it.
    """
    values = np.asarray(scores, dtype=np.float64)
    return _limits(_iqms(_resampled(values, _picks(values, seed, draws))), level)


def iqm_difference(
    a: ArrayLike, b: ArrayLike, *, paired: bool, seed: int = 0, draws: int = 10_000, level: float = 0.95
) -> tuple[float, float]:
    """Percentile interval of iqm(b) - iqm(a), as `iqm_interval`; paired: rows are the same seeds, resampled together.

    Raises ValueError where paired arrays differ in shape.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if paired and first.shape != second.shape:
        raise ValueError("paired seeds must be as many on both sides")
    picks = _picks(first, seed, draws)
    others = picks if paired else _picks(second, seed + 1, draws)
    return _limits(_iqms(_resampled(second, others)) - _iqms(_resampled(first, picks)), level)


def crossed(
    a: ArrayLike, b: ArrayLike, *, paired: bool, families: ArrayLike | None = None, level: float = 0.95
) -> Crossed:
    """Difference of two methods where both the tasks and the training seeds are a sample.

    Args:
        a: (seeds of A, tasks) success or score, means over attempts, each in [0, 1].
        b: (seeds of B, tasks), the same tasks in the same order.
        paired: row i of both was trained with the same seed, and the differences are taken seed by seed.
        families: (tasks,) the family of each task, of at least 2 tasks each: the difference is then the mean of the
            families' differences, and tasks vary within their family. None: all tasks weigh the same.
        level: coverage, in (0, 1).

    The variance of the mean is V = V_tasks + V_seeds - V_rest, from the mean squares of a two-way layout without
    replication; no estimate below V_tasks or V_seeds is believed. p and interval are Student's with Satterthwaite's
    degrees of freedom, rounded down. A side of one seed adds no V_seeds: nothing is known of its variation.
    Raises ValueError where the tasks, or the seeds of paired sides, are not as many.
    """
    from scipy.special import stdtr, stdtrit

    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape[1] != second.shape[1] or (paired and first.shape != second.shape):
        raise ValueError("both sides need the same tasks, and paired sides the same seeds")
    by_task = second.mean(axis=0) - first.mean(axis=0)
    n = len(by_task)
    kinds = np.zeros(n) if families is None else np.asarray(families)
    groups = [kinds == kind for kind in np.unique(kinds)]
    weights = np.sum([group / group.sum() / len(groups) for group in groups], axis=0)
    difference = float(by_task @ weights)
    sides = [x for x in ([second - first] if paired else [first, second]) if len(x) > 1 and n > 1]
    varied = [group for group in groups if group.sum() > 1]
    of_tasks = [(float(by_task[g].var(ddof=1)) / g.sum() / len(groups) ** 2, g.sum() - 1) for g in varied]
    of_seeds = [(float((x @ weights).var(ddof=1)) / len(x), len(x) - 1) for x in sides]
    of_rest = [_rest_part(x[:, g], len(groups)) for x in sides for g in varied]
    tasks, seeds, rest = (math.fsum(part for part, _ in parts) for parts in (of_tasks, of_seeds, of_rest))
    variance = max(tasks + seeds - rest, tasks, seeds)
    if variance < 1e-18:  # neither task nor seed changes anything: see `unseen`
        lo, hi = unseen(difference, 1 / float(weights @ weights), level)
        return Crossed(difference, lo, hi, permutation(by_task * weights * n), max(1, n - 1), (hi - lo) / 2)
    spread = math.fsum(part**2 / df for part, df in of_tasks + of_seeds + of_rest)
    df = max(1, math.floor(variance**2 / spread + 1e-9))
    error = math.sqrt(variance)
    half = float(stdtrit(df, (1 + level) / 2)) * error
    p = 2 * float(stdtr(df, -abs(difference) / error))
    enough = _multiple(float(stdtrit(df, (1 + level) / 2)), df) * error
    return Crossed(difference, max(-1.0, difference - half), min(1.0, difference + half), p, df, min(1.0, enough))


def _multiple(t: float, df: int, power: float = 0.8) -> float:
    """How many estimated standard errors a difference must have, so that a repetition finds it with this power.

    The repetition finds c with probability P(c s + e > t s'): e is normal, s and s' are independent estimates of the
    error 1 on df degrees of freedom, of mean about m = 1 - 1 / (4 df) and variance 1 - m^2. With their sum taken as
    normal that is (c - t) m = z_power sqrt(1 + (t^2 + c^2) (1 - m^2)), quadratic in c.
    """
    square, w = (1 - 1 / (4 * df)) ** 2, NormalDist().inv_cdf(power) ** 2
    first = square - w * (1 - square)
    return (
        t * square + math.sqrt((t * square) ** 2 - first * (t * t * square - w * (1 + t * t * (1 - square))))
    ) / first


def _rest_part(x: Floats, families: int) -> tuple[float, int]:
    """(seeds, tasks of one of `families`) -> what neither seed nor task explains of that variance, and its df."""
    k, n = x.shape
    rest = x - x.mean(axis=1, keepdims=True) - x.mean(axis=0) + x.mean()
    df = (k - 1) * (n - 1)
    return float((rest**2).sum()) / df / (k * n) / families**2, df


def _picks(scores: Floats, seed: int, draws: int) -> NDArray[np.int64]:
    """(draws, seeds, strata) rows to take, each stratum by itself."""
    return np.random.default_rng(seed).integers(len(scores), size=(draws, *scores.shape))


def _resampled(scores: Floats, picks: NDArray[np.int64]) -> Floats:
    return scores[picks, np.arange(scores.shape[1])]


def _iqms(scores: Floats) -> Floats:
    """(draws, ...) -> (draws,)"""
    from scipy.stats import trim_mean

    return np.asarray(trim_mean(scores.reshape(len(scores), -1), 0.25, axis=1))


def _limits(values: Floats, level: float) -> tuple[float, float]:
    lo, hi = np.quantile(values, ((1 - level) / 2, (1 + level) / 2))
    return float(lo), float(hi)

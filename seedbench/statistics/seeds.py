"""Several training seeds of each method: is the difference one of the methods, or of the seeds that were drawn?

- Agarwal R, Schwarzer M, Castro PS, Courville A, Bellemare MG (2021). Deep reinforcement learning at the edge of the
  statistical precipice. NeurIPS (interquartile mean, stratified bootstrap).
- Clark HH (1973). The language-as-fixed-effect fallacy. J. Verbal Learning and Verbal Behavior 12:335-359 (both the
  tasks and the seeds are a sample; quasi-F).
- Satterthwaite FE (1946). An approximate distribution of estimates of variance components. Biometrics Bulletin 2:110.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seedbench.statistics.means import t_probability, t_quantile
from seedbench.statistics.paired import permutation, unseen

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


def crossed(a: ArrayLike, b: ArrayLike, *, paired: bool, level: float = 0.95) -> Crossed:
    """Difference of two methods where both the tasks and the training seeds are a sample.

    Args:
        a: (seeds of A, tasks) success or score, means over attempts, each in [0, 1].
        b: (seeds of B, tasks), the same tasks in the same order.
        paired: row i of both was trained with the same seed, and the differences are taken seed by seed.
        level: coverage, in (0, 1).

    The variance of the mean is V = V_tasks + V_seeds - V_rest, from the mean squares of a two-way layout without
    replication; no estimate below V_tasks or V_seeds is believed. p and interval are Student's with Satterthwaite's
    degrees of freedom, rounded down. A side of one seed adds no V_seeds: nothing is known of its variation.
    Raises ValueError where the tasks, or the seeds of paired sides, are not as many.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape[1] != second.shape[1] or (paired and first.shape != second.shape):
        raise ValueError("both sides need the same tasks, and paired sides the same seeds")
    by_task = second.mean(axis=0) - first.mean(axis=0)
    n, difference = len(by_task), float(by_task.mean())
    parts = [_variances(x) for x in ([second - first] if paired else [first, second]) if len(x) > 1 and n > 1]
    tasks = float(by_task.var(ddof=1)) / n if n > 1 else 0.0
    seeds, rest = (math.fsum(part[i] for part in parts) for i in (0, 1))
    variance = max(tasks + seeds - rest, tasks, seeds)
    if variance < 1e-18:  # neither task nor seed changes anything: see `unseen`
        lo, hi = unseen(difference, n, level)
        return Crossed(difference, lo, hi, permutation(by_task), max(1, n - 1), (hi - lo) / 2)
    spread = tasks**2 / (n - 1) + math.fsum(v * v / (k - 1) + r * r / ((k - 1) * (n - 1)) for v, r, k in parts)
    df = max(1, math.floor(variance**2 / spread + 1e-9))
    error = math.sqrt(variance)
    half = t_quantile(df, level) * error
    p = max(0.0, 1 - t_probability(df, math.atan(abs(difference) / error / math.sqrt(df))))
    enough = half + t_quantile(df, 0.6) * error  # 80 % lie below the two-sided quantile of 60 %
    return Crossed(difference, max(-1.0, difference - half), min(1.0, difference + half), p, df, min(1.0, enough))


def _variances(x: Floats) -> tuple[float, float, int]:
    """(seeds, tasks) -> variance of the mean from seeds, from what neither seed nor task explains; the seeds."""
    k, n = x.shape
    rest = x - x.mean(axis=1, keepdims=True) - x.mean(axis=0) + x.mean()
    return float(x.mean(axis=1).var(ddof=1)) / k, float((rest**2).sum()) / ((k - 1) * (n - 1) * k * n), k


def _picks(scores: Floats, seed: int, draws: int) -> NDArray[np.int64]:
    """(draws, seeds, strata) rows to take, each stratum by itself."""
    return np.random.default_rng(seed).integers(len(scores), size=(draws, *scores.shape))


def _resampled(scores: Floats, picks: NDArray[np.int64]) -> Floats:
    return scores[picks, np.arange(scores.shape[1])]


def _iqms(scores: Floats) -> Floats:
    """(draws, ...) -> (draws,)"""
    flat = np.sort(scores.reshape(len(scores), -1), axis=1)
    cut = flat.shape[1] // 4
    return np.asarray(flat[:, cut : flat.shape[1] - cut].mean(axis=1))


def _limits(values: Floats, level: float) -> tuple[float, float]:
    lo, hi = np.quantile(values, ((1 - level) / 2, (1 + level) / 2))
    return float(lo), float(hi)

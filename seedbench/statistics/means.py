"""The mean of scores with a two-sided interval that counts tasks, not attempts.

- Student (1908). The probable error of a mean. Biometrika 6:1-25.
- Cochran WG (1977). Sampling Techniques, 3rd edition. Wiley, section 2.11 and chapter 6 (ratio of two sums,
  with tasks as the units that were drawn: the mean over attempts where tasks have several).
- Abramowitz M, Stegun IA (1964). Handbook of Mathematical Functions, 26.7.3 to 26.7.5 (Student's t).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from seedbench.statistics.intervals import clustered, wilson_limits

_ALIKE = 1e-9
"""Means of tasks that differ by less are equal: scores such as 1/3 are rounded, and so are their means."""

_EXACT_TO = 30
"""Degrees of freedom up to which t is inverted exactly; above, the expansion is right to 1e-6 at 99.9 %."""


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of scores with its interval. `lo <= mean <= hi` wherever there is a mean."""

    mean: float | None
    """None where nothing was counted."""
    n: int
    """Attempts counted."""
    lo: float
    hi: float

    def to_json(self) -> dict[str, float | int | list[float] | None]:
        """The form that summaries use: `{"mean", "n", "ci": [lo, hi]}`."""
        return {"mean": self.mean, "n": self.n, "ci": [self.lo, self.hi]}


def mean_score(scores_by_task: Sequence[Sequence[float]], level: float = 0.95) -> Mean:
    """Mean over attempts, from the scores of each task, with an interval that is clustered by task.

    It is Student's t interval on tasks - 1 degrees of freedom about the ratio estimator sum(scores) /
    sum(attempts), whose variance is that between tasks (Cochran 1977); with one attempt a task, the t
    interval of a plain mean. It is cut at 0 and 1 where all scores lie between them.

    A spread of nothing would give an interval of nothing, so there the interval is Wilson's:

    - all scores are 0 or 1: that of `clustered`, as for successes.
    - all tasks have the same mean (one task, for example): at that mean and the effective number of
      tasks, sum(attempts)^2 / sum(attempts^2), which is their number where all have as many attempts.
      Scores outside [0, 1] have no such limits: theirs is the mean alone.

    Neither the order of the tasks nor that of a task's scores changes a digit. Tasks without scores are
    ignored; without any there is no mean, and the interval is [0, 1]. Raises ValueError for a score that
    is not finite and unless 0 < level < 1.
    """
    tasks = [task for task in scores_by_task if task]
    scores = [score for task in tasks for score in task]
    if not all(map(math.isfinite, scores)):
        raise ValueError("a score must be a finite number")
    if all(score in (0, 1) for score in scores):
        rate = clustered([(int(sum(task)), len(task)) for task in tasks], level)
        return Mean(rate.rate, rate.n, rate.lo, rate.hi)
    mean = math.fsum(scores) / len(scores)
    means = [math.fsum(task) / len(task) for task in tasks]
    bounded = min(scores) >= 0 and max(scores) <= 1
    if max(means) - min(means) < _ALIKE:
        size = len(scores) ** 2 / sum(len(task) ** 2 for task in tasks)
        lo, hi = wilson_limits(mean, size, level) if bounded else (mean, mean)
        return Mean(mean, len(scores), lo, hi)
    spread = math.fsum((len(task) * (of_task - mean)) ** 2 for task, of_task in zip(tasks, means, strict=True))
    variance = len(tasks) / (len(tasks) - 1) * spread / len(scores) ** 2
    half = t_quantile(len(tasks) - 1, level) * math.sqrt(variance)
    lo, hi = mean - half, mean + half
    return Mean(mean, len(scores), max(0.0, lo), min(1.0, hi)) if bounded else Mean(mean, len(scores), lo, hi)


def t_quantile(df: int, level: float = 0.95) -> float:
    """The two-sided quantile of Student's t: a share `level` lies between -t and t. 12.7 for df = 1 and 0.95.

    Raises ValueError unless df >= 1 and 0 < level < 1.
    """
    if df < 1:
        raise ValueError(f"degrees of freedom must be 1 or more, not {df}")
    if not 0 < level < 1:
        raise ValueError(f"the level of an interval must lie between 0 and 1, not {level}")
    return _inverted(df, level) if df <= _EXACT_TO else _expanded(df, NormalDist().inv_cdf((1 + level) / 2))


def _inverted(df: int, level: float) -> float:
    """By bisection over the angle arctan(t / sqrt(df)), in which the probability between -t and t rises."""
    low, high = 0.0, math.pi / 2
    for _ in range(64):
        angle = (low + high) / 2
        if _probability(df, angle) < level:
            low = angle
        else:
            high = angle
    return math.sqrt(df) * math.tan((low + high) / 2)


def _probability(df: int, angle: float) -> float:
    """Between -t and t, where t = sqrt(df) * tan(angle): 26.7.3 for odd df, 26.7.4 for even df."""
    cosine, odd = math.cos(angle), df % 2
    terms = [cosine if odd else 1.0]
    for k in range(2 + odd, df - 1, 2):
        terms.append(terms[-1] * (k - 1) / k * cosine**2)
    series = math.sin(angle) * math.fsum(terms)
    if not odd:
        return series
    return 2 / math.pi * (angle + series if df > 1 else angle)


def _expanded(df: int, z: float) -> float:
    """26.7.5: the normal quantile z and four corrections in powers of 1 / df."""
    corrections = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(g / df**power for power, g in enumerate(corrections, 1))

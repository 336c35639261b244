"""Success rates with two-sided intervals: Wilson, task-clustered Wilson, and the mean of families.

- Wilson EB (1927). Probable inference, the law of succession, and statistical inference. JASA 22:209-212.
- Rao JNK, Scott AJ (1992). A simple method for the analysis of clustered binary data. Biometrics 48:577-585.
- Dean N, Pagano M (2015). Evaluating confidence interval methods for binomial proportions in clustered
  surveys. Journal of Survey Statistics and Methodology 3:484-503 (Wilson at the effective sample size).
- Kish L (1965). Survey Sampling. Wiley (effective number of unequal clusters).
- Price RM, Bonett DG (2004). An improved confidence interval for a linear function of binomial proportions.
  Computational Statistics & Data Analysis 45:449-456 (the mean of families).

The mean of families does not combine the families' Wilson intervals (MOVER, Zou and Donner 2008): their
skews all point to the middle and add up, so that with ALFWorld's six unseen families such a 95 % interval
covers the truth 89 to 93 times in 100 where all rates are high or all are low. Price and Bonett's covers
it 95 to 97 times there and is no wider.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate in [0, 1] with its interval. `lo <= rate <= hi` wherever there is a rate."""

    rate: float | None
    """None where nothing was counted."""
    n: int
    """Attempts counted."""
    lo: float
    hi: float

    def to_json(self) -> dict[str, float | int | list[float] | None]:
        """The form that summaries use: `{"rate", "n", "ci": [lo, hi]}`."""
        return {"rate": self.rate, "n": self.n, "ci": [self.lo, self.hi]}


def wilson(successes: int, n: int, level: float = 0.95) -> Rate:
    """Wilson's score interval for `successes` out of `n` independent attempts.

    No attempt gives no rate and the interval [0, 1]. Raises ValueError unless 0 <= successes <= n and
    0 < level < 1.
    """
    return _rate(successes, n, float(n), level)


def clustered(successes_by_task: Sequence[tuple[int, int]], level: float = 0.95) -> Rate:
    """Interval for several attempts a task, from `(successes, attempts)` of each task.

    Attempts at one task resemble each other, so n attempts carry less than n independent ones. The rate
    is the ratio estimator sum(s) / sum(m); its variance between tasks gives the design effect (Rao and
    Scott 1992), and the interval is Wilson's at n / design effect (Dean and Pagano 2015).

    That effective size is kept between two bounds. Above: n, since repeats are never counted as better
    than independent. Below: the effective number of tasks, sum(m)^2 / sum(m^2) (Kish 1965), which is
    what perfectly alike attempts leave, and the number of tasks where all have as many attempts. The
    lower bound also serves where a variance between tasks says nothing: one task, no success, nothing
    but successes. With one attempt a task both bounds are n and the result is exactly Wilson's.

    Tasks without attempts are ignored. Raises ValueError as `wilson` does.
    """
    tasks = _tried(successes_by_task)
    successes, n = sum(s for s, _ in tasks), sum(m for _, m in tasks)
    return _rate(successes, n, _effective_size(tasks, successes, n), level)


def _tried(successes_by_task: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The tasks with at least one attempt."""
    if any(not 0 <= s <= m for s, m in successes_by_task):
        raise ValueError("a task's successes must lie between 0 and its number of attempts")
    return [(s, m) for s, m in successes_by_task if m > 0]


def _effective_size(tasks: Sequence[tuple[int, int]], successes: int, n: int) -> float:
    """Independent attempts that would tell as much as these; see `clustered` for its bounds."""
    if n == 0:
        return 0.0
    lowest = n * n / sum(m * m for _, m in tasks)
    if len(tasks) == 1 or successes in (0, n):
        return lowest
    # In integers, so that the order of the tasks cannot change a digit:
    # design effect = [J / (J-1) * sum((s - p m)^2) / n^2] / [p (1-p) / n]  with p = successes / n.
    spread = len(tasks) * sum((s * n - successes * m) ** 2 for s, m in tasks)
    if spread == 0:
        return float(n)
    size = (len(tasks) - 1) * n * n * successes * (n - successes) / spread
    return min(max(size, lowest), float(n))


def macro(families: Sequence[Sequence[tuple[int, int]]], level: float = 0.95) -> Rate:
    """Unweighted mean of the families' rates, from `(successes, attempts)` of each task of each family.

    Price and Bonett's interval for k independent proportions: a Wald interval about the mean of
    (s + 2/k) / (n + 4/k), where several attempts a task enter with the effective size of `clustered`. It
    is cut at 0, 1 and the rate. One family has the interval of `clustered`.

    n is the number of attempts. No rate, and the interval [0, 1], where a family has no attempt or there
    is no family. Raises ValueError as `wilson` does.
    """
    if len(families) == 1:
        return clustered(families[0], level)
    z, k = _quantile(level), len(families)
    tasks = [_tried(family) for family in families]
    totals = [(sum(s for s, _ in of), sum(m for _, m in of)) for of in tasks]
    n = sum(m for _, m in totals)
    if not families or any(m == 0 for _, m in totals):
        return Rate(None, n, 0.0, 1.0)
    mean = math.fsum(s / m for s, m in totals) / k
    sizes = [_effective_size(of, *total) for of, total in zip(tasks, totals, strict=True)]
    shrunk = [(s / m * e + 2 / k) / (e + 4 / k) for (s, m), e in zip(totals, sizes, strict=True)]
    centre = math.fsum(shrunk) / k
    variance = math.fsum(q * (1 - q) / (e + 4 / k) for q, e in zip(shrunk, sizes, strict=True)) / k**2
    half = z * math.sqrt(variance)
    return Rate(mean, n, max(0.0, min(mean, centre - half)), min(1.0, max(mean, centre + half)))


def wilson_limits(rate: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Wilson's limits for a rate in [0, 1] seen on n > 0 attempts, which need not be a whole number.

    At the ends the limit is the rate itself, 0 or 1. Raises ValueError unless 0 < level < 1.
    """
    z = _quantile(level)
    shrink = 1 + z * z / n
    centre = (rate + z * z / (2 * n)) / shrink
    half = z / shrink * math.sqrt(rate * (1 - rate) / n + (z / (2 * n)) ** 2)
    # Rounding must not move a limit across the rate or off the unit interval.
    lo = 0.0 if rate == 0 else max(0.0, min(rate, centre - half))
    hi = 1.0 if rate == 1 else min(1.0, max(rate, centre + half))
    return lo, hi


def _quantile(level: float) -> float:
    """The two-sided normal quantile: 1.96 for 0.95."""
    if not 0 < level < 1:
        raise ValueError(f"the level of an interval must lie between 0 and 1, not {level}")
    return NormalDist().inv_cdf((1 + level) / 2)


def _rate(successes: int, n: int, effective: float, level: float) -> Rate:
    """successes / n with Wilson's limits at `effective` attempts."""
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie between 0 and n = {n}, not {successes}")
    if n == 0:
        return Rate(None, 0, 0.0, 1.0)
    return Rate(successes / n, n, *wilson_limits(successes / n, effective, level))

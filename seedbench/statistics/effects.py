"""Two sides on the same tasks, test by test: over all tasks, over the mean of families, and family by family.

One run a side and one attempt a task: exact McNemar and Newcombe's interval. Several attempts, or scores: paired
permutation and a bootstrap of tasks. The mean of families: the permutation with tasks weighted, and `stratified`.
Several runs a side (training seeds of one method): `seedbench.statistics.seeds.crossed`. Differences are B - A.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from seedbench.statistics.paired import bootstrap, detectable, holm, mcnemar, newcombe, permutation, stratified
from seedbench.statistics.seeds import crossed, iqm, iqm_difference, iqm_interval

CROSSED = "seeds and tasks"

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Effect:
    """One comparison of two sides on some tasks. Rates and differences are fractions."""

    name: str
    """A family; `all`: every task weighs the same; `macro`: every family does."""
    n: int
    """Tasks counted on both sides."""
    a: float
    b: float
    difference: float
    lo: float
    hi: float
    test: str
    """McNemar, permutation, or `seeds and tasks`."""
    p: float
    p_holm: float
    """Corrected over the pairs of the report: `all` among themselves, so `macro`, so the families of all pairs."""
    detectable: float
    """The smallest true difference that such a panel finds with 80 % power."""
    only_a: int | None = None
    """Tasks that only A solves; None where a task has more than one attempt a side, and for scores."""
    only_b: int | None = None


@dataclass(frozen=True, slots=True)
class Seeds:
    """Two groups of at least 2 training seeds: interquartile means over seeds and families, stratified bootstrap."""

    paired: bool
    """The groups have the same training seeds, and differences were taken seed by seed."""
    a: tuple[float, float, float]
    """Mean, lower and upper limit."""
    b: tuple[float, float, float]
    difference: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides."""

    a: str
    b: str
    overall: Effect
    macro: Effect | None
    """The mean of the families' differences; None of a single family, and where a family has a single task."""
    families: tuple[Effect, ...]
    seeds: Seeds | None
    checkpoints_p: float
    """Permutation p over tasks alone, corrected by Holm: of these very checkpoints, not of their methods."""
    conclusion: str = ""
    """A sentence; empty until `seedbench.compare.compare` writes it."""

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The families', then `all`, then `macro`: a table's lines."""
        return (*self.families, self.overall, *([self.macro] if self.macro else ()))


def compared(
    labels: tuple[str, str],
    a: Floats,
    b: Floats,
    families: Mapping[str, Sequence[int]],
    *,
    paired: bool = False,
    binary: bool = False,
) -> Comparison:
    """Every test of two sides, before Holm's correction.

    Args:
        labels: of A and B.
        a: (runs of A, tasks) means over a task's attempts, in [0, 1].
        b: (runs of B, tasks), the same tasks in the same order.
        families: the places of each family's tasks, at least one each.
        paired: row i of both sides was trained with the same seed.
        binary: a value is one attempt's success, 0 or 1.
    """
    places = list(families.values())
    of_families = [_effect(name, a[:, at], b[:, at], paired=paired, binary=binary) for name, at in families.items()]
    return Comparison(
        a=labels[0],
        b=labels[1],
        overall=_effect("all", a, b, paired=paired, binary=binary),
        macro=_macro(a, b, places, paired=paired) if len(places) > 1 and min(map(len, places)) > 1 else None,
        families=tuple(of_families) if len(of_families) > 1 else (),
        seeds=_seeds(a, b, places, paired) if len(a) > 1 and len(b) > 1 else None,
        checkpoints_p=permutation(b.mean(axis=0) - a.mean(axis=0)),
    )


def corrected(pairs: Sequence[Comparison]) -> list[Comparison]:
    """Holm over the overall tests, over the macro ones, and over the families' of all pairs: three questions."""
    overall = holm([pair.overall.p for pair in pairs])
    macro = iter(holm([pair.macro.p for pair in pairs if pair.macro]))
    families = iter(holm([effect.p for pair in pairs for effect in pair.families]))
    checkpoints = holm([pair.checkpoints_p for pair in pairs])
    return [
        replace(
            pair,
            overall=replace(pair.overall, p_holm=p),
            macro=replace(pair.macro, p_holm=next(macro)) if pair.macro else None,
            families=tuple(replace(effect, p_holm=next(families)) for effect in pair.families),
            checkpoints_p=q,
        )
        for pair, p, q in zip(pairs, overall, checkpoints, strict=True)
    ]


def _effect(name: str, a: Floats, b: Floats, *, paired: bool, binary: bool) -> Effect:
    """Compare (runs of A, tasks) with (runs of B, tasks)."""
    n, by_task = a.shape[1], b.mean(axis=0) - a.mean(axis=0)
    only: tuple[int, int] | None = None
    if len(a) > 1 or len(b) > 1:
        result = crossed(a, b, paired=paired)
        test, p, limits, enough = CROSSED, result.p, (result.lo, result.hi), result.detectable
    else:
        enough = detectable(float(np.mean(by_task**2)), n, binary=binary)
        if binary:
            x, y = a[0] > 0.5, b[0] > 0.5
            only = (int(np.sum(x & ~y)), int(np.sum(y & ~x)))
            test, p = "McNemar", mcnemar(*only)
            limits = newcombe(int(np.sum(x & y)), *only, int(np.sum(~x & ~y)))
        else:
            test, p, limits = "permutation", permutation(by_task), bootstrap(by_task)
    rates = (float(a.mean()), float(b.mean()), float(by_task.mean()))
    return Effect(name, n, *rates, *limits, test, p, p, enough, *(only or (None, None)))


def _macro(a: Floats, b: Floats, places: Sequence[Sequence[int]], *, paired: bool) -> Effect:
    """Compare the unweighted means of the families, of at least 2 tasks each."""
    kinds, weights = np.zeros(a.shape[1], dtype=np.int64), np.zeros(a.shape[1])
    for kind, at in enumerate(places):
        kinds[at], weights[at] = kind, 1 / len(at) / len(places)
    first, second = a.mean(axis=0), b.mean(axis=0)
    by_task, n = second - first, 1 / float(weights @ weights)  # n equal weights would be as many
    if len(a) > 1 or len(b) > 1:
        result = crossed(a, b, paired=paired, families=kinds)
        test, p, limits, enough = CROSSED, result.p, (result.lo, result.hi), result.detectable
    else:
        test, p = "permutation", permutation(by_task * weights * n)
        limits = stratified([by_task[at] for at in places])
        enough = detectable(float(weights**2 @ by_task**2) * n, n, binary=False)
    rates = (float(first @ weights), float(second @ weights), float(by_task @ weights))
    return Effect("macro", a.shape[1], *rates, *limits, test, p, p, enough)


def _seeds(a: Floats, b: Floats, places: Sequence[Sequence[int]], paired: bool) -> Seeds:
    # (seeds, families): the strata of the bootstrap are the families
    first, second = (np.stack([x[:, at].mean(axis=1) for at in places], axis=1) for x in (a, b))
    return Seeds(
        paired=paired,
        a=(iqm(first), *iqm_interval(first)),
        b=(iqm(second), *iqm_interval(second)),
        difference=(iqm(second) - iqm(first), *iqm_difference(first, second, paired=paired)),
    )

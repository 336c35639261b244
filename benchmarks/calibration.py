"""What the intervals and tests promise, on simulated agents whose true rates are known.

    python benchmarks/calibration.py [--studies 1600 --nulls 2000 --figures docs/figures]

coverage  how often a 95 % interval holds the truth, at n = 18, 23, 134 and 500 tasks
errors    how often `compare` claims anything, after Holm, of 3 equal methods on 6 families of 134 tasks
power     how often a difference as large as the printed detectable one is found

An agent of mean rate m solves task t with probability p_t ~ Beta(m, 1 - m): most tasks nearly always or nearly never,
as measured agents do. Agents and training seeds share what is hard: their p_t have a Gaussian copula of correlation
0.7. m is uniform on [0.1, 0.9], a family's mean lies about it with deviation 0.15, a training seed's with 0.05. Tasks
are new in every study, so that the truth is m, not the mean of the tasks drawn. Random signs and resamples are fewer
than in the product (1,999 and 1,000), which widens nothing and costs the tests a little power.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from seedbench.statistics import clustered, effects, macro, mean_score, paired, seeds, wilson

Floats = NDArray[np.float64]
Interval = Callable[[Floats], tuple[float, float]]

TASKS = (18, 23, 134, 500)
FAMILIES = (24, 18, 31, 23, 17, 21)
"""Sizes of ALFWorld's unseen families."""
PARTIAL = np.array([0.0, 0.1, 0.25, 0.5, 2 / 3, 0.75])
"""Scores of a failed attempt, equally likely."""
ALIKE, SEEDS, SPREAD = 0.7, 0.05, 0.15


def fewer_draws(resamples: int) -> None:
    """Of `compared`: fewer random signs, and resamples where intervals play no part."""
    vars(effects).update(
        permutation=partial(paired.permutation, draws=1999),
        bootstrap=partial(paired.bootstrap, draws=resamples),
        iqm_interval=partial(seeds.iqm_interval, draws=resamples),
        iqm_difference=partial(seeds.iqm_difference, draws=resamples),
    )


@dataclass(frozen=True, slots=True)
class Line:
    """A measured share: what, on how many tasks, in how many studies."""

    name: str
    n: int
    share: float
    studies: int
    note: str = ""


def play(rng: np.random.Generator, means: Floats, attempts: int = 1) -> Floats:
    """(rows, tasks) true mean rates -> mean success over the attempts; rows meet the same tasks."""
    common = np.sqrt(ALIKE) * rng.standard_normal(means.shape[1])
    own = np.sqrt(1 - ALIKE) * rng.standard_normal(means.shape)
    mean = np.clip(means, 0.02, 0.98)
    return np.asarray(rng.binomial(attempts, betaincinv(mean, 1 - mean, ndtr(common + own))) / attempts)


def scored(rng: np.random.Generator, solved: Floats) -> Floats:
    """Scores of attempts: 1 where solved, else a partial one."""
    return np.where(solved == 1, 1.0, rng.choice(PARTIAL, solved.shape))


def split(n: int) -> list[NDArray[np.int64]]:
    """n tasks in six families, in ALFWorld's proportions: the places of each."""
    ends = np.round(np.cumsum(FAMILIES) * n / sum(FAMILIES)).astype(int)
    return np.split(np.arange(n), ends[:-1])


def by_family(rng: np.random.Generator, means: Floats, n: int) -> Floats:
    """(rows,) -> (rows, tasks): the mean of each task's family, whose deviation the rows share."""
    shift = np.repeat(rng.normal(0, SPREAD, len(FAMILIES)), [len(at) for at in split(n)])
    return np.clip(means[:, None] + shift, 0.02, 0.98)


def family_mean(values: Floats) -> float:
    return float(np.mean([values[at].mean() for at in split(len(values))]))


# Coverage


def one_rate(rng: np.random.Generator, n: int, attempts: int) -> tuple[float, tuple[float, float]]:
    truth = rng.uniform(0.1, 0.9)
    (got,) = play(rng, np.full((1, n), truth), attempts)
    found = wilson(int(got.sum()), n) if attempts == 1 else clustered(counts(got, attempts))
    return truth, (found.lo, found.hi)


def counts(rates: Floats, attempts: int) -> list[tuple[int, int]]:
    return [(round(rate * attempts), attempts) for rate in rates.tolist()]


def macro_rate(rng: np.random.Generator, n: int, attempts: int) -> tuple[float, tuple[float, float]]:
    means = by_family(rng, rng.uniform(0.1, 0.9, 1), n)
    (got,) = play(rng, means, attempts)
    found = macro([counts(got[at], attempts) for at in split(n)])
    return family_mean(means[0]), (found.lo, found.hi)


def one_score(rng: np.random.Generator, n: int, attempts: int) -> tuple[float, tuple[float, float]]:
    truth = rng.uniform(0.1, 0.9)
    (rates,) = play(rng, np.full((1, n), truth), 50)
    scores = scored(rng, (rng.random((attempts, n)) < rates).astype(float))
    found = mean_score(scores.T.tolist())
    return truth + (1 - truth) * PARTIAL.mean(), (found.lo, found.hi)


def two_means(rng: np.random.Generator) -> Floats:
    """(2,) mean rates of two agents, up to 30 points apart."""
    a = rng.uniform(0.1, 0.9)
    return np.array([a, np.clip(a + rng.uniform(-0.3, 0.3), 0.05, 0.95)])


def difference(rng: np.random.Generator, n: int, attempts: int, scores: bool) -> tuple[float, tuple[float, float]]:
    means = two_means(rng)
    got = play(rng, np.repeat(means[:, None], n, axis=1), attempts)
    got = scored(rng, got) if scores else got
    found = effects.compared(("", ""), got[:1], got[1:], {"": range(n)}, binary=attempts == 1 and not scores).overall
    share = 1 - PARTIAL.mean() if scores else 1.0
    return float(means[1] - means[0]) * share, (found.lo, found.hi)


def macro_difference(rng: np.random.Generator, n: int, attempts: int) -> tuple[float, tuple[float, float]]:
    means = by_family(rng, two_means(rng), n)
    got = play(rng, means, attempts)
    limits = paired.stratified([got[1, at] - got[0, at] for at in split(n)])
    return family_mean(means[1]) - family_mean(means[0]), limits


def with_seeds(rng: np.random.Generator, n: int, runs: int, families: bool) -> tuple[float, tuple[float, float]]:
    means = np.clip(two_means(rng), 0.2, 0.8)
    trained = np.repeat(means, runs) + rng.normal(0, SEEDS, 2 * runs)
    kinds = np.repeat(np.arange(len(FAMILIES)), [len(at) for at in split(n)]) if families else None
    got = play(rng, np.repeat(trained[:, None], n, axis=1))
    found = seeds.crossed(got[:runs], got[runs:], paired=False, families=kinds)
    return float(means[1] - means[0]), (found.lo, found.hi)


COVERED: dict[str, Callable[..., tuple[float, tuple[float, float]]]] = {
    "rate: Wilson": partial(one_rate, attempts=1),
    "rate, 4 attempts: clustered Wilson": partial(one_rate, attempts=4),
    "macro rate: Price-Bonett": partial(macro_rate, attempts=1),
    "macro rate, 4 attempts": partial(macro_rate, attempts=4),
    "mean score: t": partial(one_score, attempts=1),
    "mean score, 4 attempts: t": partial(one_score, attempts=4),
    "difference: Newcombe": partial(difference, attempts=1, scores=False),
    "difference, 3 attempts: bootstrap": partial(difference, attempts=3, scores=False),
    "difference of scores: bootstrap": partial(difference, attempts=1, scores=True),
    "macro difference: adjusted Wald": partial(macro_difference, attempts=1),
    "macro difference, 3 attempts": partial(macro_difference, attempts=3),
    "3 seeds a side: crossed t": partial(with_seeds, runs=3, families=False),
    "5 seeds a side: crossed t": partial(with_seeds, runs=5, families=False),
    "macro difference, 3 seeds: crossed t": partial(with_seeds, runs=3, families=True),
}


def coverage(studies: int) -> Iterator[Line]:
    """A line for each interval and number of tasks."""
    fewer_draws(1000)
    for name, study in COVERED.items():
        for n in TASKS:
            rng = np.random.default_rng(n)
            sizes = studies // 4 if "bootstrap" in name and n == 500 else studies
            found = [study(rng, n) for _ in range(sizes)]
            missed = [(truth < lo, truth > hi) for truth, (lo, hi) in found]
            below, above = np.mean(missed, axis=0)
            yield Line(name, n, float(1 - below - above), sizes, f"misses {below:.1%} below, {above:.1%} above")


# Errors


def errors(nulls: int) -> Iterator[Line]:
    """Share of experiments with a claim among the overall, macro and family tests, and anywhere."""
    fewer_draws(10)
    n, places = sum(FAMILIES), {str(i): at.tolist() for i, at in enumerate(split(sum(FAMILIES)))}
    for name, attempts, runs in (("1 attempt", 1, 1), ("3 attempts", 3, 1), ("3 seeds", 1, 3), ("5 seeds", 1, 5)):
        rng, claims = np.random.default_rng(0), np.zeros(4)
        for _ in range(nulls):
            equal = by_family(rng, np.full(3, rng.uniform(0.1, 0.9)), n)
            trained = np.repeat(equal, runs, axis=0) + rng.normal(0, SEEDS, (3 * runs, 1)) * (runs > 1)
            sides = play(rng, trained, attempts).reshape(3, runs, n)
            pairs = effects.corrected(
                [
                    effects.compared(
                        ("", ""),
                        sides[i],
                        sides[j],
                        places,
                        paired=runs >= seeds.PAIRED_FROM,
                        binary=attempts * runs == 1,
                    )
                    for i, j in ((0, 1), (0, 2), (1, 2))
                ]
            )
            sets = [[pair.overall.p_holm for pair in pairs], [pair.macro.p_holm for pair in pairs if pair.macro]]
            sets.append([effect.p_holm for pair in pairs for effect in pair.families])
            hits = [min(ps) < 0.05 for ps in sets]
            claims += [*hits, any(hits)]
        for what, share in zip(("all", "macro", "families", "any of the three"), claims / nulls, strict=True):
            yield Line(f"{name}: {what}", n, float(share), nulls)


# Power


def power(studies: int) -> Iterator[Line]:
    """Share of studies that find the difference that a study of equal methods printed as detectable."""
    fewer_draws(10)
    cases: tuple[tuple[str, tuple[int, ...], dict[str, Any]], ...] = (
        ("McNemar", TASKS[1:], {}),
        ("permutation, 3 attempts", TASKS[1:], {"attempts": 3}),
        ("macro, permutation", (134, 500), {"families": True}),
        ("crossed, 3 seeds", (134, 500), {"runs": 3}),
        ("crossed, 5 seeds", (134, 500), {"runs": 5}),
    )
    for name, sizes, settings in cases:
        for n in sizes:
            rng = np.random.default_rng(n)
            found, printed = np.array([found_at_printed(rng, n, **settings) for _ in range(studies)]).T
            yield Line(name, n, float(found.mean()), studies, f"{100 * np.median(printed):.0f} points detectable")


def found_at_printed(
    rng: np.random.Generator, n: int, attempts: int = 1, runs: int = 1, families: bool = False
) -> tuple[bool, float]:
    mean = rng.uniform(0.3, 0.7)
    places = dict(enumerate(split(n))) if families else {0: np.arange(n)}

    def effect(apart: float) -> effects.Effect:
        means = np.array([mean - apart / 2, mean + apart / 2])
        tasks = by_family(rng, means, n) if families else np.repeat(means[:, None], n, axis=1)
        trained = np.repeat(tasks, runs, axis=0) + rng.normal(0, SEEDS, (2 * runs, 1)) * (runs > 1)
        got = play(rng, trained, attempts)
        shown = {str(name): at.tolist() for name, at in places.items()}
        pair = effects.compared(("", ""), got[:runs], got[runs:], shown, binary=attempts * runs == 1)
        return pair.macro if pair.macro else pair.overall

    printed = effect(0.0).detectable
    return effect(printed).p < 0.05, printed


# Output


def show(title: str, lines: Iterator[Line]) -> list[Line]:
    print(f"\n{title}")
    kept, started = [], time.process_time()
    for line in lines:
        noise = 1.96 * np.sqrt(line.share * (1 - line.share) / line.studies)
        print(f"  {line.name:38} n = {line.n:<4} {line.share:6.1%} +- {noise:.1%}   {line.note}", flush=True)
        kept.append(line)
    print(f"  ({time.process_time() - started:.0f} CPU seconds)")
    return kept


def draw(folder: Path, covered: list[Line], claims: list[Line], found: list[Line]) -> None:
    """Write statistics-coverage and statistics-errors as png and svg."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "seedbench", "font.size": 9})
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    names = list(dict.fromkeys(line.name for line in covered))
    axes.axvspan(93, 97, color="0.9")
    for n, marker in zip(TASKS, "os^D", strict=True):
        lines = [line for line in covered if line.n == n]
        axes.plot(
            [100 * line.share for line in lines], [names.index(line.name) for line in lines], marker, label=f"n = {n}"
        )
    axes.set(
        yticks=range(len(names)), yticklabels=names, xlim=(85, 100), xlabel="intervals that hold the truth, % (aim: 95)"
    )
    axes.invert_yaxis()
    axes.legend(loc="lower left")
    save(figure, folder / "statistics-coverage")

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    bars(left, claims, "experiments with a claim, % (allowed: 5)", 5, [line.name for line in claims])
    bars(right, found, "studies that find it, % (promised: 80)", 80, [f"{line.name}, n = {line.n}" for line in found])
    save(figure, folder / "statistics-errors")


def bars(axes: Any, lines: list[Line], title: str, promised: float, names: list[str]) -> None:
    noise = [196 * np.sqrt(line.share * (1 - line.share) / line.studies) for line in lines]
    axes.barh(names, [100 * line.share for line in lines], xerr=noise, color="0.7", ecolor="0.3")
    axes.axvline(promised, color="C3")
    axes.invert_yaxis()
    axes.set_xlabel(title)


def save(figure: Any, path: Path) -> None:
    figure.savefig(path.with_suffix(".png"), dpi=120)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})


def main() -> None:
    """Print the three tables and draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=1600, help="simulated studies of each coverage and power")
    parser.add_argument("--nulls", type=int, default=2000, help="experiments without a difference")
    parser.add_argument("--figures", type=Path, help="folder for figures; default: none")
    options = parser.parse_args()
    covered = show("Coverage of 95 % intervals", coverage(options.studies))
    claims = show("Experiments with a claim where nothing differs", errors(options.nulls))
    found = show("Power at the printed detectable difference", power(options.studies // 2))
    if options.figures:
        options.figures.mkdir(parents=True, exist_ok=True)
        draw(options.figures, covered, claims, found)


if __name__ == "__main__":
    main()

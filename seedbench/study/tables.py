"""The tables of a study: final success, by family, by share of the data, from panel to panel, and what runs cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from seedbench.statistics.seeds import iqm, iqm_interval
from seedbench.study.results import COSTS, STEPS, Result, at, cells_of, mean_over, over_seeds
from seedbench.study.sheets import Estimate, Sheet, Value

_OVER_SEEDS = (
    "In percent, with 95 % intervals. Of several seeds the mean, and Student's interval over seeds, which takes the"
    " tasks as given; of one seed the interval over tasks, which knows nothing of other seeds; the same where all seeds"
    " agree."
)


def final(results: Iterable[Result], panel: str, name: str) -> Sheet:
    """Final checkpoints on a panel: n, seeds, micro, macro, and the interquartile mean over seeds and families."""
    rows = []
    for label, runs in cells_of(results).items():
        success = [run.summaries[panel]["success"] for run in runs]
        micro, macro = (over_seeds([s[kind] for s in success]) for kind in ("micro", "macro"))
        rows.append((label, len(runs), int(success[0]["micro"]["n"]), micro, macro, _iqm(runs, panel)))
    return Sheet(
        f"final-{panel}",
        f"Final success, {panel} ({name})",
        ("Method", "Seeds", "n", "Micro", "Macro", "IQM"),
        tuple(rows),
        f"{_OVER_SEEDS} n: attempts of each seed. Macro: mean of the families. IQM: interquartile mean over seeds and"
        " families with a stratified bootstrap (Agarwal et al. 2021), of two seeds or more; seeds are drawn for each"
        " family by itself, so that it is too narrow where a seed is good at all of them. The checkpoint after the last"
        " update: none was chosen.",
    )


def _iqm(runs: Sequence[Result], panel: str) -> Estimate | None:
    rates = [[f["rate"] for f in run.summaries[panel]["success"]["families"].values()] for run in runs]
    if len(runs) < 2 or any(rate is None for row in rates for rate in row):
        return None
    scores = np.array(rates, dtype=np.float64)  # (seeds, families)
    return Estimate(iqm(scores), *iqm_interval(scores))


def families(results: Iterable[Result], panel: str, name: str) -> Sheet:
    """Final checkpoints on a panel, by family."""
    cells = cells_of(results)
    first = next(iter(cells.values()), [])
    of_first = first[0].summaries[panel]["success"]["families"] if first else {}
    rows = [
        (label, *(over_seeds([run.summaries[panel]["success"]["families"][f] for run in runs]) for f in of_first))
        for label, runs in cells.items()
    ]
    head = ("Method", *(f"{family} (n={rate['n']})" for family, rate in of_first.items()))
    return Sheet(f"families-{panel}", f"By family, {panel} ({name})", head, tuple(rows), _OVER_SEEDS)


def efficiency(results: Iterable[Result], panel: str, name: str) -> Sheet | None:
    """Micro success by share of the data, of cells with several shares; None where there are none."""
    cells = {c: r for c, r in cells_of(results, full=False).items() if len({run.job.fraction for run in r}) > 1}
    if not cells:
        return None
    fractions = sorted({run.job.fraction for runs in cells.values() for run in runs})
    rows = []
    for label, runs in cells.items():
        reading = next((run.job.reading for run in runs if run.job.fraction < 1), "")
        shares = [[r.summaries[panel]["success"]["micro"] for r in runs if r.job.fraction == f] for f in fractions]
        rows.append((label, reading, *(over_seeds(share) for share in shares)))
    return Sheet(
        f"efficiency-{panel}",
        f"Success by share of the data, {panel} ({name})",
        ("Method", "Share of", *(f"{100 * fraction:g} %" for fraction in fractions)),
        tuple(rows),
        f"{_OVER_SEEDS} Share of games: so many of the training games, all updates. Share of draws: all games, so many"
        " of the updates. A start that several runs begin from was made of all of its data.",
    )


def generalisation(results: Iterable[Result], panels: Mapping[str, str]) -> Sheet | None:
    """Each further panel minus the first, run by run; None with one panel, or without a cell of two seeds.

    `panels`: name in the report -> panel.
    """
    first, *others = panels
    cells = {label: runs for label, runs in cells_of(results).items() if len(runs) > 1}
    if not others or not cells:
        return None
    shared = [
        family
        for family in next(iter(cells.values()))[0].summaries[first]["success"]["families"]
        if all(
            family in run.summaries[p]["success"]["families"] for runs in cells.values() for run in runs for p in others
        )
    ]
    rows = [
        (label, f"{panel} - {first}", len(runs), *(_differences(runs, first, panel, of) for of in (None, *shared)))
        for panel in others
        for label, runs in cells.items()
    ]
    return Sheet(
        "generalisation",
        f"Success on {' and '.join(others)} against {first}",
        ("Method", "Panels", "Seeds", "Micro", *shared),
        tuple(rows),
        "Success on one panel minus success on the other, in percent points: the mean of the runs' differences with"
        " Student's 95 % interval over seeds; the mean alone where all seeds agree. The panels hold different tasks,"
        " which this interval takes as given: a difference may come from the tasks. Cells of one seed are left out.",
    )


def _differences(runs: Sequence[Result], first: str, other: str, family: str | None) -> Estimate | None:
    pairs = [(_rate(run, first, family), _rate(run, other, family)) for run in runs]
    known = [b - a for a, b in pairs if a is not None and b is not None]
    return mean_over(known, lowest=-1.0) if len(known) == len(pairs) else None


def _rate(run: Result, panel: str, family: str | None) -> float | None:
    success = run.summaries[panel]["success"]
    rate: float | None = (success["micro"] if family is None else success["families"][family])["rate"]
    return rate


def costs(results: Sequence[Result]) -> Sheet:
    """What a run spent, means over seeds; success at the environment steps that all runs reached; starts below."""
    cells = cells_of(results)
    reached = [run.curve.spent[STEPS][-1] for runs in cells.values() for run in runs if len(run.curve.success)]
    common = float(min(reached, default=0.0))
    rows: list[tuple[Value, ...]] = []
    for label, runs in cells.items():
        drawn = [run for run in runs if len(run.curve.success)]
        level = mean_over([float(at(run.curve, STEPS, common)) for run in drawn]) if drawn and common else None
        rows.append((label, len(runs), *_spent(runs), level))
    starts = [result for result in results if result.job.is_start]
    rows += [(f"start: {run.job.cell}", 1, *_spent([run]), None) for run in starts]
    return Sheet(
        "cost",
        "Cost of a run",
        ("Method", "Runs", *COSTS.values(), "CPU-hours", f"Success at {common:,.0f} steps"),
        tuple(rows),
        "Means over the seeds with all of the data. Steps, tokens and seconds are of training (roll-outs, analyses and"
        " updates), without validations and without the start, which is made once and has a row of its own. Seconds:"
        " by the clock, so that what ran beside it counts. CPU-hours: processor time of everything, validations and"
        " evaluations too. The last column: validation success in percent after as many environment steps for all,"
        " between neighbouring validations on the line, with Student's 95 % interval over seeds.",
    )


def _spent(runs: Sequence[Result]) -> list[float | None]:
    spent: list[float | None] = [float(np.mean([run.cost[name] for run in runs])) for name in COSTS]
    hours = [run.cpu_hours for run in runs if run.cpu_hours is not None]
    return [*spent, float(np.mean(hours)) if len(hours) == len(runs) else None]

"""The tables of a study, as sheets that Markdown and CSV are written from."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from seedbench.statistics.seeds import iqm, iqm_interval
from seedbench.study.results import COSTS, Estimate, Result, at, cells_of, mean_over, over_seeds
from seedbench.study.spec import Study
from seedbench.tables.markdown import escape
from seedbench.tables.text import BLANK, no_formula
from seedbench.ui.tally import one_line

Value = str | int | float | Estimate | None

_OVER_SEEDS = (
    "In percent, with 95 % intervals. Of several seeds the mean, and Student's interval over seeds; of one seed the"
    " interval over tasks, which knows nothing of other seeds; the same where all seeds agree."
)


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table; `name` is its file's."""

    name: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    caption: str


def to_markdown(sheet: Sheet) -> str:
    """Title, pipe table and caption; rates in percent with their interval in brackets."""
    lines = [sheet.head, *([_shown(value) for value in row] for row in sheet.rows)]
    body = [f"| {' | '.join(escape(one_line(cell)) for cell in line)} |" for line in lines]
    texts = [all(isinstance(row[i], str) for row in sheet.rows) for i in range(len(sheet.head))]
    rule = f"| {' | '.join(':--' if text else '--:' for text in texts)} |"
    return f"### {escape(sheet.title)}\n\n" + "\n".join([body[0], rule, *body[1:]]) + f"\n\n{escape(sheet.caption)}\n"


def _shown(value: Value) -> str:
    if isinstance(value, Estimate):
        return f"{100 * value.mean:.1f} [{100 * value.lo:.0f} to {100 * value.hi:.0f}]"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return BLANK if value is None else f"{value:,}" if isinstance(value, int) else value or BLANK


def to_csv(sheet: Sheet) -> str:
    """One line a row; a column with rates becomes three, the limits after the mean, all as fractions.

    A text that a spreadsheet would run gets an apostrophe in front.
    """
    wide = [any(isinstance(row[i], Estimate) for row in sheet.rows) for i in range(len(sheet.head))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [no_formula(name) for title, w in zip(sheet.head, wide, strict=True) for name in _names(title, w)]
    )  # fmt: skip
    for row in sheet.rows:
        writer.writerow([cell for value, w in zip(row, wide, strict=True) for cell in _cells(value, w)])
    return out.getvalue()


def _names(title: str, wide: bool) -> list[str]:
    return [title, f"{title} lo", f"{title} hi"] if wide else [title]


def _cells(value: Value, wide: bool) -> list[object]:
    if isinstance(value, Estimate):
        return [value.mean, value.lo, value.hi]
    shown = "" if value is None else no_formula(value)
    return [shown, "", ""] if wide else [shown]


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
        " families with a stratified bootstrap (Agarwal et al. 2021), of two seeds or more. The checkpoint after the"
        " last update: none was chosen.",
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


def costs(results: Sequence[Result]) -> Sheet:
    """What a run spent, means over seeds; success at the environment steps that all runs reached; starts below."""
    cells = cells_of(results)
    steps = "steps/environment"
    reached = [run.curve.spent[steps][-1] for runs in cells.values() for run in runs if len(run.curve.success)]
    common = float(min(reached, default=0.0))
    rows: list[tuple[Value, ...]] = []
    for label, runs in cells.items():
        drawn = [run for run in runs if len(run.curve.success)]
        level = mean_over([float(at(run.curve, steps, common)) for run in drawn]) if drawn and common else None
        rows.append((label, len(runs), *_spent(runs), level))
    starts = [result for result in results if result.job.is_start]
    rows += [(f"start: {run.job.cell}", 1, *_spent([run]), None) for run in starts]
    return Sheet(
        "cost",
        "Cost of a run",
        ("Method", "Runs", *COSTS.values(), "CPU-hours", f"Success at {common:,.0f} steps"),
        tuple(rows),
        "Means over seeds. Steps, tokens and seconds are of training (roll-outs, analyses and updates), without"
        " validations and without the start, which is made once and has a row of its own. CPU-hours: processor time of"
        " everything, validations and evaluations too. The last column: validation success in percent after as many"
        " environment steps for all, between neighbouring validations on the line, with Student's 95 % interval over"
        " seeds.",
    )


def _spent(runs: Sequence[Result]) -> list[float | None]:
    spent: list[float | None] = [float(np.mean([run.cost[name] for run in runs])) for name in COSTS]
    hours = [run.cpu_hours for run in runs if run.cpu_hours is not None]
    return [*spent, float(np.mean(hours)) if len(hours) == len(runs) else None]


def comparisons(study: Study, results: Iterable[Result], panel: str, name: str) -> tuple[Sheet, tuple[str, ...]] | None:
    """Every pair of cells with several seeds, by `seedbench.compare`, and its sentences; None where no pair is."""
    from seedbench.compare import compare, p_text
    from seedbench.study.plan import evaluation

    groups = {label: runs for label, runs in cells_of(results).items() if len(runs) > 1}
    if len(groups) < 2:
        return None
    report = compare([[evaluation(run.job, panel) for run in runs] for runs in groups.values()], labels=list(groups))
    rows = []
    for pair in report.comparisons:
        effect = pair.overall
        difference = Estimate(effect.difference, effect.lo, effect.hi)
        tests = (p_text(effect.p), p_text(effect.p_holm), f"{100 * effect.detectable:.1f}")
        rows.append((f"{pair.a} -> {pair.b}", effect.n, difference, *tests))
    sheet = Sheet(
        f"compare-{panel}",
        f"Comparisons, {panel} ({name})",
        ("A -> B", "n", "B - A", "p", "Holm", "Power 80"),
        tuple(rows),
        "B - A in percent points with its 95 % interval; tasks and training seeds are both a sample. Holm: p corrected"
        " over the pairs of this table. Power 80: the smallest difference, in points, that would be found in 8 studies"
        " of 10. Methods with one seed are left out.",
    )
    return sheet, (*(pair.conclusion for pair in report.comparisons), *report.notes)

"""The comparisons of a study: cells with each other, and shares of the data with all of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from seedbench.compare import Report, compare, p_text
from seedbench.study.plan import evaluation
from seedbench.study.results import Result, cells_of
from seedbench.study.sheets import Estimate, Lines, Sheet

_CAPTION = (
    "B - A in percent points with its 95 % interval; tasks and training seeds are both a sample. Holm: p corrected over"
    " the pairs of this table; interval, p and power are of a pair by itself. Power 80: the smallest difference, in"
    " points, that would be found in 8 studies of 10. Paired: by training seed."
)

Compared = tuple[Sheet, Lines]
"""The table, and what it says in sentences."""


def cells(results: Iterable[Result], panel: str, name: str) -> Compared | None:
    """Every pair of cells with several seeds, by `seedbench.compare`; None where no pair is.

    `panel` is the panel's name in the report, `name` its own.
    """
    groups = {label: runs for label, runs in cells_of(results).items() if len(runs) > 1}
    if len(groups) < 2:
        return None
    report = compare(_folders(groups, panel), labels=list(groups))
    title = f"Comparisons, {panel} ({name})"
    return _sheet(f"compare-{panel}", title, report, f"{_CAPTION} Methods with one seed are left out."), _said(report)


def shares(results: Iterable[Result], panel: str, name: str) -> Compared | None:
    """Every share below 1 against all of the data, of cells with several shares: a cell's own, and the others'.

    None where no pair with two seeds or more a side is.
    """
    groups: dict[str, list[Result]] = {}
    several = {
        label for label, runs in cells_of(results, full=False).items() if len({r.job.fraction for r in runs}) > 1
    }
    for label, runs in cells_of(results, full=False).items():
        for fraction in sorted({run.job.fraction for run in runs} if label in several else ()):
            group = [run for run in runs if run.job.fraction == fraction]
            if len(group) > 1:
                groups[f"{label} {100 * fraction:g} %"] = group
    fractions = [runs[0].job.fraction for runs in groups.values()]
    pairs = [
        (part, whole)
        for whole, all_of in enumerate(fractions)
        for part, some in enumerate(fractions)
        if all_of == 1 > some
    ]
    if not pairs:
        return None
    report = compare(_folders(groups, panel), labels=list(groups), pairs=pairs)
    sheet = _sheet(
        f"shares-{panel}",
        f"Shares of the data against all of it, {panel} ({name})",
        report,
        f"{_CAPTION} Where no difference is detected, the two are not shown to be equal: the interval holds the"
        " differences that are left open.",
    )
    return sheet, _said(report)


def _folders(groups: dict[str, list[Result]], panel: str) -> Sequence[Sequence[Path]]:
    return [[evaluation(run.job, panel) for run in runs] for runs in groups.values()]


def _said(report: Report) -> Lines:
    return Lines((*(pair.conclusion for pair in report.comparisons), *report.notes))


def _sheet(name: str, title: str, report: Report, caption: str) -> Sheet:
    rows = []
    for pair in report.comparisons:
        effect = pair.overall
        difference = Estimate(effect.difference, effect.lo, effect.hi)
        tests = (p_text(effect.p), p_text(effect.p_holm), f"{100 * effect.detectable:.1f}")
        paired = "yes" if pair.seeds and pair.seeds.paired else "no"
        rows.append((f"{pair.a} -> {pair.b}", effect.n, difference, *tests, paired))
    return Sheet(name, title, ("A -> B", "n", "B - A", "p", "Holm", "Power 80", "Paired"), tuple(rows), caption)

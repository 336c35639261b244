"""The figures of a study: what a reader sees first, learning curves, success by share of the data, signals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seedbench.errors import SeedBenchError
from seedbench.study.canvas import STYLE, Looks, drawing, legend, looks_of, whole
from seedbench.study.results import AXES, STEPS, Result, at, cells_of, mean_over, over_seeds
from seedbench.study.sheets import Estimate, Figure
from seedbench.study.signals_plot import CAPTION, draw_signals
from seedbench.study.spec import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

OVER_TRAINING = "signals"
_POINTS = 101
_CURVES = "Cells with all of the data. Thin lines are seeds, thick ones their mean, bands its 95 % interval over seeds."
_HEADLINE = (
    "Cells with all of the data. Left: means over seeds with bands of their 95 % intervals. Right: final checkpoints on"
    " {panel}, with 95 % intervals; small dots are seeds, their number stands behind the name."
)


def draw(study: Study, results: Sequence[Result], folder: Path) -> list[Figure]:
    """Write every figure that the results have data for, as PNG and SVG; what they are, in order.

    Raises SeedBenchError where matplotlib is missing.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise SeedBenchError(
            "the figures of a study need matplotlib: pip install matplotlib, then run it again with --report."
        ) from error
    shown = []
    with mpl.rc_context(STYLE):
        for figure, drawn in _figures(study, results):
            if drawn is not None:
                drawn.savefig(folder / f"{figure.name}.png", dpi=150)
                drawn.savefig(folder / f"{figure.name}.svg", metadata={"Date": None})
                shown.append(figure)
    return shown


def _figures(study: Study, results: Sequence[Result]) -> Iterator[tuple[Figure, Drawing | None]]:
    """Every figure that there may be; None where the results have nothing for it."""
    looks = {cell.label: looks_of(number) for number, cell in enumerate(study.resolved())}
    panels = list(study.evaluation.panels)
    yield Figure("headline", "Results", _HEADLINE.format(panel=panels[-1])), _headline(results, panels[-1], looks)
    for axis, title in AXES.items():
        name = f"curve-{title.replace(' ', '-')}"
        yield Figure(name, f"Validation success against {title}", _CURVES), _curves(results, axis, title, looks)
    for panel in panels:
        title = f"Final success by share of the data, {panel}"
        yield Figure(f"fractions-{panel}", title), _shares(results, panel, looks)
    yield Figure(OVER_TRAINING, "Signals over training", CAPTION), draw_signals(results, looks)


def _curves(results: Sequence[Result], axis: str, title: str, looks: Looks) -> Drawing | None:
    """Validation success against a running total."""
    figure = drawing(7.0, 4.6)
    axes = figure.add_subplot()
    if not _draw_curves(axes, results, axis, title, looks):
        return None
    legend(figure, axes, "mean over seeds, 95 % interval")
    return figure


def _draw_curves(
    axes: Axes, results: Sequence[Result], axis: str, title: str, looks: Looks, *, thin: bool = True
) -> bool:
    """Every cell with all of the data, with thin lines for its seeds or without; whether there is one."""
    cells = {label: [r for r in runs if len(r.curve.success) > 1] for label, runs in cells_of(results).items()}
    for label, runs in cells.items():
        if runs:
            _curve(axes, axis, label, runs, looks[label], thin)
    low, high = axes.get_ylim()
    axes.set(xlabel=title, ylabel="validation success (%)", xlim=(0, None), ylim=(max(0, low), min(101, high)))
    axes.locator_params(axis="y", nbins=6, integer=True)
    whole(axes)
    return any(cells.values())


def _curve(axes: Axes, axis: str, label: str, runs: Sequence[Result], looks: dict[str, Any], thin: bool) -> None:
    for run in runs if thin else ():
        axes.plot(run.curve.spent[axis], 100 * run.curve.success, **looks, alpha=0.25, linewidth=0.7)
    end = min(float(run.curve.spent[axis][-1]) for run in runs)
    grid = np.linspace(max(float(run.curve.spent[axis][0]) for run in runs), end, _POINTS)
    values = np.stack([at(run.curve, axis, grid) for run in runs])  # (seeds, points)
    seeds = f"{len(runs)} seed{'s' if len(runs) > 1 else ''}"
    axes.plot(grid, 100 * values.mean(axis=0), **looks, linewidth=2.0, label=f"{label} ({seeds})")
    if len(runs) > 1:
        band = [mean_over(list(point)) for point in values.T]
        lo, hi = (np.array([100 * getattr(e, side) for e in band]) for side in ("lo", "hi"))
        axes.fill_between(grid, lo, hi, color=looks["color"], alpha=0.1, linewidth=0)


def _headline(results: Sequence[Result], panel: str, looks: Looks) -> Drawing | None:
    """Learning curves against environment steps, and beside them the final success on a panel."""
    figure = drawing(8.0, 3.6)
    left, right = figure.subplots(1, 2, width_ratios=(1.1, 1))
    if not _draw_curves(left, results, STEPS, AXES[STEPS], looks, thin=False):
        return None
    cells = cells_of(results)
    for place, (label, runs) in enumerate(cells.items()):
        rates = [run.summaries[panel]["success"]["micro"] for run in runs]
        if (found := over_seeds(rates)) is not None:
            _bars(right, [(place, found)], looks[label], across=True)
            dots = [100 * rate["rate"] for rate in rates]
            right.scatter(dots, [place + 0.25] * len(dots), s=14, color=looks[label]["color"], alpha=0.7, linewidths=0)
    right.locator_params(axis="x", nbins=5, integer=True)
    right.set(xlabel=f"final success, {panel} (%)", ylim=(len(cells) - 0.5, -0.5))
    right.set_yticks(range(len(cells)), [f"{label} ({len(runs)})" for label, runs in cells.items()])
    for tick, label in zip(right.get_yticklabels(), cells, strict=True):
        tick.set(color=looks[label]["color"], fontweight="bold")
    return figure


def _shares(results: Sequence[Result], panel: str, looks: Looks) -> Drawing | None:
    """Final success against the share of the data, of cells with several shares."""
    cells = {c: r for c, r in cells_of(results, full=False).items() if len({run.job.fraction for run in r}) > 1}
    if not cells:
        return None
    figure = drawing(7.0, 4.4)
    axes = figure.add_subplot()
    axes.set(xlabel="share of the data (%)", ylabel=f"final success, {panel} (%)")
    for number, (label, runs) in enumerate(cells.items()):
        shares = sorted({run.job.fraction for run in runs})
        found = [
            over_seeds([r.summaries[panel]["success"]["micro"] for r in runs if r.job.fraction == f]) for f in shares
        ]
        # Side by side, so that one interval does not hide another.
        points = [(100 * s + 0.6 * number, e) for s, e in zip(shares, found, strict=True) if e]
        reading = next(run.job.reading for run in runs if run.job.fraction < 1)
        _bars(axes, points, looks[label], label=f"{label} (share of {reading})")
    axes.set_ylim(bottom=0)
    axes.set_xticks(sorted({100 * run.job.fraction for runs in cells.values() for run in runs}))
    legend(figure, axes, "mean over seeds, 95 % interval")
    return figure


def _bars(
    axes: Axes,
    points: Sequence[tuple[float, Estimate]],
    looks: dict[str, Any],
    *,
    label: str = "",
    across: bool = False,
) -> None:
    """Means with their intervals at places of the x axis; of the y axis where `across`."""
    places, means = [place for place, _ in points], [100 * e.mean for _, e in points]
    errors = [[100 * max(0.0, e.mean - e.lo) for _, e in points], [100 * max(0.0, e.hi - e.mean) for _, e in points]]
    if across:
        axes.errorbar(means, places, xerr=errors, marker="o", capsize=3, label=label, **looks)
    else:
        axes.errorbar(places, means, yerr=errors, marker="o", capsize=3, label=label, **looks)

"""The figures of a study: learning curves against what was spent, and success by share of the data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seedbench.errors import SeedBenchError
from seedbench.study.results import AXES, Estimate, Result, at, cells_of, mean_over, over_seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, apart for every kind of colour vision; line styles keep methods apart in grey.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
_DASHES = ("-", "--", "-.", ":")
_STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "svg.hashsalt": "seedbench",  # equal data, equal file
}
_POINTS = 101


def draw(results: Sequence[Result], panels: Sequence[str], folder: Path) -> list[str]:
    """Write every figure that the results have data for, as PNG and SVG; their names without ending, in order.

    Raises SeedBenchError where matplotlib is missing.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise SeedBenchError(
            "the figures of a study need matplotlib: pip install matplotlib, then run it again with --report."
        ) from error
    names = []
    with mpl.rc_context(_STYLE):
        for axis, title in AXES.items():
            if figure := _curves(results, axis, title):
                names.append(_saved(figure, folder, f"curve-{title.replace(' ', '-')}"))
        for panel in panels:
            if figure := _shares(results, panel):
                names.append(_saved(figure, folder, f"fractions-{panel}"))
    return names


def _saved(figure: Figure, folder: Path, name: str) -> str:
    figure.savefig(folder / f"{name}.png", dpi=150)
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    return name


def _axes(x: str, y: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=x, ylabel=y)
    return figure, axes


def _looks(number: int) -> dict[str, Any]:
    return {"color": _COLOURS[number % len(_COLOURS)], "linestyle": _DASHES[number // len(_COLOURS) % len(_DASHES)]}


def _curves(results: Sequence[Result], axis: str, title: str) -> Figure | None:
    """Validation success against a running total: thin lines of seeds, their mean, a band of its 95 % interval."""
    cells = {label: [r for r in runs if len(r.curve.success) > 1] for label, runs in cells_of(results).items()}
    if not any(cells.values()):
        return None
    figure, axes = _axes(title, "validation success (%)")
    for number, (label, runs) in enumerate(cells.items()):
        if runs:
            _curve(axes, axis, label, runs, _looks(number))
    axes.set_ylim(0, min(101, axes.get_ylim()[1]))
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.locator_params(axis="x", nbins=6)
    axes.legend(frameon=False, title="mean over seeds, 95 % interval")
    return figure


def _curve(axes: Axes, axis: str, label: str, runs: Sequence[Result], looks: dict[str, Any]) -> None:
    for run in runs:
        axes.plot(run.curve.spent[axis], 100 * run.curve.success, **looks, alpha=0.35, linewidth=0.8)
    end = min(float(run.curve.spent[axis][-1]) for run in runs)
    grid = np.linspace(max(float(run.curve.spent[axis][0]) for run in runs), end, _POINTS)
    values = np.stack([at(run.curve, axis, grid) for run in runs])  # (seeds, points)
    seeds = f"{len(runs)} seed{'s' if len(runs) > 1 else ''}"
    axes.plot(grid, 100 * values.mean(axis=0), **looks, linewidth=2.0, label=f"{label} ({seeds})")
    if len(runs) > 1:
        band = [mean_over(list(point)) for point in values.T]
        lo, hi = (np.array([100 * getattr(e, side) for e in band]) for side in ("lo", "hi"))
        axes.fill_between(grid, lo, hi, color=looks["color"], alpha=0.12, linewidth=0)


def _shares(results: Sequence[Result], panel: str) -> Figure | None:
    """Final success against the share of the data, of cells with several shares."""
    cells = {c: r for c, r in cells_of(results, full=False).items() if len({run.job.fraction for run in r}) > 1}
    if not cells:
        return None
    figure, axes = _axes("share of the data (%)", f"final success, {panel} (%)")
    for number, (label, runs) in enumerate(cells.items()):
        shares = sorted({run.job.fraction for run in runs})
        found = [
            over_seeds([r.summaries[panel]["success"]["micro"] for r in runs if r.job.fraction == f]) for f in shares
        ]
        points = [(100 * share, estimate) for share, estimate in zip(shares, found, strict=True) if estimate]
        reading = next(run.job.reading for run in runs if run.job.fraction < 1)
        _bars(axes, points, f"{label} (share of {reading})", _looks(number))
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, title="mean over seeds, 95 % interval")
    return figure


def _bars(axes: Axes, points: Sequence[tuple[float, Estimate]], label: str, looks: dict[str, Any]) -> None:
    means = [100 * e.mean for _, e in points]
    errors = [[100 * max(0.0, e.mean - e.lo) for _, e in points], [100 * max(0.0, e.hi - e.mean) for _, e in points]]
    axes.errorbar([x for x, _ in points], means, yerr=errors, marker="o", capsize=3, label=label, **looks)

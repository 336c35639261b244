"""Learning curves of a training run, drawn from its journal alone; they can be made again at any time.

`learning-curve.png` and `.svg`: success of roll-outs (or the loss, for a method that plays none) with the validations
and their 95 % intervals; below it entropy, KL and response length, as far as the run has them. `learning-curve.csv`
holds every metric of every update.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seedbench.errors import SeedBenchError
from seedbench_trainers.journal import Record, read_journal
from seedbench_trainers.watch import SUCCESS, Score, score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.gridspec import GridSpec

Series = NDArray[np.float64]
Points = dict[int, dict[str, float]]

NAME = "learning-curve"
_ROUNDING = 1e-7
"""Values below it are nothing but rounding."""
_REACH = 5
# Blue and vermilion of Okabe and Ito's palette: apart for every kind of colour vision; shapes keep them apart in grey.
_BLUE, _VERMILION = "#0072B2", "#D55E00"
_BELOW = (
    (("policy/entropy",), "entropy (nats)"),
    (("policy/ref_kl", "policy/old_kl"), "KL"),
    (("rollout/response_tokens",), "response tokens"),
    (("optim/grad_norm",), "gradient norm"),
)
_STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "svg.hashsalt": "seedbench",  # equal data, equal file
}


def draw_curves(folder: Path, title: str = "") -> list[Path]:
    """Write the curves of a run into its folder and return their paths, PNG first; empty if it logged no such figure.

    Raises what `read_journal` raises, and SeedBenchError if matplotlib is missing or a file cannot be written.
    """
    points = _by_update(read_journal(folder))
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise SeedBenchError(
            "learning curves need matplotlib: pip install matplotlib, then draw them again from metrics.jsonl."
        ) from error
    with mpl.rc_context(_STYLE):
        figure = _figure(points, title)
        if figure is None:
            return []
        png, svg = folder / f"{NAME}.png", folder / f"{NAME}.svg"
        try:
            figure.savefig(png, dpi=150)
            figure.savefig(svg, metadata={"Date": None})
        except OSError as error:
            raise SeedBenchError(f"cannot write the learning curve in '{folder}': {error.strerror}.") from error
    return [png, svg]


def curve_csv(folder: Path) -> Path:
    """Write every metric of every update to `learning-curve.csv`, one row an update, a cell empty where it is missing.

    Raises what `read_journal` raises, and SeedBenchError if the file cannot be written.
    """
    records = read_journal(folder)
    points = _by_update(records)
    steps = {record.update: record.optimiser_steps for record in records}
    names = sorted({name for metrics in points.values() for name in metrics})
    path = folder / f"{NAME}.csv"
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["update", "optimiser_steps", *names])
            for update, metrics in points.items():
                writer.writerow([update, steps[update], *(_cell(metrics.get(name, math.nan)) for name in names)])
    except OSError as error:
        raise SeedBenchError(f"cannot write '{path}': {error.strerror}.") from error
    return path


def _cell(value: float) -> str:
    return repr(value) if math.isfinite(value) else ""


def _by_update(records: Sequence[Record]) -> Points:
    """The metrics of each update in order; of several records of one update the later add to the earlier."""
    points: Points = {}
    for record in records:
        points.setdefault(record.update, {}).update(record.metrics)
    return points


def _series(points: Points, name: str) -> tuple[Series, Series]:
    """Updates (N,) and finite values (N,) of a metric."""
    pairs = [(u, metrics[name]) for u, metrics in points.items() if math.isfinite(metrics.get(name, math.nan))]
    both = np.asarray(pairs, dtype=np.float64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def moving_mean(values: Series, reach: int = _REACH) -> Series:
    """Mean of each value with up to `reach` before and as many after it; (N,) -> (N,). A centred mean does not lag."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    starts, ends = np.maximum(0, at - reach), np.minimum(len(values), at + reach + 1)
    means: Series = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def _figure(points: Points, title: str) -> Figure | None:
    from matplotlib.figure import Figure

    scores = [found for update, metrics in points.items() if (found := score(update, metrics))]
    has_loss = len(_series(points, "loss/total")[0]) > 0
    has_rate = len(_series(points, SUCCESS)[0]) > 0
    tops = [name for name, there in (("rate", has_rate or scores), ("loss", has_loss and not has_rate)) if there]
    below = [(name, label) for names, label in _BELOW if (name := _first(points, names))]
    if not has_rate:
        below = [pair for pair in below if pair[0] == "optim/grad_norm"]
    if not tops and not below:
        return None
    heights = [3.2] * len(tops) + [1.9] * bool(below)
    figure = Figure(figsize=(8.0, sum(heights) + 0.6), layout="constrained")
    rows = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    limits = _limits(points)
    for row, top in enumerate(tops):
        axes = figure.add_subplot(rows[row])
        axes.set_xlim(*limits)
        _rate(axes, points, scores) if top == "rate" else _loss(axes, points)
        if row == 0:
            _environment_steps(axes, points)
    for axes, (name, label) in zip(_columns(figure, rows, len(below)), below, strict=True):
        axes.set_xlim(*limits)
        _line(axes, points, name, "")
        axes.set(xlabel="update")
        axes.set_title(label, fontsize=9)
        axes.locator_params(nbins=5)
    if title:
        figure.suptitle(title.replace("$", r"\$"), fontsize=10)
    return figure


def _columns(figure: Figure, rows: GridSpec, count: int) -> list[Axes]:
    """Axes side by side in the last row."""
    cells = rows[-1].subgridspec(1, max(1, count))
    return [figure.add_subplot(cells[column]) for column in range(count)]


def _first(points: Points, names: Sequence[str]) -> str:
    """The first of the metrics that the run has; empty if none. What is 0 but for rounding has nothing to show."""
    return next((name for name in names if (np.abs(_series(points, name)[1]) > _ROUNDING).any()), "")


def _limits(points: Points) -> tuple[float, float]:
    first, last = min(points), max(points)
    margin = max(0.5, 0.02 * (last - first))
    return first - margin, last + margin


def _line(axes: Axes, points: Points, name: str, label: str) -> None:
    """A metric as a light line with its moving mean over it."""
    updates, values = _series(points, name)
    marker: dict[str, Any] = {"marker": "."} if len(updates) < 3 else {}
    axes.plot(updates, values, color=_BLUE, alpha=0.35, linewidth=0.9, label=label, **marker)
    axes.plot(updates, moving_mean(values), color=_BLUE, linewidth=1.8, label=f"mean of {2 * _REACH + 1} updates")


def _rate(axes: Axes, points: Points, scores: Sequence[Score]) -> None:
    """Success of the roll-outs and of the validations, in per cent."""
    if len(_series(points, SUCCESS)[0]):
        _line(axes, {u: _percent(metrics) for u, metrics in points.items()}, SUCCESS, "roll-outs")
    if scores:
        rates = np.asarray([[s.update, s.rate, s.rate - s.lo, s.hi - s.rate] for s in scores]).T  # (4, N)
        rates[1:] *= 100
        counted = f", n = {scores[-1].n:,}, 95 % interval" if scores[-1].n else ""
        axes.errorbar(
            rates[0], rates[1], yerr=np.maximum(0, rates[2:]), color=_VERMILION, marker="D", markersize=5,
            linestyle="--", linewidth=1.0, capsize=3, zorder=5, label=f"validation{counted}",
        )  # fmt: skip
    axes.set(xlabel="update", ylabel="success (%)")
    axes.set_ylim(0, min(101, max(5, axes.get_ylim()[1])))
    axes.legend(frameon=False, loc="best")


def _percent(metrics: Mapping[str, float]) -> dict[str, float]:
    return {SUCCESS: 100 * metrics.get(SUCCESS, math.nan)}


def _loss(axes: Axes, points: Points) -> None:
    _line(axes, points, "loss/total", "loss")
    axes.set(xlabel="update", ylabel="loss")
    axes.legend(frameon=False, loc="best")


def _environment_steps(axes: Axes, points: Points) -> None:
    """A second axis above, with the environment steps at the marks of the updates."""
    updates, steps = _series(points, "steps/environment")
    if len(updates) < 2:
        return
    marks = [mark for mark in axes.get_xticks() if updates[0] <= mark <= updates[-1]]
    above = axes.secondary_xaxis("top")
    above.set_xticks(marks, [_thousands(float(np.interp(mark, updates, steps))) for mark in marks])
    above.set_xlabel("environment steps")


def _thousands(count: float) -> str:
    """Three digits: 950, 2.3k, 46k, 1.2M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return f"{count:.0f}"

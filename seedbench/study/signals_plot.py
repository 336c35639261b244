"""The figure of the signals: small panels over training, a line a cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seedbench.study.canvas import Looks, drawing, legend, whole
from seedbench.study.results import Result
from seedbench.study.signals import RATIO, Part, parts, watched

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANELS = {
    "teacher/delta/solved": "Delta (nats), solved",
    "teacher/delta/unsolved": "Delta (nats), unsolved",
    "teacher/open": "share of open gates",
    "teacher/gate": "mean gate",
    "skill/parsed": "share of readable analyses",
    RATIO: "gradients, distillation : policy",
}
_STRETCHES = 12
CAPTION = (
    f"Means over a {_STRETCHES}th of the updates each, since an update alone is noisy: thin lines are seeds, thick ones"
    " their mean. The table below says what is shown."
)


def draw_signals(results: Sequence[Result], looks: Looks) -> Figure | None:
    """The signals of the methods that have some, against environment steps."""
    cells = watched(results)
    if not cells:
        return None
    figure = drawing(9.0, 5.6)
    grid = figure.subplots(2, 3, sharex=True)
    for axes, (name, title) in zip(grid.flat, _PANELS.items(), strict=True):
        for label, runs in cells.items():
            _line(axes, name, label, [parts(run, _STRETCHES) for run in runs], looks[label])
        axes.set_title(title)
        whole(axes, most=4)
    _logarithmic(grid.flat[-1])
    grid[1, 1].set_xlabel("environment steps")
    legend(figure, grid.flat[0], "mean over seeds")
    return figure


def _logarithmic(axes: Axes) -> None:
    axes.set_yscale("log")
    for ticks in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        ticks(lambda value, _: f"{value:.3g}")


def _line(axes: Axes, name: str, label: str, runs: Sequence[Sequence[Part]], looks: dict[str, Any]) -> None:
    values = np.array([[part.means[name] for part in of] for of in runs])  # (seeds, stretches)
    steps = np.array([[part.steps for part in of] for of in runs])
    some = ~np.isnan(values).all(axis=0)
    for x, y in zip(steps, values, strict=True):
        axes.plot(x, y, **looks, alpha=0.3, linewidth=0.7)
    # Empty where a cell has none of it: the legend names it all the same.
    means = np.nanmean(values[:, some], axis=0) if some.any() else []
    axes.plot(steps.mean(axis=0)[some], means, **looks, linewidth=2.0, label=label)

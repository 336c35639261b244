"""What the figures of a study share: colours, sizes, legends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Looks = Mapping[str, dict[str, Any]]
"""Cell -> colour and line style, the same in all figures."""

# Okabe and Ito's palette, with a grey for its pale yellow: apart for every kind of colour vision. Line styles keep
# further cells apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C8C")
_DASHES = ("-", "--", "-.", ":")
STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9.0,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "svg.hashsalt": "seedbench",  # equal data, equal file
}


def looks_of(number: int) -> dict[str, Any]:
    """Colour and line style of a study's cell by its number."""
    return {"color": _COLOURS[number % len(_COLOURS)], "linestyle": _DASHES[number // len(_COLOURS) % len(_DASHES)]}


def drawing(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def legend(figure: Figure, axes: Axes, title: str) -> None:
    """The legend of `axes`, below everything, so that it hides no curve."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, title=title, loc="outside lower center", ncols=min(4, len(labels)))


def whole(axes: Axes, most: int = 6) -> None:
    """At most so many ticks on the x axis, as whole numbers: 20,000."""
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.locator_params(axis="x", nbins=most)

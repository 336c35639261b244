"""The sample-efficiency table as a plot: success by share of the training data, with intervals. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seedbench.errors import SeedBenchError, UsageError
from seedbench.tables.paper.model import PaperRow, PaperTable

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's, told apart by colour-blind readers."""
_MARKERS = "osD^vPX"


def plot_efficiency(table: PaperTable, file: Path) -> None:
    """Draw a panel for each group of columns; reported rows dashed and without intervals, since they have none.

    Raises UsageError for another layout or a name that does not end in .png or .svg, SeedBenchError where matplotlib is
    missing or the file cannot be written.
    """
    if table.layout != "paper-efficiency":
        raise UsageError(
            f"--plot draws the layout paper-efficiency, not {table.layout}: add --layout paper-efficiency."
        )
    if file.suffix.lower() not in (".png", ".svg"):
        raise UsageError(f"--plot '{file}': the name of a plot ends in .png or .svg.")
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise SeedBenchError("plots need matplotlib, which is not installed: pip install matplotlib.") from None
    figure = Figure(figsize=(4.5 * len(table.groups), 3.6), layout="constrained")
    for number, group in enumerate(table.groups, 1):
        axes = figure.add_subplot(1, len(table.groups), number)
        _panel(axes, table, table.places(group))
        axes.set_title(_plain(group.title), fontsize=10)
    draft = file.with_name(f".{file.stem}.draft{file.suffix}")
    # No date and no random names in it, so that the same table gives the same file.
    metadata = {"Date": None} if file.suffix.lower() == ".svg" else {"Software": None}
    try:
        with rc_context({"svg.hashsalt": "seedbench"}):
            figure.savefig(draft, dpi=150, metadata=metadata)
        draft.replace(file)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise SeedBenchError(
            f"cannot write the plot '{file}': {error.strerror}. Choose a folder that exists."
        ) from error


def _plain(text: str) -> str:
    return text.replace("$", r"\$")  # matplotlib would read mathematics between two of them


def _panel(axes: Any, table: PaperTable, places: range) -> None:
    several = len(table.blocks) > 1
    shares = {place: 100 * (table.columns[place].fraction or 0) for place in places}
    rows = [(block.model, row) for block in table.blocks for row in (*block.measured, *block.reported)]
    labels = list(dict.fromkeys((model, row.label) for model, row in rows))  # measured and reported share a colour
    for model, row in rows:
        style = labels.index((model, row.label))
        name = f"{model} {row.label}" if several else row.label
        _line(axes, row, shares, style, _plain(f"{name} (reported)" if row.kind == "reported" else name))
    axes.set(xlabel="share of the training data, %", ylabel="success, %", ylim=(0, 100))
    axes.grid(alpha=0.3)
    if axes.has_data():
        axes.legend(fontsize=8)


def _line(axes: Any, row: PaperRow, shares: Mapping[int, float], style: int, name: str) -> None:
    points = [
        (share, 100 * cell.value, 100 * (cell.value if cell.lo is None else cell.lo), 100 * (cell.hi or cell.value))
        for place, share in shares.items()
        if (cell := row.cells[place]) is not None and cell.value is not None
    ]
    if not points:
        return
    x, y, lo, hi = zip(*points, strict=True)
    look = {"color": _COLOURS[style % len(_COLOURS)], "marker": _MARKERS[style % len(_MARKERS)], "markersize": 4}
    if row.kind == "reported":
        axes.plot(x, y, linestyle="--", alpha=0.6, label=name, **look)
        return
    reach = [[max(0.0, b - a) for a, b in zip(*ends, strict=True)] for ends in ((lo, y), (y, hi))]
    axes.errorbar(x, y, yerr=reach, capsize=3, label=name, **look)

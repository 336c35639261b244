"""The sample-efficiency table as a plot: success by share of the training data, with intervals. Needs matplotlib."""

from __future__ import annotations

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
    start = 0
    for place, group in enumerate(table.groups):
        axes = figure.add_subplot(1, len(table.groups), place + 1)
        _panel(axes, table, start, len(group.columns))
        axes.set_title(_plain(group.title), fontsize=10)
        start += len(group.columns)
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


def _panel(axes: Any, table: PaperTable, start: int, width: int) -> None:
    several = len(table.blocks) > 1
    shares = [100 * (column.fraction or 0) for column in table.columns[start : start + width]]
    rows = [(block.model, row) for block in table.blocks for row in (*block.measured, *block.reported)]
    labels = list(dict.fromkeys((model, row.label) for model, row in rows))  # measured and reported share a colour
    for model, row in rows:
        style = labels.index((model, row.label))
        name = f"{model} {row.label}" if several else row.label
        _line(axes, row, shares, start, style, _plain(f"{name} (reported)" if row.kind == "reported" else name))
    axes.set(xlabel="share of the training data, %", ylabel="success, %", ylim=(0, 100))
    axes.grid(alpha=0.3)
    if axes.has_data():
        axes.legend(fontsize=8)


def _line(axes: Any, row: PaperRow, shares: list[float], start: int, style: int, name: str) -> None:
    cells = [(share, row.cells[start + at]) for at, share in enumerate(shares)]
    points = [(share, cell) for share, cell in cells if cell is not None and cell.value is not None]
    if not points:
        return
    look = {"color": _COLOURS[style % len(_COLOURS)], "marker": _MARKERS[style % len(_MARKERS)], "markersize": 4}
    x, y = [share for share, _ in points], [100 * (cell.value or 0) for _, cell in points]
    if row.kind == "reported":
        axes.plot(x, y, linestyle="--", alpha=0.6, label=name, **look)
        return
    values = [cell.value or 0.0 for _, cell in points]
    low = [100 * (v - (v if cell.lo is None else cell.lo)) for v, (_, cell) in zip(values, points, strict=True)]
    high = [100 * ((v if cell.hi is None else cell.hi) - v) for v, (_, cell) in zip(values, points, strict=True)]
    axes.errorbar(x, y, yerr=(low, high), capsize=3, label=name, **look)

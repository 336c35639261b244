"""The parts of the live panel: what the views count, drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from seedbench.ui.live import pack
from seedbench.ui.tally import format_number, format_seconds
from seedbench_trainers.watch import RECENT, SUCCESS, WINDOW, Watch, figure, sparkline

_WIDE = 108  # from here on the success rates and the other figures stand side by side
_COLOURS = {"rollout": "cyan", "signals": "magenta", "update": "green", "validation": "yellow", "checkpoint": "blue"}
# As many textures, so that the bar reads without colour.
_TEXTURES = "█▓▒░▚"


def header(watch: Watch, now: float, ended: bool) -> list[Text]:
    """Updates done, elapsed time, and, while it goes on, the time left and the phase; each a phrase."""
    parts = [Text(f"update {watch.done:,}/{watch.total:,}", style="bold")]
    parts.append(Text(f"elapsed {format_seconds(now - watch.began)}"))
    if ended:
        return parts
    parts.append(Text(f"ETA {format_seconds(watch.eta(now))}"))
    return [*parts, Text(", ".join(watch.phase.words(now)), style=_COLOURS.get(watch.phase.name, "cyan"))]


def figures(watch: Watch, width: int, room: int) -> list[RenderableType]:
    """The success rates and the other figures in about `room` lines: side by side where there is width for that."""
    rates, others = watch.rows(), watch.figures()
    rows = max(3, room - 1)
    if not rates:
        return [_figure_table(watch, others[:rows], min(width, 60))]
    if width >= _WIDE:
        half = (width - 4) // 2
        grid = Table.grid(padding=(0, 4, 0, 0))
        grid.add_row(_rate_table(watch, rates, half, rows), _figure_table(watch, others[:rows], half))
        return [grid]
    rates_shown = max(3, min(len(rates), room - 3))
    phrases = pack([_phrase(watch, label, name) for label, name in others], width).split("\n")
    left = max(1, room - 1 - rates_shown)
    return [_rate_table(watch, rates, width, rates_shown), *phrases[:left]]


def _phrase(watch: Watch, label: str, name: str) -> Text:
    return Text.assemble((f"{label} ", "dim"), figure(name, watch.value(name)))


def _rate_table(watch: Watch, rates: Sequence[tuple[str, str]], width: int, rows: int) -> Table:
    names = min(14, max(8, *(cell_len(label) for label, _ in rates)))
    space = max(0, min(WINDOW, width - names - 28))  # three columns of figures, and what stands between them
    table = _table(names, space, f"last {space}")
    table.add_column("valid.", justify="right", no_wrap=True)
    shown = rates if len(rates) <= rows else rates[: rows - 1]
    # One scale for all rows, so that they can be compared; under 10 % noise would look like progress.
    seen = [value for _, name in rates for value in watch.history.get(name, ()) if math.isfinite(value)]
    highest = max([0.1, *seen])
    for label, name in shown:
        line = Text(sparkline(watch.history.get(name, ()), space, 0.0, highest), style="green")
        whole = name == SUCCESS
        valid = watch.last.rate if whole and watch.last else watch.by_family.get(name.partition(f"{SUCCESS}/")[2])
        last = Text(figure(name, math.nan if valid is None else valid), style="yellow")
        table.add_row(*_cells(watch, label, name), line, last, style="bold" if whole else "")
    if len(shown) < len(rates):
        table.add_row(Text(f"… {len(rates) - len(shown)} more", style="dim"))
    return table


def _figure_table(watch: Watch, figures: Sequence[tuple[str, str]], width: int) -> Table:
    space = max(0, min(WINDOW, width - 38))  # a name of 15, two columns of figures, and what stands between them
    table = _table(15, space, f"last {space}, own scale")
    for label, name in figures:
        table.add_row(*_cells(watch, label, name), Text(sparkline(watch.history[name], space), style="cyan"))
    return table


def _table(names: int, space: int, head: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True, overflow="ellipsis", max_width=names)
    table.add_column("now", justify="right", no_wrap=True)
    table.add_column(f"mean {RECENT}", justify="right", no_wrap=True)
    table.add_column(head[:space], no_wrap=True, min_width=space)
    return table


def _cells(watch: Watch, label: str, name: str) -> list[Text]:
    return [Text(label), Text(figure(name, watch.value(name))), Text(figure(name, watch.recent(name)))]


def validations(watch: Watch, width: int) -> list[Text]:
    """The last validation, the first and the best; nothing before the first."""
    first, last, best = watch.first, watch.last, watch.best
    if first is None or last is None or best is None:
        return []
    parts = [f"validation at update {last.update:,}: {last.words()}"]
    if last is not first:
        parts.append(f"first {first.rate:.1%}")
        parts.append(f"best {best.rate:.1%} at {best.update:,}")
    return [pack([Text(part, style="yellow") for part in parts], width)]


def times(watch: Watch, width: int) -> list[Text]:
    """The phases' shares in the time as a bar with its legend; speeds, steps and memory."""
    shares = watch.shares()
    marks = {name: _TEXTURES[index % len(_TEXTURES)] for index, name in enumerate(shares)}
    bar = Text()
    end = 0.0
    for name, share in shares.items():
        cells = round((end + share) * width) - round(end * width)
        bar.append(marks[name] * cells, style=_COLOURS.get(name, ""))
        end += share
    legend = [Text(f"{marks[name]} {name} {share:.0%}", style=_COLOURS.get(name, "")) for name, share in shares.items()]
    parts = [*legend, *map(Text, _counters(watch))]
    return [line for line in (bar, pack(parts, width)) if line.plain]


def _counters(watch: Watch) -> list[str]:
    parts = watch.speeds()
    if math.isfinite(steps := watch.value("steps/environment")):
        parts.append(f"{steps:,.0f} environment steps")
    if math.isfinite(peak := watch.value("memory/peak_gib")):
        parts.append(f"peak memory {format_number(peak)} GiB")
    return parts

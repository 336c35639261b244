"""The table in a terminal, folded to its width: two lines a run where they fit, three where they do not."""

import io

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from seedbench.tables.build import Block, Cell, Row, Table
from seedbench.tables.text import bracketed, counted, limits, percent

_NARROWEST_NAME = 10
"""Columns under which a run's name is folded no further."""


class TerminalTable:
    """The table as something that a rich console prints. No text in it is ever parsed as markup."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Title, the blocks with their notes, and what the numbers are."""
        yield Text(self._table.title, style="bold")
        for block in self._table.blocks:
            yield Text()
            yield Text(block.title, style="cyan")
            yield Text()
            yield self._body(block, console, options)
            if block.notes:
                yield Text()
            for note in block.notes:
                yield Text(note, style="yellow")
        yield Text()
        yield Text(self._table.caption, style="dim")

    def _body(self, block: Block, console: Console, options: ConsoleOptions) -> RenderableType:
        """The roomiest form that fits the width, so that no number is ever cut."""
        unbounded = options.update(width=10_000)

        def fits(body: RichTable) -> bool:
            return Measurement.get(console, unbounded, body).maximum <= options.max_width

        for wide in (True, False):
            if fits(body := _rich_table(self._table, block, wide=wide)):
                return body
        if fits(_rich_table(self._table, block, merged=True, name_width=_NARROWEST_NAME)):
            return _rich_table(self._table, block, merged=True)
        return _listing(self._table, block)


def to_terminal(table: Table, width: int = 120) -> str:
    """The table as plain text, `width` columns wide, without colours."""
    return as_text(TerminalTable(table), width)


def as_text(shown: RenderableType, width: int) -> str:
    """What a console of `width` columns prints, without colours and blanks at the ends of lines."""
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None, force_terminal=False, legacy_windows=False)
    console.print(shown)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _rich_table(
    table: Table, block: Block, *, wide: bool = False, merged: bool = False, name_width: int | None = None
) -> RichTable:
    """`wide` puts interval and n on one line; `merged` puts policy and protocol under the run's name."""
    padding = (0, 1, 0, 0) if wide else 0
    body = RichTable(box=SIMPLE_HEAD, padding=padding, pad_edge=False, show_edge=False, leading=1)
    titles = block.text_columns
    for title in ["\n".join(titles)] if merged else titles:
        body.add_column(Text(title), overflow="fold", width=name_width)
    for title in table.titles:
        body.add_column(Text(title), justify="right", no_wrap=True)
    for row in block.rows:
        names = ["\n".join(_names(block, row))] if merged else block.texts(row)
        body.add_row(*(Text(name) for name in names), *_numbers(table, row, wide))
    return body


def _listing(table: Table, block: Block) -> RenderableType:
    """For terminals too narrow for a table: a line for each number."""
    lines: list[Text] = []
    width = max(6, *map(len, table.titles))
    for row in block.rows:
        lines += [*([Text()] if lines else []), *(Text(text, style="bold") for text in _names(block, row))]
        for column, rate in zip(table.columns, row.rates, strict=True):
            lines.append(Text(f"  {column.title:<{width}} {percent(rate):>5} {_detail(rate, wide=True)}"))
        lines += [Text(f"  {'Steps':<{width}} {text:>5}") for text in table.tail(row)]
    return Group(*lines)


def _names(block: Block, row: Row) -> list[str]:
    """What tells the row apart, a line each; the policy only where it is not the run's name already."""
    cells = zip(block.text_columns, block.texts(row), strict=True)
    return [text for title, text in cells if title != "Policy" or row.policy != row.label]


def _numbers(table: Table, row: Row, wide: bool) -> list[Text]:
    return [*(_cell(rate, wide) for rate in row.rates), *map(Text, table.tail(row))]


def _cell(rate: Cell, wide: bool) -> Text:
    detail = _detail(rate, wide)
    return Text.assemble((percent(rate), "bold"), *([(f"\n{detail}", "dim")] if detail else []))


def _detail(rate: Cell, wide: bool) -> str:
    """`[80-99] n=24`, or 80-99 above n=24."""
    parts = (bracketed(rate) if wide else limits(rate), counted(rate))
    return (" " if wide else "\n").join(part for part in parts if part)

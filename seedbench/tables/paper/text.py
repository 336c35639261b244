"""Paper tables in a terminal and as Markdown. A dagger marks what is reported."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from seedbench.tables.markdown import escape
from seedbench.tables.paper.layouts import ColumnGroup
from seedbench.tables.paper.model import Cell, PaperBlock, PaperRow, PaperTable, interval, printed
from seedbench.tables.terminal import as_text

REPORTED = "Reported in papers, not comparable"
_NARROWEST_NAME = 12
"""Columns under which a method's name is folded no further."""

_BOLD_LEGEND = "Bold numbers have a dot behind them: 75.0·"


def name_of(row: PaperRow, suite: str = "") -> str:
    """`GRPO (3 seeds) *`, or `† GRPO [1,4]` for a reported row, with what holds for one suite or for all of them."""
    if row.kind == "reported":
        return f"† {row.label} [{','.join(map(str, row.footnotes(suite)))}]"
    counts = sorted({count for of, count in row.seeds.items() if suite in ("", of)})
    seeds = (
        f" ({'-'.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} seeds)" if counts and counts[-1] > 1 else ""
    )
    return f"{'  ' if row.kind == 'difference' else ''}{row.label}{seeds}{' *' if row.unfinished else ''}"


def detail_of(row: PaperRow, cell: Cell | None, dash: str = "-") -> str:
    """The interval, or how a printed average was formed."""
    if cell is None:
        return ""
    return cell.mark or interval(cell, " to " if row.kind == "difference" else dash)


def to_terminal(table: PaperTable, width: int = 120) -> str:
    """The table as plain text, `width` columns wide, without colours."""
    return as_text(PaperTerminal(table), width)


class PaperTerminal:
    """The table as something that a rich console prints. No text in it is ever parsed as markup."""

    def __init__(self, table: PaperTable) -> None:
        self._table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Title; for each model its table and notes; caption and footnotes."""
        yield Text(self._table.title, style="bold")
        for block in self._table.blocks:
            yield Text()
            yield Text(block.model, style="cyan")
            yield self._body(block, console, options)
            for source in block.sources:
                yield Text(source.text, style="dim")
            for note in block.notes:
                yield Text(note, style="yellow")
        yield Text()
        dotted = [_BOLD_LEGEND] if _has_bold(self._table) else []
        yield Text(" ".join((*self._table.sentences(), *dotted)), style="dim")
        for number, text in enumerate(self._table.footnotes, start=1):
            yield Text(f"[{number}] {text}", style="dim")

    def _body(self, block: PaperBlock, console: Console, options: ConsoleOptions) -> RenderableType:
        """A table for each group of columns where they fit the width, else a line for each number."""
        unbounded = options.update(width=10_000)
        parts: list[RenderableType] = []
        for group in self._table.groups:
            places = self._table.places(group)
            body = _rich(block, group, places, _NARROWEST_NAME)
            if Measurement.get(console, unbounded, body).maximum > options.max_width:
                return _listing(self._table, block)
            parts += [Text(), Text(group.title), _rich(block, group, places)] if body.row_count else []
        return Group(*parts)


def _has_bold(table: PaperTable) -> bool:
    return any(cell and cell.bold for block in table.blocks for row in block.measured for cell in row.cells)


def _rich(block: PaperBlock, group: ColumnGroup, places: range, name_width: int | None = None) -> RichTable:
    """The rows that have anything in these columns, which stand at `places` in a row's cells."""
    body = RichTable(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    body.add_column(Text("Method"), overflow="fold", width=name_width)
    for column in group.columns:
        body.add_column(Text(column.title), justify="right", no_wrap=True)
    for row in block.measured:
        if shown := _cells(row, places):
            body.add_row(Text(name_of(row, group.suite)), *shown)
    reported = [(row, shown) for row in block.reported if (shown := _cells(row, places))]
    if reported:
        body.add_row(Text(f"\n{REPORTED}" if body.row_count else REPORTED))
    for row, shown in reported:
        body.add_row(Text(name_of(row, group.suite), style="italic"), *shown)
    return body


def _cells(row: PaperRow, places: range) -> list[Text]:
    """The row's cells at these places; empty where none has anything."""
    if all(row.cells[place] is None for place in places):
        return []
    return [_cell(row, row.cells[place]) for place in places]


def _cell(row: PaperRow, cell: Cell | None) -> Text:
    number = printed(cell, row.kind)
    bold = cell is not None and cell.bold
    detail = detail_of(row, cell).strip("[]")  # on a line of its own
    style = "bold" if bold else "italic" if row.kind == "reported" else ""
    between = " " if row.kind == "reported" else "\n"
    return Text.assemble(
        (f"{number}·" if bold else number, style), *([(f"{between}{detail}", "dim")] if detail else [])
    )


def _listing(table: PaperTable, block: PaperBlock) -> RenderableType:
    """For terminals too narrow for a table: a line for each number."""
    lines: list[Text] = []
    for row in (*block.measured, *block.reported):
        lines += [Text(), Text(name_of(row), style="bold")]
        cells = iter(row.cells)
        for group in table.groups:
            for column in group.columns:
                if (cell := next(cells)) is not None:
                    number = printed(cell, row.kind) + ("·" if cell.bold else "")
                    lines.append(Text(f"  {group.title} {column.title} {number} {detail_of(row, cell)}".rstrip()))
    return Group(*lines)


def to_markdown(table: PaperTable) -> str:
    """A pipe table for each model, what it rests on, then caption and footnotes."""
    parts = [f"### {escape(table.title)}"]
    for block in table.blocks:
        parts += [f"#### {escape(block.model)}", _pipes(table, block)]
        listed = [*(source.text for source in block.sources), *block.notes]
        parts += ["\n".join(f"- {escape(text)}" for text in listed)] if listed else []
    parts += map(escape, table.sentences())
    notes = [f"- \\[{number}\\] {escape(text)}" for number, text in enumerate(table.footnotes, start=1)]
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])]) + "\n"


def _pipes(table: PaperTable, block: PaperBlock) -> str:
    several = len(table.groups) > 1
    heads = [
        escape(f"{group.title}: {column.title}" if several and at == 0 else column.title)
        for group in table.groups
        for at, column in enumerate(group.columns)
    ]
    lines = [["Method", *heads], [":--", *["--:"] * len(heads)]]
    lines += [_markdown_row(row) for row in block.measured]
    if block.reported:
        lines.append([f"*{REPORTED}*", *[""] * len(heads)])
    lines += [_markdown_row(row) for row in block.reported]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _markdown_row(row: PaperRow) -> list[str]:
    return [escape(name_of(row).strip()), *(_markdown_cell(row, cell) for cell in row.cells)]


def _markdown_cell(row: PaperRow, cell: Cell | None) -> str:
    number = printed(cell, row.kind)
    marked = f"**{number}**" if cell is not None and cell.bold else number
    return " ".join(part for part in (marked, escape(detail_of(row, cell))) if part)

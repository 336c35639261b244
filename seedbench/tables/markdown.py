"""GitHub-flavoured Markdown: a heading, a pipe table and notes for each panel."""

import re

from seedbench.tables.build import Block, Cell, Row, Table
from seedbench.tables.text import bracketed, counted, percent

# A colon only before slashes, where it would begin a link.
_SPECIAL = re.compile(r"[\\`*_{}\[\]#|~$]|:(?=//)")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def escape(text: str) -> str:
    """One line of plain text as Markdown that shows exactly it: no markup, HTML, links or cell breaks."""
    backslashed = _SPECIAL.sub(lambda m: f"\\{m[0]}", text)
    return re.sub("[&<>]", lambda m: _ENTITIES[m[0]], backslashed)


def to_markdown(table: Table) -> str:
    """The table with `95.8 [80-99] n=24` in each cell."""
    parts = [f"### {escape(table.title)}"]
    for block in table.blocks:
        parts.append(f"#### {escape(block.title)}")
        parts.append(_body(table, block))
        if block.notes:
            parts.append("\n".join(f"- {escape(note)}" for note in block.notes))
    parts.append(escape(table.caption))
    return "\n\n".join(parts) + "\n"


def _body(table: Table, block: Block) -> str:
    texts = block.text_columns
    titles = [*texts, *table.titles]
    rule = [":--"] * len(texts) + ["--:"] * (len(titles) - len(texts))
    return "\n".join(
        [_line([escape(title) for title in titles]), _line(rule), *(_row(table, block, row) for row in block.rows)]
    )


def _row(table: Table, block: Block, row: Row) -> str:
    texts = [escape(text) for text in block.texts(row)]
    return _line([*texts, *(_cell(rate) for rate in row.rates), *table.tail(row)])


def _cell(rate: Cell) -> str:
    return " ".join(part for part in (percent(rate), bracketed(rate), counted(rate)) if part)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"

"""The formats of paper tables by name."""

from __future__ import annotations

from collections.abc import Callable

from seedbench.tables.paper.data import to_csv, to_json
from seedbench.tables.paper.latex import to_latex
from seedbench.tables.paper.model import PaperTable, printed
from seedbench.tables.paper.text import REPORTED, detail_of, name_of, to_markdown, to_terminal
from seedbench.tables.render import format_named


def to_html(table: PaperTable) -> str:
    """The table as a whole page: no script, nothing from elsewhere, texts escaped and control characters as codes."""
    from seedbench.report.site import environment

    template = environment().get_template("paper.html.jinja")
    helpers = {"printed": printed, "name_of": name_of, "detail_of": detail_of}
    return template.render(table=table, reported=REPORTED, **helpers) + "\n"


PAPER_FORMATS: dict[str, Callable[[PaperTable], str]] = {
    "terminal": to_terminal,
    "markdown": to_markdown,
    "latex": to_latex,
    "html": to_html,
    "csv": to_csv,
    "json": to_json,
}


def render_paper(table: PaperTable, format: str) -> str:
    """The table as text that ends in one newline; for colours and another width print a `PaperTerminal`.

    Raises UsageError for an unknown format.
    """
    return format_named(PAPER_FORMATS, format)(table)

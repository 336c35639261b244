"""The formats by name."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from seedbench.errors import unknown
from seedbench.tables.build import Table
from seedbench.tables.data import to_csv, to_json
from seedbench.tables.html import to_html
from seedbench.tables.latex import to_latex
from seedbench.tables.markdown import to_markdown
from seedbench.tables.terminal import to_terminal

T = TypeVar("T")

FORMATS: dict[str, Callable[[Table], str]] = {
    "terminal": to_terminal,
    "markdown": to_markdown,
    "latex": to_latex,
    "html": to_html,
    "csv": to_csv,
    "json": to_json,
}


def format_named(formats: Mapping[str, Callable[[T], str]], name: str) -> Callable[[T], str]:
    """The format of that name. Raises UsageError for an unknown one."""
    if name not in formats:
        raise unknown("table format", name, formats)
    return formats[name]


def render(table: Table, format: str) -> str:
    """The table as text that ends in one newline; for colours and another width print a `TerminalTable`.

    Raises UsageError for an unknown format.
    """
    return format_named(FORMATS, format)(table)

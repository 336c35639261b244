"""How verbs print tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer


def print_table(summaries: Sequence[tuple[str, dict[str, Any]]], layout: str, format: str) -> None:
    """Print runs as one table; on a terminal in its width and colours."""
    from rich.console import Console

    from seedbench.tables import TerminalTable, build, render

    table = build(summaries, layout)
    if format == "terminal" and sys.stdout.isatty():
        Console().print(TerminalTable(table))
    else:
        typer.echo(render(table, format), nl=False)

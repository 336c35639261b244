"""`seedbench table`: runs as a paper-style table."""

from __future__ import annotations

from pathlib import Path

import typer


def table_command(
    runs: list[Path] = typer.Argument(help="Run folders or summary.json files, one row each."),
    layout: str = typer.Option("", help="Table layout; default: that of the first run's suite."),
    format: str = typer.Option("terminal", help="terminal, markdown, latex, csv or json."),
    labels: str = typer.Option("", help="Row names in the order of the runs, separated by commas."),
) -> None:
    """Print runs as one table: every rate with n and a 95 % interval, one block for each panel."""
    from seedbench.cli.output import print_table
    from seedbench.errors import UsageError
    from seedbench.registry import get_suite
    from seedbench.tables import load_summary

    summaries = [load_summary(run) for run in runs]
    names = [label.strip() for label in labels.split(",")] if labels else [s["policy"]["name"] for s in summaries]
    if len(names) != len(runs):
        raise UsageError(f"--labels names {len(names)} rows for {len(runs)} runs.")
    chosen = layout or get_suite(summaries[0]["panel"]["suite"]).layout
    print_table(list(zip(names, summaries, strict=True)), chosen, format)

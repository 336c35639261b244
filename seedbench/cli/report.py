"""`seedbench report`: runs as static HTML pages."""

from __future__ import annotations

from pathlib import Path

import typer


def report_command(
    runs: list[Path] = typer.Argument(help="Run folders, bundles or training runs."),
    out: Path = typer.Option(help="Folder of the pages: a new one, or that of an earlier report, which is replaced."),
    labels: str = typer.Option("", help="Names of the runs in their order, separated by commas."),
) -> None:
    """Write runs as static HTML pages: tables, intervals, learning curves, comparisons, and every episode.

    Open `index.html` of the folder in a browser; nothing is loaded from a network. Of a training run the last
    validation is taken.
    """
    from seedbench.report.build import write_report

    names = [label.strip() for label in labels.split(",")] if labels else []
    page = write_report(runs, out, names)
    typer.echo(f"{page}: {len(runs)} run{'s' if len(runs) > 1 else ''}")

"""`seedbench verify`: replay a run's stored actions and recompute what it claims."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from seedbench.verify import Report


def verify_command(
    run: Path = typer.Argument(
        help="Run folder, bundle (folder or .tar.gz), or the folder of a training run: then its validations."
    ),
    panel: str = typer.Option("", "--panel", "-p", help="Panel name or file, where no installed suite ships it."),
    engine: str = typer.Option("", help="Engine to replay with instead of the run's, e.g. bm25:DIR or http:URL."),
) -> None:
    """Replay every stored action without a model; recompute scores, outcomes and summary; name what differs.

    Exit code 0: the run is what it claims to be; 1: it is not, the first ten differences are shown; 2: no such run.
    """
    from seedbench.bundle import SUFFIX, opened
    from seedbench.verify import run_folders, verify

    wrong = 0
    with opened(run) if run.name.endswith(SUFFIX) else nullcontext(run) as given:
        for folder in run_folders(given):
            report = verify(folder, panel=panel, engine=engine, told=_told)
            typer.echo("\n".join(_lines(report, run / folder.relative_to(given))))
            wrong += report.findings > 0
    if wrong:
        raise typer.Exit(1)


def _lines(report: Report, name: Path) -> list[str]:
    from seedbench.ui.text import inert

    played = f"{report.episodes:,} episodes, {report.turns:,} turns"
    result = f"{report.findings:,} differences" if report.findings else "verified"
    lines = [f"{name}: {result} ({played})", *(f"  {text}" for text in report.first)]
    if (more := report.findings - len(report.first)) > 0:
        lines.append(f"  and {more:,} more")
    return [inert(line.replace("\n", " "), 600) for line in (*lines, *(f"  note: {note}" for note in report.notes))]


def _told(line: str) -> None:
    if sys.stderr.isatty():
        typer.echo(line, err=True)

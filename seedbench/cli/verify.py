"""`seedbench verify`: replay a run's stored actions and recompute what it claims."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from seedbench.verify import Report


def verify_command(
    run: Path = typer.Argument(
        help="Run folder, bundle (folder, .tar.gz), training run (then its validations), or study (folder, .tar.xz)."
    ),
    panel: str = typer.Option("", "--panel", "-p", help="Panel name or file, where no installed suite ships it."),
    engine: str = typer.Option("", help="Engine to replay with instead of the run's, e.g. bm25:DIR or http:URL."),
) -> None:
    """Replay every stored action without a model; recompute scores, outcomes and summary; name what differs.

    Exit code 0: the run is what it claims to be; 1: it is not, the first ten differences are shown; 2: no such run.
    """
    from seedbench.study.archive import is_study
    from seedbench.verify import run_folders, verify

    with _opened(run) as given:
        if is_study(given):
            wrong = _study(run, given, panel, engine)
        else:
            wrong = False
            for folder in run_folders(given):
                wrong |= _told_of(verify(folder, panel=panel, engine=engine, told=_told), run, given)
    if wrong:
        raise typer.Exit(1)


def _opened(run: Path) -> AbstractContextManager[Path]:
    from seedbench import bundle
    from seedbench.study import archive

    if run.name.endswith(archive.SUFFIX):
        return archive.opened_study(run)
    return bundle.opened(run) if run.name.endswith(bundle.SUFFIX) else nullcontext(run)


def _study(run: Path, given: Path, panel: str, engine: str) -> bool:
    """Verify a study and say what came of all of it; whether anything is wrong."""
    from seedbench.errors import UsageError
    from seedbench.study.evidence import is_evaluation, verify_study

    if panel:
        raise UsageError(f"'{run}' is a study, which names its panels; give it without --panel.")
    wrong = evaluations = episodes = turns = 0
    for report in verify_study(given, engine=engine, told=_told):
        wrong += _told_of(report, run, given)
        evaluations += is_evaluation(report)
        episodes, turns = episodes + report.episodes, turns + report.turns
    result = f"differences in {wrong:,} places" if wrong else "verified"
    typer.echo(f"{run}: {result} ({evaluations:,} evaluations, {episodes:,} episodes, {turns:,} turns)")
    return wrong > 0


def _told_of(report: Report, run: Path, given: Path) -> bool:
    """Print what came of a verification; whether anything is wrong."""
    typer.echo("\n".join(_lines(report, run / report.folder.relative_to(given))))
    return report.findings > 0


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

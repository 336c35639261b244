"""`seedbench leaderboard`: bundles of runs, verified and ranked, and verified studies."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

app = typer.Typer(no_args_is_help=True, help="Bundles of runs, and a leaderboard of those that were verified.")

_FOLDER = typer.Option(Path("leaderboards"), help="The leaderboard's folder.")


@app.command("pack")
def pack_command(
    run: Path = typer.Argument(help="Folder of an evaluation."),
    target: Path = typer.Argument(help="What does not exist yet: an archive if it ends in .tar.gz, else a folder."),
    model: str | None = typer.Option(None, help="The base model; default: what the run says."),
    method: str | None = typer.Option(None, help="The method; default: what the run says."),
    submitter: str = typer.Option("", help="Who submits it."),
    note: str = typer.Option("", help="What readers should know."),
    url: str = typer.Option("", help="Where more is to be found, http(s)://..."),
) -> None:
    """Make a bundle of a run: manifest, summary, compressed log, and a submission with the hash of each."""
    from seedbench.bundle import pack

    made = pack(run, target, model=model, method=method, submitter=submitter, note=note, url=url)
    _say(f"{made}: check it with `seedbench verify {made}`")


@app.command("add")
def add_command(
    source: Path = typer.Argument(help="Run folder, bundle folder, archive of one (.tar.gz), or a study (.tar.xz)."),
    folder: Path = _FOLDER,
    page: str = typer.Option(
        "", help="Where a study is reported: http(s)://... or a path from the leaderboard's folder."
    ),
) -> None:
    """Verify a bundle or a study and copy it into the leaderboard; nothing else comes in, and nothing twice."""
    from seedbench.leaderboard import add

    _say(f"verified and added: {add(source, folder, page=page, told=_told)}")


@app.command("check")
def check_command(folder: Path = _FOLDER) -> None:
    """Verify every submission again. Exit code 1 where one is wrong, with a line for each thing that is."""
    from seedbench.leaderboard import check

    problems = check(folder, told=_told)
    for problem in problems:
        _say(problem)
    if problems:
        raise typer.Exit(1)
    _say(f"{folder}: every submission is what it claims to be")


@app.command("build")
def build_command(
    folder: Path = _FOLDER,
    out: Path = typer.Option(Path("site"), help="Folder for index.html, leaderboard.csv and leaderboard.json."),
) -> None:
    """Write the tables of measured and of reported rows: into the folder's README.md, and as pages and files."""
    from seedbench.leaderboard import build

    for path in build(folder, out):
        _say(str(path))


def _say(line: str) -> None:
    from seedbench.ui.text import inert

    typer.echo(inert(line.replace("\n", " "), 600))


def _told(line: str) -> None:
    if sys.stderr.isatty():
        typer.echo(line, err=True)

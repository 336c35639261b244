"""`seedbench view`: the episodes of a run, or the traces of a training run, in the terminal or as an HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seedbench.errors import UsageError

if TYPE_CHECKING:
    from seedbench.traces import Trace
    from seedbench.types import Episode
    from seedbench.ui.viewer import Pages, Selection


def view_command(
    run: Path = typer.Argument(help="Run folder, or the folder of a training run."),
    family: str | None = typer.Option(None, help="Only episodes of this family."),
    solved: bool = typer.Option(False, "--solved", help="Only episodes with success."),
    failed: bool = typer.Option(False, "--failed", help="Only episodes without success."),
    outcome: str | None = typer.Option(
        None, help="Only this outcome: solved, failed, step_limit, context_overflow, infra_error."
    ),
    task: str | None = typer.Option(None, help="Only tasks whose id holds this text."),
    update: int | None = typer.Option(
        None, min=1, help="Of a training run: traces of this update. Default: the latest that has any."
    ),
    limit: int | None = typer.Option(None, min=1, help="At most so many episodes."),
    html: Path | None = typer.Option(None, help="Write them as a page into this .html file instead."),
) -> None:
    """Page through episodes in the terminal: task, responses, actions, observations. Elsewhere prints them all.

    Of a training run it shows the trajectories kept with an update: skill, advantages, and every token shaded by how
    much likelier the skill makes it.
    """
    from rich.console import Console

    from seedbench.ui.viewer import Selection, page

    if solved and outcome not in (None, "solved"):
        raise UsageError(f"--solved shows no '{outcome}' episode: give --solved or --outcome, not both.")
    selection = Selection(family=family, failed=failed, outcome="solved" if solved else outcome, task=task)
    pages = _pages(run, update, selection)
    if html is None or not len(pages):  # where nothing is selected, this says what there is
        page(pages, Console(), limit=limit)
        return
    from seedbench.ui.page import write_page

    count = min(limit or len(pages), len(pages))
    about = f"{count:,} of {pages.outcomes.total():,} episodes"
    write_page(html, f"Episodes of {run}", about, islice(_entries(run, update, selection, pages), count))
    typer.echo(f"{html}: {about}")


def _entries(run: Path, update: int | None, selection: Selection, pages: Pages) -> Iterator[Episode | Trace]:
    from seedbench.traces import read_traces
    from seedbench.ui.viewer import EpisodeIndex

    if isinstance(pages, EpisodeIndex):
        return (pages[number] for number in range(len(pages)))
    return (trace for trace in read_traces(run, update) if selection.matches(trace.episode))


def _pages(run: Path, update: int | None, selection: Selection) -> Pages:
    from seedbench.runs import LOG, MANIFEST, read_manifest
    from seedbench.subject import TRAINING
    from seedbench.ui.viewer import EpisodeIndex

    if (run / TRAINING).is_file():
        from seedbench.ui.traces import TraceIndex

        return TraceIndex(run, update, selection)
    if not (run / MANIFEST).is_file():
        raise UsageError(
            f"'{run}' is not a run folder (no {MANIFEST}) and not a training run (no {TRAINING}): give a folder that"
            " `seedbench eval --out` or `seedbench train --out` has made."
        )
    if update is not None:
        raise UsageError(f"--update chooses the traces of a training run, and '{run}' is an evaluation: leave it out.")
    read_manifest(run)  # says what is wrong where it is damaged
    return EpisodeIndex(run / LOG, selection)

"""`seedbench view`: page through the episodes of a run."""

from __future__ import annotations

from pathlib import Path

import typer


def view_command(
    run: Path = typer.Argument(help="Run folder."),
    family: str | None = typer.Option(None, help="Only episodes of this family."),
    failed: bool = typer.Option(False, "--failed", help="Only episodes without success."),
    outcome: str | None = typer.Option(
        None, help="Only this outcome: solved, failed, step_limit, context_overflow, infra_error."
    ),
    task: str | None = typer.Option(None, help="Only tasks whose id holds this text."),
    limit: int | None = typer.Option(None, min=1, help="At most so many episodes."),
) -> None:
    """Page through episodes in the terminal: task, responses, actions, observations. Elsewhere prints them all."""
    from rich.console import Console

    from seedbench.runs import LOG, read_manifest
    from seedbench.ui.viewer import EpisodeIndex, Selection, page

    read_manifest(run)  # says what is wrong where this is no run
    selection = Selection(family=family, failed=failed, outcome=outcome, task=task)
    page(EpisodeIndex(run / LOG, selection), Console(), limit=limit)

"""`seedbench data`: bring real data into the store and check it."""

from __future__ import annotations

from pathlib import Path

import typer

app = typer.Typer(help="Bring benchmark data into the store and check it.", no_args_is_help=True)


@app.command("list")
def list_command() -> None:
    """What the store holds of every suite."""
    from seedbench.errors import SeedBenchError
    from seedbench.registry import get_suite, suite_names
    from seedbench.store import store_root

    typer.echo(f"store: {store_root()}")
    for name in suite_names():
        try:
            suite = get_suite(name)
            status = suite.check()
        except SeedBenchError as error:
            typer.echo(f"{name:<16} broken      {error}")
            continue
        kind = "official" if suite.official else "generated, not official"
        state = "ok" if not status.problems else "incomplete" if status.summary else "missing"
        typer.echo(f"{name:<16} {state:<11} {kind:<24} {status.summary}")


@app.command("fetch")
def fetch_command(
    suite: str = typer.Argument(help="Suite name, e.g. alfworld."),
    source: Path | None = typer.Option(None, "--from", help="Import this file or folder instead of downloading."),
) -> None:
    """Download a suite's data (continues where it stopped), or import a copy you have; then check it."""
    from seedbench.registry import get_suite

    chosen = get_suite(suite)
    chosen.fetch(source, typer.echo)
    _report(suite)


@app.command("check")
def check_command(suite: str = typer.Argument(help="Suite name, e.g. alfworld.")) -> None:
    """Compare the stored data with the shipped panels: counts and content hashes. Exit code 1 if they differ."""
    _report(suite)


def _report(name: str) -> None:
    from seedbench.errors import SeedBenchError
    from seedbench.registry import get_suite

    status = get_suite(name).check()
    if status.problems:
        raise SeedBenchError(" ".join(status.problems))
    typer.echo(f"{name}: {status.summary}; every content hash is right")

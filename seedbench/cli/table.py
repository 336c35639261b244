"""`seedbench table`: runs as a paper-style table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import typer


def table_command(
    runs: list[Path] = typer.Argument(
        None, help="Run folders, bundles or summary.json files; none with --reported alone."
    ),
    layout: str = typer.Option(
        "",
        help="Table layout; default: that of the first run's suite. The papers' tables: paper, paper-ablation,"
        " paper-efficiency, paper-unseen.",
    ),
    format: str = typer.Option("terminal", help="terminal, markdown, latex, html, csv or json."),
    labels: str = typer.Option("", help="Row names in the order of the runs, separated by commas."),
    reported: bool = typer.Option(False, "--reported", help="Paper layouts: what papers report, with footnotes."),
    papers: str = typer.Option(
        "", help="Whose reported rows: arXiv identifiers or names, separated by commas, or all; default: SEED and OPID."
    ),
    plot: Path = typer.Option(None, help="Layout paper-efficiency: also draw it, into a .png or .svg file."),
) -> None:
    """Print runs as one table: every rate with n and a 95 % interval, different panels never in one body."""
    from seedbench.errors import UsageError, unknown
    from seedbench.tables import LAYOUTS
    from seedbench.tables.paper.layouts import PAPER_LAYOUTS

    given, names = runs or [], _listed(labels)
    if not layout and reported and not given:
        layout = "paper"
    if layout and layout not in LAYOUTS and layout not in PAPER_LAYOUTS:
        raise unknown("table layout", layout, [*LAYOUTS, *PAPER_LAYOUTS])
    if layout not in PAPER_LAYOUTS:
        if reported or papers or plot:
            raise UsageError(
                f"--reported, --papers and --plot need one of the layouts {', '.join(PAPER_LAYOUTS)}: add --layout."
            )
        _print_runs(given, layout, format, names)
        return
    if papers and not reported:
        raise UsageError("--papers chooses among reported rows: add --reported.")
    _print_paper(given, layout, format, names, reported, _listed(papers), plot)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")] if text else []


def _print_runs(runs: Sequence[Path], layout: str, format: str, labels: Sequence[str]) -> None:
    from seedbench.cli.output import print_table
    from seedbench.errors import UsageError
    from seedbench.registry import get_suite
    from seedbench.tables import load_summary

    if not runs:
        raise UsageError("a table needs at least one run: name a run folder or a summary.json.")
    with _opened(runs) as folders:
        summaries = [load_summary(folder) for folder in folders]
    names = labels or _names(runs, summaries)
    if len(names) != len(runs):
        raise UsageError(f"--labels names {len(names)} rows for {len(runs)} runs.")
    print_table(
        list(zip(names, summaries, strict=True)), layout or get_suite(summaries[0]["panel"]["suite"]).layout, format
    )


def _names(runs: Sequence[Path], summaries: Sequence[dict[str, Any]]) -> list[str]:
    """The policies, or the folders where two on one panel are called alike."""
    from seedbench.subject import run_names

    rows = [(summary["panel"]["hash"], summary["policy"]["name"]) for summary in summaries]
    return run_names(runs) if len(set(rows)) < len(rows) else [policy for _, policy in rows]


def _print_paper(
    runs: Sequence[Path],
    layout: str,
    format: str,
    labels: Sequence[str],
    reported: bool,
    papers: Sequence[str],
    plot: Path | None,
) -> None:
    import sys

    from rich.console import Console

    from seedbench.tables.paper import paper_table
    from seedbench.tables.paper.plot import plot_efficiency
    from seedbench.tables.paper.render import PAPER_FORMATS
    from seedbench.tables.paper.text import PaperTerminal
    from seedbench.tables.render import format_named

    write = format_named(PAPER_FORMATS, format)  # before logs are read
    with _opened(runs) as folders:
        table = paper_table(folders, layout, labels=labels, reported=reported, papers=papers)
    if plot is not None:
        plot_efficiency(table, plot)
    if format == "terminal" and sys.stdout.isatty():
        Console().print(PaperTerminal(table))
    else:
        typer.echo(write(table), nl=False)


@contextmanager
def _opened(runs: Sequence[Path]) -> Iterator[list[Path]]:
    """The runs as folders or summary files, archives of bundles unpacked for as long as the context lasts."""
    from seedbench.bundle import SUFFIX, opened

    with ExitStack() as stack:
        yield [stack.enter_context(opened(run)) if run.name.endswith(SUFFIX) else run for run in runs]

"""`seedbench panels`: what tasks there are and proof that splits do not overlap."""

from __future__ import annotations

from pathlib import Path

import typer

app = typer.Typer(help="List panels, show their tasks, prove that splits share none.", no_args_is_help=True)


@app.command("list")
def list_command() -> None:
    """Every panel of the installed suites, with size, families and hash."""
    from seedbench.panels import read_panel, shipped

    for name, file in shipped().items():
        panel = read_panel(file)
        families = " ".join(f"{family} {n}" for family, n in panel.families().items())
        mark = "" if panel.official else "  (not official)"
        typer.echo(f"{name:<32} {len(panel.tasks):>5} tasks  {panel.hash[:12]}  {families}{mark}")


@app.command("show")
def show_command(
    panel: str = typer.Argument(help="Panel name or file."),
    limit: int | None = typer.Option(None, help="Only so many tasks, spread evenly over the families."),
    families: str = typer.Option("", help="Only these families, e.g. heat,look."),
) -> None:
    """The tasks of a panel: family, content hash, id."""
    from seedbench.cli.selection import chosen_panel
    from seedbench.ui.text import inert

    chosen = chosen_panel(panel, families, limit)
    head = f"{chosen.name}: {len(chosen.tasks)} tasks, suite {chosen.suite}, split {chosen.split}, hash {chosen.hash}"
    typer.echo(inert(head))
    for task in chosen.tasks:
        typer.echo(inert(f"{task.family:<8} {task.sha256[:12]} {task.id}"))


@app.command("check")
def check_command(
    panels: list[str] = typer.Argument(None, help="Panels to check; default: all that are shipped."),
) -> None:
    """Prove that no two splits of a suite share a task, by id or content, and that the stored data is identical."""
    from seedbench.errors import SeedBenchError
    from seedbench.panels import data_problems, load_panel, must_not_overlap, overlaps, shipped
    from seedbench.registry import get_suite

    checked = [load_panel(spec) for spec in panels or shipped()]
    problems: list[str] = []
    for index, panel in enumerate(checked):
        for other in checked[index + 1 :]:
            if must_not_overlap(panel, other):
                shared = overlaps(panel, other)
                kind = "tasks or groups" if panel.groups and other.groups else "tasks"
                typer.echo(f"{panel.name} and {other.name}: {len(shared) or 'no'} shared {kind}")
                problems += [f"{panel.name} and {other.name} share {shared[0]}"] if shared else []
    for panel in checked:
        try:
            held = dict(get_suite(panel.suite).content_hashes(panel))
        except SeedBenchError as error:
            typer.echo(f"{panel.name}: data not compared: {error}")
            problems += [str(error).removesuffix(".")] if panels else []  # asked for by name: a failure
            continue
        found = data_problems(panel, held)
        typer.echo(f"{panel.name}: {'; '.join(found) or f'all {len(panel.tasks)} tasks identical to the stored data'}")
        problems += found
    if problems:
        raise SeedBenchError("; ".join(problems) + ".")


@app.command("make")
def make_command(
    panel: str = typer.Argument(help="Panel to start from."),
    out: Path = typer.Option(..., help="File to write, .jsonl or .jsonl.gz."),
    name: str = typer.Option(..., help="Name of the new panel, e.g. mine/heat-20."),
    limit: int | None = typer.Option(None, help="Only so many tasks, spread evenly over the families."),
    families: str = typer.Option("", help="Only these families, e.g. heat,look."),
) -> None:
    """Write a panel file of your own from a part of another panel, to publish with your results."""
    from dataclasses import replace

    from seedbench.cli.selection import chosen_panel
    from seedbench.panels import write_panel

    chosen = chosen_panel(panel, families, limit)
    chosen = replace(chosen, name=name if "@" in name else f"{name}@1")
    write_panel(chosen, out)
    typer.echo(f"{out}: {chosen.name}, {len(chosen.tasks)} tasks, hash {chosen.hash[:12]}")

"""`seedbench validate`: the oracle must win every task of every panel."""

from __future__ import annotations

import typer


def validate_command(
    suite: str = typer.Argument(help="Suite name, e.g. alfworld."),
    engine: str = typer.Option("native", help="Engine of the suite's environment (its docs page lists them)."),
) -> None:
    """Play every task of every panel with the oracle and report any that it does not win."""
    from seedbench.errors import SeedBenchError
    from seedbench.registry import get_suite
    from seedbench.validate import unsolved

    chosen = get_suite(suite)
    lost: list[str] = []
    absent: list[SeedBenchError] = []
    played = 0
    for panel in chosen.panels():
        try:
            held = chosen.content_hashes(panel)
        except SeedBenchError as error:
            typer.echo(f"{panel.name}: not played: {error}")
            absent.append(error)
            continue
        played += 1
        failures = unsolved(chosen, panel, held, engine)
        line = f"{panel.name}: the oracle wins {len(panel.tasks) - len(failures)} of {len(panel.tasks)}"
        known = chosen.out_of_reach(panel) if failures else frozenset()
        beyond = sum(task in known for task, _ in failures)
        typer.echo(f"{line}; {beyond} are out of reach under the suite's own rules" if beyond else line)
        failures = [failure for failure in failures if failure[0] not in known]
        for task, reason in failures[:10]:
            typer.echo(f"  {task}: {reason}")
        lost += [task for task, _ in failures]
    if absent and not played:
        raise absent[0]
    if lost:
        raise SeedBenchError(f"{len(lost)} tasks of {suite} were not won by the oracle (the first: {lost[0]}).")

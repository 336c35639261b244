"""`seedbench protocols`: how agents can be asked."""

from __future__ import annotations

import typer

app = typer.Typer(help="List protocols and show what they ask.", no_args_is_help=True)


@app.command("list")
def list_command() -> None:
    """Every protocol of the installed suites."""
    from seedbench.protocol import read_protocol, shipped_protocols

    for file in shipped_protocols().values():
        protocol = read_protocol(file)
        typer.echo(f"{protocol.name:<26} {protocol.hash[:12]}  {protocol.settings.summary}")


@app.command("show")
def show_command(protocol: str = typer.Argument(help="Protocol name or TOML file.")) -> None:
    """Every setting and template of a protocol, as the hash covers them."""
    import json

    from seedbench.protocol import load_protocol
    from seedbench.ui.text import inert

    chosen = load_protocol(protocol)
    typer.echo(inert(f"{chosen.name}  hash {chosen.hash}"))
    content = chosen.content()
    templates = {role: content["prompts"].pop(role) for role in ("system", "first", "later")}
    typer.echo(inert(json.dumps(content, indent=2, ensure_ascii=False)))
    for role, text in templates.items():
        if text:
            typer.echo(inert(f"--- {role}\n{text.rstrip()}"))

"""`seedbench serve`: what other programs ask over HTTP."""

from __future__ import annotations

from pathlib import Path

import typer

app = typer.Typer(help="Servers that training code and evaluations ask.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    """Servers that training code and evaluations ask."""


@app.command("retriever")
def retriever_command(
    index: Path = typer.Option(..., help="Index folder (`seedbench index build`)."),
    engine: str = typer.Option("auto", help="bm25, lucene-order, pyserini, dense; auto: the index's own."),
    host: str = typer.Option("127.0.0.1", help="Address to listen on; any other opens it to other machines."),
    port: int = typer.Option(8000, min=0, max=65535, help="0 takes a free port and prints it."),
    threads: int = typer.Option(4, min=1, help="Searches under way at once."),
    batch: int = typer.Option(64, min=1, help="Most queries in one search."),
    queue: int = typer.Option(8192, min=1, help="Queries that may wait; beyond them clients are told to come back."),
    topk: int = typer.Option(3, min=1, help="Passages for a query where the request does not say."),
    max_topk: int = typer.Option(100, min=1, help="Passages that a request may ask for."),
    max_queries: int = typer.Option(4096, min=1, help="Queries in a request."),
    max_characters: int = typer.Option(20_000, min=1, help="Characters of a query."),
    max_body: int = typer.Option(8 << 20, min=1, help="Bytes of a request."),
) -> None:
    """Serve an index for the /retrieve clients of Search-R1 and verl-agent. SIGTERM or Ctrl-C ends it."""
    from importlib import import_module

    from seedbench.errors import SeedBenchError

    # The server belongs to a suite that may be absent; the harness asks it by name only here.
    try:
        server = import_module("seedbench_envs.searchqa.server")
    except ModuleNotFoundError as error:
        raise SeedBenchError(f"the Search-QA suite is not installed ({error}); pip install seedbench.") from None
    limits = server.Limits(
        body=max_body, queries=max_queries, characters=max_characters, topk=max_topk, default_topk=topk
    )
    settings = server.Serving(host, port, threads=threads, batch=batch, queue=queue, limits=limits)
    server.serve_index(engine, index, settings)

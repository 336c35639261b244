"""`seedbench index`: build a search index of a corpus, and show what one is."""

from __future__ import annotations

from pathlib import Path

import typer

app = typer.Typer(help="Build and show search indexes of passages.", no_args_is_help=True)


@app.command("build")
def build_command(
    corpus: Path = typer.Argument(help="A .jsonl or .jsonl.gz file in wiki-18 layout, or a folder of them."),
    engine: str = typer.Option("bm25", "--engine", help="bm25, lucene-order, pyserini or dense."),
    out: Path = typer.Option(..., "--out", help="Folder of the index."),
    encoder: str = typer.Option("", "--encoder", help="dense: folder or hub name of an E5-style encoder."),
    kind: str = typer.Option("flat", "--kind", help="dense: flat (exact), ivf or hnsw."),
    k1: float = typer.Option(0.9, "--k1", help="BM25: weight of a repeated term."),
    b: float = typer.Option(0.4, "--b", help="BM25: share of a passage's length, 0 to 1."),
    batch: int = typer.Option(32, "--batch", help="dense: passages encoded at once."),
) -> None:
    """Build an index. After a kill the same command goes on, or starts over where the engine cannot."""
    from seedbench_envs.searchqa.indexing import build_index
    from seedbench_envs.searchqa.retrievers.engine import BuildOptions

    options = BuildOptions(k1=k1, b=b, encoder=encoder, kind=kind, batch=batch)
    manifest = build_index(corpus, engine, out, options, typer.echo)
    typer.echo(f"{out}: {manifest.engine}, {manifest.passages:,} passages, corpus {manifest.corpus[:12]}")


@app.command("show")
def show_command(index: Path = typer.Argument(help="Folder of an index.")) -> None:
    """What an index is: engine, versions, parameters, corpus."""
    from seedbench_envs.searchqa.retrievers.manifest import read_manifest

    manifest = read_manifest(index)
    size = sum(manifest.files.values()) / 1e6
    rows = {
        "engine": f"{manifest.engine}, version {manifest.version}",
        "corpus": f"{manifest.passages:,} passages, sha256 {manifest.corpus}",
        "size": f"{size:,.1f} MB",
        **manifest.parameters,
        **manifest.packages,
        **manifest.local,
    }
    for name, value in rows.items():
        typer.echo(f"{name:<16} {value}")

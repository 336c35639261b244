"""Retrievers behind one interface (records.Retriever): `open_retriever("bm25", folder).search(["who ..."], 3)`.

| engine | what it is |
|---|---|
| bm25 | bm25s with Lucene's terms, lengths and ties; memory-mapped; the default |
| lucene-order | Lucene's exact order and scores in numpy; small corpora |
| pyserini | Lucene itself, in a process of its own |
| dense | E5-style vectors and faiss |
| http | servers with a `/retrieve` route, in Search-R1's or verl-agent's dialect; of one index, or of parts |
"""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path
from typing import cast

from seedbench.errors import SeedBenchError, UsageError, unknown
from seedbench_envs.searchqa.records import Retriever
from seedbench_envs.searchqa.retrievers.engine import Engine
from seedbench_envs.searchqa.retrievers.manifest import check_manifest, read_manifest, run_checks
from seedbench_envs.searchqa.retrievers.passages import Passages

DEFAULT = "bm25"
_MODULES = {"bm25": "bm25", "lucene-order": "lucene_order", "pyserini": "pyserini_", "dense": "dense"}
INDEX_ENGINES = tuple(_MODULES)
"""Engines that keep an index on disk."""
ENGINES = (*INDEX_ENGINES, "http")

__all__ = ["DEFAULT", "ENGINES", "INDEX_ENGINES", "available", "load_engine", "open_retriever"]


def load_engine(name: str) -> Engine:
    """The module of an engine that keeps an index. Raises UsageError on an unknown name."""
    if name not in _MODULES:
        raise unknown("engine", name, _MODULES)
    return cast("Engine", importlib.import_module(f"{__name__}.{_MODULES[name]}"))


def available() -> dict[str, str]:
    """Every engine that keeps an index -> what it lacks on this machine, or nothing."""
    lacking = {}
    for name in INDEX_ENGINES:
        try:
            load_engine(name).packages()
            lacking[name] = ""
        except SeedBenchError as error:
            lacking[name] = str(error)
    return lacking


def open_retriever(
    engine: str,
    index: Path | None = None,
    *,
    url: str | None = None,
    corpus: str | None = None,
    encoder: str | None = None,
    dialect: str = "auto",
    timeout: float = 30.0,
    retries: int = 5,
) -> Retriever:
    """Open a retriever.

    Args:
        engine: one of `ENGINES`, or `auto` for the engine of the index.
        index: the folder of the index; every engine but `http`.
        url: `http` only: the server, or several of one index separated by commas; `|` between parts of a corpus.
        corpus: the `corpus_hash` that the index must have.
        encoder: `dense` only: where the encoder lies, if not where it lay when the index was built.
        dialect: `http` only: auto, search-r1 or verl-agent.
        timeout: `http` only: seconds for one whole reply.
        retries: `http` only: further attempts after a failure.

    Raises:
        UsageError: an unknown engine, an index of another engine or corpus, or no index.
        SeedBenchError: a missing package, a damaged index or one of another version.
    """
    if engine == "http":
        if not url:
            raise UsageError("the engine 'http' needs the address of a server, e.g. http://localhost:8000.")
        from seedbench_envs.searchqa.retrievers.http import HttpRetriever
        from seedbench_envs.searchqa.retrievers.shards import BETWEEN, Shards

        part = partial(HttpRetriever, dialect=dialect, timeout=timeout, retries=retries)
        return Shards(url, partial(part, scored=True)) if BETWEEN in url else part(url)
    if engine not in (*INDEX_ENGINES, "auto"):
        raise unknown("engine", engine, ENGINES)
    if index is None:
        raise UsageError(f"the engine '{engine}' needs the folder of an index: build one with `seedbench index build`.")
    return _open_index(engine, index, corpus, encoder)


def _open_index(engine: str, folder: Path, corpus: str | None, encoder: str | None) -> Retriever:
    manifest = read_manifest(folder)
    chosen = load_engine(manifest.engine if engine == "auto" else engine)
    check_manifest(folder, manifest, manifest.engine if engine == "auto" else engine, chosen.VERSION, corpus)
    packages = chosen.packages()
    passages = Passages(folder)
    if len(passages) != manifest.passages:
        raise SeedBenchError(f"the index '{folder}' is damaged ({len(passages):,} passages): build it again.")
    retriever = chosen.open_index(folder, manifest, passages, encoder)
    if manifest.engine != "pyserini":  # which tries them when its process starts
        run_checks(folder, manifest, retriever.search, packages)
    return retriever

"""Questions and retrievers of an edition: imported into the store, or generated there on first use.

The store keeps the questions (questions.py) and, of a small corpus, a retrieval index in Lucene's order, memory-mapped
and shared between processes.
"""

from __future__ import annotations

import atexit
import gzip
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from uuid import uuid4

from seedbench.errors import SeedBenchError, UsageError, unknown
from seedbench.store import store_root
from seedbench_envs.searchqa.questions import Questions, cannot_write, store_questions
from seedbench_envs.searchqa.records import Retriever
from seedbench_envs.searchqa.retrievers import INDEX_ENGINES, open_retriever
from seedbench_envs.searchqa.retrievers.manifest import FILE as MANIFEST
from seedbench_envs.searchqa.retrievers.manifest import read_manifest
from seedbench_envs.searchqa.retrievers.passages import Passages

EDITIONS = ("official", "mini")
ENGINES = ("native", *INDEX_ENGINES, "http")
"""`native` and `lucene-order` search the stored corpus; with `:DIR`, an index elsewhere; `http:URL`, servers."""
STORED_ENGINE = "lucene-order"


def edition_folder(edition: str) -> Path:
    """Where the store keeps an edition; it may not exist yet. Raises UsageError for an unknown one."""
    if edition not in EDITIONS:
        raise unknown("edition", edition, EDITIONS)
    if edition == "official":
        return store_root() / "searchqa"
    from seedbench_envs.mini.world import GENERATOR_VERSION

    return store_root() / "mini-searchqa" / f"generator-{GENERATOR_VERSION}"


def questions(edition: str = "official") -> Questions:
    """The stored questions of an edition. The generated ones are made on first use.

    Raises:
        SeedBenchError: none were imported, or the store cannot be written.
        UsageError: an unknown edition.
    """
    folder = edition_folder(edition)
    if edition == "mini":
        _ensure_mini(folder)
    found = Questions(folder / "questions")
    if not found.sets():
        raise SeedBenchError(
            f"the store has no Search-QA questions ({folder}): import the files you have with"
            " `seedbench data fetch searchqa --from FOLDER`; without `--from` it says which files they are."
        )
    return found


def index_folder(edition: str = "official") -> Path:
    """The index of the edition's stored corpus.

    Raises:
        SeedBenchError: no corpus was imported.
    """
    folder = edition_folder(edition)
    if edition == "mini":
        _ensure_mini(folder)
    if not (folder / "index" / MANIFEST).is_file():
        raise SeedBenchError(
            "the store has no corpus of passages to search: name a server with `--engine http:URL` or an index with"
            " `--engine bm25:DIR` (`seedbench index build CORPUS` makes one), or import a corpus of up to 200,000"
            " passages with `seedbench data fetch searchqa --from FOLDER`."
        )
    return folder / "index"


def stored_passages(edition: str = "official") -> Passages:
    """The passages of the stored corpus. Raises SeedBenchError as `index_folder`."""
    folder = index_folder(edition)
    return _passages(folder, _stamp(folder))


@lru_cache(maxsize=4)
def _passages(folder: Path, stamp: int) -> Passages:
    return Passages(folder)


def open_engine(engine: str, edition: str = "official", *, same_corpus: bool = False) -> Retriever:
    """The retriever that an engine's name means, opened once in a process; it is closed when the process ends.

    Args:
        engine: `native`, or a name of `ENGINES` with what it searches: `bm25:DIR`, `http:URL`.
        edition: whose stored corpus `native` searches.
        same_corpus: the index must be of the stored corpus, because the tasks name its passages.

    Raises:
        UsageError: an unknown engine, or an index of another engine or corpus.
        SeedBenchError: no corpus, or an index that is damaged.
    """
    kind, _, place = engine.partition(":")
    if kind not in ENGINES:
        raise unknown("engine", kind, ENGINES)
    if kind == "http":
        retriever = _opened("http", None, place, None)
        if same_corpus:
            _refuse_other_corpus(retriever, edition)
        return retriever
    if kind in ("native", STORED_ENGINE) and not place:
        folder = index_folder(edition)
        return _opened(STORED_ENGINE, folder, None, None, _stamp(folder))
    if kind == "native":
        raise UsageError(
            f"'native' searches the stored corpus and takes no folder: write `native` alone, or `ENGINE:{place}`."
        )
    if not place:
        raise UsageError(f"the engine '{engine}' needs the folder of an index: write `{kind}:DIR`.")
    corpus = read_manifest(index_folder(edition)).corpus if same_corpus else None
    return _opened(kind, Path(place), None, corpus)


def _refuse_other_corpus(retriever: Retriever, edition: str) -> None:
    """Raise UsageError where servers say that they have another corpus; those that do not say are trusted.

    Of parts only the number of passages can be compared.
    """
    identity, ours = retriever.identity(), read_manifest(index_folder(edition))
    wanted = f"({ours.corpus[:12]}, {ours.passages:,} passages)"
    if isinstance(shards := identity.get("shards"), list):
        sizes = [shard.get("passages") if isinstance(shard, dict) else None for shard in shards]
        counted = [size for size in sizes if isinstance(size, int)]
        if len(counted) == len(sizes) and sum(counted) != ours.passages:
            raise UsageError(
                f"the parts hold {sum(counted):,} passages together, and the corpus whose passages the tasks name is"
                f" another {wanted}: serve all parts of that corpus."
            )
        return
    server = identity.get("server")
    served = server.get("corpus") if isinstance(server, dict) else None
    if served not in (None, ours.corpus):
        raise UsageError(
            f"the server has another corpus ({str(served)[:12]}) than the one whose passages the tasks name {wanted}:"
            " serve an index of that corpus."
        )


def _stamp(folder: Path) -> int:
    """Changes when another index takes the place of this one."""
    return (folder / MANIFEST).stat().st_mtime_ns


@lru_cache(maxsize=8)
def _opened(kind: str, folder: Path | None, url: str | None, corpus: str | None, stamp: int = 0) -> Retriever:
    retriever = open_retriever(kind, folder, url=url, corpus=corpus)
    atexit.register(retriever.close)
    return retriever


def _ensure_mini(folder: Path) -> None:
    """Generate questions, corpus and index where this version of them is missing (two seconds, once)."""
    if (folder / "index" / MANIFEST).is_file():
        return
    from seedbench_envs.mini.world import generate_world
    from seedbench_envs.mini.world_questions import write_questions
    from seedbench_envs.mini.world_text import write_encyclopedia
    from seedbench_envs.searchqa.indexing import build_index

    world = generate_world()
    encyclopedia = write_encyclopedia(world)
    with _draft(folder) as draft:
        store_questions(draft, write_questions(world, encyclopedia))
        rows = (json.dumps({"id": p.id, "contents": p.contents}) + "\n" for p in encyclopedia.passages)
        (draft / "corpus.jsonl.gz").write_bytes(gzip.compress("".join(rows).encode(), mtime=0))
        build_index(draft / "corpus.jsonl.gz", STORED_ENGINE, draft / "index", report=lambda line: None)


@contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    """A folder to write to, moved to `folder` when all is well; what another process put there meanwhile stays."""
    draft = folder.with_name(f"{folder.name}.{uuid4().hex}.tmp")
    try:
        draft.mkdir(parents=True)
        yield draft
        try:
            draft.replace(folder)
        except OSError:
            if not (folder / "index" / MANIFEST).is_file():
                raise
    except OSError as error:
        raise cannot_write(folder, error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)

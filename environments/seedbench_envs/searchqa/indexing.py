"""Building an index: `seedbench index build`.

Everything is made in a hidden folder beside the target and moved there when it is whole, so that a kill leaves no half
index. The same command then goes on: passages that were stored are not read again, and `dense` keeps its vectors;
the other engines start over, which takes minutes for a million passages.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seedbench.errors import SeedBenchError, UsageError
from seedbench.store import Report
from seedbench_envs.searchqa.corpus import corpus_files, corpus_hash, read_corpus
from seedbench_envs.searchqa.retrievers import load_engine
from seedbench_envs.searchqa.retrievers.encoder import found
from seedbench_envs.searchqa.retrievers.engine import BuildOptions, Built
from seedbench_envs.searchqa.retrievers.manifest import FILE as MANIFEST
from seedbench_envs.searchqa.retrievers.manifest import IndexManifest, make_checks, read_manifest, write_manifest
from seedbench_envs.searchqa.retrievers.passages import FILES, Passages, PassageWriter

_EVERY = 100_000
_STORED = "stored.json"
_COMPARED = {"k1", "b", "kind", "max_tokens", "query_prefix", "passage_prefix", "neighbours", "effort"}


def build_index(
    corpus: Path, engine: str, out: Path, options: BuildOptions | None = None, report: Report = print
) -> IndexManifest:
    """Build an index of a corpus in the folder `out` and return its manifest. One that is there already is kept.

    Raises:
        UsageError: an unknown engine, no corpus, or `out` holds something else.
        SeedBenchError: a missing package, a broken corpus, a full disk, or another process builds there.
    """
    chosen = load_engine(engine)
    options = options or BuildOptions()
    chosen.packages()  # what is missing is told before anything is made
    if (out / MANIFEST).is_file():
        return _kept(corpus, engine, options, out, report)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"'{out}' holds something else: name another folder for the index.")
    corpus_files(corpus)  # and a wrong name
    if engine == "dense":
        found(options.encoder)  # and a missing encoder, before the corpus is read
    out = out.absolute()
    work = out.with_name(f".{out.name}.building")
    try:
        with _work_folder(work):
            manifest = _build(corpus, engine, work, options, report)
            if out.exists():
                out.rmdir()
            (work / "index").replace(out)
            shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise SeedBenchError(
            f"cannot build the index '{out}': {error}. Free space or choose another place, and run the command again."
        ) from error
    return manifest


def _build(corpus: Path, engine: str, work: Path, options: BuildOptions, report: Report) -> IndexManifest:
    chosen = load_engine(engine)
    index, scratch = work / "index", work / "scratch"
    digest = _stored_passages(corpus, work, report)
    for part in index.iterdir():  # what an earlier try of an engine left
        if part.name not in FILES:
            shutil.rmtree(part) if part.is_dir() else part.unlink()
    if not chosen.RESUMES:
        shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(exist_ok=True)
    passages = Passages(index)
    built = chosen.build(passages, index, scratch, options, report)
    return _described(index, engine, passages, digest, built)


def _described(folder: Path, engine: str, passages: Passages, digest: str, built: Built) -> IndexManifest:
    """Write the manifest, with the answers to its stored queries."""
    chosen = load_engine(engine)
    draft: dict[str, Any] = {
        "engine": engine, "version": chosen.VERSION, "parameters": built.parameters, "corpus": digest,
        "passages": len(passages), "packages": chosen.packages() | built.packages, "local": built.local,
    }  # fmt: skip
    retriever = chosen.open_index(folder, IndexManifest(checks=(), files={}, **draft), passages, None)
    try:
        checks = make_checks(passages, retriever.search)
    finally:
        retriever.close()
    files = {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}
    manifest = IndexManifest(checks=checks, files=files, **draft)
    write_manifest(folder, manifest)
    return manifest


def _stored_passages(corpus: Path, work: Path, report: Report) -> str:
    """Copy the passages into the index, or keep those of an earlier try over the same files; the corpus hash."""
    source = _source(corpus)
    stored = work / _STORED
    try:
        earlier = json.loads(stored.read_text("utf-8"))
        if earlier["source"] == source and len(Passages(work / "index")):
            report("the passages are stored already")
            return str(earlier["corpus"])
    except (OSError, ValueError, KeyError, TypeError, SeedBenchError):
        pass  # none, or not whole
    for part in work.iterdir():
        if part.is_dir():
            shutil.rmtree(part)
    with PassageWriter(work / "index") as writer:
        for count, passage in enumerate(read_corpus(corpus), 1):
            writer.add(passage)
            if count % _EVERY == 0:
                report(f"read {count:,} passages")
        report(f"read {count:,} passages: all")
        digest = writer.finish()
    stored.write_text(json.dumps({"source": source, "corpus": digest}), "utf-8")
    return digest


def _source(corpus: Path) -> list[list[Any]]:
    """What tells whether the files of a corpus are the same as before, without reading them."""
    states = [(file, file.stat()) for file in corpus_files(corpus)]
    return [[str(file.resolve()), state.st_size, state.st_mtime_ns] for file, state in states]


def _kept(corpus: Path, engine: str, options: BuildOptions, out: Path, report: Report) -> IndexManifest:
    manifest = read_manifest(out)
    ours = (manifest.engine, manifest.version) == (engine, load_engine(engine).VERSION)
    if not ours or manifest.corpus != corpus_hash(read_corpus(corpus)):
        raise UsageError(
            f"'{out}' holds the index of another corpus, engine or version ({manifest.engine}, version"
            f" {manifest.version}, {manifest.passages:,} passages): name another folder, or delete it first."
        )
    wanted = asdict(options)
    for name in _COMPARED & manifest.parameters.keys():
        if manifest.parameters[name] != wanted[name]:
            raise UsageError(
                f"'{out}' holds an index with {name} = {manifest.parameters[name]}, not {wanted[name]}: name another"
                " folder, or delete it first."
            )
    report("the index is there already")
    return manifest


@contextmanager
def _work_folder(work: Path) -> Iterator[None]:
    """Hold the folder for this process; a killed one lets go of it."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SeedBenchError(f"another process is building in '{work}': wait until it has ended.") from error
        yield

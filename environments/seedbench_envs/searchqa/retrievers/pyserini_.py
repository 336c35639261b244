"""The engine `pyserini`: Lucene itself, in a process of its own (lucene_process.py), which the first search starts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from seedbench.errors import SeedBenchError
from seedbench.store import Report
from seedbench_envs.searchqa.records import Hit, RetrieverFault
from seedbench_envs.searchqa.retrievers.engine import BuildOptions, Built, checked_k, within_limit
from seedbench_envs.searchqa.retrievers.lucene_process import LuceneProcess, WorkerGone, worker_python
from seedbench_envs.searchqa.retrievers.manifest import IndexManifest, run_checks
from seedbench_envs.searchqa.retrievers.passages import Passages

VERSION = 1
RESUMES = False
_INDEX = "lucene"
_AT_ONCE = 500


def packages() -> dict[str, str]:
    """None that this process can name: the worker may have another interpreter. Raises SeedBenchError without one."""
    worker_python()
    return {}


def build(passages: Passages, folder: Path, scratch: Path, options: BuildOptions, report: Report) -> Built:
    """Index the passages with Anserini's DefaultEnglishAnalyzer. Raises SeedBenchError where Lucene fails."""
    process = LuceneProcess()
    try:
        process.ask("index", folder=str(folder / _INDEX))
        for first in range(0, len(passages), _AT_ONCE):
            block = (passages[number] for number in range(first, min(first + _AT_ONCE, len(passages))))
            process.ask("documents", documents=[_document(passage.id, passage.contents) for passage in block])
            if first % 100_000 == 0:
                report(f"indexing: {first:,} of {len(passages):,} passages")
        count = process.ask("finish")["count"]
    except WorkerGone as error:
        raise SeedBenchError(f"the process that builds the Lucene index failed: {error}.") from error
    finally:
        process.close()
    if count != len(passages):
        raise SeedBenchError(f"Lucene indexed {count:,} of {len(passages):,} passages and does not say why.")
    return Built({"k1": options.k1, "b": options.b, "analysis": "DefaultEnglishAnalyzer"}, {}, {"lucene": process.jar})


def _document(identifier: str, contents: str) -> str:
    return json.dumps({"id": identifier, "contents": contents})


def open_index(folder: Path, manifest: IndexManifest, passages: Passages, encoder: str | None) -> PyseriniRetriever:
    """Prepare the worker; it starts, and the stored queries are tried, with the first search.

    Raises SeedBenchError where its packages are missing.
    """
    return PyseriniRetriever(folder, manifest, passages)


class PyseriniRetriever:
    """Lucene's own search. Of queries with more than 1,024 different terms the first 1,024 count."""

    slow = True

    def __init__(self, folder: Path, manifest: IndexManifest, passages: Passages, timeout: float = 120.0) -> None:
        self._folder = folder
        self._manifest = manifest
        self._passages = passages
        self._process = LuceneProcess(timeout)
        self._opened = False

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """See `Retriever.search`. A worker that ended is started again, once.

        Raises:
            SeedBenchError: the worker cannot start, or the stored queries give other hits.
        """
        checked_k(k)
        asked = {number: within_limit(query) for number, query in enumerate(queries) if query.strip()}
        found = dict(zip(asked, self._found(list(asked.values()), k), strict=True)) if asked else {}
        return [found.get(number, []) for number in range(len(queries))]

    def _found(self, queries: list[str], k: int) -> list[list[Hit]]:
        problem: Exception | None = None
        for _ in range(2):
            try:
                self._open()
                return self._ask(queries, k)
            except WorkerGone as error:
                self._opened = False
                problem = error
        raise RetrieverFault(f"the process that runs Lucene failed twice: {problem}.") from problem

    def _open(self) -> None:
        if self._opened and self._process.running:
            return
        parameters = self._manifest.parameters
        folder = str((self._folder / _INDEX).resolve())
        self._process.ask("open", folder=folder, k1=parameters["k1"], b=parameters["b"])
        self._opened = True
        run_checks(self._folder, self._manifest, lambda queries, k: self._ask(list(queries), k), self._versions())

    def _versions(self) -> dict[str, str]:
        return {"lucene": self._process.jar}

    def _ask(self, queries: list[str], k: int) -> list[list[Hit]]:
        texts = [query.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for query in queries]
        hits = self._process.ask("search", queries=texts, k=k)["hits"]
        return [[self._hit(str(name), float(score)) for name, score in found] for found in hits]

    def _hit(self, name: str, score: float) -> Hit:
        number = self._passages.find(name)
        if number < 0:
            raise SeedBenchError(
                f"the index '{self._folder}' is damaged (it lacks the passage '{name}'): build it again."
            )
        return Hit(self._passages[number], score)

    def identity(self) -> dict[str, object]:
        """See `Retriever.identity`."""
        return self._manifest.identity()

    def close(self) -> None:
        """End the worker."""
        self._process.close()
        self._opened = False

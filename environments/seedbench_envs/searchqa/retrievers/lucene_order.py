"""The engine `lucene-order`: BM25 with Lucene's exact hits, order and scores, in numpy. For small corpora."""

from __future__ import annotations

from pathlib import Path

from seedbench.store import Report
from seedbench_envs.bm25 import Bm25Index
from seedbench_envs.bm25.analysis import VERSION as ANALYSIS
from seedbench_envs.searchqa.records import Hit
from seedbench_envs.searchqa.retrievers.engine import BuildOptions, Built, InProcess, within_limit
from seedbench_envs.searchqa.retrievers.manifest import IndexManifest
from seedbench_envs.searchqa.retrievers.passages import Passages

VERSION = 1
RESUMES = False
_INDEX = "lucene-order"


def packages() -> dict[str, str]:
    """None beside numpy."""
    return {}


def build(passages: Passages, folder: Path, scratch: Path, options: BuildOptions, report: Report) -> Built:
    """Index the passages. Raises SeedBenchError where the disk is full."""
    report(f"indexing {len(passages):,} passages")
    documents = ((passage.id, passage.contents) for passage in passages)
    Bm25Index.build(documents, options.k1, options.b, scratch).save(folder / _INDEX)
    return Built({"k1": options.k1, "b": options.b, "analysis": ANALYSIS}, {})


def open_index(folder: Path, manifest: IndexManifest, passages: Passages, encoder: str | None) -> LuceneOrder:
    """Open the index; its arrays are memory-mapped. Raises SeedBenchError where it is damaged."""
    return LuceneOrder(Bm25Index.open(folder / _INDEX), passages, manifest)


class LuceneOrder(InProcess):
    """Lucene's hits, order and scores. Of queries with more than 1,024 different terms the first 1,024 count."""

    def __init__(self, index: Bm25Index, passages: Passages, manifest: IndexManifest) -> None:
        self._index = index
        super().__init__(passages, manifest)

    def _search(self, query: str, k: int) -> list[Hit]:
        found = self._index.search(within_limit(query), k, as_written=True)
        return [Hit(self._passages[self._passages.find(name)], score) for name, score in found]

"""The real Lucene through pyserini, behind the same `search`. Needs the package pyserini and a Java runtime."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from seedbench.errors import SeedBenchError
from seedbench_envs.bm25.scores import TooManyTerms


class PyseriniIndex:
    """An index folder that Anserini or pyserini wrote. Its Java machine starts with the first one opened.

    A process that forks after that may freeze: fork first, or open the index in the children.
    """

    def __init__(self, searcher: Any) -> None:
        self._searcher = searcher

    @classmethod
    def open(cls, folder: Path, k1: float = 0.9, b: float = 0.4) -> PyseriniIndex:
        """Open a Lucene index folder.

        Raises:
            SeedBenchError: pyserini or Java is missing, or the folder holds no Lucene index.
        """
        try:
            lucene = importlib.import_module("pyserini.search.lucene")
        except Exception as error:  # a missing Java shows as almost any type
            raise SeedBenchError(
                f"the pyserini engine needs the package pyserini and a Java runtime ({type(error).__name__}: {error});"
                " install both, or use the native engine, which gives the same hits."
            ) from error
        if not any(folder.glob("segments_*")):
            raise SeedBenchError(f"'{folder}' holds no Lucene index (no segments file): name the folder that does.")
        searcher = lucene.LuceneSearcher(str(folder))
        searcher.set_bm25(k1, b)
        return cls(searcher)

    def search(self, query: str, k: int = 50, as_written: bool = False) -> list[tuple[str, float]]:
        """As `Bm25Index.search`.

        Raises:
            TooManyTerms: more than 1,024 distinct terms.
            SeedBenchError: Lucene failed otherwise.
        """
        try:
            hits = self._searcher.search(query if as_written else query.lower(), k)
        except Exception as error:  # Java's exceptions have no common type of their own
            if "TooManyClauses" in f"{type(error)} {error}" or "maxClauseCount" in str(error):
                raise TooManyTerms from error
            raise SeedBenchError(f"Lucene failed on the query '{query[:80]}': {error}") from error
        return [(str(hit.docid), float(hit.score)) for hit in hits]

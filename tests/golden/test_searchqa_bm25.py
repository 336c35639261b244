"""BM25 against Lucene: recorded hits on a generated corpus everywhere, and the real passages where they are at hand.

The recorded hits are those of Lucene itself (Anserini 1.7.1, k1 0.9, b 0.4), which `lucene-order` gives too on all
2,746 real questions. The engine `pyserini` runs live where it is installed.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from seedbench.errors import SeedBenchError
from seedbench_envs.searchqa.indexing import build_index
from seedbench_envs.searchqa.records import Hit, Retriever
from seedbench_envs.searchqa.retrievers import open_retriever
from seedbench_envs.searchqa.retrievers.lucene_process import worker_python
from tests.envs.tiny_corpus import generated, write

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "searchqa"
RECALL = {"hotpotqa": 0.8107, "2wikimultihopqa": 0.7029, "musique": 0.5336, "popqa": 0.4960}
"""Mean share of a question's gold passages among the first ten: what Lucene's order gives."""
SETS = {"hotpotqa": "dev_ctx", "2wikimultihopqa": "dev_ctx", "musique": "dev_ctx", "popqa": "test_ctx"}

RECORDED: dict[str, list[tuple[str, float]]] = {
    "Which women's choir was near Dunlow in 1887?": [
        ("p621-233", 2.8589), ("p888-24", 2.7096), ("p251-223", 2.6798), ("p547-231", 2.6578),
    ],
    "who funded relational database running": [
        ("p332-36", 2.2161), ("p989-297", 2.1864), ("p991-243", 2.1306), ("p953-269", 2.1128),
    ],
    "state of the art bridges": [
        ("p771-183", 1.606), ("p774-102", 1.605999), ("p103-219", 1.5602), ("p768-264", 1.560199),
    ],
    "Alder": [("p105-165", 1.2204), ("p140-220", 1.220399), ("p328-144", 1.220398), ("p476-148", 1.220397)],
    "conditionally controlling logic harbour": [
        ("p514-122", 1.4284), ("p922-106", 1.4128), ("p477-121", 1.3928), ("p37-1", 1.3793),
    ],
    "oldest U.S. films of the 1950s": [
        ("p220-60", 2.323), ("p218-114", 2.3088), ("p251-223", 2.308799), ("p659-207", 2.308798),
    ],
    "9.5 painters and 1,024 sailing bridges near Garth's harbours": [
        ("p919-187", 3.9465), ("p29-217", 3.8733), ("p294-62", 3.8144), ("p476-148", 3.7761),
    ],
    "the no of it": [],
    "zebra": [],
    "Fenwick Fenwick sails": [
        ("p364-172", 3.2127), ("p175-275", 3.1538), ("p851-23", 3.0144), ("p590-70", 3.0019),
    ],
}  # fmt: skip


def ids(hits: list[Hit]) -> list[str]:
    return [hit.passage.id for hit in hits]


def opened(engine: str, corpus: Path, folder: Path) -> Retriever:
    build_index(corpus, engine, folder / engine, report=lambda line: None)
    return open_retriever(engine, folder / engine)


def need_lucene() -> None:
    try:
        worker_python()
    except SeedBenchError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("engine", ["bm25", "lucene-order", "pyserini"])
def test_recorded_hits_of_lucene(tmp_path: Path, engine: str) -> None:
    if engine == "pyserini":
        need_lucene()
    retriever = opened(engine, write(tmp_path / "c.jsonl", generated(300)), tmp_path)
    found = retriever.search(list(RECORDED), 4)
    retriever.close()
    for hits, expected in zip(found, RECORDED.values(), strict=True):
        assert ids(hits) == [identifier for identifier, _ in expected]
        # Lucene's list is rounded to four decimals and lowers ties; bm25 gives the numbers themselves.
        room = 6e-5 if engine == "bm25" else 6e-7
        assert [hit.score for hit in hits] == pytest.approx([score for _, score in expected], abs=room)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Retriever]]:
    if not (REAL / "corpus" / "passages.jsonl.gz").is_file():
        pytest.skip("the real passages and questions (../shared/data/searchqa) are not here")
    folder = tmp_path_factory.mktemp("real")
    retrievers = {engine: opened(engine, REAL / "corpus", folder) for engine in ("bm25", "lucene-order")}
    yield retrievers
    for retriever in retrievers.values():
        retriever.close()


def questions() -> dict[str, list[tuple[str, set[str]]]]:
    """Set -> questions with the ids of their gold passages."""
    found = {}
    for name, file in SETS.items():
        with gzip.open(REAL / name / f"{file}.jsonl.gz", "rt", encoding="utf-8") as rows:
            records = [json.loads(row) for row in rows]
        found[name] = [(row["question"], set(row["supporting"])) for row in records if row["supporting"]]
    return found


@pytest.mark.real_data
def test_bm25_agrees_with_lucene_on_the_real_passages(
    real: dict[str, Retriever], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = questions()
    assert {name: len(rows) for name, rows in asked.items()} == {
        "hotpotqa": 782, "2wikimultihopqa": 664, "musique": 300, "popqa": 1000,
    }  # fmt: skip
    report = []
    for name, rows in asked.items():
        texts = [question for question, _ in rows]
        bm25, lucene = ([ids(hits) for hits in real[engine].search(texts, 10)] for engine in ("bm25", "lucene-order"))
        share = {
            k: sum(len(set(a[:k]) & set(b[:k])) / k for a, b in zip(bm25, lucene, strict=True)) / len(rows)
            for k in (3, 10)
        }
        recall = sum(len(gold & set(hits)) / len(gold) for hits, (_, gold) in zip(bm25, rows, strict=True)) / len(rows)
        report.append(
            f"{name}: n = {len(rows)}, overlap@3 {share[3]:.4f}, @10 {share[10]:.4f}, gold recall@10 {recall:.4f}"
        )
        assert share[3] >= 0.98
        assert share[10] >= 0.98
        assert recall == pytest.approx(RECALL[name], abs=5e-5)
    with capsys.disabled():
        print("", *report, sep="\n")


@pytest.mark.real_data
def test_lucene_itself_agrees_on_the_real_passages(real: dict[str, Retriever], tmp_path: Path) -> None:
    need_lucene()
    lucene = opened("pyserini", REAL / "corpus", tmp_path)
    texts = [question for rows in questions().values() for question, _ in rows]
    found = lucene.search(texts, 10)
    lucene.close()
    assert real["lucene-order"].search(texts, 10) == found
    overlap = [
        len(set(ids(a)[:3]) & set(ids(b)[:3])) / 3 for a, b in zip(real["bm25"].search(texts, 10), found, strict=True)
    ]
    assert sum(overlap) / len(overlap) >= 0.98

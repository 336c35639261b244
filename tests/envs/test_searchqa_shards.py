"""A corpus in parts behind servers: merged as one index would answer, refused where that cannot be."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench_envs.searchqa import library
from seedbench_envs.searchqa.records import Retriever, RetrieverFault
from seedbench_envs.searchqa.retrievers import open_retriever
from tests.envs.dense_corpus import SIZES, indexes
from tests.envs.fake_retriever import FakeServer, Script, Start, ok, search_r1, searching, servers, verl_agent


@pytest.fixture
def start() -> Iterator[Start]:
    with servers() as starter:
        yield starter


def listing(*hits: tuple[str, float]) -> Script:
    """Gives these passages, whatever is asked."""

    def script(request: dict[str, Any]) -> Any:
        found = [{"document": {"id": name, "contents": f'"{name}"\nx'}, "score": score} for name, score in hits]
        return ok({"result": [found[: request["topk"]] for _ in request["queries"]]})

    return script


def shards(*parts: FakeServer | Sequence[FakeServer]) -> Retriever:
    groups = [[part] if isinstance(part, FakeServer) else part for part in parts]
    url = " | ".join(",".join(server.url for server in group) for group in groups)
    return open_retriever("http", url=url, retries=0, timeout=5.0)


def ids(retriever: Retriever, k: int) -> list[str]:
    return [hit.passage.id for hit in retriever.search(["q"], k)[0]]


def about(**more: Any) -> Any:
    """What `/health` says of an index."""
    parameters = {"weights": "w" * 64, "encoder": "e5", "kind": "ivf", "lists": 10}
    return ok({"identity": {"engine": "dense", "version": 1, "parameters": parameters, "corpus": "a" * 64, **more}})


def test_the_best_of_all_parts_in_order_and_ties_by_part_then_rank(start: Start) -> None:
    one = start(listing(("a1", 9.0), ("a2", 5.0), ("a3", 5.0)))
    two = start(listing(("b1", 9.5), ("b2", 5.0), ("b3", 5.0)))
    three = start(listing())
    assert ids(shards(one, two, three), 5) == ["b1", "a1", "a2", "a3", "b2"]
    assert ids(shards(three, two, one), 4) == ["b1", "a1", "b2", "b3"]
    assert ids(shards(one, two), 1) == ["b1"]
    assert ids(shards(one, three), 9) == ["a1", "a2", "a3"]
    retriever = shards(one, two)
    assert [len(hits) for hits in retriever.search(["q", " ", "r"], 2)] == [2, 0, 2]
    assert two.asked[-1] == {"queries": ["q", "r"], "topk": 2, "return_scores": True}
    with pytest.raises(ValueError, match="k must be"):
        retriever.search(["q"], 0)
    retriever.close()


def test_a_part_in_the_other_dialect(start: Start) -> None:
    retriever = shards(start(search_r1), start(verl_agent))
    (hits,) = retriever.search(["q"], 2)
    assert [(hit.passage.id, hit.score) for hit in hits] == [("q-0", 10.0), ("q-0", 10.0)]


def test_a_part_that_does_not_answer_is_a_fault_and_never_left_out(start: Start) -> None:
    one, two = start(listing(("a", 1.0))), start(lambda request: (500, b"full", {}))
    spare = start(listing(("b", 2.0)))
    with pytest.raises(RetrieverFault, match=f"{two.url}/retrieve: status 500: full"):
        ids(shards(one, two), 3)
    assert [ids(shards(one, (two, spare)), 3) for _ in range(4)] == [["b", "a"]] * 4  # the part's other server


def test_replies_without_scores_cannot_be_merged(start: Start) -> None:
    one = start(listing(("a", 1.0)))
    two = start(lambda request: ok({"result": [[{"id": "b", "contents": "x"}]]}))
    with pytest.raises(RetrieverFault, match="has no score, which parts of a corpus need"):
        ids(shards(one, two), 3)


def test_identity_is_that_of_all_parts_in_order(start: Start) -> None:
    one, two, same, silent = (start(listing()) for _ in range(4))
    one.health = about(passages=5)
    two.health = same.health = about(passages=7, corpus="b" * 64, parameters={"weights": "w" * 64, "kind": "flat"})
    first, second = (json.loads(server.health[1])["identity"] for server in (one, two))
    assert shards(one, (two, same), silent).identity() == {"engine": "http", "shards": [first, second, None]}
    assert shards(two, one).identity() == {"engine": "http", "shards": [second, first]}
    with pytest.raises(SeedBenchError, match="serve different indexes"):
        shards(silent, (one, two)).identity()


def test_what_cannot_be_merged_is_refused_in_a_sentence(start: Start) -> None:
    one, two = start(listing()), start(listing())
    one.health = two.health = about()
    with pytest.raises(UsageError, match=r"have the same corpus: put a comma between servers of one part\."):
        shards(one, two).identity()
    for other, words in (
        ({"engine": "bm25"}, "bm25 version 1"),
        ({"version": 2}, "dense version 2"),
        ({"parameters": {"weights": "v" * 64}}, "weights=vvvvvvvvvvvv"),
    ):
        two.health = about(corpus="b" * 64, **other)
        with pytest.raises(UsageError, match=f"score differently .*{words}.*: build the indexes of all parts with one"):
            shards(one, two).identity()
    with pytest.raises(UsageError, match="is named in two parts: name each once"):
        shards(one, two, one)
    with pytest.raises(UsageError, match="'' is not a server's address"):
        open_retriever("http", url=f"{one.url}|")


# The generated corpus, dense: parts against one index


@pytest.fixture(scope="module")
def generated(store: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Retriever]:
    """The whole, then the parts."""
    folder = indexes(tmp_path_factory.mktemp("dense"))
    return [open_retriever("dense", folder / name) for name in SIZES]


def test_dense_parts_give_what_one_index_over_the_whole_gives(generated: list[Retriever], start: Start) -> None:
    whole, *parts = generated
    behind = [start(searching(part)) for part in parts]
    for server, part in zip(behind, parts, strict=True):
        server.health = ok({"identity": part.identity()})
    retriever = shards(*behind)
    sizes = [shard["passages"] for shard in retriever.identity()["shards"]]  # type: ignore[attr-defined]
    assert sizes == [2000, 1000, 280]
    held = [{passage.id for passage in part._passages} for part in parts]  # type: ignore[attr-defined]
    questions = list(library.questions("mini").values())[:60]
    places = set()
    for question in questions:
        (expected,), (found,) = whole.search([question.question], 10), retriever.search([question.question], 10)
        assert [hit.passage for hit in found] == [hit.passage for hit in expected]
        assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected], abs=1e-5)
        places |= {place for place, ids in enumerate(held) if any(hit.passage.id in ids for hit in found)}
    assert places == {0, 1, 2}  # every part has had a say


def test_parts_of_another_corpus_than_the_tasks_name_are_refused(generated: list[Retriever], start: Start) -> None:
    _, *parts = generated
    behind = [start(searching(part)) for part in parts]
    for server, part in zip(behind, parts, strict=True):
        server.health = ok({"identity": part.identity()})
    urls = [server.url for server in behind]
    whole = library.open_engine("http:" + "|".join(urls), "mini", same_corpus=True)
    assert len(whole.search(["who"], 3)[0]) == 3
    with pytest.raises(UsageError, match=r"parts hold 3,000 passages together, .*3,280 passages\): serve all parts"):
        library.open_engine("http:" + "|".join(urls[:2]), "mini", same_corpus=True)

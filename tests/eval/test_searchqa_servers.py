"""Evaluations through several retrieval servers: of one index, of which one is killed, and of parts of a corpus."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from seedbench_envs.searchqa.retrievers import open_retriever
from seedbench_envs.searchqa.suite import MINI
from tests.envs.dense_corpus import indexes
from tests.envs.fake_retriever import ok, searching, servers
from tests.envs.search_server import running
from tests.eval.helpers import installed, logged, valid_summary
from tests.eval.test_searchqa_faults import LIMIT, Killing, evaluation, outcome_of, serving


@pytest.fixture(scope="module")
def dense_corpus(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return indexes(tmp_path_factory.mktemp("dense"))


@pytest.fixture(scope="module", autouse=True)
def suite(store: Path) -> Iterator[None]:
    with installed("mini-searchqa", MINI):
        yield


def through(url: str, out: Path, **settings: Any) -> Any:
    return evaluation(url, out, "rule", **settings)


def test_one_of_two_servers_is_killed_mid_run_and_the_run_is_the_same(tmp_path: Path) -> None:
    alone = through("", tmp_path / "alone", engine="native", concurrency=1)
    expected = (outcome_of(alone), logged(alone.out))
    with running(serving(0)) as one, running(serving(0)) as other:

        def kill() -> None:
            one.process.kill()
            one.process.wait()

        work = through(f"{one.url},{other.url}", tmp_path / "run", concurrency=1)
        assert (outcome_of(work, Killing(kill)), logged(work.out)) == expected
        assert other.stop(signal.SIGTERM)[0] == 0
    assert expected[0]["outcomes"]["infra_error"] == 0
    assert expected[0]["success"]["micro"]["n"] == LIMIT


def test_dense_parts_give_the_run_of_the_whole_index(dense_corpus: Path, tmp_path: Path) -> None:
    parts = [open_retriever("dense", dense_corpus / name) for name in "abc"]
    with servers() as start:
        urls = []
        for part in parts:
            server = start(searching(part))
            server.health = ok({"identity": part.identity()})
            urls.append(server.url)
        whole = through("", tmp_path / "one", engine=f"dense:{dense_corpus / 'whole'}")
        split = through("|".join(urls), tmp_path / "parts")
        assert (outcome_of(split), logged(split.out)) == (outcome_of(whole), logged(whole.out))
        retriever = valid_summary(split)["environment"]["retriever"]
    assert retriever == {"engine": "http", "shards": [part.identity() for part in parts]}

"""Retrievers that keep an index: hits, hostile queries, refusals, kills; the dense engine; the process of Lucene."""

import fcntl
import importlib
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench_envs.bm25 import analyze
from seedbench_envs.searchqa.corpus import corpus_hash
from seedbench_envs.searchqa.indexing import build_index
from seedbench_envs.searchqa.records import Hit, Passage, RetrieverFault
from seedbench_envs.searchqa.retrievers import available, dense, manifest, open_retriever
from seedbench_envs.searchqa.retrievers.encoder import Encoder
from seedbench_envs.searchqa.retrievers.engine import BuildOptions, query_terms, within_limit
from seedbench_envs.searchqa.retrievers.lucene_process import LuceneProcess
from seedbench_envs.searchqa.retrievers.passages import Passages
from seedbench_envs.searchqa.retrievers.pyserini_ import PyseriniRetriever
from tests.envs.tiny_corpus import generated, tiny_encoder, write

LEXICAL = ("bm25", "lucene-order")
PASSAGES = generated(200)
HOSTILE = (
    "\x00\x1b[31m\x7f\r\n", "\ud800", "bridges\x00\ud800 near Alder", "painters " * 12_000, "x" * 100_000,
    " ".join(f"word{number} Alder" for number in range(8_000)), "[bold]+-&&||!(){}^\"~*?:\\/", "\u202e\u0301\ufeff",
)  # fmt: skip


def quiet(line: str) -> None:
    """Report nothing."""


def ids(hits: list[Hit]) -> list[str]:
    return [hit.passage.id for hit in hits]


def edit(folder: Path, **fields: Any) -> None:
    path = folder / manifest.FILE
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **fields}), "utf-8")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("corpus") / "corpus.jsonl.gz", PASSAGES)


@pytest.fixture(scope="module")
def indexes(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("indexes")
    for name in LEXICAL:
        build_index(corpus, name, folder / name, report=quiet)
    return folder


@pytest.fixture
def copy(indexes: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(indexes / "bm25", tmp_path / "copy"))


@pytest.mark.parametrize("name", LEXICAL)
def test_scores_worked_by_hand(tmp_path: Path, name: str) -> None:
    # Three passages of two terms each (title and text together), so n = 1 / 0.9; see seedbench_envs.bm25.scores.
    small = [Passage("a", "Red", "shoes"), Passage("b", "Blue", "shoe"), Passage("c", "Green", "hat")]
    build_index(write(tmp_path / "c.jsonl", small), name, tmp_path / "i", report=quiet)
    retriever = open_retriever(name, tmp_path / "i")
    share = 1 - 0.9 / 1.9
    shoe, red = math.log(1 + 1.5 / 2.5), math.log(1 + 2.5 / 1.5)
    (hits, repeated) = retriever.search(["a red shoe", "shoes shoes"], 9)
    assert [hit.passage for hit in hits] == small[:2]
    assert [hit.score for hit in hits] == pytest.approx([(red + shoe) * share, shoe * share], abs=6e-5)
    assert repeated[0].score == pytest.approx(2 * shoe * share, abs=6e-5)
    assert ids(repeated) == ["a", "b"]
    assert retriever.search([], 3) == []
    with pytest.raises(ValueError, match="k must be"):
        retriever.search(["red"], 0)


def test_bm25_scores_are_those_of_bm25s_itself_where_lengths_are_exact(tmp_path: Path) -> None:
    bm25s = importlib.import_module("bm25s")
    short = [passage for passage in PASSAGES if len(analyze(passage.contents)) < 24]  # longer ones Lucene rounds
    assert len(short) > 50
    build_index(write(tmp_path / "c.jsonl", short), "bm25", tmp_path / "i", report=quiet)
    retriever = open_retriever("bm25", tmp_path / "i")
    model = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    model.index([analyze(passage.contents) for passage in short], show_progress=False)
    for passage in short[:40]:
        expected = model.get_scores(analyze(passage.text))
        hits = retriever.search([passage.text], len(short))[0]
        scores = {hit.passage.id: hit.score for hit in hits}
        assert [scores.get(other.id, 0.0) for other in short] == pytest.approx(expected.tolist(), rel=1e-5)


def test_bm25_and_lucene_order_agree_and_threads_change_nothing(indexes: Path) -> None:
    queries = [passage.text for passage in PASSAGES]
    bm25, lucene = (open_retriever(name, indexes / name) for name in LEXICAL)
    found = bm25.search(queries, 10)
    assert [ids(hits) for hits in found] == [ids(hits) for hits in lucene.search(queries, 10)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda query: bm25.search([query], 10)[0], queries * 3)) == found * 3


@pytest.mark.parametrize("name", LEXICAL)
def test_hostile_queries_are_answered(indexes: Path, name: str) -> None:
    retriever = open_retriever(name, indexes / name)
    found = retriever.search(["", " \n\t", *HOSTILE, "Alder"], 3)
    assert found[:2] == [[], []]
    assert [len(hits) for hits in found[2:]] == [0, 0, 3, 3, 0, 3, 0, 0, 3]
    assert ids(found[4]) == ids(retriever.search(["bridges near Alder"], 3)[0])
    assert found == [retriever.search([query], 3)[0] for query in ["", " \n\t", *HOSTILE, "Alder"]]
    assert len(retriever.search(["Alder bridges"], 10_000)[0]) <= len(PASSAGES)


def test_the_first_1024_different_terms_count() -> None:
    long = " ".join(f"word{number % 3000}" for number in range(6000))
    terms = query_terms(long)
    assert set(terms) == {f"word{number}" for number in range(1024)}
    assert len(terms) == 2048  # each comes again
    assert analyze(within_limit(long)) == terms[:1024]  # the text stops at the first term too many
    assert within_limit("the short one") == "the short one"
    many = "painter " * 5000
    assert within_limit(many) == many


def test_identity_says_what_results_depend_on_and_no_paths(indexes: Path) -> None:
    for name in LEXICAL:
        identity = open_retriever(name, indexes / name).identity()
        assert identity["engine"] == name
        assert identity["corpus"] == corpus_hash(PASSAGES)
        assert identity["passages"] == len(PASSAGES)
        assert str(indexes) not in json.dumps(identity)
    assert open_retriever("auto", indexes / "bm25").identity()["engine"] == "bm25"


def test_an_index_of_another_kind_is_refused(indexes: Path, copy: Path, tmp_path: Path) -> None:
    def refused(kind: type[SeedBenchError], words: str, *args: Any, **more: Any) -> None:
        with pytest.raises(kind, match=words):
            open_retriever(*args, **more)

    assert open_retriever("bm25", copy, corpus=corpus_hash(PASSAGES)).search(["Alder"], 1)[0]
    refused(UsageError, "belongs to the engine 'bm25', not 'lucene-order'", "lucene-order", copy)
    refused(UsageError, "holds another corpus", "bm25", copy, corpus="0" * 64)
    refused(UsageError, "no retrieval index at", "bm25", tmp_path)
    refused(UsageError, "no retrieval index at", "bm25", copy / manifest.FILE)
    refused(UsageError, "needs the folder", "bm25")
    refused(UsageError, "needs the address", "http")
    refused(UsageError, "did you mean 'bm25'", "bm52", copy)
    edit(copy, version=99)
    refused(SeedBenchError, "version 99 of the engine 'bm25'.*reads version 1: build it again", "bm25", copy)
    edit(copy, passages="many")
    refused(SeedBenchError, "another release", "bm25", copy)
    edit(copy, passages=len(PASSAGES), surprise=1)
    refused(SeedBenchError, "another release", "bm25", copy)
    edit(copy, format="other")
    refused(UsageError, "no retrieval index of seedbench", "bm25", copy)
    (copy / manifest.FILE).write_text("{", "utf-8")
    refused(SeedBenchError, "damaged", "bm25", copy)


def test_damage_and_changed_files_are_told(copy: Path) -> None:
    data = copy / "bm25s" / "data.csc.index.npy"
    whole = data.read_bytes()
    data.write_bytes(whole[:-4])
    with pytest.raises(SeedBenchError, match=r"data\.csc\.index\.npy has [\d,]+ bytes instead of"):
        open_retriever("bm25", copy)
    data.write_bytes(whole[:-800] + bytes(800))  # the same size: only the stored queries can tell
    with pytest.raises(SeedBenchError, match=r"gives other hits than when it was built \(bm25s .*build it again"):
        open_retriever("bm25", copy)
    data.write_bytes(b"x" * len(whole))
    with pytest.raises(SeedBenchError, match="cannot read the index"):
        open_retriever("bm25", copy)
    data.unlink()
    with pytest.raises(SeedBenchError, match="is missing"):
        open_retriever("bm25", copy)


def test_stored_queries_allow_rounding_and_ties_and_nothing_else() -> None:
    stored = [("a", 3.0), ("b", 2.0), ("c", 1.0)]
    same = manifest._same
    assert same(stored, [("a", 3.0004), ("b", 2.0), ("c", 1.0)])
    assert same(stored, [("a", 3.0), ("b", 2.0), ("d", 1.0)])  # the last may tie with what follows
    assert not same(stored, [("a", 3.1), ("b", 2.0), ("c", 1.0)])
    assert not same(stored, [("b", 3.0), ("a", 2.0), ("c", 1.0)])
    assert not same(stored, stored[:2])
    assert same([("a", 3.0), ("b", 3.0), ("c", 1.0)], [("b", 3.0), ("a", 3.0), ("c", 1.0)])
    assert not same([("a", 3.0)], [("b", 3.0)])


def test_a_missing_package_is_named_with_the_command(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    with pytest.raises(SeedBenchError, match=r"needs the package bm25s: .*pip install 'seedbench\[search\]'"):
        build_index(corpus, "bm25", tmp_path / "i", report=quiet)
    assert not list(tmp_path.iterdir())
    lacking = available()
    assert lacking["lucene-order"] == ""
    assert "faiss-cpu" in lacking["dense"]


def test_building_again_keeps_what_is_there_and_refuses_the_rest(corpus: Path, copy: Path, tmp_path: Path) -> None:
    said: list[str] = []
    assert build_index(corpus, "bm25", copy, report=said.append) == manifest.read_manifest(copy)
    assert said == ["the index is there already"]
    with pytest.raises(UsageError, match=r"holds an index with b = 0\.4, not 0\.5"):
        build_index(corpus, "bm25", copy, BuildOptions(b=0.5), quiet)
    other = write(tmp_path / "other.jsonl", PASSAGES[:-1])
    for source, name in ((corpus, "lucene-order"), (other, "bm25")):
        with pytest.raises(UsageError, match="holds the index of another"):
            build_index(source, name, copy, report=quiet)
    with pytest.raises(UsageError, match="holds something else"):
        build_index(corpus, "bm25", tmp_path, report=quiet)
    with pytest.raises(UsageError, match="no corpus at"):
        build_index(tmp_path / "absent", "bm25", tmp_path / "i", report=quiet)
    with pytest.raises(UsageError, match="unknown engine"):
        build_index(corpus, "bm", tmp_path / "i", report=quiet)
    for wrong in ({"k1": 0.0}, {"b": 1.5}, {"kind": "tree"}, {"batch": 0}):
        with pytest.raises(UsageError):
            BuildOptions(**wrong)


_KILLED = """
import os, signal, sys
from pathlib import Path
from seedbench_envs.searchqa.indexing import build_index
def report(line):
    if line.startswith(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
build_index(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), report=report)
"""


@pytest.mark.parametrize(("name", "moment"), [("bm25", "scoring"), ("bm25", "read"), ("lucene-order", "indexing")])
def test_a_kill_leaves_no_half_index_and_the_same_command_completes_it(
    corpus: Path, indexes: Path, tmp_path: Path, name: str, moment: str
) -> None:
    target = tmp_path / "index"
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(corpus), name, str(target), moment], check=False)
    assert killed.returncode == -9
    assert not target.exists()
    said: list[str] = []
    build_index(corpus, name, target, report=said.append)
    assert ("the passages are stored already" in said) == (moment != "read")
    assert manifest.read_manifest(target) == manifest.read_manifest(indexes / name)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_a_corpus_that_changed_between_two_tries_is_read_again(tmp_path: Path) -> None:
    source, target = write(tmp_path / "c.jsonl", PASSAGES[:50]), tmp_path / "index"

    def stop(line: str) -> None:
        if line.startswith("indexing"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index(source, "lucene-order", target, report=stop)
    write(source, PASSAGES[:60])
    assert build_index(source, "lucene-order", target, report=quiet).corpus == corpus_hash(PASSAGES[:60])


def test_two_builds_of_one_folder_do_not_meet(corpus: Path, tmp_path: Path) -> None:
    work = tmp_path / ".index.building"
    work.mkdir()
    with (work / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SeedBenchError, match="another process is building"):
            build_index(corpus, "bm25", tmp_path / "index", report=quiet)
    assert build_index(corpus, "bm25", tmp_path / "index", report=quiet).passages == len(PASSAGES)


# The dense engine


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("faiss")
    return tiny_encoder(tmp_path_factory.mktemp("models") / "encoder")


def build_dense(corpus: Path, encoder: Path, target: Path, report: Callable[[str], None] = quiet, **more: Any) -> Path:
    build_index(corpus, "dense", target, BuildOptions(encoder=str(encoder), max_tokens=48, **more), report)
    return target


def by_hand(encoder: Path, text: str) -> Any:
    """Mean of the last layer over one text's tokens, of length 1; no padding, no batch."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(encoder)(text, truncation=True, max_length=48, return_tensors="pt")
    with torch.no_grad():
        mean = AutoModel.from_pretrained(encoder).eval()(**tokens).last_hidden_state[0].mean(0).numpy()
    return mean / np.linalg.norm(mean)


def test_vectors_are_means_of_length_one_whatever_the_batch(encoder: Path) -> None:
    texts = ["query: who", "query: " + "a long one " * 30, "query: x"]
    loaded = Encoder(str(encoder), 48)
    vectors = loaded.encode(texts, batch=3)
    assert vectors.shape == (3, 32)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    for text, vector in zip(texts, vectors, strict=True):
        assert np.allclose(vector, by_hand(encoder, text), atol=1e-5)
    assert np.allclose(loaded.encode(texts, batch=1), vectors, atol=1e-6)


def test_flat_is_exact_and_ivf_and_hnsw_come_close(
    corpus: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "_SEARCHED_AT_ONCE", 64)  # four blocks
    queries = [f"{passage.title} {number}" for number, passage in enumerate(PASSAGES[:20])]
    loaded = Encoder(str(encoder), 48)
    vectors = loaded.encode(["passage: " + passage.contents for passage in PASSAGES])
    products = loaded.encode(["query: " + query for query in queries]) @ vectors.T
    expected = np.argsort(-products, axis=1, kind="stable")[:, :5]
    flat = open_retriever("dense", build_dense(corpus, encoder, tmp_path / "flat"))
    found = flat.search([*queries, "", *HOSTILE], 5)
    for hits, row, scores in zip(found, expected, products, strict=False):
        assert [hit.score for hit in hits] == pytest.approx(scores[row].tolist(), abs=1e-5)
        assert ids(hits)[0] == PASSAGES[row[0]].id
    assert found[20] == []
    assert [len(hits) for hits in found[21:]] == [5 if query.strip() else 0 for query in HOSTILE]
    assert len(flat.search(["x"], 1000)[0]) == len(PASSAGES)
    with ThreadPoolExecutor(8) as threads:
        alone = list(threads.map(lambda query: ids(flat.search([query], 1)[0]), queries * 5))
    assert alone == [ids(hits)[:1] for hits in found[:20]] * 5
    ivf = open_retriever("dense", build_dense(corpus, encoder, tmp_path / "ivf", kind="ivf", lists=4, probes=4))
    hnsw = open_retriever("dense", build_dense(corpus, encoder, tmp_path / "hnsw", kind="hnsw", effort=200))
    for approximate in (ivf, hnsw):  # every list, and more candidates than passages: as good as exact
        for hits, exact in zip(approximate.search(queries, 5), found, strict=False):
            assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in exact], abs=1e-5)


def test_texts_longer_than_the_encoder_takes_are_cut(encoder: Path) -> None:
    long = "x " * 61 + "x" + " y z" * 100  # 64 positions, two of them marks at the ends
    np.testing.assert_array_equal(
        Encoder(str(encoder), 256).encode([long]), Encoder(str(encoder), 64).encode(["x " * 62])
    )


def test_a_killed_encoding_goes_on_where_it_stopped(
    corpus: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "_ENCODED_AT_ONCE", 32)
    whole = build_dense(corpus, encoder, tmp_path / "whole")

    def stop(line: str) -> None:
        if line.startswith("encoded 96"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_dense(corpus, encoder, tmp_path / "index", stop)
    said: list[str] = []
    build_dense(corpus, encoder, tmp_path / "index", said.append)
    assert "going on behind 96 vectors of an earlier try" in said
    assert not any(line.startswith("encoded 96") for line in said)
    assert (tmp_path / "index" / "vectors.f32").read_bytes() == (whole / "vectors.f32").read_bytes()
    # Vectors of other texts are no use.
    with pytest.raises(KeyboardInterrupt):
        build_dense(corpus, encoder, tmp_path / "other", stop)
    build_dense(corpus, encoder, tmp_path / "other", said.append, passage_prefix="")
    assert said.count("going on behind 96 vectors of an earlier try") == 1


def test_another_encoder_is_refused_and_a_moved_one_can_be_named(corpus: Path, encoder: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(encoder, tmp_path / "moved"))
    index = build_dense(corpus, moved, tmp_path / "index")
    identity = open_retriever("dense", index).identity()
    assert Encoder(str(encoder)).weights in json.dumps(identity)
    assert str(tmp_path) not in json.dumps(identity)
    shutil.rmtree(moved)
    with pytest.raises(SeedBenchError, match=r"the encoder '.*moved' cannot be used"):
        open_retriever("dense", index)
    assert open_retriever("dense", index, encoder=str(encoder)).search(["x"], 1)[0]
    other = tiny_encoder(tmp_path / "other", seed=1)
    with pytest.raises(SeedBenchError, match="built with other weights of the encoder"):
        open_retriever("dense", index, encoder=str(other))
    (other / "model.safetensors").rename(other / "pytorch_model.bin")
    with pytest.raises(SeedBenchError, match="pickle files only"):
        build_dense(corpus, other, tmp_path / "i")
    said: list[str] = []
    with pytest.raises(UsageError, match="needs an encoder"):
        build_index(corpus, "dense", tmp_path / "j", report=said.append)
    assert said == []  # told before the corpus is read


# Lucene in a process of its own, played by a script

_FAKE = """
import json, os, sys, time
print(json.dumps({"error": os.environ["FAIL"]} if "FAIL" in os.environ else {"jar": "anserini-0"}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request["do"] != "search":
        print("{}", flush=True)
        continue
    query = (request["queries"] or [""])[0]
    if query == "die":
        sys.exit("out of memory")
    if query == "die once" and not os.path.exists(sys.argv[1]):
        open(sys.argv[1], "w").close()
        sys.exit("out of memory")
    if query == "hang":
        time.sleep(60)
    if query == "refuse":
        print(json.dumps({"error": "ParseException"}), flush=True)
        continue
    print(json.dumps({"hits": [[["b", 2.0], ["a", 1.0]][: request["k"]] for _ in request["queries"]]}), flush=True)
"""


@pytest.fixture
def lucene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PyseriniRetriever:
    small = [Passage("a", "A", "first"), Passage("b", "B", "second")]
    built = build_index(write(tmp_path / "c.jsonl", small), "lucene-order", tmp_path / "i", report=quiet)
    (tmp_path / "fake.py").write_text(_FAKE, "utf-8")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/fake.py" "{tmp_path}/died"\n', "utf-8")
    python.chmod(0o755)
    monkeypatch.setenv("SEEDBENCH_PYSERINI_PYTHON", str(python))
    described = replace(built, engine="pyserini", checks=())
    passages = Passages(tmp_path / "i")
    return PyseriniRetriever(tmp_path / "i", described, passages, timeout=5)


def test_lucene_answers_from_a_process_that_the_first_search_starts(lucene: PyseriniRetriever) -> None:
    process: LuceneProcess = lucene._process
    assert lucene.search(["", " "], 2) == [[], []]
    assert not process.running
    assert [ids(hits) for hits in lucene.search(["x", "", "\ud800y"], 2)] == [["b", "a"], [], ["b", "a"]]
    assert lucene.search(["x"], 1)[0][0].passage.title == "B"
    assert process.running
    with ThreadPoolExecutor(4) as threads:
        assert {len(hits[0]) for hits in threads.map(lambda n: lucene.search(["x"], 1 + n % 2), range(20))} == {1, 2}
    lucene.close()
    assert not process.running
    assert ids(lucene.search(["x"], 2)[0]) == ["b", "a"]  # and again
    lucene.close()


def test_a_lucene_that_dies_is_started_again_once(lucene: PyseriniRetriever) -> None:
    assert ids(lucene.search(["die once"], 2)[0]) == ["b", "a"]
    with pytest.raises(RetrieverFault, match="failed twice: it ended with status 1: out of memory"):
        lucene.search(["die"], 2)
    with pytest.raises(SeedBenchError, match="Lucene failed: ParseException"):
        lucene.search(["refuse"], 2)
    assert ids(lucene.search(["x"], 2)[0]) == ["b", "a"]
    lucene._process._timeout = 0.3
    with pytest.raises((RetrieverFault, SeedBenchError), match="no answer within"):
        lucene.search(["hang"], 2)
    lucene.close()


def test_lucene_that_cannot_start_says_why(lucene: PyseriniRetriever, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIL", "java.lang.UnsupportedClassVersionError: 65.0")
    with pytest.raises(SeedBenchError, match="needs Java 21"):
        lucene.search(["x"], 1)
    monkeypatch.setenv("FAIL", "ModuleNotFoundError: jnius")
    with pytest.raises(SeedBenchError, match=r"jnius.*pip install"):
        lucene.search(["x"], 1)
    lucene._process._python = "/nowhere/python"
    with pytest.raises(SeedBenchError, match="must name a Python interpreter"):
        lucene.search(["x"], 1)


def test_lucene_that_is_not_installed_is_told_at_once(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SEEDBENCH_PYSERINI_PYTHON", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SeedBenchError, match=r"needs the package pyserini: .*pip install --no-deps pyserini==1\.6\.0"):
        build_index(corpus, "pyserini", tmp_path / "i", report=quiet)

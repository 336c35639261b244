"""The search index: scores worked out by hand, order, limits, storage and its errors."""

import json
import math
import random
import sys
import types
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench.errors import SeedBenchError
from seedbench_envs.bm25 import Bm25Index, PyseriniIndex, TooManyTerms, analyze, storage
from seedbench_envs.bm25 import index as index_module
from seedbench_envs.bm25.build import Scratch, build_arrays
from seedbench_envs.bm25.scores import best, quantised, reported
from seedbench_envs.bm25.strings import Strings
from seedbench_envs.webshop.records import Search

Documents = list[tuple[str, str]]

SHOES = [("a", "Red shoes"), ("b", "blue shoe"), ("c", "green hat"), ("d", "the")]


def naive(documents: Documents, query: str, k: int, k1: float, b: float) -> list[tuple[str, float]]:
    """The same hits, one document and one term at a time in Lucene's precision."""
    f = np.float32
    counted = {identifier: Counter(analyze(text)) for identifier, text in documents}
    filled = [terms for terms in counted.values() if terms]
    mean = f(sum(terms.total() for terms in filled) / len(filled)) if filled else f(1)
    scored = []
    for identifier, terms in counted.items():
        total = 0.0
        for term, repeats in Counter(analyze(query)).items():
            if tf := terms[term]:
                df = sum(term in other for other in filled)
                weight = f(repeats) * f(math.log(1 + (len(filled) - df + 0.5) / (df + 0.5)))
                length = f(int(quantised(np.array([terms.total()]))[0]))
                total += float(
                    weight - weight / (f(1) + f(tf) * (f(1) / (f(k1) * ((f(1) - f(b)) + f(b) * length / mean))))
                )
        if total > 0:
            scored.append((-float(f(total)), identifier))
    hits = sorted(scored)[:k]
    scores = reported(-np.array([score for score, _ in hits], dtype=np.float32))
    return list(zip([identifier for _, identifier in hits], scores.tolist(), strict=True))


def test_scores_worked_by_hand() -> None:
    # N = 3 documents hold terms, all of length 2, so n = 1 / 0.9 and a term found once gives w * (1 - 0.9 / 1.9).
    index = Bm25Index.build(SHOES)
    share = 1 - 0.9 / 1.9
    shoe, red = math.log(1 + 1.5 / 2.5), math.log(1 + 2.5 / 1.5)
    hits = index.search("red shoe")
    assert [identifier for identifier, _ in hits] == ["a", "b"]
    assert [score for _, score in hits] == pytest.approx([round((red + shoe) * share, 4), round(shoe * share, 4)])
    # A term twice in the query counts twice; twice in the document saturates.
    assert index.search("shoes shoes")[0][1] == pytest.approx(round(2 * shoe * share, 4))
    twice = Bm25Index.build([("a", "hat hat"), ("b", "hat cat")])
    hat = math.log(1 + 0.5 / 2.5)
    expected = {"a": round(hat * (1 - 0.9 / 2.9), 4), "b": round(hat * share, 4)}
    assert dict(twice.search("hat")) == pytest.approx(expected)


def test_parameters_change_the_scores_as_the_formula_says() -> None:
    documents = [("long", "hat " + "cat " * 9), ("short", "hat cat")]
    hat = math.log(1 + 0.5 / 2.5)
    plain = dict(Bm25Index.build(documents, k1=2.0, b=0.0).search("hat"))
    assert plain["long"] == pytest.approx(hat / 3, abs=5e-5)  # no length, tf 1: 1 - 1 / (1 + 1 / 2)
    normed = dict(Bm25Index.build(documents, k1=1.0, b=1.0).search("hat"))
    assert normed["long"] == pytest.approx(hat * (1 - 1 / (1 + 6 / 10)), abs=5e-5)  # mean length 6
    assert normed["short"] == pytest.approx(hat * (1 - 1 / (1 + 6 / 2)), abs=5e-5)
    for k1, b in ((0.0, 0.4), (-1.0, 0.4), (0.9, -0.1), (0.9, 1.1), (math.nan, 0.4)):
        with pytest.raises(ValueError, match="k1"):
            Bm25Index.build(documents, k1, b)


def test_lengths_are_kept_in_a_byte() -> None:
    lengths = [0, 1, 23, 24, 39, 40, 41, 42, 43, 56, 57, 59, 60, 100, 1000, 70_000]
    kept = [0, 1, 23, 24, 39, 40, 40, 42, 42, 56, 56, 56, 60, 96, 984, 65_560]
    assert quantised(np.array(lengths)).tolist() == kept
    every = quantised(np.arange(100_000))
    assert np.all(np.diff(every) >= 0)
    assert len(np.unique(every)) == 24 + 16 + 8 * 13 - 3  # 24 exact, then 8 steps a power of two


def test_equal_scores_are_ordered_by_id_in_code_points() -> None:
    ids = ["b", "a", "B", "é", "z", "\uffdc", "𝐚", "10", "9"]
    index = Bm25Index.build([(identifier, "hat") for identifier in ids])
    hits = index.search("hat")
    assert [identifier for identifier, _ in hits] == ["10", "9", "B", "a", "b", "z", "é", "\uffdc", "𝐚"]
    first = round(math.log(1 + 0.5 / 9.5) * (1 - 0.9 / 1.9), 4)
    assert [score for _, score in hits] == pytest.approx([first - 1e-6 * number for number in range(9)], abs=4e-9)
    assert index.search("hat", k=3) == hits[:3]


def test_reported_scores_are_rounded_and_lowered_in_runs() -> None:
    def listed(*scores: float) -> list[float]:
        return [round(score, 6) for score in reported(np.array(scores, dtype=np.float32)).tolist()]

    assert listed() == []
    assert listed(2.34567, 0.03125) == [2.3457, 0.0313]  # a half goes up
    assert listed(2.00004, 2.00001, 1.99998, 1.5, 1.5) == [2.0, 1.999999, 1.999998, 1.5, 1.499999]
    # Neighbours in the last decimal count as equal where their float32 difference is not above 1e-4.
    assert listed(22.0001, 22.0) == [22.000099, 21.999998]
    assert listed(22.0002, 22.0001) == [22.000200, 22.000099]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([(0.9, 0.4), (1.2, 0.75), (2.0, 1.0), (0.5, 0.0)]))
def test_hits_equal_the_naive_ones_whatever_the_way_there(seed: int, parameters: tuple[float, float]) -> None:
    rng = random.Random(seed)
    words = [f"w{number}" for number in range(rng.choice([3, 20]))] + ["The", "running"]
    documents = [
        (f"{rng.choice('abé')}{number}", " ".join(rng.choices(words, k=rng.choice([0, 1, 2, 5, 30, 90]))))
        for number in range(rng.randrange(1, 40))
    ]
    queries = [" ".join(rng.choices([*words, "unknown"], k=rng.choice([1, 3, 12]))) for _ in range(5)]
    k = rng.choice([1, 4, 50])
    expected = [naive(documents, query, k, *parameters) for query in queries]
    index = Bm25Index.build(documents, *parameters)
    assert [index.search(query, k) for query in queries] == expected
    with pytest.MonkeyPatch.context() as patch:  # chunk by chunk, as for long lists
        patch.setattr(index_module, "_SMALL", 0)
        patch.setattr(index_module, "_CHUNK", 4)
        chunked = Bm25Index.build(documents, *parameters)
        assert [chunked.search(query, k) for query in queries] == expected
    scratch = Scratch(None)  # blocks of a document or two, put aside in files
    blocks = Bm25Index(build_arrays(documents, *parameters, scratch, block_terms=3), scratch)
    assert [blocks.search(query, k) for query in queries] == expected
    rng.shuffle(documents)
    assert [Bm25Index.build(documents, *parameters).search(query, k) for query in queries] == expected


@pytest.mark.parametrize("levels", [3, 40, 10_000])
@pytest.mark.parametrize("size", [5, 6400, 20_000])
def test_the_best_are_found_without_sorting_all(size: int, levels: int) -> None:
    rng = np.random.default_rng(size + levels)
    for filled in (0.0, 0.002, 0.5, 1.0):
        # Levels lie within a float32's rounding of each other at the top, so that ties must be told from order.
        scores = np.where(rng.random(size) < filled, 9 + rng.integers(0, levels, size) * 3e-7, 0.0)
        rank = rng.permutation(size).astype(np.int32)
        for k in (1, 10, 50, size):
            found, kept = best(scores, rank, k)
            single = scores.astype(np.float32)
            order = [number for number in np.lexsort((rank, -single)) if scores[number] > 0][:k]
            assert found.tolist() == order
            assert kept.tolist() == single[order].tolist()


def test_limits_of_a_query() -> None:
    index = Bm25Index.build(SHOES)
    terms = [f"q{number}" for number in range(1025)]
    assert index.search(" ".join(terms[:1024])) == []
    assert index.search("shoe " * 5000)[0][0] == "a"
    with pytest.raises(TooManyTerms, match="1,024 distinct terms"):
        index.search(" ".join(terms))
    with pytest.raises(ValueError, match="k must be at least 1"):
        index.search("shoe", 0)
    for query in ("", " ", "\t\n", "the", "unknown", "[]", "½"):
        assert index.search(query) == []
    assert [identifier for identifier, _ in index.search("shoe hat", k=2)] == ["c", "a"]


def test_queries_are_lower_cased_first_unless_searched_as_written() -> None:
    index = Bm25Index.build([("python", "i̇stanbul"), ("java", "istanbul")])
    assert [identifier for identifier, _ in index.search("İSTANBUL")] == ["python"]
    assert [identifier for identifier, _ in index.search("İSTANBUL", as_written=True)] == ["java"]


def test_documents_without_terms_and_no_documents() -> None:
    assert Bm25Index.build([]).search("hat") == []
    assert Bm25Index.build([("a", "the"), ("b", "")]).search("the hat") == []
    assert len(Bm25Index.build(SHOES)) == 4
    # "d" holds no term, so it counts neither in N nor in the mean length.
    assert Bm25Index.build(SHOES).search("red shoe") == Bm25Index.build(SHOES[:3]).search("red shoe")
    with pytest.raises(SeedBenchError, match="two documents have the id 'b'"):
        Bm25Index.build([*SHOES, ("b", "again")])


def test_a_large_build_leaves_no_files_behind(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    arrays = build_arrays(SHOES, 0.9, 0.4, scratch, block_terms=2)
    assert any(tmp_path.iterdir())
    assert arrays.documents.tolist() == Bm25Index.build(SHOES).arrays.documents.tolist()
    del arrays, scratch
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SeedBenchError, match=r"cannot build the search index.*free disk space"):
        build_arrays(SHOES, 0.9, 0.4, Scratch(tmp_path / "missing"), block_terms=2)


def test_strings_are_found_by_their_bytes() -> None:
    words = sorted(["", "a", "ab", "b", "é", "\uffdc", "𝐚"])
    strings = Strings.of(words)
    assert [strings.text(number) for number in range(len(strings))] == words
    assert [strings.find(word) for word in words] == list(range(7))
    assert [strings.find(word) for word in ("A", "aa", "c", "\U0010ffff")] == [-1] * 4
    assert (len(Strings.of([])), Strings.of([]).find("a")) == (0, -1)


def test_a_saved_index_opens_mapped_and_gives_the_same_hits(tmp_path: Path) -> None:
    documents = [(f"d{number}", f"hat w{number % 7} w{number % 5} é{number}") for number in range(300)]
    built = Bm25Index.build(documents, k1=1.2, b=0.75)
    folder = tmp_path / "deep" / "index"
    built.save(folder)
    opened = Bm25Index.open(folder, verify=True)
    for query in ("hat", "w3 w4 é17", "é299 w0 nothing"):
        assert opened.search(query) == built.search(query) != []
    assert isinstance(opened.arrays.documents.base, np.memmap)
    assert not opened.arrays.divisors.flags.writeable
    assert (len(opened), opened.arrays.k1, opened.arrays.b) == (300, 1.2, 0.75)
    Bm25Index.build(SHOES).save(folder)  # replaces it
    assert len(Bm25Index.open(folder)) == 4
    assert [path.name for path in folder.parent.iterdir()] == ["index"]
    for few in ([], [("a", "the")]):
        Bm25Index.build(few).save(folder)
        assert Bm25Index.open(folder).search("hat") == []


@pytest.mark.parametrize("small", [0, 1 << 14])
def test_many_threads_share_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    monkeypatch.setattr(index_module, "_SMALL", small)
    Bm25Index.build([(f"d{number}", f"hat w{number % 11}") for number in range(200)]).save(tmp_path / "index")
    index = Bm25Index.open(tmp_path / "index")
    queries = [f"hat w{number % 13}" for number in range(200)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(index.search, queries)) == [index.search(query) for query in queries]


def test_a_folder_of_other_things_is_not_overwritten(tmp_path: Path) -> None:
    index = Bm25Index.build(SHOES)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.json").write_text('{"format": "other"}')
    for place in (tmp_path, tmp_path / "file", tmp_path / "site"):
        with pytest.raises(SeedBenchError, match="holds something other than a search index"):
            index.save(place)
    (tmp_path / "empty").mkdir()
    index.save(tmp_path / "empty")
    assert len(Bm25Index.open(tmp_path / "empty")) == 4


def test_a_save_that_fails_leaves_the_old_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "index"
    Bm25Index.build(SHOES).save(folder)
    monkeypatch.setattr(np, "save", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(SeedBenchError, match=r"cannot write the search index .*No space left"):
        Bm25Index.build(SHOES[:2]).save(folder)
    assert len(Bm25Index.open(folder)) == 4
    assert list(tmp_path.iterdir()) == [folder]


def change_manifest(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        manifest = json.loads((folder / "index.json").read_text())
        (folder / "index.json").write_text(json.dumps({**manifest, **changes}))

    return change


def flip_a_byte(folder: Path) -> None:
    content = bytearray((folder / "divisors.npy").read_bytes())
    content[-1] ^= 1
    (folder / "divisors.npy").write_bytes(content)


DAMAGE: list[tuple[str, Callable[[Path], object], str]] = [
    ("no manifest", lambda f: (f / "index.json").unlink(), "no search index at .*build it again"),
    ("torn manifest", lambda f: (f / "index.json").write_text('{"format": "seedb'), "is damaged .*index.json"),
    ("another program's", lambda f: (f / "index.json").write_text("[]"), "is no search index of seedbench"),
    ("another version", change_manifest(version=99), "is of version 99 .*reads version 1 .*build it again"),
    ("another analysis", change_manifest(analysis="older"), r"\(older\).*build it again"),
    ("no such field", change_manifest(files={}), "is damaged .*delete the folder and build it again"),
    ("wrong field", change_manifest(files=None), "is damaged"),
    ("missing file", lambda f: (f / "terms.npy").unlink(), r"is damaged .*terms\.npy"),
    (
        "torn file",
        lambda f: (f / "documents.npy").write_bytes((f / "documents.npy").read_bytes()[:-4]),
        "bytes instead",
    ),
    ("changed file", flip_a_byte, r"the content of divisors\.npy has changed"),
    ("other numbers", change_manifest(filled=77), "a stored search gives other hits"),
]


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGE, ids=[name for name, _, _ in DAMAGE])
def test_damage_is_found_on_opening(tmp_path: Path, name: str, damage: Callable[[Path], object], message: str) -> None:
    folder = tmp_path / name
    Bm25Index.build(SHOES).save(folder)
    damage(folder)
    with pytest.raises(SeedBenchError, match=message):
        Bm25Index.open(folder)


def test_files_too_large_to_be_read_at_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_SMALL", 0)
    folder = tmp_path / "index"
    index = Bm25Index.build(SHOES)
    index.save(folder)
    divisors = np.load(folder / "divisors.npy")
    last = index.arrays.terms.find("green")  # not in the stored search, which asks for the first document's text
    divisors[index.arrays.starts[last]] += 1
    np.save(folder / "divisors.npy", divisors)
    assert len(Bm25Index.open(folder)) == 4
    with pytest.raises(SeedBenchError, match="has changed"):
        Bm25Index.open(folder, verify=True)
    divisors[index.arrays.starts[index.arrays.terms.find("red")]] += 1
    np.save(folder / "divisors.npy", divisors)
    with pytest.raises(SeedBenchError, match="a stored search gives other hits"):
        Bm25Index.open(folder)


def test_arrays_that_do_not_fit_together(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    index = Bm25Index.build(SHOES)
    index.save(folder)
    for name, part in (("rank", index.arrays.rank[:-1]), ("starts", index.arrays.starts.astype(np.float64))):
        manifest = json.loads((folder / "index.json").read_text())
        kept = manifest["files"][name]
        manifest["files"][name] = storage._write(folder / f"{name}.npy", part)
        (folder / "index.json").write_text(json.dumps(manifest))
        with pytest.raises(SeedBenchError, match=r"do not fit together|holds float64"):
            Bm25Index.open(folder)
        storage._write(folder / f"{name}.npy", getattr(index.arrays, name))
        change_manifest(files={**manifest["files"], name: kept})(folder)
    assert len(Bm25Index.open(folder)) == 4


class FakeSearcher:
    """What pyserini's LuceneSearcher shows of itself."""

    def __init__(self, folder: str) -> None:
        self.asked: list[object] = [folder]

    def set_bm25(self, k1: float, b: float) -> None:
        self.asked.append((k1, b))

    def search(self, query: str, k: int) -> list[types.SimpleNamespace]:
        self.asked.append((query, k))
        if query == "many":
            raise RuntimeError("org.apache.lucene.search.IndexSearcher$TooManyClauses: maxClauseCount is set to 1024")
        if query == "broken":
            raise RuntimeError("JVM exception occurred")
        return [types.SimpleNamespace(docid="a", score=1.5)]


def test_pyserini_is_asked_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = types.ModuleType("pyserini.search.lucene")
    fake.LuceneSearcher = FakeSearcher  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyserini", types.ModuleType("pyserini"))
    monkeypatch.setitem(sys.modules, "pyserini.search", types.ModuleType("pyserini.search"))
    monkeypatch.setitem(sys.modules, "pyserini.search.lucene", fake)
    with pytest.raises(SeedBenchError, match="holds no Lucene index"):
        PyseriniIndex.open(tmp_path)
    (tmp_path / "segments_1").touch()
    index = PyseriniIndex.open(tmp_path, k1=1.2, b=0.75)
    assert index.search("Red İ", 7) == [("a", 1.5)]
    assert index.search("Red", as_written=True) == [("a", 1.5)]
    assert index._searcher.asked == [str(tmp_path), (1.2, 0.75), ("red i̇", 7), ("Red", 50)]
    with pytest.raises(TooManyTerms):
        index.search("many")
    with pytest.raises(SeedBenchError, match="Lucene failed on the query 'broken'"):
        index.search("broken")


def test_pyserini_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyserini", None)
    with pytest.raises(SeedBenchError, match="needs the package pyserini and a Java runtime"):
        PyseriniIndex.open(tmp_path)


def test_both_engines_are_a_search() -> None:
    engines: list[Search] = [Bm25Index.build(SHOES), PyseriniIndex(FakeSearcher(""))]  # the type check is the test
    assert [engine.search("shoe", k=1)[0][0] for engine in engines] == ["a", "a"]

"""The published forms of the seven question sets, importing them, panels, and questions in train and test."""

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seedbench.errors import SeedBenchError
from seedbench_envs.searchqa.datasets import (
    SETS,
    content_hash,
    load_questions,
    official_count,
    question_group,
    read_aliases,
    shared_questions,
)
from seedbench_envs.searchqa.importing import import_folder
from seedbench_envs.searchqa.library import index_folder, questions
from seedbench_envs.searchqa.questions import Questions, store_questions
from seedbench_envs.searchqa.records import Question

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "searchqa"


def lines(path: Path, rows: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def whole(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def short(found: list[Question]) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(question.id, question.question, question.answers) for question in found]


# ---- forms ---------------------------------------------------------------------------------------------------


def test_flashrag_lines_keep_the_official_positions(tmp_path: Path) -> None:
    rows = [
        {"id": "test_7", "question": " who? ", "golden_answers": ["A", " A ", "", "B"]},
        {"id": "popqa_test_10207", "question": "when?", "golden_answers": ["1"], "data_source": "popqa"},
    ]
    found = load_questions(lines(tmp_path / "nq" / "test.jsonl.gz", rows))
    assert short(found) == [("nq/test/7", "who?", ("A", "B")), ("popqa/test/10207", "when?", ("1",))]
    assert (found[0].source, found[0].split, found[0].supporting) == ("nq", "test", ())


def test_nq_open(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "NQ-open.dev.jsonl", [{"question": "who wrote it", "answer": ["Bobby Scott", "Bob Russell"]}]
    )
    assert short(load_questions(path)) == [("nq/test/0", "who wrote it", ("Bobby Scott", "Bob Russell"))]


def test_hotpotqa(tmp_path: Path) -> None:
    rows = [{"_id": "5a8b", "question": "Same?", "answer": "yes", "supporting_facts": [["T", 0]], "context": []}]
    assert short(load_questions(whole(tmp_path / "hotpot_dev_fullwiki_v1.json", rows))) == [
        ("hotpotqa/dev/0", "Same?", ("yes",))
    ]
    assert load_questions(whole(tmp_path / "hotpot_train_v1.1.json", rows))[0].id == "hotpotqa/train/0"


def test_2wiki_with_and_without_wikidata_names(tmp_path: Path) -> None:
    row = {
        "_id": "x",
        "question": "Where?",
        "answer": "NYC",
        "answer_id": "Q60",
        "evidences": [],
        "supporting_facts": [],
    }
    path = whole(tmp_path / "data" / "dev.json", [row])
    table = lines(tmp_path / "id_aliases.json", [{"Q_id": "Q60", "aliases": ["Big Apple"], "demonyms": ["New Yorker"]}])
    assert short(load_questions(path)) == [("2wikimultihopqa/dev/0", "Where?", ("NYC",))]
    assert read_aliases(table) == {"Q60": ("Big Apple", "New Yorker")}
    assert load_questions(path, read_aliases(table))[0].answers == ("NYC", "Big Apple", "New Yorker")


def test_musique_leaves_out_what_cannot_be_answered(tmp_path: Path) -> None:
    row = {"id": "2hop__1_2", "question": "Who?", "answer": "X", "answer_aliases": ["Y"], "question_decomposition": []}
    rows = [{**row, "answerable": True}, {**row, "answerable": False}, {**row, "answer": "Z", "answerable": True}]
    found = load_questions(lines(tmp_path / "full_v1.0_dev.jsonl", rows))
    assert short(found) == [("musique/dev/0", "Who?", ("X", "Y")), ("musique/dev/1", "Who?", ("Z", "Y"))]


def test_musique_as_published_evaluations_score_it(tmp_path: Path) -> None:
    row = {"id": "2hop__1_2", "question": "Who?", "answer": "X", "answer_aliases": ["Y"], "question_decomposition": []}
    found = load_questions(lines(tmp_path / "musique_ans_v1.0_dev.jsonl", [row]), published=True)
    assert short(found) == [("musique/dev/0", "Who?", ("X",))]


def test_popqa_table(tmp_path: Path) -> None:
    path = tmp_path / "test.tsv"
    path.write_text(
        'id\tprop\tquestion\tpossible_answers\n4222362\toccupation\tWhat is it?\t"[""politician"", ""pol""]"\n'
    )
    assert short(load_questions(path)) == [("popqa/test/0", "What is it?", ("politician", "pol"))]


def test_triviaqa(tmp_path: Path) -> None:
    entry = {
        "Question": "Which?", "QuestionId": "tc_1",
        "Answer": {"Value": "Saturn V", "Aliases": ["Saturn 5", "Saturn V"], "NormalizedAliases": ["saturn 5"]},
    }  # fmt: skip
    path = whole(tmp_path / "unfiltered-web-dev.json", {"Data": [entry], "Domain": "Web"})
    assert short(load_questions(path)) == [("triviaqa/test/0", "Which?", ("Saturn V", "Saturn 5"))]


@pytest.mark.parametrize(
    "fields", [{"golden_answers": ["a"], "supporting": 5}, {"golden_answers": ["a"], "answer_aliases": True}]
)
def test_a_row_of_another_kind_is_told_with_its_place(tmp_path: Path, fields: dict[str, Any]) -> None:
    rows = [{"question": "Q?", "golden_answers": ["A"]}, {"question": "R?", **fields}]
    with pytest.raises(SeedBenchError, match=r"nq_test\.jsonl', row 2: it cannot be read as a question"):
        load_questions(lines(tmp_path / "nq_test.jsonl", rows))


def test_answers_that_are_numbers_or_lack_aliases(tmp_path: Path) -> None:
    rows = [{"question": "Q?", "golden_answers": 5}, {"Question": "R?", "Answer": {"Value": "x", "Aliases": None}}]
    found = load_questions(lines(tmp_path / "nq_test.jsonl", rows))
    assert short(found) == [("nq/test/0", "Q?", ("5",)), ("nq/test/1", "R?", ("x",))]


def test_bamboogle_table(tmp_path: Path) -> None:
    path = tmp_path / "Bamboogle Prerelease.csv"
    path.write_text('Question,Answer\n"Who, then?",James Madison\n')
    assert short(load_questions(path)) == [("bamboogle/test/0", "Who, then?", ("James Madison",))]


SEARCH_R1 = {
    "id": "dev_3", "question": "Who?", "golden_answers": ["X"], "data_source": "hotpotqa", "ability": "fact-reasoning",
    "prompt": [{"role": "user", "content": "..."}],
    "reward_model": {"style": "rule", "ground_truth": {"target": ["X"]}},
    "extra_info": {"split": "test", "index": 3},
}  # fmt: skip
VERL_AGENT = {
    "data_source": "searchR1_nq",
    "env_kwargs": {"ground_truth": {"target": ["Y", "Z"]}, "question": "When?", "data_source": "nq"},
    "extra_info": {"split": "train", "index": 12},
}


def _of_verl_agent(source: str, index: int, text: str) -> dict[str, Any]:
    asked = {"ground_truth": {"target": ["Y"]}, "question": text, "data_source": source}
    return {"data_source": f"searchR1_{source}", "env_kwargs": asked, "extra_info": {"split": "test", "index": index}}


def test_verl_agents_test_file_numbers_the_rows_of_all_sets_together(tmp_path: Path) -> None:
    sources = ("nq", "nq", "hotpotqa", "hotpotqa", "musique")
    rows = [_of_verl_agent(source, index, f"q{index}") for index, source in enumerate(sources)]
    found = load_questions(lines(tmp_path / "test.jsonl", rows))
    assert [question.id for question in found] == [
        "nq/test/0", "nq/test/1", "hotpotqa/dev/0", "hotpotqa/dev/1", "musique/dev/0",
    ]  # fmt: skip
    sample = load_questions(lines(tmp_path / "test.jsonl", [rows[1], rows[3]]))
    assert [question.id for question in sample] == ["nq/test/1", "hotpotqa/dev/3"]


def test_parquet_of_search_r1_and_verl_agent(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for name, row in (("test", SEARCH_R1), ("train", VERL_AGENT)):
        parquet.write_table(arrow.Table.from_pylist([row]), tmp_path / f"{name}.parquet")
    assert short(load_questions(tmp_path / "test.parquet")) == [("hotpotqa/dev/3", "Who?", ("X",))]
    assert short(load_questions(tmp_path / "train.parquet")) == [("nq/train/12", "When?", ("Y", "Z"))]


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("seedbench_envs.searchqa.rows.import_module", refuse)
    with pytest.raises(SeedBenchError, match="pip install pyarrow"):
        load_questions(tmp_path / "test.parquet")


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "nq.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(SeedBenchError, match="is no parquet file"):
        load_questions(tmp_path / "nq.parquet")


def test_questions_that_name_their_passages_are_a_split_of_their_own(tmp_path: Path) -> None:
    row = {"id": "x_1", "question": "Q?", "golden_answers": ["A"], "data_source": "musique", "supporting": ["7", 9]}
    (found,) = load_questions(lines(tmp_path / "dev.jsonl", [row]))
    assert (found.id, found.supporting) == ("musique/context/0", ("7", "9"))


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": "1", "contents": '"T"\ntext'}],
        [{"question": "Q?", "golden_answers": ["A"], "output": {"pred": "A"}}],
        [{"name": "x"}],
        [],
    ],
)
def test_other_files_hold_no_questions(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    assert load_questions(lines(tmp_path / "nq.jsonl", rows)) == []


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nq.jsonl"
    path.write_text('{"question": "a", "answer": ["b"]}\n\n{"question": \n')
    with pytest.raises(SeedBenchError, match="line 3: no JSON"):
        load_questions(path)
    path.write_text("[1]\n")
    with pytest.raises(SeedBenchError, match="line 1: expected a JSON object, not a list"):
        load_questions(path)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", gzip.compress(b"{}" * 50, mtime=0)[:20]])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / ("nq.jsonl.gz" if content[:2] == b"\x1f\x8b" else "nq.jsonl")
    path.write_bytes(content)
    with pytest.raises(SeedBenchError, match=f"cannot read '{path}'"):
        load_questions(path)


def test_a_set_without_a_name_is_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with pytest.raises(SeedBenchError, match="not of which set: give it a name with one of nq, triviaqa"):
        load_questions(lines(folder / "x.jsonl", [{"question": "a", "answer": ["b"]}]))


# ---- hashes and overlap --------------------------------------------------------------------------------------


def question(number: int, text: str, *answers: str, split: str = "test") -> Question:
    return Question(f"nq/{split}/{number}", text, answers or ("x",), "nq", split)


def test_a_content_hash_covers_id_question_answers_and_passages() -> None:
    base = Question("nq/test/0", "q", ("a", "b"), "nq", "test")
    others = [
        Question("nq/test/1", "q", ("a", "b"), "nq", "test"),
        Question("nq/test/0", "q?", ("a", "b"), "nq", "test"),
        Question("nq/test/0", "q", ("ab",), "nq", "test"),
        Question("nq/test/0", "q", ("a", "b"), "nq", "test", ("1",)),
    ]
    assert len({content_hash(q) for q in (base, *others)}) == 5
    # Worked out with sha256sum.
    assert content_hash(base).startswith("886f1bff7484229a")


def test_questions_that_train_and_test_share() -> None:
    train = [question(0, "Who wrote the Iliad?", split="train"), question(1, "when was it", split="train")]
    test = [question(0, "who wrote Iliad"), question(1, "When was she?")]
    assert shared_questions(train, test) == [test[0]]
    assert question_group(train[0]) == question_group(test[0]) != question_group(test[1])


# ---- the store -----------------------------------------------------------------------------------------------


def test_stored_questions_come_back_as_they_were(tmp_path: Path) -> None:
    kept = [
        Question("nq/test/7", "Was “é” 𝄞?", ("a", "b"), "nq", "test"),
        Question("nq/test/2", "second", ("c",), "nq", "test"),
        Question("popqa/context/0", "third", ("d",), "popqa", "context", ("4", "5")),
    ]
    store_questions(tmp_path, kept)
    stored = Questions(tmp_path / "questions")
    assert stored.sets() == [("nq", "test"), ("popqa", "context")]
    assert list(stored.values()) == kept
    assert len(stored) == 3
    for name in ("nq/test/1", "nq/test", "../test/7", "nq/../7", "nq/test/7/8", "", "x/y/z", "nq\0/test/7"):
        assert name not in stored


def test_a_damaged_store_says_so(tmp_path: Path) -> None:
    store_questions(tmp_path, [question(0, "q")])
    (file,) = (tmp_path / "questions").iterdir()
    file.write_bytes(file.read_bytes()[:-12])
    with pytest.raises(SeedBenchError, match="are damaged"):
        Questions(tmp_path / "questions")["nq/test/0"]


@pytest.fixture
def empty_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEEDBENCH_DATA", str(tmp_path / "store"))
    return tmp_path / "store"


def rows(count: int, split: str = "test", first: int = 0) -> list[dict[str, Any]]:
    return [
        {"id": f"{split}_{n}", "question": f"question {n}?", "golden_answers": [f"answer {n}"]}
        for n in range(first, first + count)
    ]


def test_importing_reports_what_is_whole_and_what_is_not(tmp_path: Path, empty_store: Path) -> None:
    source = tmp_path / "files"
    lines(source / "bamboogle" / "test.jsonl", rows(125))
    lines(source / "nq" / "test.jsonl.gz", rows(3))
    lines(source / "nq" / "part" / "nq_test.jsonl", rows(2))
    lines(source / "nq" / "train.jsonl", rows(4, "train", first=2))
    lines(source / "corpus" / "passages.jsonl", [{"id": "1", "contents": '"Oslo"\nA city.'}])
    (source / "README.md").write_text("read me")
    said: list[str] = []
    import_folder(source, said.append)
    text = "\n".join(said)
    assert "Bamboogle test: all 125 questions" in said
    assert "NQ test: PARTIAL, 3 of 3,610 questions" in said
    assert "NQ train: PARTIAL, 4 of 79,168 questions" in said
    assert f"not imported: {source / 'nq' / 'part' / 'nq_test.jsonl'}" in text
    assert "NQ test: 1 of 3 questions are also train questions" in said
    stored = questions()
    assert Counter((q.source, q.split) for q in stored.values()) == {
        ("bamboogle", "test"): 125, ("nq", "test"): 3, ("nq", "train"): 4,
    }  # fmt: skip
    assert (index_folder() / "manifest.json").is_file()
    assert [path.name for path in (empty_store / "searchqa" / "panels").iterdir()] == ["searchqa--nq-train@1.jsonl.gz"]


def test_a_corpus_is_replaced_by_another(tmp_path: Path, empty_store: Path) -> None:
    from seedbench_envs.searchqa.library import open_engine, stored_passages

    for title in ("Oslo", "Bergen"):
        lines(tmp_path / "files" / "passages.jsonl", [{"id": "1", "contents": f'"{title}"\nA city.'}])
        import_folder(tmp_path / "files", lambda line: None)
        assert [hit.passage.title for hit in open_engine("native").search(["city"], 3)[0]] == [title]
        assert stored_passages()[0].title == title
    said: list[str] = []
    import_folder(tmp_path / "files", said.append)
    assert said == [f"the corpus {tmp_path / 'files' / 'passages.jsonl'} is in the store"]


def test_a_large_corpus_is_left_to_an_index_of_its_own(
    tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seedbench_envs.searchqa.importing.MOST_PASSAGES", 1)
    lines(tmp_path / "files" / "wiki.jsonl", [{"id": str(n), "contents": '"T"\nx'} for n in range(2)])
    said: list[str] = []
    import_folder(tmp_path / "files", said.append)
    assert "has more than 1 passages" in said[0]
    assert "seedbench index build" in said[0]


def test_importing_nothing_is_an_error(tmp_path: Path, empty_store: Path) -> None:
    (tmp_path / "files").mkdir()
    with pytest.raises(SeedBenchError, match="holds no Search-QA questions or passages"):
        import_folder(tmp_path / "files", lambda line: None)
    with pytest.raises(SeedBenchError, match="has no Search-QA questions"):
        questions()


# ---- the real files ------------------------------------------------------------------------------------------


def test_the_real_files_have_the_official_counts() -> None:
    if not (REAL / "MANIFEST.csv").is_file():
        pytest.skip("the question sets (../shared/data/searchqa) are not here")
    counts: Counter[tuple[str, str]] = Counter()
    for path in sorted(REAL.glob("*/*.jsonl.gz")):
        if path.parent.name not in ("corpus", "transcripts"):
            counts.update((q.source, q.split) for q in load_questions(path))
    whole_sets = {
        ("nq", "test"),
        ("hotpotqa", "dev"),
        ("2wikimultihopqa", "dev"),
        ("musique", "dev"),
        ("bamboogle", "test"),
    }
    assert {key for key, n in counts.items() if n == official_count(*key)} == whole_sets
    assert {key: n for key, n in counts.items() if key not in whole_sets} == {
        ("2wikimultihopqa", "alias"): 200, ("2wikimultihopqa", "context"): 700, ("hotpotqa", "context"): 782,
        ("musique", "context"): 300, ("popqa", "context"): 1000, ("popqa", "test"): 1000,
        ("triviaqa", "dev"): 200, ("triviaqa", "test"): 1000,
    }  # fmt: skip


def test_official_counts_add_up() -> None:
    assert sum(info.count for info in SETS.values()) == 51_713
    assert [source for source, info in SETS.items() if info.in_domain] == ["nq", "hotpotqa"]
    assert official_count("nq", "dev") == 0

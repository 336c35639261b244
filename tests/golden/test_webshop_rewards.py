"""The reward against 12,297 recordings of the original's, every part; and the ceiling that its colour rule sets.

Skipped where the official data is not at hand.
"""

import gzip
import json
from collections import Counter
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from seedbench_envs.webshop.build import import_files
from seedbench_envs.webshop.catalogue import StoredCatalogue
from seedbench_envs.webshop.loading import find_sources
from seedbench_envs.webshop.reward import Reward, reward

pytestmark = pytest.mark.real_data

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "webshop"
KIND_OF = {"synthetic": "goal", "human": "human"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> StoredCatalogue:
    if not (DATA / "golden" / "rewards.jsonl.gz").is_file():
        pytest.skip("the official products and recordings (../shared/data/webshop) are not here")
    return import_files(find_sources(DATA), tmp_path_factory.mktemp("shop"))[0]


@lru_cache(maxsize=1)
def recorded() -> list[dict[str, Any]]:
    with gzip.open(DATA / "golden" / "rewards.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def earned(shop: StoredCatalogue, row: dict[str, Any], *, fix_colours: bool = False) -> Reward:
    goal, product = shop.goal(f"{KIND_OF[row['goal_set']]}/{row['goal']}"), shop.product(row["asin"])
    return reward(product, goal, product.price, row["options"], fix_colours=fix_colours)


def exact(shop: StoredCatalogue, *, fix_colours: bool = False) -> list[Reward]:
    """For every synthetic goal, the reward of its own product with exactly its options."""
    found = []
    for goal in map(shop.goal, shop.goal_ids()):
        assert not isinstance(goal.options, tuple)
        product = shop.product(goal.asin)
        found.append(reward(product, goal, product.price, goal.options, fix_colours=fix_colours))
    return found


def test_every_part_of_every_recorded_reward_is_equal(shop: StoredCatalogue) -> None:
    assert len(recorded()) == 12297
    for row in recorded():
        assert earned(shop, row) == Reward(
            row["reward"], row["r_type"], row["r_att"], row["r_option"], row["r_price"], row["title_score"],
            row["query_match"], row["category_match"],
        ), row  # fmt: skip


def test_the_recordings_cover_every_value_that_the_type_part_can_have(shop: StoredCatalogue) -> None:
    assert set(Counter(row["r_type"] for row in recorded())) == {0.0, 0.1, 0.5, 1.0}
    assert {row["r_price"] for row in recorded()} == {True, False}
    assert {row["goal_set"] for row in recorded()} == set(KIND_OF)


def test_458_goals_cannot_be_reached_because_of_the_colour_rule_and_no_other(shop: StoredCatalogue) -> None:
    rewards = exact(shop)
    below = [found for found in rewards if found.total < 1]
    assert (len(rewards), len(below)) == (6910, 458)
    assert round(fmean(found.total for found in rewards), 5) == 0.98961
    assert round(min(found.total for found in rewards), 5) == 0.66667
    assert all(found.r_type == found.attribute == 1 and found.price for found in below)
    assert all(found.option is not None and found.option < 1 for found in below)


def test_with_colours_mended_every_goal_is_reached(shop: StoredCatalogue) -> None:
    assert sum(found.total < 1 for found in exact(shop, fix_colours=True)) == 0


def test_mending_colours_lowers_no_reward_and_changes_nothing_but_options(shop: StoredCatalogue) -> None:
    for row in recorded():
        mended = earned(shop, row, fix_colours=True)
        assert mended.total >= row["reward"], row
        assert (mended.r_type, mended.attribute, mended.price) == (row["r_type"], row["r_att"], row["r_price"])
        assert mended.option == row["r_option"] or mended.option > row["r_option"]  # None where there are none

"""The stored catalogue: prices and goals by their definition, the file on disk, hashes, damage, other processes."""

import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import product as combine
from pathlib import Path
from random import Random
from typing import Any

import pytest

from seedbench.errors import SeedBenchError
from seedbench_envs.webshop import goals as goals_module
from seedbench_envs.webshop.build import build_catalogue, import_files
from seedbench_envs.webshop.catalogue import FILE, StoredCatalogue, open_catalogue
from seedbench_envs.webshop.loading import LoadReport, find_sources, load_products
from seedbench_envs.webshop.prices import draw_cap, draw_price, price_amounts, price_text
from seedbench_envs.webshop.records import Product
from tests.envs.shop_files import SHELVES, loaded, no_nouns, raw, values, write_files


@pytest.fixture
def shop(tmp_path: Path) -> StoredCatalogue:
    return import_files(write_files(tmp_path / "files"), tmp_path / "shop")[0]


def test_price_fields_and_what_pages_show() -> None:
    shown = {
        "": "$100.0",
        "$12.50": "$12.5",
        "$1,000": "$1000.0",
        "$10.00 to $20.00": "$10.0 to $20.0",
        "$1$2$3": "$1.0 to $2.0",
    }
    assert {text: price_text(price_amounts(text)) for text in shown} == shown
    with pytest.raises(ValueError, match="no price"):
        price_amounts("12.50")


def test_only_ranges_and_caps_are_drawn() -> None:
    class NoDice(Random):
        def random(self) -> float:
            raise AssertionError("drawn")

    assert draw_price((12.5,), NoDice()) == 12.5
    assert all(10 <= draw_price((10.0, 20.0), Random(seed)) <= 20 for seed in range(50))
    assert draw_cap(980.0, NoDice()) == draw_cap(5000.0, NoDice()) == 1_000_000
    assert {draw_cap(975.0, Random(seed)) for seed in range(9)} == {990.0}
    drawn = Counter(draw_cap(10.0, Random(seed)) for seed in range(600))
    # The larger of two of 20, 30, 40, 50: in 1, 2 and 3 of the 6 pairs.
    assert set(drawn) == {30.0, 40.0, 50.0}
    assert drawn[30.0] < drawn[40.0] < drawn[50.0]


def expected_goals(shop: StoredCatalogue) -> list[tuple[str, str, dict[str, str], float, float]]:
    """Goals by their definition: everything in one list, then the shuffle. `shop` gives prices and caps' order."""
    dice = Random(42)
    prices = {item.asin: draw_price(price_amounts(entry["pricing"]), dice)
              for item, entry in zip(shop.products(), SHELVES, strict=True)}  # fmt: skip
    made = []
    counts: Counter[str] = Counter()
    for item in shop.products():
        if not item.instruction:
            continue
        cap = draw_cap(prices[item.asin], dice)
        names = sorted(item.options)
        for chosen in combine(*(item.options[name] for name in names)):
            options = dict(zip(names, chosen, strict=True))
            text = item.instruction
            if options:
                text += " with " + ", and ".join(f"{name}: {value}" for name, value in options.items())
            if cap < 1_000_000:
                text += f", and price lower than {cap:.2f} dollars"
            made.append((item, text, options, cap))
            counts.update(item.instruction_attributes)
    goals = [
        (item.asin, text, options, cap,
         sum(1 / counts[word] for word in item.instruction_attributes) / len(item.instruction_attributes))
        for item, text, options, cap in made
    ]  # fmt: skip
    Random(233).shuffle(goals)
    return goals


def test_synthetic_goals_follow_their_definition(shop: StoredCatalogue) -> None:
    found = [shop.goal(goal) for goal in shop.goal_ids()]
    assert [
        (goal.asin, goal.instruction, goal.options, goal.price_upper, goal.weight) for goal in found
    ] == expected_goals(shop)
    # Four combinations, none for the product with an empty option, one each for those without options.
    assert Counter(goal.asin for goal in found) == {"B000000001": 4, "B000000004": 1, "B000000005": 1}
    without_cap = [goal for goal in found if goal.price_upper == 1_000_000]
    assert {goal.instruction for goal in without_cap} == {"Find me 4", "Find me 5"}


def test_human_goals_are_drawn_as_if_there_were_no_synthetic_ones(shop: StoredCatalogue) -> None:
    dice = Random(42)
    price = dice.uniform(10, 20)  # the only range
    caps = [draw_cap(price, dice) for _ in range(2)]
    texts = [
        f"{text}, and price lower than {cap:.2f} dollars"
        for text, cap in zip(("a cup", "another cup"), caps, strict=True)
    ]
    Random(233).shuffle(texts)
    found = [shop.goal(goal) for goal in shop.goal_ids("human")]
    assert [goal.instruction for goal in found] == texts
    assert {goal.options for goal in found} == {("red",), ()}
    assert {goal.weight for goal in found} == {1.0}
    assert shop.product("B000000002").price == price


def test_more_goals_than_any_real_catalogue_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = {f"Option {number}": values(*"abcdefghij") for number in range(30)}
    sources = write_files(tmp_path / "files", [raw("B000000001", customization_options=wide)])
    with pytest.raises(SeedBenchError, match="combine to more than 100,000,000 goals"):
        import_files(sources, tmp_path / "shop")
    monkeypatch.setattr(goals_module, "MOST_GOALS", 5)
    with pytest.raises(SeedBenchError, match="combine to more than 5 goals"):
        import_files(write_files(tmp_path / "files"), tmp_path / "shop")


def test_what_is_stored_is_what_was_loaded(shop: StoredCatalogue, tmp_path: Path) -> None:
    sources = find_sources(tmp_path / "files", "full")
    held = list(load_products(sources, Random(42), no_nouns, LoadReport()))
    assert list(shop.products()) == held
    assert [shop.product(item.asin) for item in held] == held
    assert list(shop.asins) == [item.asin for item in held]
    assert (len(shop), shop.asins[-1], shop.asins[1:3]) == (5, "B000000005", ("B000000002", "B000000003"))
    assert [list(shop.of_category(name)) for name in ("garden", "beauty", "Garden")] == [
        ["B000000001", "B000000002", "B000000004", "B000000005"], ["B000000003"], [],
    ]  # fmt: skip
    assert list(shop.of_query("cups")) == ["B000000002"]
    assert len(shop.of_query("mugs")) == 4
    assert shop.info.fallback_nouns == 5
    assert "the nouns of 5 titles are not known" in shop.info.report[-1]


@pytest.mark.parametrize("asin", ["", "B00000000", "B0000000010", "b000000001", "B000000001\0", "Ä", "B000000009"])
def test_an_unknown_asin_is_a_key_error(shop: StoredCatalogue, asin: str) -> None:
    with pytest.raises(KeyError):
        shop.product(asin)


@pytest.mark.parametrize(
    "goal",
    [
        "",
        "goal",
        "goal/",
        "goal/6",
        "goal/-1",
        "goal/00",
        "goal/1 ",
        "goal/²",
        "goal/١",
        "human/2",
        "other/0",
        "goal/0/0",
    ],
)
def test_an_unknown_goal_is_a_key_error(shop: StoredCatalogue, goal: str) -> None:
    with pytest.raises(KeyError):
        shop.goal(goal)


def test_goal_ids_count_and_slice_like_a_list(shop: StoredCatalogue) -> None:
    assert list(shop.goal_ids()) == [f"goal/{number}" for number in range(6)]
    assert shop.goal_ids()[4:] == ("goal/4", "goal/5")
    assert shop.goal_ids("human")[-1] == "human/1"
    assert shop.counts() == {"goal": 6, "human": 2}
    with pytest.raises(KeyError):
        shop.goal_ids("other")


def test_texts_of_any_kind_survive(tmp_path: Path) -> None:
    odd = 'é日本🙂\u2028\x00\\"\ud800 \xa0'
    entry = raw("B1", name=odd, category=odd, full_description=odd, customization_options={odd: values("é\xa0/🙂")})
    held, report = loaded([entry])
    build_catalogue(tmp_path, held, {}, Random(0), report)
    found = open_catalogue(tmp_path)
    assert found.product("B1") == held[0]
    assert list(found.of_category(odd)) == ["B1"]
    found.verify()


def test_hashes_depend_on_content_and_on_nothing_else(shop: StoredCatalogue, tmp_path: Path) -> None:
    again, _ = import_files(find_sources(tmp_path / "files", "full"), tmp_path / "again")
    assert again.hash == shop.hash
    assert [again.task_hash(goal) for goal in again.goal_ids()] == [shop.task_hash(goal) for goal in shop.goal_ids()]
    assert len({shop.task_hash(goal) for goal in (*shop.goal_ids(), *shop.goal_ids("human"))}) == 8
    changes: dict[str, list[Any]] = {
        "order": [SHELVES[1], SHELVES[0], *SHELVES[2:]],
        "text": [*SHELVES[:4], {**SHELVES[4], "full_description": "Another mug."}],
        "price": [*SHELVES[:4], {**SHELVES[4], "pricing": "$986"}],
    }
    for name, shelves in changes.items():
        other, _ = import_files(write_files(tmp_path / name, shelves), tmp_path / name)
        assert other.hash != shop.hash, name
        # A goal is of its shop: another product on the shelf is another task.
        assert other.task_hash("goal/0") != shop.task_hash("goal/0"), name
    nouns, _ = import_files(find_sources(tmp_path / "files", "full"), tmp_path / "nouns", lambda title: ("mug",), "me")
    assert nouns.hash != shop.hash
    assert (nouns.info.nouns_from, nouns.info.fallback_nouns) == ("me", 0)


def test_a_file_that_is_cut_off_anywhere_or_of_another_version_is_refused(
    shop: StoredCatalogue, tmp_path: Path
) -> None:
    whole = (tmp_path / "shop" / FILE).read_bytes()
    torn = tmp_path / "torn"
    torn.mkdir()
    for length in (*range(0, len(whole), 97), len(whole) - 1):
        (torn / FILE).write_bytes(whole[:length])
        with pytest.raises(SeedBenchError, match=r"is no whole catalogue .*seedbench data fetch"):
            open_catalogue(torn)
    (torn / FILE).write_bytes(whole.replace(b'{"format": 1,', b'{"format": 2,'))
    with pytest.raises(SeedBenchError, match="is a catalogue of version 2, expected 1"):
        open_catalogue(torn)
    with pytest.raises(SeedBenchError, match=r"no WebShop catalogue in .*seedbench data fetch"):
        open_catalogue(tmp_path / "nowhere")


def test_a_damaged_record_is_found_by_verify_and_is_an_error_when_read(shop: StoredCatalogue, tmp_path: Path) -> None:
    content = bytearray((tmp_path / "shop" / FILE).read_bytes())
    broken = tmp_path / "broken"
    broken.mkdir()
    content[8:40] = bytes(32)  # the first record follows the magic
    (broken / FILE).write_bytes(content)
    damaged = open_catalogue(broken)
    with pytest.raises(SeedBenchError, match="is damaged"):
        damaged.product("B000000001")
    with pytest.raises(SeedBenchError, match="is damaged"):
        damaged.verify()
    content = bytearray((tmp_path / "shop" / FILE).read_bytes())
    at = content.index(b"lower than")  # in a human goal
    content[at] ^= 1
    (broken / FILE).write_bytes(content)
    with pytest.raises(SeedBenchError, match="its content does not have its hash"):
        open_catalogue(broken).verify()
    shop.verify()


def test_a_new_build_replaces_the_file_and_leaves_open_ones_alone(shop: StoredCatalogue, tmp_path: Path) -> None:
    assert open_catalogue(tmp_path / "shop") is shop
    other, _ = import_files(write_files(tmp_path / "more", [raw("B000000009")], {}, {}), tmp_path / "shop")
    assert list(other.asins) == ["B000000009"]
    assert other.counts() == {"goal": 0, "human": 0}
    assert next(shop.products()).asin == "B000000001"
    assert [path.name for path in (tmp_path / "shop").iterdir()] == [FILE]


def test_a_build_that_fails_keeps_the_catalogue_that_was_there(shop: StoredCatalogue, tmp_path: Path) -> None:
    def breaking() -> Iterable[Product]:
        yield from shop.products()
        raise OSError(28, "No space left on device")

    with pytest.raises(SeedBenchError, match=r"cannot write a catalogue .*: No space left on device"):
        build_catalogue(tmp_path / "shop", breaking(), {}, Random(0), LoadReport())
    assert [path.name for path in (tmp_path / "shop").iterdir()] == [FILE]
    assert open_catalogue(tmp_path / "shop") is shop
    with pytest.raises(SeedBenchError, match="needs at least one product"):
        build_catalogue(tmp_path / "shop", [], {}, Random(0), LoadReport())
    with pytest.raises(SeedBenchError, match="cannot write a catalogue"):
        build_catalogue(tmp_path / "shop" / FILE / "below", shop.products(), {}, Random(0), LoadReport())


def test_other_processes_see_the_same_catalogue(shop: StoredCatalogue, tmp_path: Path) -> None:
    code = (
        "import sys, pickle, json; shop = pickle.loads(bytes.fromhex(sys.argv[1]));"
        "print(json.dumps([shop.hash, shop.task_hash('goal/3'), shop.product('B000000002').price]))"
    )
    call = [sys.executable, "-c", code, pickle.dumps(shop).hex()]
    done = subprocess.run(call, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": "7"})
    assert json.loads(done.stdout) == [shop.hash, shop.task_hash("goal/3"), shop.product("B000000002").price]

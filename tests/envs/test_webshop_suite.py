"""The WebShop suite: panels and their splits, engines, and what the store holds."""

import hashlib
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.panels import Panel, data_problems, must_not_overlap, overlaps, read_panel
from seedbench.types import Task
from seedbench_envs.mini.shop import generate_shop
from seedbench_envs.webshop import library
from seedbench_envs.webshop.catalogue import FILE, StoredCatalogue
from seedbench_envs.webshop.env import WebShopEnv
from seedbench_envs.webshop.library import document, open_shop, open_stored, shop_folder
from seedbench_envs.webshop.nouns import BUILT, Spans, shipped_spans
from seedbench_envs.webshop.session import Shop
from seedbench_envs.webshop.splits import (
    MOST_PER_PRODUCT,
    PAIRS,
    TEST_GOALS,
    disjoint_products,
    panels_of,
    product_group,
    split_goals,
)
from seedbench_envs.webshop.suite import MINI, OFFICIAL_FILES, SUITE, WebShopSuite
from tests.envs.tiny_shop import product

FILES = Path(__file__).resolve().parents[3] / "shared" / "data" / "webshop"
PANELS = Path(str(SUITE.resources)) / "panels"
SUITES = {"webshop": SUITE, "mini-webshop": MINI}
SPLITS = ("test", "train", "test-disjoint", "train-disjoint", "human")


@pytest.fixture(scope="module")
def mini(store: Path) -> StoredCatalogue:
    return open_stored("mini")


@pytest.fixture(scope="module")
def official(store: Path) -> StoredCatalogue:
    if not (FILES / "items_shuffle_1000.json.gz").is_file():
        pytest.skip("the official products (../shared/data/webshop) are not here")
    if not (shop_folder("official") / FILE).is_file():
        SUITE.fetch(FILES, lambda line: None)
    return open_stored("official")


def shipped(suite: str, split: str) -> Panel:
    return read_panel(PANELS / f"{suite}--{split}@1.jsonl.gz")


# ---- panels --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", SUITES)
def test_shipped_panels_cut_the_goals_in_two_ways(suite: str) -> None:
    panels = {split: shipped(suite, split) for split in SPLITS}
    for split, panel in panels.items():
        assert panel.name == f"{suite}/{split}@1"
        assert (panel.suite, panel.split, panel.official) == (suite, split, suite == "webshop")
        assert {task.family for task in panel.tasks} <= set(SUITES[suite].families)
    ids = {split: [task.id for task in panel.tasks] for split, panel in panels.items()}
    assert ids["test"] == [f"goal/{index}" for index in range(500)]
    assert ids["train"] == [f"goal/{index}" for index in range(500, 500 + len(ids["train"]))]
    for test, train in PAIRS:
        assert sorted(ids[test] + ids[train]) == sorted(ids["test"] + ids["train"])
        assert must_not_overlap(panels[test], panels[train])
        assert overlaps(panels[test], panels[train]) == []
    for split in SPLITS:
        for other in ("test-disjoint", "train-disjoint"):
            if not split.endswith("-disjoint"):
                assert not must_not_overlap(panels[split], panels[other])
    assert ids["human"] == [f"human/{index}" for index in range(len(ids["human"]))]
    assert 450 <= len(ids["test-disjoint"]) <= 500
    if suite == "webshop":
        assert (len(ids["train"]), len(ids["human"])) == (6410, 13)


def check_against(catalogue: StoredCatalogue, suite: WebShopSuite) -> None:
    """Every shipped task is the stored one, and the disjoint pair shares no product."""
    products = {}
    for split in SPLITS:
        panel = shipped(suite.name, split)
        assert data_problems(panel, dict(suite.content_hashes(panel))) == []
        goals = [catalogue.goal(task.id) for task in panel.tasks]
        assert [task.family for task in panel.tasks] == [goal.category for goal in goals]
        products[split] = {goal.asin for goal in goals}
    assert not products["test-disjoint"] & products["train-disjoint"]
    assert len(products["test-disjoint"]) > 80
    for split in SPLITS:
        panel = shipped(suite.name, split)
        named = {task.id: product_group(catalogue.goal(task.id).asin) for task in panel.tasks}
        assert panel.groups == (named if split.endswith("-disjoint") else {})
    assert products["test"] & products["train"]  # why there is an honest pair


def test_mini_panels_are_those_of_the_generated_shop(mini: StoredCatalogue) -> None:
    check_against(mini, MINI)
    rebuilt = panels_of("mini-webshop", mini, official=False)
    assert [panel.hash for panel in rebuilt] == [shipped("mini-webshop", panel.split).hash for panel in rebuilt]


@pytest.mark.real_data
def test_official_panels_are_those_of_the_official_files(official: StoredCatalogue) -> None:
    check_against(official, SUITE)
    goals = [official.goal(task.id) for task in shipped("webshop", "test").tasks]
    assert Counter(goal.category for goal in goals) == {
        "fashion": 393, "garden": 57, "beauty": 23, "electronics": 19, "grocery": 8,
    }  # fmt: skip
    train = {official.goal(task.id).asin for task in shipped("webshop", "train").tasks}
    products = {goal.asin for goal in goals}
    assert (len(products), len(products & train)) == (146, 127)


def test_disjoint_products_by_hand() -> None:
    names = sorted(map(str, range(40)), key=lambda name: hashlib.sha256(name.encode()).digest())
    # 24 x 20 = 480; then one that is too large for any panel, one that would make 501, and one that just fits.
    goals = dict.fromkeys(names[:24], 20)
    goals |= {names[24]: MOST_PER_PRODUCT + 1, names[25]: 21, names[26]: 20, names[27]: 1}
    shuffled = dict(sorted(goals.items()))
    assert disjoint_products(shuffled) == {*names[:24], names[26]}
    assert disjoint_products({"a": MOST_PER_PRODUCT, "b": MOST_PER_PRODUCT + 1}) == {"a"}


def test_split_goals_of_a_small_shop() -> None:
    asins = [f"P{index % 7}" for index in range(TEST_GOALS + 3)]
    found = split_goals(asins)
    assert found["test"] == list(range(500))
    assert found["train"] == [500, 501, 502]
    assert found["test-disjoint"] == []  # each product has over 25 goals
    assert found["train-disjoint"] == list(range(503))


def test_content_hashes_leave_out_unknown_tasks(mini: StoredCatalogue) -> None:
    tasks = (Task("goal/0", "garden", "test", "0" * 64), Task("goal/99999", "garden", "test", "1" * 64))
    held = MINI.content_hashes(Panel("x@1", "mini-webshop", "test", False, "", tasks))
    assert held == {"goal/0": mini.task_hash("goal/0")}


# ---- store ---------------------------------------------------------------------------------------------------


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEEDBENCH_DATA", str(tmp_path))
    return tmp_path


def test_without_the_official_files_every_door_says_what_to_do(empty: Path) -> None:
    for call in (open_shop, open_stored, lambda: SUITE.content_hashes(shipped("webshop", "test"))):
        with pytest.raises(SeedBenchError, match="seedbench data fetch webshop --from FOLDER"):
            call()
    status = SUITE.check()
    assert status.summary == ""
    assert len(status.problems) == 1
    assert "seedbench data fetch webshop --from FOLDER" in status.problems[0]


def test_fetch_names_the_files_to_download(empty: Path) -> None:
    with pytest.raises(SeedBenchError, match="by hand") as caught:
        SUITE.fetch(None, print)
    assert all(name in str(caught.value) for name in OFFICIAL_FILES)
    assert "`seedbench data fetch webshop --from FOLDER`" in str(caught.value)
    with pytest.raises(SeedBenchError, match="is no folder"):
        SUITE.fetch(empty / "nowhere", print)
    with pytest.raises(SeedBenchError, match=r"no items_shuffle_1000\.json"):
        SUITE.fetch(empty, print)
    assert not list(empty.rglob("*.bin"))


def test_a_damaged_file_leaves_the_imported_shop_as_it_was(empty: Path) -> None:
    source, store = empty / "source", empty / "store"
    products, ins, human = generate_shop(0, 1)
    sources = library.write_files(source, products, ins, human)
    for path, stem in ((sources.products, "items_shuffle_1000"), (sources.attributes, "items_ins_v2_1000")):
        path.rename(source / f"{stem}.json.gz")
    lines: list[str] = []
    library.import_official(source, lines.append)
    before = open_stored().hash
    assert lines[0] == "60 products of 60 entries"
    assert lines[-1].startswith("imported the 1k shop into ")
    (source / "items_shuffle_1000.json.gz").write_bytes(b"\x1f\x8bgone")
    with pytest.raises(SeedBenchError, match="items_shuffle_1000"):
        library.import_official(source, lines.append)
    assert open_stored().hash == before
    assert [path.name for path in shop_folder("official").parent.iterdir()] == ["1k"]
    assert not store.exists()
    assert SUITE.check().problems  # another shop than the panels'


def test_an_import_takes_the_nouns_that_the_build_step_left(empty: Path) -> None:
    source = empty / "source"
    products, ins, human = generate_shop(0, 1)
    sources = library.write_files(source, products, ins, human)
    sources.products.rename(source / "items_shuffle_1000.json.gz")
    sources.attributes.rename(source / "items_ins_v2_1000.json.gz")
    lines: list[str] = []
    library.import_official(source, lines.append)
    assert f"`python -m seedbench_envs.webshop.find_nouns {source}` finds them for the next import" in lines
    title = products[0]["name"]
    key = np.frombuffer(hashlib.sha256(title.encode()).digest()[:8], ">u8").astype(np.uint64)
    Spans(key, np.array([1], np.uint32), np.array([[0, 3]], np.uint16), "tagger 1").write(source / BUILT)
    library.import_official(source, lambda line: None)
    stored = open_stored()
    assert stored.product(products[0]["asin"]).nouns == (title[:3].lower(),)
    assert stored.info.nouns_from == f"{shipped_spans().made_with}; tagger 1"
    (source / BUILT).write_bytes(b"gone")
    with pytest.raises(SeedBenchError, match="holds no noun spans"):
        library.import_official(source, lambda line: None)


@pytest.mark.parametrize("part", ["catalogue.bin", "index/ids.npy"])
def test_a_damaged_generated_shop_is_found_and_generated_again(empty: Path, part: str) -> None:
    MINI.fetch(None, lambda line: None)
    whole = open_stored("mini").hash
    damaged = shop_folder("mini") / part
    damaged.write_bytes(damaged.read_bytes()[:-100])
    assert "`seedbench data fetch`" in MINI.check().problems[0]
    MINI.fetch(None, lambda line: None)
    assert open_stored("mini").hash == whole
    assert MINI.check().problems == ()


def test_importing_again_replaces_the_shop(empty: Path) -> None:
    hashes = []
    for seed in (0, 1):
        source = empty / f"source{seed}"
        sources = library.write_files(source, *generate_shop(seed, 1))
        sources.products.rename(source / "items_shuffle_1000.json.gz")
        sources.attributes.rename(source / "items_ins_v2_1000.json.gz")
        library.import_official(source, lambda line: None)
        shop = open_shop()
        hashes.append(open_stored().hash)
        first = shop.catalogue.asins[0]
        title = shop.catalogue.product(first).title
        assert first in [asin for asin, _ in shop.search.search(title)]
    assert hashes[0] != hashes[1]


def test_the_mini_shop_is_made_on_first_use_by_several_at_once(empty: Path) -> None:
    found: list[Shop] = []
    threads = [Thread(target=lambda: found.append(open_shop("mini"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len({len(shop.catalogue) for shop in found}) == 1
    folder = shop_folder("mini")
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert open_shop("mini") is open_shop("mini")


def test_mini_check_and_fetch(mini: StoredCatalogue) -> None:
    lines: list[str] = []
    MINI.fetch(None, lines.append)
    assert "generated by SeedBench" in lines[0]
    status = MINI.check()
    assert status.problems == ()
    assert "mini-webshop/test 500" in status.summary


def test_unknown_names() -> None:
    with pytest.raises(UsageError, match="did you mean 'official'"):
        open_shop("offical")
    with pytest.raises(UsageError, match="unknown size '10k'"):
        open_shop("official", "10k")
    with pytest.raises(UsageError, match="one size"):
        open_shop("mini", "1k")
    with pytest.raises(UsageError, match="unknown engine 'reference'"):
        MINI.make(shipped("mini-webshop", "test"), "reference")


def test_engine_that_mends_the_colour_rule(mini: StoredCatalogue) -> None:
    panel = shipped("mini-webshop", "test")
    fixed, native = MINI.make(panel, "fix-colours"), MINI.make(panel)
    assert isinstance(fixed, WebShopEnv)
    assert isinstance(native, WebShopEnv)
    assert (fixed.fix_colours, native.fix_colours) == (True, False)
    assert (fixed.identity(), native.identity()) == ({"rules": "fix-colours"}, {})


def test_engine_on_lucene_says_how_its_index_is_built(mini: StoredCatalogue) -> None:
    with pytest.raises(SeedBenchError, match=r"pyserini\.index\.lucene .* --index .*lucene-index`"):
        MINI.make(shipped("mini-webshop", "test"), "pyserini")
    lines = (shop_folder("mini") / "lucene-documents" / "documents.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(mini)
    last = mini.product(mini.asins[-1])
    assert json.loads(lines[-1]) == {"id": last.asin, "contents": document(last)}


def test_documents_are_what_upstream_indexes() -> None:
    lamp = product(
        "B000000001", "Red LAMP", description="All.", bullets=("Bright ", "x"),
        options={"color": ("red", "blue"), "size": ("1",)},
    )  # fmt: skip
    assert document(lamp) == "red lamp all. bright  color: red, blue, and size: 1"
    assert document(replace(lamp, description="", bullets=(), options={})) == "red lamp   "

"""Panels: files, hashes, subsets, and the comparison with the store."""

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbench.errors import SeedBenchError, UsageError
from seedbench.panels import (
    Panel,
    data_problems,
    load_panel,
    must_not_overlap,
    overlaps,
    read_panel,
    shipped,
    write_panel,
)
from seedbench.types import Task

UNSEEN = {"pick": 24, "look": 18, "clean": 31, "heat": 23, "cool": 21, "pick2": 17}


def panel(*tasks: Task, name: str = "mine/p@1", suite: str = "alfworld") -> Panel:
    return Panel(name, suite, "train", False, "2.1.2", tasks)


def task(number: int, family: str = "heat") -> Task:
    return Task(f"train/{family}-{number}", family, "train", f"{number * 7919 % 100003:064x}")


# What is shipped


@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("alfworld/train@1", 3553),
        ("alfworld/valid_seen@1", 140),
        ("alfworld/valid_unseen@1", 134),
        ("alfworld/valid_seen-put@1", 140),
        ("alfworld/valid_unseen-put@1", 134),
        ("mini-alfworld/train@1", None),
        ("mini-alfworld/valid_seen@1", None),
        ("mini-alfworld/valid_unseen@1", None),
        *(
            (f"mini-alfworld/{split}-{size}@1", n)
            for size in ("small", "medium")
            for split, n in (("train", 4800 if size == "small" else 600), ("valid_seen", 240), ("valid_unseen", 240))
        ),
    ],
)
def test_shipped_panels(name: str, n: int | None) -> None:
    loaded = read_panel(shipped()[name])
    assert loaded.name == name
    assert len(loaded.tasks) == n if n else len(loaded.tasks) >= 60
    assert loaded.official == name.startswith("alfworld/")
    assert loaded.suite == name.partition("/")[0]
    assert all(t.id.startswith(f"{loaded.split}/") and t.split == loaded.split for t in loaded.tasks)
    assert all(len(t.sha256) == 64 for t in loaded.tasks)


def test_families_of_valid_unseen_in_table_order() -> None:
    loaded = load_panel("alfworld/valid_unseen")
    assert loaded.families() == UNSEEN
    assert list(loaded.families()) == ["pick", "look", "clean", "heat", "cool", "pick2"]
    assert loaded.hash == load_panel("alfworld/valid_unseen@1").hash


def test_splits_of_a_suite_are_disjoint() -> None:
    for suite in ("alfworld", "mini-alfworld"):
        panels = [load_panel(f"{suite}/{split}") for split in ("train", "valid_seen", "valid_unseen")]
        for index, one in enumerate(panels):
            for other in panels[index + 1 :]:
                assert overlaps(one, other) == []


def test_unknown_panel_offers_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown panel 'alfworld/valid_unsen': did you mean 'alfworld/valid_unseen'"):
        load_panel("alfworld/valid_unsen")
    with pytest.raises(UsageError, match="unknown panel 'alfworld/valid_unseen@7'"):
        load_panel("alfworld/valid_unseen@7")
    with pytest.raises(UsageError, match=r"there is no panel file 'none.jsonl'"):
        load_panel("none.jsonl")


# Hash


def test_hash_covers_ids_contents_and_order_but_not_the_name() -> None:
    one, two = task(1), task(2)
    plain = panel(one, two).hash
    assert panel(one, two, name="other@3").hash == plain
    assert panel(two, one).hash != plain
    assert panel(one).hash != plain
    assert panel(replace(one, id="x"), two).hash != plain
    assert panel(replace(one, sha256="f" * 64), two).hash != plain


def test_hash_by_hand() -> None:
    # printf 'a\t00\nb\t11\n' | sha256sum
    expected = "2be9f4df063ac1b4fb64e9dad1b6a059"
    two = panel(Task("a", "heat", "train", "00"), Task("b", "heat", "train", "11"))
    assert two.hash[:32] == expected


# Subsets

tasks = st.lists(
    st.tuples(st.sampled_from(["pick", "heat", "look"]), st.integers(0, 10**6)), unique_by=lambda t: t[1], min_size=1
).map(lambda pairs: tuple(task(number, family) for family, number in pairs))


@given(tasks, st.integers(1, 40), st.integers(0, 10))
def test_limit_spreads_and_nests(all_tasks: tuple[Task, ...], limit: int, more: int) -> None:
    whole = panel(*all_tasks)
    part = whole.subset(limit=limit)
    assert len(part.tasks) == min(limit, len(all_tasks))
    assert [t for t in all_tasks if t in part.tasks] == list(part.tasks)  # the panel's order
    assert set(part.tasks) <= set(whole.subset(limit=limit + more).tasks)
    available, taken = Counter(t.family for t in all_tasks), Counter(t.family for t in part.tasks)
    for family, count in available.items():  # no family lags behind another while it has tasks left
        if taken[family] < count:
            assert taken[family] >= max(taken.values()) - 1


@given(tasks, st.integers(1, 5), st.randoms())
def test_limit_does_not_depend_on_order(all_tasks: tuple[Task, ...], limit: int, random: Any) -> None:
    shuffled = list(all_tasks)
    random.shuffle(shuffled)
    kept = {t.id for t in panel(*all_tasks).subset(limit=limit).tasks}
    assert {t.id for t in panel(*shuffled).subset(limit=limit).tasks} == kept


def test_limit_takes_the_smallest_content_hashes_of_every_family() -> None:
    whole = load_panel("alfworld/valid_unseen")
    hashes = {family: sorted(t.sha256 for t in whole.tasks if t.family == family) for family in UNSEEN}
    kept = {family: sorted(t.sha256 for t in whole.subset(limit=18).tasks if t.family == family) for family in UNSEEN}
    assert kept == {family: three[:3] for family, three in hashes.items()}


def test_subset_of_families() -> None:
    whole = load_panel("alfworld/valid_unseen")
    part = whole.subset(["look", "heat"])
    assert part.families() == {"look": 18, "heat": 23}
    assert part.name == "alfworld/valid_unseen@1[families=look,heat]"
    assert part.hash == whole.subset(["heat", "look"]).hash
    assert part.name == whole.subset(["heat", "look"]).name
    both = whole.subset(["look", "heat"], 5)
    assert both.name == "alfworld/valid_unseen@1[families=look,heat;limit=5]"
    assert Counter(t.family for t in both.tasks) == {"heat": 3, "look": 2}


def test_subset_that_is_the_whole() -> None:
    whole = load_panel("alfworld/valid_unseen")
    assert whole.subset() is whole
    assert whole.subset(limit=134) is whole
    assert whole.subset(limit=5000) is whole


@pytest.mark.parametrize("limit", [0, -3])
def test_limit_below_one_is_refused(limit: int) -> None:
    with pytest.raises(UsageError, match=f"the limit must be at least 1, not {limit}"):
        load_panel("alfworld/valid_unseen").subset(limit=limit)


def test_unknown_family_offers_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown family 'heet': did you mean 'heat'\?"):
        load_panel("alfworld/valid_unseen").subset(["heet"])


# Files


@pytest.mark.parametrize("name", ["p.jsonl", "p.jsonl.gz"])
def test_file_round_trip(tmp_path: Path, name: str) -> None:
    written = panel(task(1), task(2, "look"))
    write_panel(written, tmp_path / "new" / name)
    assert load_panel(str(tmp_path / "new" / name)) == written
    first = (tmp_path / "new" / name).read_bytes()
    write_panel(written, tmp_path / "new" / name)
    assert (tmp_path / "new" / name).read_bytes() == first


@pytest.mark.parametrize("name", ["mine", "mine@", "mine@one", "@1", "my panel@1", "mine@1[limit=2]", "mine[1]@1"])
def test_names_that_are_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="expected name@version"):
        write_panel(panel(task(1), name=name), tmp_path / "p.jsonl")
    assert not (tmp_path / "p.jsonl").exists()


def test_file_names_that_could_not_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ends in .jsonl or .jsonl.gz, not 'p.json'"):
        write_panel(panel(task(1)), tmp_path / "p.json")


def test_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SeedBenchError, match="cannot write"):
        write_panel(panel(task(1)), tmp_path / "file" / "p.jsonl")


HEADER = {"name": "mine/p", "version": 1, "suite": "alfworld", "split": "train", "official": False}
ROW = {"id": "a", "family": "heat", "sha256": "00"}


def lines(*rows: Any) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


NO_PANELS = [
    b"",
    b"\n",
    b"no json\n",
    b"\xff\xfe",
    b"\x1f\x8b",
    b"\x1f\x8b\x08\x00broken",
    gzip.compress(lines(HEADER, ROW), mtime=0)[:-12],
    gzip.compress(lines(HEADER, ROW), mtime=0)[:12] + b"\xff" * 40,
    lines([1, 2]),
    lines("header"),
    lines({**HEADER, "version": "one"}, ROW),
    lines({key: value for key, value in HEADER.items() if key != "suite"}, ROW),
    lines({**HEADER, "suite": 5}, ROW),
    lines({**HEADER, "dialect": ["2.1.2"]}, ROW),
    lines(HEADER, {"id": "a", "family": "heat"}),
    lines(HEADER, {**ROW, "id": 5}),
    lines(HEADER, {**ROW, "family": None}),
    lines(HEADER, {**ROW, "id": "\ud800"}),
    lines(HEADER, 5),
    lines(HEADER, ROW) + b"torn",
    b"[" * 200_000,
]


@pytest.mark.parametrize("content", NO_PANELS, ids=range(len(NO_PANELS)))
def test_files_that_are_no_panels(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p.jsonl").write_bytes(content)
    with pytest.raises(SeedBenchError, match=r"'p.jsonl' is not a panel file .*expected JSON lines"):
        load_panel(str(tmp_path / "p.jsonl"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lines(HEADER), "has no tasks"),
        (lines(HEADER, ROW, ROW), "lists a task twice"),
        (lines(HEADER, ROW, {**ROW, "id": "b"}), "lists a task twice"),
        (lines(HEADER, ROW, {**ROW, "sha256": "11"}), "lists a task twice"),
        (lines({**HEADER, "hash": "0" * 64}, ROW), "was changed"),
    ],
)
def test_panels_that_are_wrong(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "p.jsonl").write_bytes(content)
    with pytest.raises(SeedBenchError, match=reason):
        load_panel(str(tmp_path / "p.jsonl"))


def test_changed_content_of_a_written_panel_is_noticed(tmp_path: Path) -> None:
    write_panel(panel(task(1), task(2)), tmp_path / "p.jsonl")
    text = (tmp_path / "p.jsonl").read_text()
    (tmp_path / "p.jsonl").write_text(text.replace("heat-2", "heat-3"))
    with pytest.raises(SeedBenchError, match="was changed"):
        load_panel(str(tmp_path / "p.jsonl"))


# The store


def test_data_problems() -> None:
    whole = panel(*[task(n) for n in range(1, 7)])
    held = {t.id: t.sha256 for t in whole.tasks}
    assert data_problems(whole, {**held, "other": "x"}) == []
    short = {key: value for key, value in held.items() if key not in {"train/heat-1", "train/heat-2"}}
    assert data_problems(whole, short) == [
        "mine/p@1: 4 of 6 tasks are in the store; missing train/heat-1, train/heat-2"
    ]
    assert data_problems(whole, {}) == [
        "mine/p@1: 0 of 6 tasks are in the store; missing train/heat-1, train/heat-2, train/heat-3 and 3 more"
    ]
    assert data_problems(whole, {**held, "train/heat-4": "0" * 64}) == [
        "mine/p@1: the content of 1 tasks differs from the panel: train/heat-4"
    ]


def test_overlaps_by_id_and_by_content() -> None:
    first = panel(task(1), task(2))
    same_content = replace(task(2), id="elsewhere")
    same_id = replace(task(1), sha256="f" * 64)
    assert overlaps(first, panel(task(3))) == []
    assert overlaps(first, panel(same_content, task(3), same_id)) == ["elsewhere", "train/heat-1"]


# Partitions and groups


def test_only_splits_of_one_partition_must_not_overlap() -> None:
    train = panel(task(1))
    assert must_not_overlap(train, replace(train, split="test"))
    assert not must_not_overlap(train, train)
    for other in ({"partition": "disjoint"}, {"dialect": "2.1.1"}, {"suite": "mini-alfworld"}):
        assert not must_not_overlap(train, replace(train, split="test", **other))


def test_groups_keep_splits_apart_and_survive_the_file(tmp_path: Path) -> None:
    one, two, three = task(1), task(2), task(3)
    train = replace(panel(one, two), partition="disjoint", groups={one.id: "mug", two.id: "pan"})
    test = replace(panel(three), split="test", partition="disjoint", groups={three.id: "pan"})
    assert overlaps(train, test) == [three.id]
    assert overlaps(train, replace(test, groups={three.id: "pot"})) == []
    assert overlaps(train, replace(test, groups={})) == []
    write_panel(train, tmp_path / "p.jsonl.gz")
    read = read_panel(tmp_path / "p.jsonl.gz")
    assert (read.partition, dict(read.groups), read.hash) == ("disjoint", dict(train.groups), train.hash)

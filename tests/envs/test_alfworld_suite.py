"""The ALFWorld suites as the harness sees them: check, fetch, oracle, environments, and what is said of bad data."""

import gzip
import hashlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.evaluate import Evaluation, check_evaluation
from seedbench.panels import Panel, load_panel, must_not_overlap, overlaps, read_panel, shipped
from seedbench.policies.oracle import OraclePolicy
from seedbench.protocol import load_protocol
from seedbench.registry import get_suite, suite_names
from seedbench.types import Task
from seedbench_envs.alfworld.env import ALFWorldEnv
from seedbench_envs.alfworld.library import library, pack_path
from seedbench_envs.alfworld.pack import GamePack, write_pack
from seedbench_envs.alfworld.sources import family_of
from seedbench_envs.alfworld.suite import MINI, SUITE
from tests.envs.tiny_game import kitchen

TASK = "train/pick_and_place_simple-Apple-None-Shelf-1/trial_1"
DELIVER = """(exists (?o - object ?r - receptacle)
    (and (objectType ?o AppleType) (receptacleType ?r ShelfType) (inReceptacle ?o ?r)))"""


@pytest.fixture
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEEDBENCH_DATA", str(tmp_path / "own"))
    (tmp_path / "own" / "alfworld").mkdir(parents=True)
    (tmp_path / "own" / "mini-alfworld").mkdir(parents=True)
    return tmp_path / "own"


def drop(pack: Path, *tasks: str) -> None:
    connection = sqlite3.connect(pack)
    with connection:
        for task in tasks:
            assert connection.execute("DELETE FROM games WHERE task = ?", (task,)).rowcount == 1
    connection.close()


def job(panel: Panel, out: Path) -> Evaluation:
    suite = get_suite(panel.suite)
    return Evaluation(panel, load_protocol("alfworld/seed"), OraclePolicy(lambda t: suite.oracle(panel, t)), out)


def one_task_panel(content: bytes, dialect: str = "2.1.2") -> Panel:
    task = Task(TASK, "pick", "train", hashlib.sha256(content).hexdigest())
    return Panel("mine@1", "alfworld", "train", False, dialect, (task,))


def test_both_suites_are_registered_and_only_one_is_official() -> None:
    assert {"alfworld", "mini-alfworld"} <= set(suite_names())
    assert get_suite("alfworld") is SUITE
    assert get_suite("mini-alfworld") is MINI
    assert (SUITE.official, MINI.official) == (True, False)
    with pytest.raises(UsageError, match="unknown suite 'alfwrld': did you mean 'alfworld'"):
        get_suite("alfwrld")


# ---- panels as they are shipped ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "count", "dialect"),
    [("train", 3553, "2.1.2"), ("valid_seen", 140, "2.1.2"), ("valid_unseen", 134, "2.1.2"),
     ("valid_seen-put", 140, "2.1.1"), ("valid_unseen-put", 134, "2.1.1")],
)  # fmt: skip
def test_the_official_panels(name: str, count: int, dialect: str) -> None:
    panel = load_panel(f"alfworld/{name}")
    assert panel.name == f"alfworld/{name}@1"
    assert (len(panel.tasks), panel.official, panel.dialect) == (count, True, dialect)
    assert {task.split for task in panel.tasks} == {panel.split} == {name.removesuffix("-put")}
    for task in panel.tasks:
        assert task.id.startswith(f"{panel.split}/")
        assert task.family == family_of(task.id)
    assert [task.id for task in panel.tasks] == sorted(task.id for task in panel.tasks)


def test_the_official_families() -> None:
    unseen = load_panel("alfworld/valid_unseen")
    assert unseen.families() == {"pick": 24, "look": 18, "clean": 31, "heat": 23, "cool": 21, "pick2": 17}
    assert load_panel("alfworld/valid_unseen-put").families() == unseen.families()
    assert [t.id for t in load_panel("alfworld/valid_unseen-put").tasks] == [t.id for t in unseen.tasks]


@pytest.mark.parametrize(
    ("suite", "size"),
    [("alfworld", ""), ("mini-alfworld", ""), ("mini-alfworld", "-small"), ("mini-alfworld", "-medium")],
)
def test_no_two_splits_share_a_task(suite: str, size: str) -> None:
    panels = [load_panel(f"{suite}/{split}{size}") for split in ("train", "valid_seen", "valid_unseen")]
    for first in panels:
        for second in panels:
            assert must_not_overlap(first, second) == (first is not second)
            assert overlaps(first, second) == ([t.id for t in first.tasks] if first is second else [])


MINI_PANELS = [
    *(("train", "", 100), ("valid_seen", "", 20), ("valid_unseen", "", 20)),
    *(("train", "-small", 800), ("valid_seen", "-small", 40), ("valid_unseen", "-small", 40)),
    *(("train", "-medium", 100), ("valid_seen", "-medium", 40), ("valid_unseen", "-medium", 40)),
]


def test_the_mini_panels_are_the_generated_games(mini_store: Path) -> None:
    listed: dict[str, str] = {}
    for split, size, games in MINI_PANELS:
        panel = load_panel(f"mini-alfworld/{split}{size}")
        assert (panel.name, panel.split, panel.official) == (f"mini-alfworld/{split}{size}@1", split, False)
        assert panel.partition == size.removeprefix("-")
        assert panel.families() == dict.fromkeys(("pick", "look", "clean", "heat", "cool", "pick2"), games)
        assert [task.id for task in panel.tasks] == sorted(task.id for task in panel.tasks)
        mark = f"/trial_{panel.partition or 'mini'}_"
        held = MINI.content_hashes(panel)
        assert {t.id: t.sha256 for t in panel.tasks} == {
            task: sha256 for task, sha256 in held.items() if task.startswith(f"{split}/") and mark in task
        }
        listed |= {task.id: task.sha256 for task in panel.tasks}
    assert listed == MINI.content_hashes(load_panel("mini-alfworld/train"))
    status = MINI.check()
    assert status.problems == ()
    assert "mini-alfworld/valid_unseen@1" in status.summary


def test_a_damaged_shipped_panel_is_refused(tmp_path: Path) -> None:
    data = shipped()["alfworld/valid_unseen@1"].read_bytes()
    assert gzip.decompress(data).count(b"\n") == 135
    for damaged in (data[:-20], data[:400], data[:200] + bytes([data[200] ^ 255]) + data[201:]):
        (tmp_path / "x.jsonl.gz").write_bytes(damaged)
        with pytest.raises(SeedBenchError, match="is not a panel file"):
            read_panel(tmp_path / "x.jsonl.gz")


# ---- check and the check before an evaluation -------------------------------------------------------------


@pytest.mark.real_data
def test_132_of_134_games_are_noticed_and_the_two_are_named(
    official_games: Path, own_store: Path, tmp_path: Path
) -> None:
    pack = own_store / "alfworld" / "games-2.1.2.sqlite"
    shutil.copy(official_games / "alfworld" / pack.name, pack)
    panel = load_panel("alfworld/valid_unseen")
    check_evaluation(job(panel, tmp_path / "run"))
    lost = [panel.tasks[7].id, panel.tasks[100].id]
    drop(pack, *lost)
    expected = f"alfworld/valid_unseen@1: 132 of 134 tasks are in the store; missing {lost[0]}, {lost[1]}"
    assert SUITE.check().problems == (
        f"{expected}; run `seedbench data fetch alfworld` (or with `--from FILE|FOLDER`).",
    )
    with pytest.raises(SeedBenchError) as caught:
        check_evaluation(job(panel, tmp_path / "run"))
    assert str(caught.value) == f"{expected}. Fetch the data again: `seedbench data fetch alfworld`."
    assert not (tmp_path / "run").exists()
    # A subset without the two can be evaluated: it is compared with the store by itself.
    check_evaluation(job(panel.subset(limit=6), tmp_path / "run"))


def test_missing_and_changed_mini_games_are_noticed_and_made_again(
    mini_store: Path, own_store: Path, tmp_path: Path
) -> None:
    shutil.copytree(mini_store / "mini-alfworld", own_store / "mini-alfworld", dirs_exist_ok=True)
    pack, panel = pack_path("mini", "2.1.2"), load_panel("mini-alfworld/valid_unseen")
    assert pack.is_relative_to(own_store)
    lost, changed = panel.tasks[0].id, panel.tasks[5].id
    drop(pack, lost)
    write_pack(pack, [(changed, kitchen().file(DELIVER))])
    count = len(panel.tasks)
    missing = f"{panel.name}: {count - 1} of {count} tasks are in the store; missing {lost}"
    differs = f"{panel.name}: the content of 1 tasks differs from the panel: {changed}"
    mend = "; run `seedbench data fetch mini-alfworld`."
    assert MINI.check().problems == (missing + mend, differs + mend)
    with pytest.raises(SeedBenchError) as caught:
        check_evaluation(job(panel, tmp_path / "run"))
    assert str(caught.value) == f"{missing}; {differs}. Fetch the data again: `seedbench data fetch mini-alfworld`."
    lines: list[str] = []
    MINI.fetch(None, lines.append)
    assert MINI.check().problems == ()
    assert lines == ["the mini games are generated by SeedBench itself; they are in the store"]
    with pytest.raises(UsageError, match="without --from"):
        MINI.fetch(tmp_path, lines.append)


def test_an_empty_store_is_a_finding(own_store: Path) -> None:
    mend = "run `seedbench data fetch alfworld` (or with `--from FILE|FOLDER`)."
    status = SUITE.check()
    assert status.summary == ""
    assert status.problems == (f"the official games are not in the store; {mend}",)


def test_a_damaged_store_is_a_finding_and_not_a_crash(own_store: Path, tmp_path: Path) -> None:
    pack_path("official", "2.1.2").write_bytes(b"not a database at all")
    status = SUITE.check()
    assert len(status.problems) == 3
    assert all("is not a readable game store" in problem for problem in status.problems)
    with pytest.raises(SeedBenchError, match="is not a readable game store"):
        check_evaluation(job(load_panel("alfworld/valid_unseen"), tmp_path / "run"))


def test_a_damaged_mini_store_is_made_again_by_a_fetch(own_store: Path) -> None:
    from seedbench_envs.mini.generate import GENERATOR_VERSION

    pack = pack_path("mini", "2.1.2")
    pack.write_bytes(b"damaged")
    pack.with_name("generator-version").write_text(str(GENERATOR_VERSION))
    assert "is not a readable game store" in MINI.check().problems[0]
    MINI.fetch(None, lambda line: None)
    assert MINI.check().problems == ()


def test_mini_games_of_another_generator_are_made_again(own_store: Path) -> None:
    pack = pack_path("mini", "2.1.2")
    write_pack(pack, [(TASK, kitchen().file(DELIVER))])
    pack.with_name("generator-version").write_text("0")
    held = library("mini", "2.1.2").hashes()
    assert TASK not in held
    assert sorted(p.name for p in pack.parent.iterdir()) == [pack.name, "generator-version"]


# ---- fetch ------------------------------------------------------------------------------------------------


@pytest.mark.real_data
def test_a_folder_with_both_wordings_fills_both_stores(official_games: Path, own_store: Path, tmp_path: Path) -> None:
    task = load_panel("alfworld/valid_unseen").tasks[0].id
    for dialect in ("2.1.1", "2.1.2"):
        file = tmp_path / dialect / task / "game.tw-pddl"
        file.parent.mkdir(parents=True)
        file.write_bytes(GamePack(official_games / "alfworld" / f"games-{dialect}.sqlite").read(task))
    lines: list[str] = []
    SUITE.fetch(tmp_path, lines.append)
    assert lines == ["imported 1 games of dialect 2.1.2", "imported 1 games of dialect 2.1.1"]
    for dialect in ("2.1.1", "2.1.2"):
        assert library("official", dialect).read(task) == (tmp_path / dialect / task / "game.tw-pddl").read_bytes()


# ---- oracle and environments ------------------------------------------------------------------------------


def test_the_oracle_plays_the_stored_walkthrough_or_a_plan_of_its_own(own_store: Path) -> None:
    winning = ["go to countertop 1", "take apple 1 from countertop 1", "move apple 1 to shelf 1"]
    for stored, lengths in ((["look", *winning], {4}), (None, {3})):
        content = kitchen().file(DELIVER, walkthrough=stored)
        write_pack(pack_path("official", "2.1.2"), [(TASK, content)])
        panel = one_task_panel(content)
        plan = list(SUITE.oracle(panel, panel.tasks[0]))
        assert len(plan) in lengths
        assert stored in (None, plan)
        env = SUITE.make(panel)
        env.reset(options={"task": TASK})
        assert [env.step(command)[2] for command in plan] == [False] * (len(plan) - 1) + [True]


def test_the_oracle_says_where_it_knows_nothing(own_store: Path) -> None:
    content = kitchen().file("(isClean Book_bar_1)")  # books cannot be cleaned
    write_pack(pack_path("official", "2.1.2"), [(TASK, content)])
    panel = one_task_panel(content)
    with pytest.raises(SeedBenchError, match=f"no walkthrough is stored for {TASK} and the solver finds none"):
        SUITE.oracle(panel, panel.tasks[0])


def test_the_environment_has_the_panels_dialect_and_the_asked_for_engine(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEDBENCH_REFERENCE_PYTHON", "python-that-is-not-started")
    write_pack(pack_path("official", "2.1.2"), [(TASK, kitchen().file(DELIVER))])
    panel = one_task_panel(kitchen().file(DELIVER))
    native, reference = SUITE.make(panel), SUITE.make(panel, "reference")
    assert isinstance(native, ALFWorldEnv)
    assert (native.slow, reference.slow, native.dialect) == (False, True, "2.1.2")
    native.close()
    reference.close()
    with pytest.raises(UsageError, match="unknown engine 'natve': did you mean 'native'"):
        SUITE.make(panel, "natve")
    with pytest.raises(SeedBenchError, match=r"dialect 2\.1\.1\) are not in the store"):
        SUITE.make(one_task_panel(b"", "2.1.1"))

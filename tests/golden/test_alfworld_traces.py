"""The native ALFWorld engine against recordings of the reference engine, and against the official games.

The recordings come from alfworld 0.4.2 on TextWorld 1.7.0: the stored walkthrough and a seeded random play
(inadmissible commands among it) of evaluation and train games. Skipped where the official data is not at hand.
"""

import csv
import gzip
import hashlib
import json
import lzma
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from seedbench_envs.alfworld.engine import NOTHING, Engine
from seedbench_envs.alfworld.game import parse_game
from seedbench_envs.alfworld.library import library
from seedbench_envs.alfworld.solve import solve
from seedbench_envs.alfworld.sources import FAMILIES, family_of, task_id_of
from seedbench_envs.alfworld.suite import SUITE

pytestmark = [pytest.mark.real_data, pytest.mark.usefixtures("official_games")]

TASKS = {"train": 3553, "valid_seen": 140, "valid_unseen": 134, "valid_train": 200}
FAMILY_COUNTS = {
    "train": {"pick": 790, "look": 308, "clean": 650, "heat": 459, "cool": 533, "pick2": 813},
    "valid_seen": {"pick": 35, "look": 13, "clean": 27, "heat": 16, "cool": 25, "pick2": 24},
    "valid_unseen": {"pick": 24, "look": 18, "clean": 31, "heat": 23, "cool": 21, "pick2": 17},
    "valid_train": {"pick": 46, "look": 19, "clean": 37, "heat": 25, "cool": 28, "pick2": 45},
}


@lru_cache(maxsize=1)
def traces(folder: Path) -> list[dict[str, Any]]:
    with gzip.open(folder / "traces.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@lru_cache(maxsize=1)
def listing(folder: Path) -> list[dict[str, str]]:
    with lzma.open(folder / "games.csv.xz", "rt", encoding="utf-8", newline="") as rows:
        return list(csv.DictReader(rows))


def task_id(path: str) -> str:
    task = task_id_of(path)
    assert task is not None, path
    return task


def seen(engine: Engine, observation: str) -> dict[str, Any]:
    return {"observation": observation, "admissible": engine.admissible, "won": engine.won}


def test_the_recordings_hold_what_they_are_said_to_hold(official_files: Path) -> None:
    recorded = traces(official_files)
    assert Counter(trace["kind"] for trace in recorded) == {"walkthrough": 284, "random": 294}
    assert sum(len(trace["steps"]) for trace in recorded) == 5802
    inadmissible = [step for trace in recorded for step in trace["steps"] if step["observation"] == NOTHING]
    assert len(inadmissible) == 591


@pytest.mark.parametrize("split", ["train", "valid_seen", "valid_unseen"])
def test_every_recording_equals_the_native_engine_exactly(official_files: Path, split: str) -> None:
    games = library("official", "2.1.2")
    chosen = [trace for trace in traces(official_files) if f"/{split}/" in trace["game"]]
    for trace in chosen:
        engine = Engine(games.game(task_id(trace["game"])))
        assert seen(engine, engine.reset()) == trace["initial"], trace["game"]
        for number, step in enumerate(trace["steps"]):
            expected = {key: step[key] for key in ("observation", "admissible", "won")}
            where = (trace["game"], number, step["action"])
            admissible = step["action"].strip() in engine.admissible
            assert engine.is_admissible(step["action"]) is admissible, where
            assert seen(engine, engine.step(step["action"])) == expected, where
            assert (step["observation"] == NOTHING) is not admissible, where
    assert len(chosen) == {"train": 103, "valid_seen": 234, "valid_unseen": 241}[split]


@pytest.mark.parametrize("split", TASKS)
def test_every_walkthrough_wins_at_its_last_step_and_not_before(official_files: Path, split: str) -> None:
    games = library("official", "2.1.2")
    expected = {task_id(row["path"]): row for row in listing(official_files) if row["split"] == split}
    won = 0
    for task, row in expected.items():
        content = games.read(task)
        assert hashlib.sha256(content).hexdigest() == row["sha256"], task
        game = parse_game(content, task)
        assert game.instruction == row["task"], task
        assert game.walkthrough is not None, task
        assert len(game.walkthrough) == int(row["walkthrough_len"]), task
        engine = Engine(game)
        for command in game.walkthrough:
            assert not engine.won, task
            assert engine.is_admissible(command), (task, command)
            engine.step(command)
        won += engine.won
    assert won == TASKS[split]


def test_the_store_holds_the_published_numbers_of_games(official_files: Path) -> None:
    held = library("official", "2.1.2").hashes()
    assert held == {task_id(row["path"]): row["sha256"] for row in listing(official_files)}
    assert list(held) == sorted(held)
    counts: dict[str, Counter[str]] = {split: Counter() for split in TASKS}
    for task in held:
        counts[task.partition("/")[0]][family_of(task)] += 1
    assert counts == FAMILY_COUNTS
    assert {split: sum(count.values()) for split, count in counts.items()} == TASKS
    assert {FAMILIES[row["task_type"]] for row in listing(official_files)} == set(SUITE.families)


def test_the_suite_check_finds_nothing_to_mend() -> None:
    status = SUITE.check()
    assert status.problems == ()
    for part in ("train@1 3553", "valid_seen@1 140", "valid_unseen@1 134", "valid_seen-put@1 140"):
        assert f"alfworld/{part}" in status.summary


def test_games_of_the_older_wording_are_the_same_games_and_are_solved_by_the_solver() -> None:
    older, newer = library("official", "2.1.1"), library("official", "2.1.2")
    tasks = list(older.hashes())
    assert len(tasks) == 474
    assert set(tasks) <= set(newer.hashes())
    for task in tasks:
        game, other = older.game(task), newer.game(task)
        assert (game.dialect, other.dialect) == ("2.1.1", "2.1.2")
        assert game.walkthrough is None
        assert game.instruction == other.instruction, task
        plan = solve(game)
        assert plan is not None, task
        engine = Engine(game)
        for command in plan:
            assert not engine.won, task
            assert engine.is_admissible(command), (task, command)
            engine.step(command)
        assert engine.won, task
        # Nothing is shorter than the solver's plan, so it cannot be longer than the walkthrough of the same game.
        assert len(plan) <= len(other.walkthrough or ()), task

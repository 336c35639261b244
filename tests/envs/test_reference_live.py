"""The reference engine live: side by side with the native one, and how its process is handled.

Needs the upstream packages (`make reference`, or SEEDBENCH_REFERENCE_PYTHON); an official game takes about 6 s.
"""

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seedbench.errors import SeedBenchError
from seedbench_envs.alfworld import reference
from seedbench_envs.alfworld.env import ALFWorldEnv
from seedbench_envs.alfworld.library import library
from seedbench_envs.alfworld.reference import ReferenceEngine, reference_python
from tests.envs.tiny_game import FOOD, GRAMMAR, kitchen

LIVE = [
    pytest.mark.reference,
    pytest.mark.skipif(reference_python() is None, reason="alfworld and textworld are not installed (make reference)"),
]
OFFICIAL = [
    "train/pick_clean_then_place_in_recep", "valid_seen/look_at_obj_in_light", "valid_unseen/pick_two_obj_and_place",
    "valid_unseen/pick_heat_then_place_in_recep",
]  # fmt: skip
FAMILIES = [
    "pick_and_place_simple", "look_at_obj_in_light", "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep", "pick_cool_then_place_in_recep", "pick_two_obj_and_place",
]  # fmt: skip
INADMISSIBLE = ["", "sing", "Look", "take moon 1 from sky 1", "go to  fridge 1", "put mug 1 in/on shelf 1", " "]
GOAL = """(exists (?o - object ?r - receptacle)
    (and (objectType ?o AppleType) (isHot ?o) (receptacleType ?r ShelfType) (inReceptacle ?o ?r)))"""


def marked(function: Any) -> Any:
    for mark in LIVE:
        function = mark(function)
    return function


class Pair:
    """The same game on both engines; every step is compared in full and counted."""

    def __init__(self, edition: Any, dialect: str, data: Path | None = None) -> None:
        self.native = ALFWorldEnv(edition, dialect=dialect, data=data)
        self.reference = ALFWorldEnv(edition, "reference", dialect=dialect, data=data)
        self.compared = 0

    def play(self, task: str, plan: tuple[str, ...], seed: int, steps: int) -> None:
        """The plan from the start, then from a new start seeded random commands, one in ten of them inadmissible."""
        dice = random.Random(seed)
        self.reset(task)
        for command in plan:
            info = self.step(command)
        assert not plan or info["success"]
        info = self.reset(task)
        for _ in range(steps):
            options = info["admissible_actions"]
            if dice.random() < 0.1:
                options = INADMISSIBLE
            elif dice.random() < 0.7:
                options = [command for command in options if not command.startswith(("go to", "help"))]
            info = self.step(dice.choice(options))

    def reset(self, task: str) -> dict[str, Any]:
        """Both first observations and infos; equal or the test fails."""
        native, other = (env.reset(options={"task": task}) for env in (self.native, self.reference))
        assert native == other, task
        self.compared += 1
        return native[1]

    def step(self, command: str) -> dict[str, Any]:
        """Both five-tuples; equal or the test fails."""
        native, other = (env.step(command) for env in (self.native, self.reference))
        assert native == other, (self.native.render(), command)
        self.compared += 1
        return native[4]


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    opened: list[Pair] = []
    yield opened
    for pair in opened:
        pair.reference.close()


@marked
def test_official_games_side_by_side(official_games: Path, pairs: list[Pair]) -> None:
    pairs.append(Pair("official", "2.1.2"))
    games = library("official", "2.1.2")
    for seed, start in enumerate(OFFICIAL):
        task = random.Random(seed).choice([t for t in games.hashes() if t.startswith(start)])
        pairs[0].play(task, games.game(task).walkthrough or (), seed, steps=15)
    assert pairs[0].compared >= len(OFFICIAL) * (15 + 2 + 3)


@marked
def test_games_of_the_older_wording_side_by_side(official_games: Path, pairs: list[Pair]) -> None:
    pairs.append(Pair("official", "2.1.1"))
    task = next(t for t in pairs[0].native.task_ids() if t.startswith("valid_unseen/pick_cool"))
    pairs[0].play(task, (), seed=3, steps=20)
    assert pairs[0].compared == 22


@marked
@pytest.mark.parametrize("family", FAMILIES)
def test_mini_games_side_by_side(mini_store: Path, pairs: list[Pair], family: str) -> None:
    pairs.append(Pair("mini", "2.1.2"))
    games = library("mini", "2.1.2")
    tasks = [task for task in games.hashes() if f"/{family}-" in task]
    for seed, task in enumerate((tasks[0], tasks[-1])):
        pairs[0].play(task, games.game(task).walkthrough or (), seed, steps=25)
    assert pairs[0].compared >= 2 * (25 + 2 + 3)


@marked
def test_hand_written_games_side_by_side(tmp_path: Path, pairs: list[Pair]) -> None:
    """What official games hold seldom or never: things in two places, in hand, switched on, odd sentences."""
    odd = kitchen()
    odd.in_hand("Mug_bar_2", "cleanable heatable")
    odd.fixture("DeskLamp_bar_2", "Cabinet_bar__plus_1", "toggleable pickupable")
    odd.facts += [
        "inReceptacle Apple_bar_1 Shelf_bar_1", "inReceptacle Apple_bar_1 Fridge_bar_1", "opened Fridge_bar_1",
        "isCool Apple_bar_2", "isToggled DeskLamp_bar_1", "isOn DeskLamp_bar_1", "receptacleType Shelf_bar_1 SinkType",
        "inReceptacleObject Book_bar_1 Mug_bar_1", "objectType Apple_bar_2 KnifeType",
    ]  # fmt: skip
    held = kitchen()
    held.in_hand("Knife_bar_2", FOOD)
    held.facts[0] = "atLocation agent1 loc_bar_1"
    grammar = GRAMMAR.replace('"a {o.name}"', r'"\n  \"quoted \"\t\t{o.definite} [{o.id}]\n  // \\n #here; not this"')
    assert grammar != GRAMMAR
    files = {
        "pick_and_place_simple-A-None-B-1": kitchen().file(GOAL),
        "pick_and_place_simple-A-None-B-2": odd.file(GOAL, 'heat "the" apple; then rest'),
        "pick_and_place_simple-A-None-B-3": held.file(GOAL, grammar=grammar),
    }
    for folder, content in files.items():
        (tmp_path / "train" / folder / "t").mkdir(parents=True)
        (tmp_path / "train" / folder / "t" / "game.tw-pddl").write_bytes(content)
    pairs.append(Pair("official", "2.1.2", tmp_path))
    for seed, folder in enumerate(files):
        pairs[0].play(f"train/{folder}/t", (), seed, steps=70)
    assert pairs[0].compared == 3 * 72


@marked
def test_the_callers_process_is_left_alone_and_the_worker_ends(mini_store: Path) -> None:
    arguments, output, error = sys.argv, sys.stdout, sys.stderr
    copy = list(arguments)
    env = ALFWorldEnv("mini", "reference")
    env.reset(options={"task": env.task_ids()[0]})
    env.step("look")
    assert sys.argv is arguments
    assert arguments == copy
    assert (sys.stdout, sys.stderr) == (output, error)
    assert "textworld" not in sys.modules
    worker = pid(env)
    os.kill(worker, 0)  # it lives
    env.close()
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
    env.close()
    # A closed environment may be used again; its worker is a new one.
    assert env.reset(options={"task": env.task_ids()[0]})[1]["success"] is False
    assert pid(env) != worker
    env.close()


@marked
def test_a_worker_that_dies_is_reported_and_replaced(mini_store: Path) -> None:
    env = ALFWorldEnv("mini", "reference")
    task = env.task_ids()[0]
    env.reset(options={"task": task})
    os.kill(pid(env), 9)
    with pytest.raises(SeedBenchError, match="the reference engine ended"):
        env.step("look")
    assert env.reset(options={"task": task})[1]["task_id"] == task
    env.close()


@marked
def test_a_worker_is_replaced_after_a_number_of_games(mini_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "_GAMES_PER_WORKER", 2)
    env = ALFWorldEnv("mini", "reference")
    workers = []
    for _ in range(3):
        env.reset(options={"task": env.task_ids()[0]})
        workers.append(pid(env))
    assert workers[0] == workers[1] != workers[2]
    with pytest.raises(ProcessLookupError):
        os.kill(workers[0], 0)
    env.close()


@marked
def test_a_game_that_upstream_cannot_load_is_an_error_and_not_the_end() -> None:
    engine = ReferenceEngine({"pddl_domain": "(define (domain x))", "grammar": "", "pddl_problem": ""})
    with pytest.raises(SeedBenchError, match=r"the reference engine (failed|ended)"):
        engine.reset()
    engine.close()


def pid(env: ALFWorldEnv) -> int:
    engine = env._engine
    assert isinstance(engine, ReferenceEngine)
    assert engine._process is not None
    return engine._process.pid


# ---- without the packages ---------------------------------------------------------------------------------


def test_a_missing_interpreter_is_named(mini_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDBENCH_REFERENCE_PYTHON", "/nowhere/python")
    env = ALFWorldEnv("mini", "reference")
    with pytest.raises(SeedBenchError, match=r"cannot start '/nowhere/python' .*SEEDBENCH_REFERENCE_PYTHON must name"):
        env.reset(options={"task": env.task_ids()[0]})
    env.close()


def test_an_interpreter_without_the_packages_is_reported(
    mini_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "$@"\n')  # no site packages
    python.chmod(0o755)
    monkeypatch.setenv("SEEDBENCH_REFERENCE_PYTHON", str(python))
    env = ALFWorldEnv("mini", "reference")
    with pytest.raises(SeedBenchError) as caught:
        env.reset(options={"task": env.task_ids()[0]})
    assert "the reference engine ended (ModuleNotFoundError: No module named 'alfworld')" in str(caught.value)
    assert "`make reference`" in str(caught.value)
    env.close()


def test_without_any_interpreter_the_install_is_named(mini_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "reference_python", lambda: None)
    with pytest.raises(SeedBenchError, match="needs the packages alfworld and textworld: install it with `make ref"):
        ALFWorldEnv("mini", "reference")

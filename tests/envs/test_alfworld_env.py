"""The Gymnasium environment: its contract, its options, and what it says to a wrong request."""

import random
import subprocess
import sys
import tarfile
import threading
import warnings
import zipfile
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from seedbench.errors import SeedBenchError, UsageError
from seedbench_envs.alfworld.dialect import to_dialect
from seedbench_envs.alfworld.engine import NOTHING
from seedbench_envs.alfworld.env import ALFWorldEnv
from seedbench_envs.alfworld.library import SourceLibrary, library
from tests.envs.tiny_game import kitchen

DELIVER = """(exists (?o - object ?r - receptacle)
    (and (objectType ?o AppleType) (receptacleType ?r ShelfType) (inReceptacle ?o ?r)))"""
TASK = "valid_seen/pick_and_place_simple-Apple-None-Shelf-1/trial_1"
WIN = ("go to countertop 1", "take apple 1 from countertop 1", "move apple 1 to shelf 1")
INFO = {"task_id", "family", "instruction", "admissible_actions", "success", "score", "action_valid"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one hand-written game."""
    file = tmp_path / "data" / TASK / "game.tw-pddl"
    file.parent.mkdir(parents=True)
    file.write_bytes(kitchen().file(DELIVER, "put an apple on the shelf"))
    return tmp_path / "data"


@pytest.fixture
def env(folder: Path) -> ALFWorldEnv:
    return ALFWorldEnv("mini", data=folder)


# ---- the contract -----------------------------------------------------------------------------------------


def test_gymnasium_checker_has_nothing_to_say(mini_store: Path) -> None:
    env = gymnasium.make("seedbench_envs:seedbench/MiniALFWorld-v1")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        check_env(env.unwrapped)
    # Text has no frame rate; the checker asks for one wherever there is a render mode.
    assert [str(w.message) for w in said if "No render fps was declared" not in str(w.message)] == []


@pytest.mark.filterwarnings("ignore:.*No render fps was declared")
def test_every_observation_and_info_keeps_the_contract(mini_store: Path) -> None:
    env = gymnasium.make("seedbench/MiniALFWorld-v1", render_mode="ansi")
    dice = random.Random(1)
    observation, info = env.reset(seed=5)
    for _ in range(60):
        assert set(info) == INFO
        assert env.observation_space.contains(observation)
        assert env.render() == observation
        commands = info["admissible_actions"]
        assert commands == sorted(set(commands))
        assert all(env.action_space.contains(command) for command in commands)
        assert (info["success"], info["score"]) in {(True, 1.0), (False, 0.0)}
        observation, reward, terminated, truncated, info = env.step(dice.choice([*commands, "sing"]))
        assert isinstance(reward, float)
        assert terminated is info["success"]
        assert truncated is False


def test_info_of_a_first_observation(env: ALFWorldEnv) -> None:
    observation, info = env.reset(options={"task": TASK})
    assert observation.endswith("\n\nYour task is to: put an apple on the shelf.")
    assert info.pop("admissible_actions") == [
        "go to cabinet 1", "go to cabinet 2", "go to countertop 1", "go to fridge 1", "go to microwave 1",
        "go to shelf 1", "go to sidetable 1", "go to sinkbasin 1", "help", "inventory", "look",
    ]  # fmt: skip
    assert info == {
        "task_id": TASK, "family": "pick", "instruction": "put an apple on the shelf",
        "success": False, "score": 0.0, "action_valid": True,
    }  # fmt: skip


def test_the_reward_comes_once_and_the_last_observation_is_the_games_own(env: ALFWorldEnv) -> None:
    env.reset(options={"task": TASK})
    steps = [env.step(command) for command in WIN]
    assert [(reward, terminated) for _, reward, terminated, _, _ in steps] == [(0.0, False), (0.0, False), (1.0, True)]
    assert steps[-1][0] == "You move the apple 1 to the shelf 1."
    assert steps[-1][4]["success"] is True
    # Played on after the end, as upstream: still won, not won again; undone and done again.
    after = [env.step(c) for c in ("look", "sing", "take apple 1 from shelf 1", "move apple 1 to shelf 1")]
    assert [(reward, terminated) for _, reward, terminated, _, _ in after] == [
        (0.0, True), (0.0, True), (0.0, False), (1.0, True),
    ]  # fmt: skip


def test_an_inadmissible_action_is_marked_and_costs_nothing_else(env: ALFWorldEnv) -> None:
    _, before = env.reset(options={"task": TASK})
    observation, reward, terminated, truncated, info = env.step("Go to shelf 1")
    assert (observation, reward, terminated, truncated) == (NOTHING, 0.0, False, False)
    assert info == {**before, "action_valid": False}
    assert env.step(" go to shelf 1 ")[4]["action_valid"] is True


def test_a_task_won_at_the_start_gives_no_reward(tmp_path: Path) -> None:
    room = kitchen()
    room.thing("Apple_bar_9", "Shelf_bar_1")
    file = tmp_path / TASK / "game.tw-pddl"
    file.parent.mkdir(parents=True)
    file.write_bytes(room.file(DELIVER))
    env = ALFWorldEnv(data=tmp_path)
    _, info = env.reset()
    assert info["success"] is True
    assert env.step("look")[1:3] == (0.0, True)


def test_a_seed_chooses_the_task_and_the_same_actions_give_the_same_episode(mini_store: Path) -> None:
    def episode(seed: int) -> list[Any]:
        env = gymnasium.make("seedbench/MiniALFWorld-v1")
        dice = random.Random(seed)
        _, info = env.reset(seed=seed)
        seen: list[Any] = [info]
        for _ in range(25):
            seen.append(env.step(dice.choice(info["admissible_actions"])))
            info = seen[-1][4]
        return seen

    episodes = [episode(seed) for seed in range(4)]
    assert episodes == [episode(seed) for seed in range(4)]
    assert len({seen[0]["task_id"] for seen in episodes}) > 1


def test_without_a_seed_each_reset_draws_another_task(mini_store: Path) -> None:
    env = ALFWorldEnv("mini")
    env.reset(seed=1)
    drawn = [env.reset()[1]["task_id"] for _ in range(20)]
    assert len(set(drawn)) > 15
    assert set(drawn) <= set(env.task_ids())


def test_a_thousand_environments_keep_to_themselves(mini_store: Path) -> None:
    tasks = ALFWorldEnv("mini").task_ids()[::20]
    games = {task: library("mini", "2.1.2").game(task) for task in tasks}
    envs = [(task, ALFWorldEnv("mini")) for task in tasks for _ in range(1000 // len(tasks) + 1)][:1000]
    alone: dict[str, list[Any]] = {}
    for task in tasks:
        env = ALFWorldEnv("mini")
        alone[task] = [env.reset(options={"task": task}), *map(env.step, games[task].walkthrough or ())]
    together = [[env.reset(options={"task": task})] for task, env in envs]
    steps: list[list[Any]] = [list(first) for first in together]
    for turn in range(max(len(game.walkthrough or ()) for game in games.values())):
        for (task, env), seen in zip(envs, steps, strict=True):
            plan = games[task].walkthrough or ()
            if turn < len(plan):
                seen.append(env.step(plan[turn]))
    assert len(envs) == 1000
    assert all(seen == alone[task] for (task, _), seen in zip(envs, steps, strict=True))
    assert all(seen[-1][2] is True for seen in steps)


def test_threads_do_not_disturb_each_other(mini_store: Path) -> None:
    tasks = ALFWorldEnv("mini").task_ids()[::60]
    failures: list[str] = []

    def play(offset: int) -> None:
        env = ALFWorldEnv("mini")
        for task in tasks[offset:] + tasks[:offset]:
            env.reset(options={"task": task})
            steps = [env.step(c) for c in library("mini", "2.1.2").game(task).walkthrough or ()]
            if not steps[-1][2]:
                failures.append(task)

    threads = [threading.Thread(target=play, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_the_environments_load_no_model_library() -> None:
    program = (
        "import sys, gymnasium, seedbench_envs.alfworld.suite;"
        "gymnasium.make('seedbench_envs:seedbench/MiniALFWorld-v1').reset(seed=0);"
        "print(sorted({'torch', 'transformers', 'scipy', 'textworld'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- the official games -----------------------------------------------------------------------------------


@pytest.mark.real_data
def test_the_official_environment_plays_the_official_games(official_games: Path) -> None:
    env = gymnasium.make("seedbench_envs:seedbench/ALFWorld-v1")
    assert len(env.unwrapped.task_ids()) == 4027  # type: ignore[attr-defined]
    task = next(t for t in env.unwrapped.task_ids() if t.startswith("valid_unseen/look"))  # type: ignore[attr-defined]
    observation, info = env.reset(options={"task": task})
    assert observation.startswith("-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room.")
    assert info["family"] == "look"


@pytest.mark.real_data
def test_the_older_wording(official_games: Path) -> None:
    env = ALFWorldEnv(dialect="2.1.1")
    newer = ALFWorldEnv()
    task = next(t for t in env.task_ids() if t.startswith("valid_seen/pick_and_place_simple"))
    plan = library("official", "2.1.2").game(task).walkthrough
    assert plan is not None
    _, info = env.reset(options={"task": task})
    newer.reset(options={"task": task})
    assert "help" not in info["admissible_actions"]
    for command in plan:
        observation, *_ = newer.step(command)
        verb, _, rest = command.partition(" ")
        if verb == "move":
            older = f"put {rest.replace(' to ', ' in/on ')}"
            assert command not in info["admissible_actions"]
            assert env.step(command)[0] == NOTHING
            seen = env.step(older)
            assert seen[0] == "You put the {} in/on the {}.".format(*rest.split(" to "))
        else:
            seen = env.step(command)
            if verb == "go":
                assert seen[0].startswith("You arrive at loc ")
                assert observation.startswith(f"You arrive at {rest.removeprefix('to ')}. ")
                assert seen[0].partition(". ")[2] == observation.partition(". ")[2]
        info = seen[4]
    assert seen[2] is True


# ---- the other dialect's verb -----------------------------------------------------------------------------


def test_the_other_dialect_is_accepted_only_when_asked_for(folder: Path) -> None:
    for accept in (False, True):
        env = ALFWorldEnv("mini", data=folder, accept_other_dialect=accept)
        env.reset(options={"task": TASK})
        env.step(WIN[0])
        env.step(WIN[1])
        observation, reward, _, _, info = env.step("put apple 1 in/on shelf 1")
        assert info["action_valid"] is accept
        assert reward == float(accept)
        assert observation == ("You move the apple 1 to the shelf 1." if accept else NOTHING)
    assert ALFWorldEnv("mini", data=folder).accept_other_dialect is False


@pytest.mark.parametrize(
    ("command", "dialect", "expected"),
    [
        ("put mug 1 in/on shelf 2", "2.1.2", "move mug 1 to shelf 2"),
        (" put mug 1 in/on shelf 2\n", "2.1.2", "move mug 1 to shelf 2"),
        ("move mug 1 to shelf 2", "2.1.1", "put mug 1 in/on shelf 2"),
        (" move mug 1 to shelf 2 ", "2.1.2", " move mug 1 to shelf 2 "),
        ("put mug 1 in/on shelf 2", "2.1.1", "put mug 1 in/on shelf 2"),
        ("put mug 1 on shelf 2", "2.1.2", "put mug 1 on shelf 2"),
        ("Put mug 1 in/on shelf 2", "2.1.2", "Put mug 1 in/on shelf 2"),
        ("take mug 1 from shelf 2", "2.1.1", "take mug 1 from shelf 2"),
        ("go to shelf 2", "2.1.1", "go to shelf 2"),
    ],
)
def test_only_the_other_dialects_verb_is_reworded(command: str, dialect: str, expected: str) -> None:
    assert to_dialect(command, dialect) == expected


@pytest.mark.real_data
def test_the_newer_verb_is_accepted_in_the_older_dialect_when_asked_for(official_games: Path) -> None:
    env = ALFWorldEnv(dialect="2.1.1", accept_other_dialect=True)
    task = next(t for t in env.task_ids() if t.startswith("valid_seen/pick_and_place_simple"))
    env.reset(options={"task": task})
    steps = [env.step(command) for command in library("official", "2.1.2").game(task).walkthrough or ()]
    assert steps[-1][2] is True
    assert all(step[4]["action_valid"] for step in steps)


# ---- wrong requests ---------------------------------------------------------------------------------------


def test_an_unknown_task_names_the_nearest_and_does_not_list_the_rest(mini_store: Path) -> None:
    env = ALFWorldEnv("mini")
    task = next(t for t in env.task_ids() if t.startswith("valid_unseen/"))
    with pytest.raises(UsageError) as caught:
        env.reset(options={"task": task + "9"})
    message = str(caught.value)
    assert f"unknown task '{task}9': did you mean '{task}'?" in message
    assert message.endswith(f"{len(env.task_ids()):,} games are at hand.")
    assert len(message) < 400


@pytest.mark.parametrize("task", ["", "x", "valid_unseen/a/b", "test/pick_and_place_simple-A-None-B-1/t", 7, "../x/y"])
def test_a_task_of_another_shape_is_refused(env: ALFWorldEnv, task: object) -> None:
    with pytest.raises(UsageError, match=r"is not an ALFWorld task id; expected <split>/<task_type>"):
        env.reset(options={"task": task})


def test_a_failed_reset_leaves_the_running_episode_as_it_was(env: ALFWorldEnv) -> None:
    env.reset(options={"task": TASK})
    env.step(WIN[0])
    with pytest.raises(UsageError):
        env.reset(options={"task": TASK + "0"})
    _, _, _, _, info = env.step(WIN[1])
    assert (info["task_id"], info["action_valid"]) == (TASK, True)


def test_a_game_that_cannot_be_played_is_named_at_reset(folder: Path) -> None:
    file = folder / TASK / "game.tw-pddl"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(SeedBenchError, match=f"{TASK}: not a complete ALFWorld game file"):
        ALFWorldEnv(data=folder).reset(options={"task": TASK})


def test_a_step_before_the_first_reset_is_refused(env: ALFWorldEnv) -> None:
    with pytest.raises(UsageError, match=r"step was called before reset: .*reset\(options="):
        env.step("look")


@pytest.mark.parametrize("action", [None, 3, b"look", ["look"]])
def test_an_action_is_text(env: ALFWorldEnv, action: Any) -> None:
    env.reset(options={"task": TASK})
    with pytest.raises(UsageError, match="an action is a string, not"):
        env.step(action)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"engine": "java"}, "engine must be 'native' or 'reference', not 'java'"),
        ({"edition": "small"}, "unknown edition 'small'"),
        ({"dialect": "2.1"}, "unknown dialect '2.1': did you mean '2.1.2'? Known: 2.1.1, 2.1.2."),
        ({"edition": "mini", "dialect": "2.1.1"}, "generated games exist in dialect 2.1.2 only"),
    ],
)
def test_wrong_options_are_refused(folder: Path, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        ALFWorldEnv(**options)
    assert reason in str(caught.value)
    if options.get("dialect") != "2.1.1":
        with pytest.raises(UsageError, match=r"'java'|'small'|'2\.1'"):
            ALFWorldEnv(**options, data=folder)


def test_missing_official_games_name_the_command_that_fetches_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEDBENCH_DATA", str(tmp_path))
    for dialect in ("2.1.2", "2.1.1"):
        with pytest.raises(SeedBenchError) as caught:
            gymnasium.make("seedbench_envs:seedbench/ALFWorld-v1", dialect=dialect)
        assert f"dialect {dialect}" in str(caught.value)
        assert "`seedbench data fetch alfworld --from FILE|FOLDER`" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


# ---- data= ------------------------------------------------------------------------------------------------


def test_games_are_read_from_a_folder_a_zip_and_a_tar(folder: Path, tmp_path: Path) -> None:
    file = folder / TASK / "game.tw-pddl"
    with zipfile.ZipFile(tmp_path / "games.zip", "w") as archive:
        archive.write(file, f"json_2.1.1/{TASK}/game.tw-pddl")
    for name in ("games.tar.xz", "games.tar.gz", "games.tar"):
        with tarfile.open(tmp_path / name, f"w:{name.partition('.tar')[2].removeprefix('.')}") as tar:  # type: ignore[call-overload]
            tar.add(file, f"any/where/{TASK}/game.tw-pddl")
    for source in (folder, *sorted(tmp_path.glob("games.*"))):
        env = ALFWorldEnv(data=source)
        assert env.task_ids() == [TASK]
        env.reset(options={"task": TASK})
        assert [env.step(command)[2] for command in WIN] == [False, False, True]
        assert SourceLibrary(source).read(TASK) == file.read_bytes()
    assert len(list(tmp_path.glob("games.*"))) == 4


@pytest.mark.real_data
def test_the_dialect_of_given_games_must_be_the_one_asked_for(official_files: Path) -> None:
    older = official_files / "json_2.1.1_put_wording_valid.tar.xz"
    env = ALFWorldEnv(data=older)
    task = env.task_ids()[0]
    with pytest.raises(UsageError, match=r"is a game of dialect 2\.1\.1, not 2\.1\.2: .*dialect='2\.1\.1'"):
        env.reset(options={"task": task})
    right = ALFWorldEnv(data=older, dialect="2.1.1")
    assert right.reset(options={"task": task})[1]["task_id"] == task
    assert len(right.task_ids()) == 474


def test_given_data_that_is_not_there_or_holds_no_games_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SeedBenchError, match="does not exist; give a folder, zip or tar archive"):
        ALFWorldEnv(data=tmp_path / "nothing")
    with pytest.raises(SeedBenchError, match=r"holds no ALFWorld games \(<split>/<folder>/<trial>/game.tw-pddl\)"):
        ALFWorldEnv(data=tmp_path)

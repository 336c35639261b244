"""The Gymnasium environment of WebShop: its contract, its options, and what it says to a wrong request."""

from __future__ import annotations

import random
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from seedbench.errors import UsageError
from seedbench_envs.webshop.actions import SEARCH_FORM
from seedbench_envs.webshop.env import AnyText, WebShopEnv
from seedbench_envs.webshop.render import MODES
from seedbench_envs.webshop.session import Shop
from tests.envs.tiny_shop import GOALS, LAMP, ODD, SOAP, tiny_shop

INFO = {
    "task_id", "family", "instruction", "admissible_actions", "success", "score", "action_valid", "reason", "metrics",
}  # fmt: skip
NOTHING_YET = {"attribute": 0.0, "option": 0.0, "type": 0.0, "price": 0.0}
TO_LAMP = ("search[red lamp]", f"click[{LAMP.asin}]")


@pytest.fixture
def env() -> WebShopEnv:
    return WebShopEnv(tiny_shop())


@pytest.fixture
def made() -> Iterator[str]:
    """The environment under a name, as `gymnasium.make` finds it."""
    name = "seedbench-tests/WebShop-v1"
    gymnasium.register(name, entry_point="seedbench_envs.webshop.env:WebShopEnv", kwargs={"shop": tiny_shop()})
    yield name
    gymnasium.registry.pop(name)


def play(env: WebShopEnv, *actions: str) -> list[tuple[str, float, bool, bool, dict[str, Any]]]:
    return [env.step(action) for action in actions]


# ---- the contract -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_gymnasium_checker_has_nothing_to_say(made: str, mode: str) -> None:
    env = gymnasium.make(made, observation_mode=mode)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        check_env(env.unwrapped)
    # Text has no frame rate; the checker asks for one wherever there is a render mode.
    assert [str(w.message) for w in said if "No render fps was declared" not in str(w.message)] == []


@pytest.mark.parametrize("mode", MODES)
def test_every_observation_and_info_keeps_the_contract(made: str, mode: str) -> None:
    env = gymnasium.make(made, observation_mode=mode, render_mode="ansi")
    dice = random.Random(1)
    observation, info = env.reset(seed=5)
    bought = 0
    for _ in range(300):
        assert set(info) == INFO
        assert env.observation_space.contains(observation)
        assert env.render() == observation != ""
        actions = info["admissible_actions"]
        assert len(actions) == len(set(actions))
        assert all(env.action_space.contains(action) for action in actions)
        assert info["success"] is (info["score"] == 1.0)
        observation, reward, terminated, truncated, info = env.step(dice.choice([*actions, "search[lamp]", "sing"]))
        assert isinstance(reward, float)
        assert truncated is False
        if terminated:
            bought += 1
            assert info["score"] == reward
            assert info["admissible_actions"] == []
            observation, info = env.reset()
    assert bought > 5


def test_info_of_a_first_observation(env: WebShopEnv) -> None:
    observation, info = env.reset(options={"task": "goal/0"})
    instruction = GOALS["goal/0"].instruction
    assert observation == f"WebShop [SEP] Instruction: [SEP] {instruction} [SEP] Search"
    assert info == {
        "task_id": "goal/0", "family": "garden", "instruction": instruction, "admissible_actions": [SEARCH_FORM],
        "success": False, "score": 0.0, "action_valid": True, "reason": "", "metrics": NOTHING_YET,
    }  # fmt: skip


def test_admissible_actions_are_the_clicks_of_the_page_in_its_order(env: WebShopEnv) -> None:
    env.reset(options={"task": "goal/0"})
    for action in ("search[soap]", "search[lamps]"):
        actions = env.step(action)[4]["admissible_actions"]
        assert actions[:2] == ["click[back to search]", "click[next >]"]
        assert SEARCH_FORM not in actions  # it works here too, but the page has no search bar
    play(env, "search[<c> garden]")
    assert env.step(f"click[{ODD.asin}]")[4]["admissible_actions"] == [
        "click[back to search]", "click[< prev]", "click[description]", "click[features]", "click[reviews]",
        "click[buy now]", "click[a]b]", "click[attributes]", "click[ ]", "click[café]",
    ]  # fmt: skip
    assert env.step("click[back to search]")[4]["admissible_actions"] == [SEARCH_FORM]


def test_a_purchase_pays_upstreams_reward_and_its_parts(env: WebShopEnv) -> None:
    env.reset(options={"task": "goal/0"})
    before = play(env, *TO_LAMP, "click[red]")
    assert [(reward, ended, info["metrics"]) for _, reward, ended, _, info in before] == [(0.0, False, NOTHING_YET)] * 3
    observation, reward, terminated, _, info = env.step("click[buy now]")
    assert (reward, terminated, info["success"], info["score"]) == (1.0, True, True, 1.0)
    assert info["metrics"] == {"attribute": 1.0, "option": 1.0, "type": 1.0, "price": 1.0}
    assert "Your score (min 0.0, max 1.0) [SEP] 1.0 [SEP]" in observation


def test_a_partly_right_purchase(env: WebShopEnv) -> None:
    env.reset(options={"task": "goal/0"})
    *_, (_, reward, terminated, _, info) = play(env, *TO_LAMP, "click[dark blue]", "click[buy now]")
    # Attribute and price, of attribute, colour and price; the product is the goal's own.
    assert reward == info["score"] == pytest.approx(2 / 3)
    assert (terminated, info["success"]) == (True, False)
    assert info["metrics"] == {"attribute": 1.0, "option": 0.0, "type": 1.0, "price": 1.0}
    env.reset(options={"task": "goal/1"})
    *_, (_, reward, _, _, info) = play(env, "search[soap]", f"click[{SOAP.asin}]", "click[buy now]")
    assert reward == pytest.approx(2 / 3)  # two attributes, but dearer than asked for
    assert info["metrics"] == {"attribute": 1.0, "option": 1.0, "type": 1.0, "price": 0.0}  # no option was asked for


def test_after_a_purchase_the_score_stays_until_the_next(env: WebShopEnv) -> None:
    env.reset(options={"task": "goal/0"})
    *_, bought = play(env, *TO_LAMP, "click[red]", "click[buy now]")
    later = play(env, "click[buy now]", "sing", *TO_LAMP)
    assert [(reward, ended, info["score"]) for _, reward, ended, _, info in later] == [(0.0, False, 1.0)] * 4
    assert later[0][0] == bought[0]
    *_, again = play(env, "click[buy now]")
    assert again[1] == pytest.approx(2 / 3)
    assert again[2] is True
    assert again[4]["success"] is False
    assert env.reset(options={"task": "goal/0"})[1]["metrics"] == NOTHING_YET


def test_an_ignored_action_is_marked_and_changes_nothing_else(env: WebShopEnv) -> None:
    env.reset(options={"task": "goal/0"})
    *_, before = play(env, *TO_LAMP)
    for action in ("", "look", "click[next >]", "search[<a> x]", "search[" + "word " * 10):
        observation, reward, terminated, truncated, info = env.step(action)
        assert (observation, reward, terminated, truncated) == (before[0], 0.0, False, False)
        assert info.pop("reason") != ""
        assert info == {**{key: value for key, value in before[4].items() if key != "reason"}, "action_valid": False}


def test_observation_modes_show_the_same_page(made: str) -> None:
    seen = {}
    for mode in MODES:
        env = gymnasium.make(made, observation_mode=mode)
        env.reset(options={"task": "goal/0"})
        seen[mode] = [env.step(action)[0] for action in (*TO_LAMP, "click[red]")][-1]
    assert seen["url"] == 'http://127.0.0.1:3000/item_page/0/B000000001/red+lamp/1/{"color": "red"}'
    assert " [SEP] red [SEP] " in seen["text"]
    assert "  [clicked button] red [clicked button_]\n" in seen["text_rich"]
    assert '<input type="radio" name="color" value="red" checked>' in seen["html"]


def test_the_colour_rule_can_be_mended() -> None:
    kept, mended = (WebShopEnv(tiny_shop(), fix_colours=mend) for mend in (False, True))
    scores = []
    for env in (kept, mended):
        env.reset(options={"task": "goal/2"})
        *_, (_, reward, _, _, _) = play(
            env, "search[soap]", f"click[{SOAP.asin}]", "click[rectangular]", "click[buy now]"
        )
        scores.append(reward)
    assert scores == [pytest.approx(2 / 3), 1.0]  # upstream reads "rectangular" as "tan"


# ---- tasks ------------------------------------------------------------------------------------------------


def test_all_tasks_can_be_played_and_no_others(env: WebShopEnv) -> None:
    assert env.task_ids() == sorted(GOALS)
    for task, goal in GOALS.items():
        _, info = env.reset(options={"task": task})
        assert (info["task_id"], info["family"], info["instruction"]) == (task, goal.category, goal.instruction)


@pytest.mark.parametrize("index", [1, np.int64(1), np.uint8(1), np.int32(1)])
def test_an_integer_is_an_index_of_the_synthetic_goals(env: WebShopEnv, index: Any) -> None:
    assert env.reset(options={"task": index})[1]["task_id"] == "goal/1"


@pytest.mark.parametrize(
    "task",
    ["goal/3", "human/1", "goal/-1", -1, 3, np.int64(-1), np.int64(10**12), 1.0, True, np.True_, "", "0", "goal/01",
     "goal/١", "goal/0 ", "Goal/0", "goal/9999999999", "x" * 5000],
)  # fmt: skip
def test_a_task_that_is_not_there_is_refused_with_the_range(env: WebShopEnv, task: Any) -> None:
    with pytest.raises(UsageError, match=r"^unknown task '.*': this shop has goal/0 to goal/2 and human/0 to human/0"):
        env.reset(options={"task": task})


def test_a_failed_reset_leaves_the_running_episode_as_it_was(env: WebShopEnv) -> None:
    env.reset(options={"task": "goal/1"})
    play(env, "search[soap]")
    with pytest.raises(UsageError):
        env.reset(options={"task": "goal/99"})
    _, _, _, _, info = env.step(f"click[{SOAP.asin}]")
    assert (info["task_id"], info["action_valid"]) == ("goal/1", True)


def test_the_seed_draws_the_task_and_nothing_else(env: WebShopEnv) -> None:
    drawn = [env.reset(seed=seed)[1]["task_id"] for seed in range(30)]
    assert set(drawn) == set(GOALS)
    assert drawn == [env.reset(seed=seed)[1]["task_id"] for seed in range(30)]
    pages = []
    for seed in (1, 2, None):
        env.reset(seed=seed, options={"task": "goal/0"})
        pages.append([step[0] for step in play(env, "search[<r>]", "click[next >]", "search[<r>]")])
    assert pages[0] == pages[1] == pages[2]


def test_random_products_differ_between_tasks(env: WebShopEnv) -> None:
    first = set()
    for task in GOALS:
        env.reset(options={"task": task})
        first.add(tuple(env.step("search[<r>]")[4]["admissible_actions"]))
    assert len(first) == len(GOALS)


# ---- many at once -----------------------------------------------------------------------------------------


def test_a_thousand_interleaved_environments_stay_apart() -> None:
    scripts = [
        ("goal/0", (*TO_LAMP, "click[red]", "click[description]", "click[< prev]", "click[buy now]")),
        ("goal/1", ("search[soap]", f"click[{SOAP.asin}]", "click[features]", "click[< prev]", "click[buy now]")),
        ("human/0", ("search[<r>]", "click[next >]", "sing", "search[<c> beauty]", f"click[{SOAP.asin}]")),
    ]
    alone = []
    for task, actions in scripts:
        env = WebShopEnv(tiny_shop())
        env.reset(options={"task": task})
        alone.append(play(env, *actions))
    envs = [WebShopEnv(tiny_shop()) for _ in range(1000)]
    for number, env in enumerate(envs):
        env.reset(options={"task": scripts[number % 3][0]})
    order = [number for number in range(1000) for _ in scripts[number % 3][1]]
    random.Random(4).shuffle(order)
    done = [0] * 1000
    for number in order:
        assert envs[number].step(scripts[number % 3][1][done[number]]) == alone[number % 3][done[number]]
        done[number] += 1
    assert done == [len(scripts[number % 3][1]) for number in range(1000)]


def test_what_a_caller_does_to_an_info_reaches_no_other(env: WebShopEnv) -> None:
    _, info = env.reset(options={"task": "goal/0"})
    info["admissible_actions"].clear()
    info["metrics"]["price"] = 7.0
    _, again = WebShopEnv(tiny_shop()).reset(options={"task": "goal/0"})
    assert (again["admissible_actions"], again["metrics"]) == ([SEARCH_FORM], NOTHING_YET)
    assert env.step("sing")[4]["metrics"] == NOTHING_YET


# ---- wrong requests ---------------------------------------------------------------------------------------


def test_a_step_before_the_first_reset_is_refused(env: WebShopEnv) -> None:
    for call in (lambda: env.step("search[x]"), env.available_actions):
        with pytest.raises(UsageError, match=r"no goal was started: call reset\(options="):
            call()


@pytest.mark.parametrize("action", [None, 3, b"search[x]", ["search[x]"]])
def test_an_action_is_text(env: WebShopEnv, action: Any) -> None:
    env.reset(options={"task": "goal/0"})
    with pytest.raises(UsageError, match="an action is a string, not"):
        env.step(action)


def test_an_unknown_observation_mode_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown observation mode 'text-rich': did you mean 'text_rich'"):
        WebShopEnv(tiny_shop(), observation_mode="text-rich")  # type: ignore[arg-type]


def test_without_a_shop_the_edition_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def open_shop(edition: str, size: str | None) -> Shop:
        asked.append((edition, size))
        return tiny_shop()

    library = types.ModuleType("seedbench_envs.webshop.library")
    monkeypatch.setattr(library, "open_shop", open_shop, raising=False)
    monkeypatch.setitem(sys.modules, library.__name__, library)
    for env in (WebShopEnv(), WebShopEnv(edition="mini"), WebShopEnv(size="100k")):
        assert env.task_ids() == sorted(GOALS)
    assert asked == [("official", None), ("mini", None), ("official", "100k")]


def test_the_space_of_texts_has_every_script_and_two_bounds() -> None:
    space = AnyText(5, min_length=1)
    assert all(space.contains(text) for text in ("a", "é – ★", "\u00a0", "\ud800"))
    assert not any(space.contains(value) for value in ("", "123456", 3, None, b"a"))
    space.seed(1)
    assert space.contains(space.sample())

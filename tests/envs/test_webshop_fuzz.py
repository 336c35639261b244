"""100,000 seeded actions of every bad kind: the environment raises nothing and keeps its promises."""

from __future__ import annotations

import random
import string
from collections import Counter

from seedbench_envs.webshop.env import WebShopEnv
from tests.envs.tiny_shop import GOALS, PRODUCTS, tiny_shop

ACTIONS = 100_000
WORDS = (
    "lamp", "red", "soap", "all", "about", "<r>", "<c>", "<q>", "<a>", "garden", "search_results", "item_page",
    "item_sub_page", "done", "", "[", "]", "\\", '"', "'", "+", "/", "%00", "{}", "the",
)  # fmt: skip
ODDITIES = "\x00\x07\x1b\r\n\t\x0b\x0c\x85\xa0\u200b\u202e\u2028\ufeff\ud800\udffféßİıﬁ½★漢字คо🙂[]<>&'\"{}()/\\%"
NAMES = (
    "buy now", "back to search", "< prev", "next >", "description", "features", "reviews", "attributes", "search",
    "red", "dark blue", "small", "a]b", "x [y]", "café", " ", *(product.asin.lower() for product in PRODUCTS[:6]),
)  # fmt: skip
FORMS = (
    "{}", "search{}", "click{}", "[{}]", "Search[{}]", " click[{}]", "click[[{}]]", "search[{}", "click {}]",
    "search[{}]\nclick[buy now]", "\nclick[{}]", "click[{}] please", "search[]{}", "buy[{}]", "click[{}][{}]",
)  # fmt: skip


def noise(dice: random.Random, longest: int) -> str:
    return "".join(dice.choices(ODDITIES + string.printable, k=dice.randrange(longest)))


def an_action(dice: random.Random, admissible: list[str], vanished: list[str]) -> str:
    kind = dice.random()
    if kind < 0.45 and admissible:
        action = dice.choice(admissible)
        return action.upper().replace("CLICK", "click") if dice.random() < 0.1 else action
    if kind < 0.60:
        return f"click[{dice.choice(NAMES)}]"
    if kind < 0.75:
        return f"search[{' '.join(dice.choices(WORDS, k=dice.randrange(1, 6)))}]"
    if kind < 0.85 and vanished:
        return dice.choice(vanished)
    if kind < 0.93:
        return dice.choice(FORMS).replace("{}", dice.choice([noise(dice, 12), dice.choice(NAMES)]))
    if kind < 0.9995:
        return f"{dice.choice(('search', 'click', ''))}[{noise(dice, 60)}]"
    # The long ones: many words, one word, brackets only.
    return dice.choice(
        (
            f"search[{' '.join(f'w{dice.randrange(3000)}' for _ in range(2000))}]",
            f"search[{'lamp ' * 2000}]",
            f"search[{noise(dice, 2) * 10_000}]",
            f"click[{'x' * 10_000}]",
            "[" * 10_000,
            "search[" + "]" * 10_000,
        )
    )


def test_a_hundred_thousand_actions_of_every_kind() -> None:
    dice, shop = random.Random(20240229), tiny_shop()
    envs = [WebShopEnv(shop, observation_mode=mode) for mode in ("text", "text_rich", "html", "url")]
    valid: Counter[bool] = Counter()
    kinds: Counter[str] = Counter()
    bought = 0
    tasks = list(GOALS)
    infos = [env.reset(options={"task": dice.choice(tasks)})[1] for env in envs]
    vanished: list[str] = []
    for number in range(ACTIONS):
        which = number % len(envs)
        env, info = envs[which], infos[which]
        if number % 997 == 0:
            _, info = env.reset(options={"task": dice.choice(tasks)})
        action = an_action(dice, info["admissible_actions"], vanished)
        observation, reward, terminated, truncated, after = env.step(action)
        assert observation
        assert isinstance(reward, float)
        assert 0.0 <= reward <= 1.0
        assert 0.0 <= after["score"] <= 1.0
        assert after["success"] is (after["score"] == 1.0)
        assert truncated is False
        assert len(set(after["admissible_actions"])) == len(after["admissible_actions"])
        assert all(0.0 <= part <= 1.0 for part in after["metrics"].values())
        assert after["action_valid"] is (after["reason"] == "")
        if terminated:
            assert (after["action_valid"], after["score"], after["admissible_actions"]) == (True, reward, [])
        else:
            assert reward == 0.0
        if not after["action_valid"]:
            assert {key: after[key] for key in after if key not in ("action_valid", "reason")} == {
                key: info[key] for key in info if key not in ("action_valid", "reason")
            }
        vanished = info["admissible_actions"] or vanished
        valid[after["action_valid"]] += 1
        kinds[after["reason"].partition(":")[0].partition(", the most")[0]] += 1
        bought += terminated
        infos[which] = after
    # The mixture does reach everything.
    assert sum(valid.values()) == ACTIONS
    assert min(valid.values()) > ACTIONS // 5
    assert bought > 300
    assert set(kinds) == {
        "", "not of the form search[...] or click[...]", "nothing of this name can be clicked on this page",
        "a search needs a query", "search by attribute (<a>) does not exist",
        "search by category (<c>) needs a category", "the query has more than 1,024 distinct terms",
    }  # fmt: skip

"""The rules analyzer: exact skills for episodes made by hand, and sense in real ones."""

import asyncio

import pytest

from seedbench.panels import load_panel
from seedbench.policies import ModelOptions, make_policy
from seedbench.policies.random_ import RandomPolicy
from seedbench.protocol import load_protocol
from seedbench.registry import get_suite
from seedbench.rollout import run_episode
from seedbench.types import Episode, Outcome
from seedbench_trainers.skills import shop
from seedbench_trainers.skills.rules import FIXED, analyse
from tests.train.episodes import Step, episode

AT_DESK: Step = ("go to desk 1", "You arrive at desk 1. On the desk 1, you see a mug 2, and a pen 1.")
TAKE: Step = ("take mug 2 from desk 1", "You pick up the mug 2 from the desk 1.")
AT_SHELF: Step = ("go to shelf 1", "You arrive at shelf 1. On the shelf 1, you see nothing.")
PUT: Step = ("move mug 2 to shelf 1", "You move the mug 2 to the shelf 1.")
PLAN = ["go to desk 1", "take mug 2 from desk 1", "go to shelf 1", "move mug 2 to shelf 1"]


def skill(*steps: Step, plan: list[str] | None = None, **more: object) -> str:
    return analyse(episode(steps, **more), plan).skill  # type: ignore[arg-type]


def test_a_solved_household_is_told_without_its_detours() -> None:
    steps = (
        ("look", "You are facing nothing."),
        ("go to drawer 1", "You arrive at drawer 1. The drawer 1 is closed."),
        ("open drawer 1", "You open the drawer 1. The drawer 1 is open. In it, you see a key 1."),
        AT_DESK,
        ("take pen 1 from desk 1", "You pick up the pen 1 from the desk 1."),
        ("move pen 1 to desk 1", "You move the pen 1 to the desk 1."),
        TAKE,
        ("eat mug 2", "Nothing happens.", False),
        ("examine mug 2", "There's nothing special about mug 2."),
        AT_SHELF,
        PUT,
    )
    assert analyse(episode(steps, solved=True)).summary == "solved in 11 steps."
    assert skill(*steps, solved=True) == f"Do in this order: {', '.join(PLAN)}."


def test_closed_places_are_opened_and_things_moved_twice_are_moved_once() -> None:
    steps = (
        ("go to drawer 1", "You arrive at drawer 1. The drawer 1 is closed."),
        ("open drawer 1", "You open the drawer 1. In it, you see a mug 2."),
        ("take mug 2 from drawer 1", "You pick up the mug 2 from the drawer 1."),
        AT_DESK,
        ("move mug 2 to desk 1", "You move the mug 2 to the desk 1."),
        TAKE,
        AT_SHELF,
        PUT,
    )
    assert skill(*steps, solved=True) == (
        "Do in this order: go to drawer 1, open drawer 1, take mug 2 from drawer 1, go to shelf 1,"
        " move mug 2 to shelf 1."
    )


def test_treatment_of_the_family_and_the_older_wording_of_put() -> None:
    steps = (
        AT_DESK,
        TAKE,
        ("go to sink 1", "You arrive at sink 1."),
        ("clean mug 2 with sink 1", "You clean the mug 2 using the sink 1."),
        ("go to microwave 1", "You arrive at microwave 1."),
        ("heat mug 2 with microwave 1", "You heat the mug 2 using the microwave 1."),
        AT_SHELF,
        ("put mug 2 in/on shelf 1", "You put the mug 2 in/on the shelf 1."),
    )
    assert skill(*steps, solved=True, family="heat") == (
        "Do in this order: go to desk 1, take mug 2 from desk 1, go to microwave 1, heat mug 2 with microwave 1,"
        " go to shelf 1, put mug 2 in/on shelf 1."
    )


def test_a_lamp_is_used_where_it_stands() -> None:
    steps = (
        ("go to nightstand 1", "You arrive at nightstand 1. On the nightstand 1, you see a desklamp 1."),
        ("use desklamp 1", "You turn on the desklamp 1."),
        AT_DESK,
        TAKE,
    )
    told = skill(*steps, solved=True, family="look", instruction="look at a mug under the desklamp")
    assert told == "Do in this order: go to nightstand 1, use desklamp 1, go to desk 1, take mug 2 from desk 1."


@pytest.mark.parametrize(
    ("steps", "family", "fault"),
    [
        ([("eat desk 1", "Nothing happens.", False), AT_DESK], "pick", "Say only what is listed."),
        ([AT_DESK, ("take pen 1 from desk 1", "You pick up the pen 1.")], "pick", "Do not take pen 1."),
        ([AT_DESK, TAKE, AT_SHELF, PUT], "heat", "Do not move mug 2 before you heat it."),
        ([AT_DESK, TAKE, ("move mug 2 to desk 1", "You move it.")], "pick", "Do not move mug 2 to desk 1."),
        ([AT_DESK, AT_SHELF] * 3, "pick", "Do not repeat go to desk 1."),
        (
            [AT_SHELF, ("look", "You see a wall.")] + [("inventory", "You carry nothing.")] * 3,
            "pick",
            "Do not repeat inventory.",
        ),
        ([AT_SHELF], "pick", ""),
    ],
)
def test_the_first_fault_of_a_household_then_the_plan(steps: list[Step], family: str, fault: str) -> None:
    analysis = analyse(episode(steps), PLAN, family)
    assert analysis.skill == f"{fault} Do in this order: {', '.join(PLAN)}.".strip()
    assert analysis.summary == f"failed: step limit in {len(steps)} step{'s' * (len(steps) > 1)}. {fault}".strip()


def test_without_a_plan_the_trajectory_tells_where_things_are() -> None:
    assert skill(AT_DESK, family="heat") == "Go to desk 1, take mug 2 from desk 1, then heat it."
    room = "You are in the middle of a room. Looking around, you see a desk 2, a bed 1, and a shelf 1."
    assert skill(AT_SHELF, first=room) == "Go to desk 2, go to bed 1."
    assert skill(AT_SHELF, first="You are in the middle of a room.") == "Open what is closed."


def test_long_plans_lose_the_ways_first_and_then_their_end() -> None:
    plan = [
        action
        for n in range(1, 4)
        for action in (
            f"go to desk {n}",
            f"take mug {n} from desk {n}",
            f"go to shelf {n}",
            f"move mug {n} to shelf {n}",
        )
    ]
    told = analyse(episode([AT_SHELF]), plan).skill
    assert told == (
        "Do in this order: take mug 1 from desk 1, move mug 1 to shelf 1, take mug 2 from desk 2,"
        " move mug 2 to shelf 2, take mug 3 from desk 3, move mug 3 to shelf 3."
    )
    told = analyse(episode([AT_SHELF]), [*plan, *plan]).skill
    assert len(told.split()) == 40
    assert told.endswith("take mug 3 from desk 3, move mug 3 to shelf 3.")


SHOP = "Find me hand knitted blankets for picnics with color: green, and size: 4, and price lower than 40.00 dollars"
PAGE = "WebShop [SEP] Instruction: [SEP] Find me [SEP] Search"
OPEN: Step = ("click[x1]", "b")
BUY: Step = ("click[buy now]", "Thank you")


def test_a_solved_shop_is_told_from_the_last_search_on() -> None:
    steps = (
        ("search[socks]", "a"), ("click[x1]", "b"), ("click[back to search]", "c"),
        (f"search[{SHOP.lower()}]", "d"), ("click[next >]", "e"), ("click[x2]", "f"), ("click[features]", "g"),
        ("click[< prev]", "h"), ("click[green]", "i"), ("click[green]", "j"), ("click[4]", "k"), BUY,
    )  # fmt: skip
    assert skill(*steps, solved=True, instruction=SHOP, first=PAGE, family="garden") == (
        "Do in this order: search[hand knitted blankets picnics color green], click[next >], click[x2], click[green],"
        " click[4], click[buy now]."
    )


@pytest.mark.parametrize(
    ("steps", "metrics", "fault"),
    [
        ([OPEN, BUY], {"type": 0.1, "option": 0.0}, "Do not buy another kind of product."),
        ([OPEN, BUY], {"type": 1.0, "option": 0.5, "price": 0.0}, "Do not buy before every option is clicked."),
        ([OPEN, BUY], {"option": 1.0, "price": 0.0, "attribute": 0.0}, "Do not buy above the price."),
        ([OPEN, BUY], {"attribute": 0.5}, "Do not buy before every word of the task is found on the page."),
        ([("search[socks]", "a"), ("click[x1]", "b")], {}, "Buy before the steps end."),
        ([("search[find me a red sock]", "a")] * 3, {}, "Do not repeat search[red sock]."),
        ([("x", "a", False)], {}, "Say only what is listed."),
    ],
)  # fmt: skip
def test_the_fault_of_a_shop_then_the_plan_or_the_task(
    steps: list[Step], metrics: dict[str, float], fault: str
) -> None:
    failed = episode(steps, outcome=Outcome.FAILED, instruction=SHOP, first=PAGE, family="garden", metrics=metrics)
    plan = ["search[quill acorn blanket]", "click[x2]", "click[green]", "click[4]", "click[buy now]"]
    assert analyse(failed, plan).skill == f"{fault} Do in this order: {', '.join(plan)}."
    assert analyse(failed).skill == (
        f"{fault} Do in this order: search[hand knitted blankets picnics color green], click[green], click[4],"
        " click[buy now]."
    )


QUESTION = "In which year was the author of the play The Quiet Door born?"


def search(query: str) -> Step:
    return (f"<search>{query}</search>", f"<information>{query}</information>")


ANSWER: Step = ("<answer>1901</answer>", "")


def test_a_solved_question_tells_its_searches_and_not_its_answer() -> None:
    steps = (search("The Quiet Door"), search("Mirvo Maldell"), ANSWER)
    told = skill(*steps, solved=True, instruction=QUESTION, first=QUESTION, family="two_hop")
    assert told == (
        "Do in this order: <search>The Quiet Door</search>, <search>Mirvo Maldell</search>, then answer with the words"
        " that were found."
    )
    told = skill(search(QUESTION), ANSWER, solved=True, instruction=QUESTION)
    assert told == "Do in this order: <search>The Quiet Door</search>, then answer with the words that were found."


@pytest.mark.parametrize(
    ("steps", "fault"),
    [
        ([search(QUESTION), ANSWER], "Do not search for the whole question."),
        ([ANSWER], "Do not answer before you search."),
        ([search("door"), search("door"), ANSWER], "Do not repeat the search door."),
        ([search("door"), search("quiet")], "Answer before the steps end."),
        ([search("door"), ANSWER], "Do not answer from the first passage alone."),
        ([("<search>", "", False)], "Say one <search> or one <answer> and close its tag."),
    ],
)
def test_the_fault_of_a_question_then_the_plan(steps: list[Step], fault: str) -> None:
    failed = episode(steps, outcome=Outcome.FAILED, instruction=QUESTION, first=QUESTION, family="two_hop")
    plan = ["<search>The Quiet Door</search>", "<search>Mirvo Maldell</search>", "<answer>1887</answer>"]
    assert analyse(failed, plan).skill == (
        f"{fault} Do in this order: {plan[0]}, {plan[1]}, then answer with the words that were found."
    )
    assert analyse(failed).skill == f"{fault} Search for one name at a time, then for what it leads to."


def test_other_suites_are_told_as_actions() -> None:
    steps = (("press red", "on"), ("wait", "on"), ("press blue", "off"), ("jump", "off", False))
    assert skill(*steps, solved=True, first="off") == "Do in this order: press red, press blue."
    assert skill(("wait", "off"), ("wait", "off"), first="off", plan=["press red"]) == (
        "Do not repeat wait. Do in this order: press red."
    )
    assert skill(first="off") == "Do what the task says, one step at a time."


def played(panel_name: str, policy_name: str, limit: int) -> list[tuple[Episode, list[str]]]:
    """Episodes of a scripted policy, each with the oracle's plan."""
    panel = load_panel(panel_name).subset(limit=limit)
    suite = get_suite(panel.suite)
    protocol = load_protocol(suite.default_protocol)
    env = suite.make(panel, "native", **protocol.settings.environment)
    policy = RandomPolicy() if policy_name == "random" else make_policy(policy_name, panel, ModelOptions())

    async def all_tasks() -> list[tuple[Episode, list[str]]]:
        return [
            (await run_episode(env, task, protocol, policy, repeat=0, seed=7), list(suite.oracle(panel, task)))
            for task in panel.tasks
        ]

    return asyncio.run(all_tasks())


def test_real_household_episodes(mini_store: object) -> None:
    for episode_, plan in played("mini-alfworld/train", "oracle", 12):
        told = analyse(episode_).skill
        ways = [action for action in plan if not action.startswith("go to ")]
        assert told == f"Do in this order: {', '.join(plan)}." or told == f"Do in this order: {', '.join(ways)}."
    for episode_, plan in played("mini-alfworld/train", "random", 6):
        assert not episode_.success
        told = analyse(episode_, plan).skill
        assert told.startswith(("Do not take ", "Do not move ", "Do not repeat "))
        assert told.endswith(f"{plan[-1]}.")
        assert len(told.split()) <= 40


def test_real_shop_episodes() -> None:
    for episode_, plan in played("mini-webshop/train", "oracle", 10):
        told = analyse(episode_).skill
        assert told.startswith("Do in this order: search[")
        assert 1 <= len(told.partition("[")[2].partition("]")[0].split()) <= 6
        assert told.endswith(f"{', '.join(plan[1:])}.")
    faults = set()
    for episode_, plan in played("mini-webshop/train", "random", 10):
        told = analyse(episode_, plan).skill
        faults.add(told.partition(" Do in this order")[0].partition(" click[")[0])
        assert told.endswith(f"{', '.join(plan[1:])}.")
        assert len(told.split()) <= 40
    assert len(faults & {*shop.PARTS.values(), "Do not repeat", "Buy before the steps end."}) >= 2


def test_real_question_episodes() -> None:
    solved = played("mini-searchqa/train", "oracle", 60)
    texts = {episode_.instruction: analyse(episode_).skill for episode_, _ in solved}
    assert texts["In which year was the author of the play The Quiet Door born?"] == (
        "Do in this order: <search>The Quiet Door</search>, <search>Mirvo Maldell</search>, then answer with the words"
        " that were found."
    )
    for episode_, plan in solved:
        assert analyse(episode_).skill.startswith(f"Do in this order: {', '.join(plan[:-1])}, then answer")
    for episode_, plan in played("mini-searchqa/train", "rule", 10):
        told = analyse(episode_, plan).skill
        answer = plan[-1].removeprefix("<answer>").removesuffix("</answer>")
        assert answer not in told.replace(episode_.instruction, "")
        assert episode_.success or told.startswith("Do not search for the whole question. Do in this order: <search>")


def test_the_fixed_words_hold_the_block_and_the_shell_of_an_analysis() -> None:
    assert FIXED[0].startswith("Episode-Level Skill\n")
    assert '{"episode_summary":"solved in 4 steps.","episode_skill":"Do in this order:"}' in FIXED

"""The solver, on small kitchens whose shortest plans were worked out by hand, and on official games."""

import json
from pathlib import Path

import pytest

import seedbench_envs.mini
from seedbench_envs.alfworld.engine import Engine
from seedbench_envs.alfworld.game import Game, parse_game
from seedbench_envs.alfworld.solve import solve
from seedbench_envs.alfworld.sources import read_games

MINI = Path(seedbench_envs.mini.__file__).parent

# Two shelves and a closed cabinet each at a place of their own; the sink shares the counter's place.
KITCHEN = """
    (receptacleType CounterTop_bar_1 CounterTopType) (receptacleAtLocation CounterTop_bar_1 loc_bar_1)
    (receptacleType Sink_bar_1_bar_SinkBasin SinkBasinType) (receptacleAtLocation Sink_bar_1_bar_SinkBasin loc_bar_1)
    (receptacleType Shelf_bar_1 ShelfType) (receptacleAtLocation Shelf_bar_1 loc_bar_2)
    (receptacleType Shelf_bar_2 ShelfType) (receptacleAtLocation Shelf_bar_2 loc_bar_3)
    (receptacleType Cabinet_bar_1 CabinetType) (receptacleAtLocation Cabinet_bar_1 loc_bar_4)
    (openable Cabinet_bar_1)
    (receptacleType Fridge_bar_1 FridgeType) (receptacleAtLocation Fridge_bar_1 loc_bar_5) (openable Fridge_bar_1)
    (canContain CounterTopType MugType) (canContain ShelfType MugType) (canContain CabinetType MugType)
"""
# By the engines' numbering (the highest id is number 1): shelf 1 is Shelf_bar_2, shelf 2 is Shelf_bar_1.


def mug(number: int, *places: str) -> str:
    facts = f"(objectType Mug_bar_{number} MugType) (pickupable Mug_bar_{number}) (cleanable Mug_bar_{number})"
    return facts + "".join(f" (inReceptacle Mug_bar_{number} {place})" for place in places)


def lamp(place: str) -> str:
    return f"(objectType DeskLamp_bar_1 DeskLampType) (toggleable DeskLamp_bar_1) (inReceptacle DeskLamp_bar_1 {place})"


def bring(target: str, state: str = "") -> str:
    condition = f"({state} ?o)" if state else ""
    return (
        f"(exists (?o - object ?r - receptacle) (and (objectType ?o MugType) {condition}"
        f" (receptacleType ?r {target}Type) (inReceptacle ?o ?r)))"
    )


TWO_ON_A_SHELF = """(exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 MugType)
    (receptacleType ?r ShelfType) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and (not (= ?o1 ?o2))
    (objectType ?o2 MugType) (receptacleType ?r ShelfType) (inReceptacle ?o2 ?r))))))"""

HOLD_AT_LAMP = """(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location)
    (and (objectType ?ot DeskLampType) (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l)
    (atLocation ?a ?l) (inReceptacle ?ot ?r)))
    (exists (?o - object ?a - agent) (and (objectType ?o MugType) (holds ?a ?o))))"""


def game(facts: str, goal: str, start: str = "loc_bar_0") -> Game:
    problem = (
        f"(define (problem p) (:domain household) (:objects agent1 - agent)"
        f" (:init (atLocation agent1 {start}) {KITCHEN} {facts}) (:goal {goal}))"
    )
    content = {
        "pddl_domain": (MINI / "household.pddl").read_text(),
        "grammar": (MINI / "household.twl").read_text(),
        "pddl_problem": problem,
    }
    return parse_game(json.dumps(content).encode())


def test_a_goal_that_holds_needs_nothing() -> None:
    assert solve(game(mug(1, "Shelf_bar_1"), bring("Shelf"))) == ()


def test_shared_places_need_no_move() -> None:
    plan = solve(game(mug(1, "CounterTop_bar_1"), bring("CounterTop", "isClean")))
    assert plan == (
        "go to countertop 1",
        "take mug 1 from countertop 1",
        "clean mug 1 with sinkbasin 1",
        "move mug 1 to countertop 1",
    )


def test_the_agent_may_be_there_already() -> None:
    plan = solve(game(mug(1, "Shelf_bar_1"), bring("CounterTop"), start="loc_bar_2"))
    assert plan == ("take mug 1 from shelf 2", "go to countertop 1", "move mug 1 to countertop 1")


def test_closed_doors_are_opened_once() -> None:
    plan = solve(game(mug(1, "Cabinet_bar_1"), bring("Cabinet", "isClean")))
    assert plan == (
        "go to cabinet 1",
        "open cabinet 1",
        "take mug 1 from cabinet 1",
        "go to sinkbasin 1",
        "clean mug 1 with sinkbasin 1",
        "go to cabinet 1",
        "move mug 1 to cabinet 1",
    )


def test_the_object_that_costs_least_is_chosen() -> None:
    # mug 1 is behind a door, mug 2 is not
    plan = solve(game(mug(2, "Cabinet_bar_1") + mug(1, "CounterTop_bar_1"), bring("Shelf")))
    assert plan is not None
    assert plan[1] == "take mug 2 from countertop 1"
    assert len(plan) == 4


def test_what_is_clean_already_is_only_moved() -> None:
    facts = mug(1, "CounterTop_bar_1") + "(isClean Mug_bar_1)"
    plan = solve(game(facts, bring("Shelf", "isClean")))
    assert plan is not None
    assert len(plan) == 4
    assert not any(command.startswith("clean") for command in plan)


def test_two_objects_meet_in_one_receptacle() -> None:
    # One on each shelf is not enough; moving either across is shortest.
    facts = mug(1, "Shelf_bar_1") + mug(2, "Shelf_bar_2")
    assert not Engine(game(facts, TWO_ON_A_SHELF)).won
    plan = solve(game(facts, TWO_ON_A_SHELF))
    assert plan in (
        ("go to shelf 1", "take mug 1 from shelf 1", "go to shelf 2", "move mug 1 to shelf 2"),
        ("go to shelf 2", "take mug 2 from shelf 2", "go to shelf 1", "move mug 2 to shelf 1"),
    )


def test_two_objects_are_fetched_one_after_the_other() -> None:
    plan = solve(game(mug(1, "CounterTop_bar_1") + mug(2, "Cabinet_bar_1"), TWO_ON_A_SHELF))
    assert plan is not None
    assert len(plan) == 9  # go, take, go, put; go, open, take, go, put


def test_the_lamp_is_switched_on_with_the_object_in_hand() -> None:
    plan = solve(game(mug(1, "Cabinet_bar_1") + lamp("Shelf_bar_1"), HOLD_AT_LAMP))
    assert plan == (
        "go to cabinet 1",
        "open cabinet 1",
        "take mug 1 from cabinet 1",
        "go to shelf 2",
        "use desklamp 1",
    )


def test_a_lamp_that_is_on_is_visited() -> None:
    facts = mug(1, "CounterTop_bar_1") + lamp("Shelf_bar_1") + "(isToggled DeskLamp_bar_1)"
    plan = solve(game(facts, HOLD_AT_LAMP))
    assert plan == ("go to countertop 1", "take mug 1 from countertop 1", "go to shelf 2")


def test_what_is_in_hand_is_not_fetched() -> None:
    facts = mug(1) + "(holds agent1 Mug_bar_1) (holdsAny agent1)"
    assert solve(game(facts, bring("Shelf"), start="loc_bar_3")) == ("move mug 1 to shelf 1",)


def test_a_thing_recorded_in_two_places_stays_in_the_other() -> None:
    # Official games have such things; taking it from one place leaves it in the other.
    plan = solve(game(mug(1, "CounterTop_bar_1", "Shelf_bar_1"), bring("Shelf", "isClean")))
    assert plan == ("go to countertop 1", "take mug 1 from countertop 1", "clean mug 1 with sinkbasin 1")


@pytest.mark.parametrize(
    ("facts", "goal"),
    [
        (mug(1, "CounterTop_bar_1"), bring("Shelf", "isHot")),  # no microwave
        (mug(1, "CounterTop_bar_1"), bring("Fridge")),  # mugs do not go there
        (mug(1, "CounterTop_bar_1"), TWO_ON_A_SHELF),  # there is only one
        (mug(1, "CounterTop_bar_1"), HOLD_AT_LAMP),  # no lamp
        (mug(1), bring("Shelf")),  # it is nowhere
        (mug(1, "CounterTop_bar_1"), bring("Shelf").replace("MugType", "CupType")),  # no such thing
    ],
)
def test_hopeless_games_have_no_plan(facts: str, goal: str) -> None:
    assert solve(game(facts, goal)) is None


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("archive", "every", "games"),
    [("json_2.1.1_tw-pddl.tar.xz", 10, 274 + 355), ("json_2.1.1_put_wording_valid.tar.xz", 1, 274)],
)
def test_official_games_are_solved_as_shortly_as_by_their_walkthroughs(
    official_files: Path, archive: str, every: int, games: int
) -> None:
    solved = trained = 0
    for task, content in read_games(official_files / archive):
        split = task.partition("/")[0]
        trained += split == "train"
        if split == "valid_train" or (split == "train" and trained % every):
            continue
        parsed = parse_game(content, task)
        plan = solve(parsed)
        assert plan, task
        assert parsed.walkthrough is None or len(plan) <= len(parsed.walkthrough), task
        engine = Engine(parsed)
        for command in plan:
            assert not engine.won, task
            assert engine.is_admissible(command), task
            engine.step(command)
        assert engine.won, task
        solved += 1
    assert solved == games

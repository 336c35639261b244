"""Goals of the six families on a hand-written kitchen, goals of other forms, and games that are refused."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench_envs.alfworld.domain import DOMAINS, domain_of
from seedbench_envs.alfworld.engine import Engine
from seedbench_envs.alfworld.game import Game, GameError, parse_game
from tests.envs.tiny_game import DOMAIN, Household, kitchen


def deliver(condition: str = "") -> str:
    return (
        f"(exists (?o - object ?r - receptacle) (and (objectType ?o AppleType) (receptacleType ?r ShelfType)"
        f" {condition} (inReceptacle ?o ?r)))"
    )


TWO = """(exists (?x - object ?y - object ?r - receptacle) (and (objectType ?x AppleType) (objectType ?y AppleType)
    (not (= ?x ?y)) (receptacleType ?r ShelfType) (inReceptacle ?x ?r) (inReceptacle ?y ?r)))"""
LOOK = """(and (exists (?lamp - object ?r - receptacle ?l - location ?a - agent)
        (and (objectType ?lamp DeskLampType) (toggleable ?lamp) (isToggled ?lamp) (inReceptacle ?lamp ?r)
          (receptacleAtLocation ?r ?l) (atLocation ?a ?l)))
    (exists (?o - object ?a - agent) (and (objectType ?o BookType) (holds ?a ?o))))"""


def two_shelves() -> Household:
    room = kitchen()
    room.furniture("Shelf_bar_2", "loc_bar_6")
    return room


def started(goal: str, room: Household | None = None) -> Engine:
    return Engine(parse_game((room or two_shelves()).file(goal)))


def won(engine: Engine, *commands: str) -> list[bool]:
    """`won` after each command; all must be admissible."""
    results = []
    for command in commands:
        assert engine.is_admissible(command), (command, engine.admissible)
        engine.step(command)
        results.append(engine.won)
    return results


def test_pick_any_object_of_the_type_in_any_receptacle_of_the_type() -> None:
    for shelf in ("shelf 1", "shelf 2"):
        engine = started(deliver())
        assert not engine.won
        assert won(
            engine, "go to countertop 1", "take knife 1 from countertop 1", "move knife 1 to shelf 2",
            "take apple 1 from countertop 1", f"go to {shelf}" if shelf == "shelf 1" else "look",
            f"move apple 1 to {shelf}",
        ) == [False, False, False, False, False, True]  # fmt: skip


def test_a_goal_can_be_undone() -> None:
    engine = started(deliver())
    assert won(
        engine, "go to countertop 1", "take apple 1 from countertop 1", "move apple 1 to shelf 2", "look",
        "take apple 1 from shelf 2", "move apple 1 to countertop 1", "take apple 1 from countertop 1",
        "move apple 1 to shelf 2",
    ) == [False, False, True, True, False, False, False, True]  # fmt: skip


def test_clean_asks_for_the_cleaned_one() -> None:
    engine = started(deliver("(cleanable ?o) (isClean ?o)"))
    assert won(
        engine, "go to countertop 1", "take apple 1 from countertop 1", "move apple 1 to shelf 2",
        "take apple 3 from countertop 1", "clean apple 3 with sinkbasin 1", "move apple 3 to countertop 1",
        "take apple 1 from shelf 2", "clean apple 1 with sinkbasin 1", "move apple 1 to shelf 2",
    ) == [False] * 8 + [True]  # fmt: skip


def test_heat_is_lost_by_cooling_and_the_reverse() -> None:
    taking = ("go to countertop 1", "take apple 1 from countertop 1")
    heating = ("go to microwave 1", "heat apple 1 with microwave 1")
    cooling = ("go to fridge 1", "cool apple 1 with fridge 1")
    putting = ("go to shelf 1", "move apple 1 to shelf 1")
    for goal, last_wins in ((deliver("(isHot ?o)"), heating), (deliver("(isCool ?o)"), cooling)):
        other = cooling if last_wins is heating else heating
        assert won(started(goal), *taking, *other, *last_wins, *putting) == [False] * 7 + [True]
        assert won(started(goal), *taking, *last_wins, *other, *putting) == [False] * 8


def test_two_different_objects_in_one_receptacle() -> None:
    engine = started(TWO)
    assert won(
        engine, "go to countertop 1", "take apple 1 from countertop 1", "move apple 1 to shelf 2",
        "take apple 3 from countertop 1", "go to shelf 1", "move apple 3 to shelf 1",
        "take apple 3 from shelf 1", "go to shelf 2", "move apple 3 to shelf 2",
    ) == [False] * 8 + [True]  # fmt: skip


def test_look_asks_for_a_switched_lamp_here_and_the_thing_in_hand() -> None:
    lamp, book = "use desklamp 1", "take book 1 from sidetable 1"
    assert won(started(LOOK), "go to sidetable 1", lamp, book) == [False, False, True]
    assert won(started(LOOK), "go to sidetable 1", book, lamp) == [False, False, True]
    # Switched off again, it still counts as toggled; away from the lamp, or with empty hands, nothing is won.
    engine = started(LOOK)
    assert won(
        engine, "go to sidetable 1", lamp, lamp, book, "go to countertop 1", "go to sidetable 1",
    ) == [False, False, False, True, False, True]  # fmt: skip


def test_a_goal_may_hold_at_the_start() -> None:
    room = two_shelves()
    room.thing("Apple_bar_9", "Shelf_bar_2")
    engine = started(deliver(), room)
    assert engine.won
    engine.step("look")
    assert engine.won
    assert "move" not in " ".join(engine.admissible)


ANY_GOALS = [
    parse_game(two_shelves().file(goal))
    for goal in (
        TWO, LOOK, deliver(), deliver("(isHot ?o)"), deliver("(isCool ?o)"), deliver("(isClean ?o)"),
        "(and (opened Fridge_bar_1) (atLocation agent1 loc_bar_5))", "(exists (?o - object) (isSliced ?o))",
        "(exists (?o - object) (and (isOn ?o) (objectAtLocation ?o loc_bar_5)))", "(holdsAny agent1)",
    )
]  # fmt: skip


@given(st.sampled_from(ANY_GOALS), st.lists(st.integers(0, 10**6), max_size=30))
@settings(max_examples=60, deadline=None)
def test_won_is_what_the_goal_says_after_every_command(game: Game, choices: list[int]) -> None:
    engine = Engine(game)
    for choice in choices:
        lively = [command for command in engine.admissible if not command.startswith("go to")]
        commands = lively if choice % 3 else engine.admissible
        engine.step(commands[choice // 3 % len(commands)])
        assert engine.won is game.reached(engine.state)


def test_a_constant_that_nothing_mentions_is_never_reached() -> None:
    goal = "(exists (?o - object) (and (objectType ?o PianoType) (holds agent1 ?o)))"
    assert not started(goal).won
    assert not started("(atLocation agent1 loc_bar_99)").won


def test_goals_may_name_things_directly() -> None:
    engine = started("(and (atLocation agent1 loc_bar_5) (opened Fridge_bar_1))")
    assert won(engine, "go to sidetable 1", "go to fridge 1", "open fridge 1", "go to sidetable 1") == [
        False, False, False, True,
    ]  # fmt: skip


def test_quantifiers_may_be_nested() -> None:
    goal = (
        "(exists (?r - receptacle) (and (receptacleType ?r ShelfType) (exists (?o - object)"
        " (and (objectType ?o AppleType) (inReceptacle ?o ?r)))))"
    )
    engine = started(goal)
    assert won(engine, "go to countertop 1", "take apple 3 from countertop 1", "move apple 3 to shelf 2")[-1]


@pytest.mark.parametrize(
    ("goal", "reason"),
    [
        ("(or (opened Fridge_bar_1) (opened Microwave_bar_1))", "cannot evaluate the goal part ['or'"),
        ("(not (opened Fridge_bar_1))", "cannot evaluate the goal part ['not'"),
        ("(forall (?o - object) (isClean ?o))", "cannot evaluate the goal part ['forall'"),
        ("(exists (?o - object) (and (isClean ?o) (exists (?o - object) (isHot ?o))))", "?o is quantified twice"),
        ("(exists (?o - object) (isShiny ?o))", "unknown predicate 'isshiny'"),
        ("(not_inReceptacle Apple_bar_1 Shelf_bar_1)", "cannot evaluate the goal part ['not_inreceptacle'"),
        ("(exists (?o - object) (isClean ?o ?o))", "'isclean' takes 1 arguments"),
        ("(exists (?o - object) (inReceptacle ?o))", "'inreceptacle' takes 2 arguments"),
        ("(exists (?o - object) (inReceptacle ?o ?o))", "stands twice in one literal"),
        ("()", "cannot evaluate the goal part []"),
        ("(and (opened Fridge_bar_1)", "does not close its parentheses"),
    ],
)
def test_goals_of_other_forms_are_refused_when_the_game_is_loaded(goal: str, reason: str) -> None:
    content = json.loads(kitchen().file("GOAL"))
    content["pddl_problem"] = content["pddl_problem"].replace("GOAL))", goal if goal[-2:] == "1)" else f"{goal}))")
    with pytest.raises(GameError) as caught:
        parse_game(json.dumps(content).encode(), "valid_seen/x/y")
    assert reason in str(caught.value)
    assert str(caught.value).startswith("valid_seen/x/y: ")
    assert "engine='reference'" in str(caught.value)


# ---- games that are refused -------------------------------------------------------------------------------


def content() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(kitchen().file(deliver()))
    return data


def refusal(data: bytes) -> str:
    with pytest.raises(GameError) as caught:
        parse_game(data, "a game")
    return str(caught.value)


@pytest.mark.parametrize("cut", [0, 1, 100, 5000, -1])
def test_a_truncated_file_is_refused_with_its_size_and_the_way_to_mend_it(cut: int) -> None:
    data = kitchen().file(deliver())[:cut]
    message = refusal(data)
    assert f"a game: not a complete ALFWorld game file ({len(data):,} bytes" in message
    assert "`seedbench data fetch alfworld`" in message


DEEP = pytest.param(b"[" * 99_999, id="deep")


@pytest.mark.parametrize("data", [b"[]", b"null", b'"text"', b"3", b"\xff\xfe", b"{}", DEEP, b'{"pddl_domain": "x"}'])
def test_json_of_another_shape_is_refused(data: bytes) -> None:
    assert "not a complete ALFWorld game file" in refusal(data)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((field, value) for field in ("pddl_domain", "grammar", "pddl_problem") for value in (None, 3, ["x"])),
        ("pddl_domain", "\ud800"), ("walkthrough", "look"), ("walkthrough", {"look": 1}), ("walkthrough", [1]),
        ("walkthrough", 7),
    ],
)  # fmt: skip
def test_fields_of_another_type_are_refused(field: str, value: object) -> None:
    message = refusal(json.dumps({**content(), field: value}).encode())
    assert "not a complete ALFWorld game file" in message


def test_an_unknown_domain_is_refused_by_its_hash() -> None:
    data = json.dumps({**content(), "pddl_domain": "(define (domain chess))"}).encode()
    message = refusal(data)
    # printf '(define (domain chess))' | sha256sum | cut -c 1-12
    assert "unknown PDDL domain 5012891d6e5c (" in message
    for known in DOMAINS:
        assert known in message
    assert "engine='reference'" in message
    assert domain_of(data) is None
    assert domain_of(kitchen().file(deliver())) is DOMAINS["b96d72682616"]
    # One space more is another domain: the engine implements the text that it knows.
    assert "unknown PDDL domain" in refusal(json.dumps({**content(), "pddl_domain": DOMAIN + " "}).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", DEEP, b'{"pddl_domain": 3}', b"\xff"])
def test_the_domain_of_a_damaged_file_is_unknown(data: bytes) -> None:
    assert domain_of(data) is None


@pytest.mark.parametrize(
    ("fact", "reason"),
    [
        ("isShiny Apple_bar_1", "the predicate 'isshiny'"),
        ("atLocation agent2 loc_bar_1", "2 agents"),
        ("receptacleAtLocation Fridge_bar_1 loc_bar_3", "stands at two locations"),
        ("not_inReceptacle Apple_bar_1 Shelf_bar_1", "the predicate 'not_inreceptacle'"),
        ("not (opened Fridge_bar_1)", "a negated fact"),
        ("inReceptacle Apple_bar_1", "'inreceptacle' takes 2 arguments"),
        ("isHot", "'ishot' takes 1 arguments"),
        ("isHot Apple_bar_1 Apple_bar_2", "'ishot' takes 1 arguments"),
        ("holds agent1 Apple_bar_2", "holds and holdsAny do not agree"),
        ("holdsAny agent1", "holds and holdsAny do not agree"),
        ("holds agent2 Apple_bar_2) (holdsAny agent1", "holds and holdsAny do not agree"),
        ("holds agent1 Apple_bar_2) (holds agent1 Mug_bar_1) (holdsAny agent1", "do not agree on one object in hand"),
    ],
)
def test_facts_that_the_engine_does_not_implement_are_refused(fact: str, reason: str) -> None:
    data = content()
    data["pddl_problem"] = data["pddl_problem"].replace("(:init", f"(:init ({fact})")
    assert reason in refusal(json.dumps(data).encode())


def test_a_problem_without_its_parts_is_refused() -> None:
    for part in ("(:objects", "(:init", "(:goal"):
        data = content()
        data["pddl_problem"] = data["pddl_problem"].replace(part, "(:other")
        assert "no objects, initial state or goal" in refusal(json.dumps(data).encode())


def test_comments_and_upper_case_in_a_problem_do_not_matter() -> None:
    data = content()
    plain = Engine(parse_game(json.dumps(data).encode()))
    data["pddl_problem"] = data["pddl_problem"].upper().replace("(:INIT", "; (isShiny Apple) \n(:init ; here", 1)
    loud = Engine(parse_game(json.dumps(data).encode()))
    assert loud.reset() == plain.reset()
    assert loud.admissible == plain.admissible

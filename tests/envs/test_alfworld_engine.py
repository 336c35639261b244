"""The native engine on a small hand-written kitchen. Every expected text and list was worked out by hand."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench_envs.alfworld.engine import NOTHING, Engine
from seedbench_envs.alfworld.game import Game, parse_game
from seedbench_envs.alfworld.state import State
from tests.envs.tiny_game import FOOD, Household, kitchen

NEVER = """(exists (?o - object ?r - receptacle)
    (and (objectType ?o MugType) (receptacleType ?r SafeType) (inReceptacle ?o ?r)))"""

INTRO = (
    "-= Welcome to TextWorld, ALFRED! =-\n\n"
    "You are in the middle of a room. Looking quickly around you, you see a cabinet 2, a cabinet 1, a countertop 1,"
    " a fridge 1, a microwave 1, a shelf 1, a sidetable 1, and a sinkbasin 1.\n\n"
    "Your task is to: put a mug in the safe."
)
AT_ONCE = ["help", "inventory", "look"]
ELSEWHERE = {
    "go to cabinet 1": 4, "go to cabinet 2": 4, "go to countertop 1": 1, "go to fridge 1": 2,
    "go to microwave 1": 3, "go to shelf 1": 1, "go to sidetable 1": 5, "go to sinkbasin 1": 1,
}  # fmt: skip


def game(room: Household | None = None, goal: str = NEVER, task: str = "put a mug in the safe", **options: Any) -> Game:
    return parse_game((room or kitchen()).file(goal, task, **options))


def play(engine: Engine, *commands: str) -> list[str]:
    """The observations of commands that must all be admissible."""
    answers = []
    for command in commands:
        assert engine.is_admissible(command), (command, engine.admissible)
        answers.append(engine.step(command))
    return answers


def commands_at(location: int, *local: str) -> list[str]:
    moves = [command for command, place in ELSEWHERE.items() if place != location]
    return sorted([*AT_ONCE, *moves, *local])


def snapshot(state: State) -> dict[str, Any]:
    return {name: deepcopy(getattr(state, name)) for name in State.__slots__ if name != "game"}


@pytest.fixture
def engine() -> Engine:
    return Engine(game())


# ---- the start, moving, looking ---------------------------------------------------------------------------


def test_first_observation_and_commands(engine: Engine) -> None:
    assert engine.reset() == INTRO
    assert engine.admissible == commands_at(0)
    assert engine.won is False
    assert engine.game.instruction == "put a mug in the safe"


def test_names_count_down_over_sorted_ids(engine: Engine) -> None:
    names = dict(zip(engine.game.ids, engine.game.names, strict=True))
    assert [names[f"apple_bar_{n}"] for n in (1, 2, 3)] == ["apple 3", "apple 2", "apple 1"]
    assert names["cabinet_bar__minus_1"] == "cabinet 2"  # "minus" sorts before "plus"
    assert names["cabinet_bar__plus_1"] == "cabinet 1"
    assert names["sink_bar_1_bar_sinkbasin"] == "sinkbasin 1"


def test_ten_of_a_kind_are_numbered_by_the_text_of_their_ids() -> None:
    room = Household()
    for number in range(1, 11):
        room.furniture(f"Shelf_bar_{number}", f"loc_bar_{number}")
    sorted_as_text = [1, 10, 2, 3, 4, 5, 6, 7, 8, 9]
    engine = Engine(game(room))
    names = dict(zip(engine.game.ids, engine.game.names, strict=True))
    assert [names[f"shelf_bar_{n}"] for n in sorted_as_text] == [f"shelf {n}" for n in range(10, 0, -1)]
    # Commands are sorted as text, too: 10 comes before 2.
    assert [c for c in engine.admissible if c.startswith("go to")] == [f"go to shelf {n}" for n in sorted_as_text]


def test_looking_around_before_the_first_move_shows_nothing(engine: Engine) -> None:
    assert play(engine, "look") == ["You are in the middle of a room. Looking quickly around you, you see nothing."]


def test_receptacles_at_one_location_are_reached_with_one_move(engine: Engine) -> None:
    assert play(engine, "go to countertop 1") == [
        "You arrive at countertop 1. On the countertop 1, you see a apple 3, a apple 1, and a knife 1."
    ]
    assert engine.admissible == commands_at(
        1, "examine countertop 1", "examine shelf 1", "examine sinkbasin 1", "take apple 3 from countertop 1",
        "take apple 1 from countertop 1", "take knife 1 from countertop 1",
    )  # fmt: skip
    assert engine.step("go to sinkbasin 1") == NOTHING
    assert engine.step("go to countertop 1") == NOTHING
    assert play(engine, "examine sinkbasin 1", "look") == [
        "On the sinkbasin 1, you see nothing.",
        "You are facing the countertop 1, shelf 1, and sinkbasin 1. Next to it, you see nothing.",
    ]


def test_closed_receptacles_hide_their_contents(engine: Engine) -> None:
    assert play(engine, "go to cabinet 2", "examine cabinet 2") == [
        "You arrive at cabinet 2. The cabinet 2 is closed.",
        "The cabinet 2 is closed.",
    ]
    closed = commands_at(4, "examine cabinet 1", "examine cabinet 2", "open cabinet 1", "open cabinet 2")
    assert engine.admissible == closed
    assert engine.step("take mug 1 from cabinet 2") == NOTHING
    assert play(engine, "open cabinet 2") == ["You open the cabinet 2. The cabinet 2 is open. In it, you see a mug 1."]
    assert engine.admissible == commands_at(
        4, "examine cabinet 1", "examine cabinet 2", "open cabinet 1", "close cabinet 2", "take mug 1 from cabinet 2"
    )
    assert engine.step("open cabinet 2") == NOTHING
    assert play(engine, "close cabinet 2") == ["You close the cabinet 2."]
    assert engine.admissible == closed


def test_an_open_receptacle_stays_open_and_may_be_empty(engine: Engine) -> None:
    answers = play(engine, "go to microwave 1", "open microwave 1", "go to fridge 1", "go to microwave 1")
    assert answers[1] == "You open the microwave 1. The microwave 1 is open. In it, you see nothing."
    assert answers[3] == "You arrive at microwave 1. The microwave 1 is open. In it, you see nothing."


# ---- taking and putting -----------------------------------------------------------------------------------


def test_one_thing_in_hand_at_a_time(engine: Engine) -> None:
    assert play(engine, "inventory") == ["You are not carrying anything."]
    answers = play(engine, "go to countertop 1", "take apple 1 from countertop 1", "inventory", "examine apple 1")
    assert answers[1:] == [
        "You pick up the apple 1 from the countertop 1.",
        "You are carrying: a apple 1.",
        "There's nothing special about apple 1.",
    ]
    assert engine.admissible == commands_at(
        1, "clean apple 1 with sinkbasin 1", "examine apple 1", "examine countertop 1", "examine shelf 1",
        "examine sinkbasin 1", "move apple 1 to countertop 1", "move apple 1 to shelf 1", "move apple 1 to sinkbasin 1",
    )  # fmt: skip
    assert engine.step("take apple 3 from countertop 1") == NOTHING
    assert play(engine, "move apple 1 to shelf 1", "examine shelf 1", "examine countertop 1") == [
        "You move the apple 1 to the shelf 1.",
        "On the shelf 1, you see a apple 1.",
        "On the countertop 1, you see a apple 3, and a knife 1.",
    ]


def test_things_go_only_where_their_type_fits_and_the_door_is_open(engine: Engine) -> None:
    play(engine, "go to countertop 1", "take knife 1 from countertop 1", "go to fridge 1", "open fridge 1")
    assert engine.step("move knife 1 to fridge 1") == NOTHING  # no knives in the fridge
    play(engine, "go to cabinet 1")
    assert engine.step("move knife 1 to cabinet 1") == NOTHING  # closed
    assert play(engine, "open cabinet 1", "move knife 1 to cabinet 1", "close cabinet 1") == [
        "You open the cabinet 1. The cabinet 1 is open. In it, you see nothing.",
        "You move the knife 1 to the cabinet 1.",
        "You close the cabinet 1.",
    ]
    assert engine.step("take knife 1 from cabinet 1") == NOTHING


def test_what_was_moved_within_a_location_counts_as_next_to_it(engine: Engine) -> None:
    """Negations are facts only after a deletion: `look` lists what is here but no longer where it once was."""
    facing = "You are facing the countertop 1, shelf 1, and sinkbasin 1. Next to it, you see "
    play(engine, "go to countertop 1", "take apple 3 from countertop 1")
    assert play(engine, "look") == [f"{facing}nothing."]  # in hand: no longer at the location
    play(engine, "move apple 3 to sinkbasin 1")
    assert play(engine, "look") == [f"{facing}a apple 3."]
    play(engine, "take knife 1 from countertop 1", "move knife 1 to shelf 1")
    assert play(engine, "look") == [f"{facing}a apple 3, and a knife 1."]
    # Once taken from two receptacles and lying on a third: listed once for each of the two.
    play(engine, "take apple 3 from sinkbasin 1", "move apple 3 to shelf 1")
    assert play(engine, "look") == [f"{facing}a apple 3, a apple 3, and a knife 1."]
    # Back where it came from, only the other deletion is left.
    play(engine, "take apple 3 from shelf 1", "move apple 3 to countertop 1")
    assert play(engine, "look") == [f"{facing}a apple 3, a apple 3, and a knife 1."]
    play(engine, "take knife 1 from shelf 1", "move knife 1 to countertop 1")
    assert play(engine, "look") == [f"{facing}a apple 3, a apple 3, and a knife 1."]
    # Away to another location and gone from this one.
    play(engine, "take knife 1 from countertop 1", "go to sidetable 1", "move knife 1 to sidetable 1")
    assert play(engine, "look") == ["You are facing the sidetable 1. Next to it, you see nothing."]
    play(engine, "go to shelf 1")
    assert play(engine, "look") == [f"{facing}a apple 3, and a apple 3."]


# ---- changing things --------------------------------------------------------------------------------------


def test_heating_and_cooling_undo_each_other_and_need_no_open_door(engine: Engine) -> None:
    play(engine, "go to countertop 1", "take apple 3 from countertop 1")
    assert play(engine, "go to microwave 1", "heat apple 3 with microwave 1", "examine apple 3") == [
        "You arrive at microwave 1. The microwave 1 is closed.",
        "You heat the apple 3 using the microwave 1.",
        "This is a hot apple 3.",
    ]
    assert play(engine, "go to fridge 1", "cool apple 3 with fridge 1", "examine apple 3") == [
        "You arrive at fridge 1. The fridge 1 is closed.",
        "You cool the apple 3 using the fridge 1.",
        "This is a cold apple 3.",
    ]
    assert play(engine, "go to sinkbasin 1", "clean apple 3 with sinkbasin 1", "examine apple 3") == [
        "You arrive at sinkbasin 1. On the sinkbasin 1, you see nothing.",
        "You clean the apple 3 using the sinkbasin 1.",
        "This is a cool and clean apple 3.",
    ]
    assert play(engine, "go to microwave 1", "heat apple 3 with microwave 1", "examine apple 3")[1:] == [
        "You heat the apple 3 using the microwave 1.",
        "This is a hot and clean apple 3.",
    ]
    assert engine.is_admissible("heat apple 3 with microwave 1")  # again, without effect


def test_only_what_is_capable_and_held_can_be_changed(engine: Engine) -> None:
    play(engine, "go to countertop 1")
    assert engine.step("clean apple 3 with sinkbasin 1") == NOTHING  # not held
    play(engine, "take knife 1 from countertop 1", "clean knife 1 with sinkbasin 1")
    assert play(engine, "examine knife 1") == ["This is a clean knife 1."]
    assert engine.step("clean knife 1 with countertop 1") == NOTHING
    play(engine, "go to microwave 1")
    assert engine.step("heat knife 1 with microwave 1") == NOTHING


def test_slicing_goes_by_where_things_were_recorded(engine: Engine) -> None:
    """Apple 1 lies on the counter, but its location fact says the side table: only there it can be sliced."""
    play(engine, "go to countertop 1")
    assert engine.step("slice apple 3 with knife 1") == NOTHING  # no knife in hand
    play(engine, "take knife 1 from countertop 1")
    assert [c for c in engine.admissible if c.startswith("slice")] == ["slice apple 3 with knife 1"]
    assert play(engine, "slice apple 3 with knife 1") == ["You sliced the apple 3 with the knife 1."]
    play(engine, "go to sidetable 1")
    assert [c for c in engine.admissible if c.startswith("slice")] == ["slice apple 1 with knife 1"]
    assert play(engine, "slice apple 1 with knife 1", "move knife 1 to sidetable 1")[0] == (
        "You sliced the apple 1 with the knife 1."
    )
    assert play(engine, "go to countertop 1", "take apple 1 from countertop 1", "examine apple 1")[2] == (
        "This is a sliced apple 1."
    )
    # Taken from the counter, it keeps its wrong record; put down here, it gets a second one.
    play(engine, "move apple 1 to shelf 1", "go to sidetable 1", "take knife 1 from sidetable 1")
    assert engine.is_admissible("slice apple 1 with knife 1")
    play(engine, "go to shelf 1")
    assert engine.is_admissible("slice apple 1 with knife 1")


def test_things_behind_a_closed_door_can_be_sliced(engine: Engine) -> None:
    play(engine, "go to countertop 1", "take knife 1 from countertop 1", "go to fridge 1")
    assert play(engine, "slice apple 2 with knife 1") == ["You sliced the apple 2 with the knife 1."]


def test_switching_always_says_on(engine: Engine) -> None:
    play(engine, "go to sidetable 1")
    lamp = engine.game.names.index("desklamp 1")
    for turn in range(3):
        assert play(engine, "use desklamp 1") == ["You turn on the desklamp 1."]
        assert (lamp in engine.state.on) is (turn % 2 == 0)
        assert lamp in engine.state.toggled
    assert engine.step("take desklamp 1 from sidetable 1") == NOTHING
    assert engine.step("use book 1") == NOTHING


def test_a_lamp_in_a_closed_receptacle_can_be_switched() -> None:
    room = kitchen()
    room.fixture("DeskLamp_bar_2", "Cabinet_bar__plus_1", "toggleable")
    engine = Engine(game(room))
    assert play(engine, "go to cabinet 1", "use desklamp 1")[1] == "You turn on the desklamp 1."


def test_only_what_is_held_can_be_examined(engine: Engine) -> None:
    play(engine, "go to sidetable 1")
    assert engine.step("examine book 1") == NOTHING
    assert engine.step("examine desklamp 1") == NOTHING
    play(engine, "take book 1 from sidetable 1", "go to cabinet 1")
    assert play(engine, "examine book 1") == ["There's nothing special about book 1."]
    assert engine.step("examine sidetable 1") == NOTHING  # elsewhere


def test_examining_a_vessel_shows_what_it_holds() -> None:
    room = kitchen()
    room.thing("Pen_bar_1", "SideTable_bar_1")
    room.facts.append("inReceptacleObject Pen_bar_1 Mug_bar_1")
    engine = Engine(game(room))
    play(engine, "go to cabinet 2", "open cabinet 2", "take mug 1 from cabinet 2", "go to sinkbasin 1")
    play(engine, "clean mug 1 with sinkbasin 1")
    assert play(engine, "examine mug 1") == ["This is a normal mug 1. In it, you see a pen 1."]


# ---- commands as text -------------------------------------------------------------------------------------


def test_space_around_a_command_is_ignored_and_nothing_else(engine: Engine) -> None:
    nothing = ("Look", "look.", "loo k", "go  to shelf 1", "go to shelf", "goto shelf 1", "go to shelf 01", "", " ",
               "\n", "xyzzy", "put apple 1 in/on shelf 1", "go to loc 1")  # fmt: skip
    for wrong in nothing:
        before = snapshot(engine.state)
        assert not engine.is_admissible(wrong), wrong
        assert engine.step(wrong) == NOTHING
        assert snapshot(engine.state) == before
    assert engine.step(" \t go to countertop 1 \n").startswith("You arrive at countertop 1.")


def test_reporting_commands_change_nothing(engine: Engine) -> None:
    play(engine, "go to countertop 1", "take apple 1 from countertop 1")
    before, commands = snapshot(engine.state), engine.admissible
    answers = play(engine, "help", "look", "inventory", "examine apple 1", "examine shelf 1")
    assert snapshot(engine.state) == before
    assert engine.admissible == commands
    for verb in ("go to", "open", "close", "take", "move", "examine", "use", "heat", "clean", "cool", "slice"):
        assert verb in answers[0]
    assert not answers[0].startswith("\n")


def test_changing_the_returned_commands_changes_no_state(engine: Engine) -> None:
    engine.admissible.clear()
    engine.admissible.append("dance")
    assert engine.admissible == commands_at(0)
    assert engine.step("dance") == NOTHING


def test_reset_starts_over(engine: Engine) -> None:
    start = snapshot(engine.state)
    play(engine, "go to countertop 1", "take apple 1 from countertop 1", "clean apple 1 with sinkbasin 1")
    play(engine, "move apple 1 to sinkbasin 1", "go to fridge 1", "open fridge 1")
    assert engine.reset() == INTRO
    assert snapshot(engine.state) == start
    assert engine.admissible == commands_at(0)


# ---- initial states ---------------------------------------------------------------------------------------


def test_an_episode_may_start_with_something_in_hand() -> None:
    room = kitchen()
    room.in_hand("Mug_bar_2", FOOD)
    engine = Engine(game(room))
    assert play(engine, "inventory", "examine mug 1") == [
        "You are carrying: a mug 1.",
        "There's nothing special about mug 1.",
    ]
    play(engine, "go to countertop 1")
    assert engine.step("take apple 1 from countertop 1") == NOTHING
    play(engine, "move mug 1 to shelf 1", "take apple 1 from countertop 1")


def test_doors_may_be_open_and_things_treated_at_the_start() -> None:
    room = kitchen()
    room.facts += ["opened Fridge_bar_1", "isCool Apple_bar_2", "isClean Apple_bar_2", "isSliced Apple_bar_2"]
    engine = Engine(game(room))
    assert play(engine, "go to fridge 1") == ["You arrive at fridge 1. The fridge 1 is open. In it, you see a apple 2."]
    play(engine, "take apple 2 from fridge 1", "close fridge 1")
    assert play(engine, "examine apple 2") == ["This is a cool and clean sliced apple 2."]
    play(engine, "go to microwave 1", "heat apple 2 with microwave 1")
    assert play(engine, "examine apple 2") == ["This is a hot and clean sliced apple 2."]


def test_games_do_not_share_state() -> None:
    shared = game()
    first, second = Engine(shared), Engine(shared)
    play(first, "go to countertop 1", "take apple 1 from countertop 1", "move apple 1 to shelf 1")
    assert snapshot(second.state) == snapshot(Engine(game()).state)
    assert second.admissible == commands_at(0)


GAME = game()


@given(st.lists(st.integers(0, 10**6), max_size=40))
@settings(max_examples=60, deadline=None)
def test_admissible_commands_always_answer_and_keep_the_room_consistent(choices: list[int]) -> None:
    engine = Engine(GAME)
    things = sorted(x for items in engine.state.contents.values() for x in items)
    for choice in choices:
        commands = engine.admissible
        assert commands == sorted(set(commands))
        answer = engine.step(commands[choice % len(commands)])
        assert answer
        assert answer != NOTHING
        state = engine.state
        held = [state.held] if state.held >= 0 else []
        assert sorted([x for items in state.contents.values() for x in items] + held) == things
        assert all(items == sorted(set(items)) for items in state.contents.values())
        assert not state.hot & state.cool
        assert engine.won is engine.game.reached(state)


@given(st.lists(st.one_of(st.text(max_size=30), st.sampled_from(["take", "go to", "mug 1", "look look", "examine "]))))
@settings(max_examples=60, deadline=None)
def test_no_text_raises_and_inadmissible_text_changes_nothing(commands: list[str]) -> None:
    engine = Engine(GAME)
    engine.step("go to countertop 1")
    for command in commands:
        before, admissible = snapshot(engine.state), engine.is_admissible(command)
        assert admissible is (command.strip() in engine.admissible)
        assert (engine.step(command) == NOTHING) is not admissible
        if not admissible:
            assert snapshot(engine.state) == before

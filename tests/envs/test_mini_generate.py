"""The generated ALFWorld games: counts, determinism, splits, and that every one is won by its walkthrough."""

import hashlib
import json
import re
from collections import Counter, defaultdict
from itertools import chain, combinations, islice
from pathlib import Path
from statistics import median

import pytest

import seedbench_envs.mini
from seedbench_envs.alfworld.domain import DOMAINS
from seedbench_envs.alfworld.engine import Engine
from seedbench_envs.alfworld.game import parse_game
from seedbench_envs.alfworld.sources import task_id_of
from seedbench_envs.mini.generate import FAMILIES, STEPS, generate
from seedbench_envs.mini.household import LAMPS, OBJECTS, RECEPTACLES, ROOM_KINDS, TREATMENTS
from seedbench_envs.mini.rooms import furnish, rooms_of
from seedbench_envs.mini.sizes import FULL, MEDIUM, SIZES, SMALL, Size

Games = dict[str, bytes]

FIRST_SHA256 = "af30215f3dacec9247ae8b5e3978030623f1c873b0a700371326579a1086e4d4"
ALL_SHA256 = {
    "full": "7917094f927c68627c06d2d30ea68291949d1192b408c934c4e2965bc83283c6",
    "small": "8c0f9f0bcd1ed621a73293e82db8e91f0abe393f40f5842fed599924a5068d86",
    "medium": "15af3ba3a7259d9d7d9cc11ad10ada3288b2a07d877bec5cb55c17c450c1896a",
}
SPLITS = {
    "full": {"train": 100, "valid_seen": 20, "valid_unseen": 20},
    "small": {"train": 800, "valid_seen": 40, "valid_unseen": 40},
    "medium": {"train": 100, "valid_seen": 40, "valid_unseen": 40},
}


def drawn(size: Size) -> Games:
    pairs = list(generate(size=size))
    by_id = dict(pairs)
    assert len(by_id) == len(pairs)
    return by_id


@pytest.fixture(scope="module")
def games() -> Games:
    return drawn(FULL)


@pytest.fixture(scope="module")
def by_size(games: Games) -> dict[str, Games]:
    return {"full": games, "small": drawn(SMALL), "medium": drawn(MEDIUM)}


def parts(task: str) -> tuple[str, str, str, str, int]:
    """Split, family, object, receptacle and scene of a task id."""
    split, folder, _ = task.split("/")
    family, thing, movable, receptacle, scene = folder.split("-")
    assert movable == "None"
    return split, family, thing, receptacle, int(scene)


def test_counts_by_split_and_family(by_size: dict[str, Games]) -> None:
    for name, games in by_size.items():
        counts = Counter(parts(task)[:2] for task in games)
        assert counts == {(split, family): n for split, n in SPLITS[name].items() for family in FAMILIES}
    assert len(FAMILIES) == 6


def test_families_take_turns(games: Games) -> None:
    assert [parts(task)[1] for task in islice(games, 12)] == [*FAMILIES, *FAMILIES]


def test_ids_have_the_official_shape(by_size: dict[str, Games]) -> None:
    for name, mark, block in (("full", "mini", 1), ("small", "small", 2), ("medium", "medium", 3)):
        for number, task in enumerate(by_size[name]):
            assert task_id_of(f"any/where/{task}/game.tw-pddl") == task
            assert task.endswith(f"/trial_{mark}_{number:06d}")
            assert parts(task)[4] // 1000 == block  # official scenes end at 430


def test_equal_seeds_give_equal_bytes_everywhere(by_size: dict[str, Games]) -> None:
    first = next(iter(by_size["full"].values()))
    assert hashlib.sha256(first).hexdigest() == FIRST_SHA256
    for name, games in by_size.items():
        everything = hashlib.sha256()
        for task, content in games.items():
            everything.update(f"{task}\0".encode() + content)
        assert everything.hexdigest() == ALL_SHA256[name], name


def test_two_runs_are_equal_and_seeds_differ(games: Games) -> None:
    assert list(islice(generate(0), 60)) == list(islice(games.items(), 60))
    assert not {content for _, content in islice(generate(1), 60)} & set(games.values())


def test_every_game_is_won_by_its_walkthrough_and_not_before(by_size: dict[str, Games]) -> None:
    for task, content in chain.from_iterable(games.items() for games in by_size.values()):
        game = parse_game(content, task)
        engine = Engine(game)
        assert game.dialect == "2.1.2"
        assert game.walkthrough is not None
        assert len(game.walkthrough) in STEPS, task
        for command in game.walkthrough:
            assert not engine.won, task
            assert engine.is_admissible(command), (task, command)
            engine.step(command)
        assert engine.won, task


def test_no_two_games_are_about_the_same_situation(by_size: dict[str, Games]) -> None:
    everything = list(chain.from_iterable(games.items() for games in by_size.values()))
    assert len({hashlib.sha256(content).digest() for _, content in everything}) == len(everything) == 7200
    situations = set()
    for task, content in everything:
        game = parse_game(content)
        lying = sorted(re.findall(r"\(inReceptacle ([A-Za-z]+)_bar_\S+ (\S+)\)", json.loads(content)["pddl_problem"]))
        situations.add((*parts(task)[1:], game.start, *lying))  # neither sentences nor things' ids
    assert len(situations) == len(everything)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.name)
def test_unseen_rooms_have_other_furniture(size: Size) -> None:
    for kind in ROOM_KINDS:
        rooms = rooms_of(0, kind, size)
        assert [room.scene for room in rooms] == [size.first_scene + kind.first_scene + n for n in range(size.rooms)]
        assert all(one.furniture != other.furniture for one, other in combinations(rooms, 2))


@pytest.mark.parametrize(("name", "known", "new"), [("full", 28, 12), ("small", 192, 46), ("medium", 79, 40)])
def test_unseen_rooms_are_not_in_train(by_size: dict[str, Games], name: str, known: int, new: int) -> None:
    games = by_size[name]
    scenes: dict[str, set[int]] = defaultdict(set)
    layouts: dict[str, set[str]] = defaultdict(set)
    for task, content in games.items():
        split, *_, scene = parts(task)
        scenes[split].add(scene)
        places = re.findall(r"\(receptacleAtLocation [A-Z][^)]+\)", json.loads(content)["pddl_problem"])
        layouts[split].add("".join(places))
    assert scenes["valid_seen"] <= scenes["train"]
    assert not scenes["valid_unseen"] & scenes["train"]
    assert not layouts["valid_unseen"] & layouts["train"]
    assert len(layouts["train"]) == len(scenes["train"]) == known
    assert len(layouts["valid_unseen"]) == len(scenes["valid_unseen"]) == new


def test_the_sentence_names_what_the_goal_asks_for(games: Games) -> None:
    marks = {
        "pick_clean_then_place_in_recep": ("clean", "wash"),
        "pick_heat_then_place_in_recep": ("hot", "warm", "heat"),
        "pick_cool_then_place_in_recep": ("cold", "chill", "cool"),
        "pick_two_obj_and_place": ("another", "two", "second"),
        "look_at_obj_in_light": ("light", "switched on", "turned on"),
    }
    phrasings: dict[str, set[str]] = defaultdict(set)
    for task, content in games.items():
        _, family, thing, receptacle, _ = parts(task)
        game = parse_game(content, task)
        assert game.task_sentence in Engine(game).reset()
        words = set(re.findall(r"[a-z]+", game.instruction))
        assert {thing.lower(), receptacle.lower()} <= words, game.task_sentence
        assert any(mark in game.instruction for mark in marks.get(family, ("",))), game.task_sentence
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]|  ", game.task_sentence)
        assert game.task_sentence.endswith(".")
        phrasings[family].add(game.instruction.replace(thing.lower(), "").replace(receptacle.lower(), ""))
    assert all(len(found) >= 3 for found in phrasings.values())


def test_rooms_are_of_a_sensible_size(games: Games) -> None:
    shared = closed = 0
    for content in games.values():
        game = parse_game(content)
        assert 6 <= len(game.location_of) <= 14
        assert 10 <= sum(len(items) for items in game.objects_of_type.values()) <= 25
        assert game.start not in game.receptacles_at
        assert max(len(found) for found in game.receptacles_at.values()) <= 3
        shared += max(len(found) for found in game.receptacles_at.values()) > 1
        closed += any(command.startswith("open ") for command in game.walkthrough or ())
        if game.appliances["heatobject"]:
            assert game.knives
            assert game.appliances["cleanobject"]
            assert game.appliances["coolobject"]
    assert shared > len(games) / 2
    assert closed > len(games) / 4


@pytest.mark.parametrize(
    ("name", "receptacles", "things"), [("small", {4, 5}, {3, 4, 5}), ("medium", {6, 7, 8}, {6, 7, 8, 9})]
)
def test_smaller_households(by_size: dict[str, Games], name: str, receptacles: set[int], things: set[int]) -> None:
    contents = by_size[name].values()
    games = [parse_game(content) for content in contents]
    assert {len(game.location_of) for game in games} == receptacles
    assert {len(re.findall(r"\(pickupable ", json.loads(content)["pddl_problem"])) for content in contents} == things
    assert median(len(game.walkthrough or ()) for game in games) == 6


def test_things_start_where_the_rules_allow(games: Games) -> None:
    allowed = {kind.name: kind.places for kind in OBJECTS} | {lamp: frozenset(at) for lamp, at in LAMPS.items()}
    for content in islice(games.values(), 120):
        problem = json.loads(content)["pddl_problem"]
        placed = re.findall(r"\(inReceptacle ([A-Za-z]+)_bar_\S+ (\S+)\)", problem.partition("(:goal")[0])
        assert len(placed) >= 10
        for thing, place in placed:
            base, _, rest = place.partition("_bar_")
            assert (rest.rpartition("_bar_")[2] if rest.endswith("Basin") else base) in allowed[thing]


def test_the_text_of_a_whole_game(games: Games) -> None:
    task, content = next(iter(games.items()))
    assert task == "train/pick_and_place_simple-TissueBox-None-ArmChair-1205/trial_mini_000000"
    engine = Engine(parse_game(content))
    assert engine.reset() == (
        "-= Welcome to TextWorld, ALFRED! =-\n\n"
        "You are in the middle of a room. Looking quickly around you, you see a armchair 2, a armchair 1,"
        " a bookcase 1, a cabinet 1, a coffeetable 1, a drawer 1, a ottoman 1, a safe 1, a sidetable 1, and a sofa 1."
        "\n\nYour task is to: find a tissuebox and leave it on an armchair."
    )
    walkthrough = engine.game.walkthrough
    assert walkthrough is not None
    assert [(command, engine.step(command)) for command in walkthrough] == [
        (
            "go to sidetable 1",
            "You arrive at sidetable 1. On the sidetable 1, you see a desklamp 1, a remotecontrol 2,"
            " a tablelamp 1, and a tissuebox 2.",
        ),
        ("take tissuebox 2 from sidetable 1", "You pick up the tissuebox 2 from the sidetable 1."),
        ("go to armchair 2", "You arrive at armchair 2. On the armchair 2, you see a cushion 1, and a laptop 1."),
        ("move tissuebox 2 to armchair 2", "You move the tissuebox 2 to the armchair 2."),
    ]


def test_furniture_keeps_to_its_room() -> None:
    kitchen = ROOM_KINDS[0]
    room = furnish(0, kitchen, 1001)
    assert room == furnish(0, kitchen, 1001)
    assert room != furnish(0, kitchen, 1002)
    for name, fewest, most in kitchen.receptacles:
        assert fewest <= sum(piece.type == name for piece in room.receptacles) <= most
    assert len({piece.id for piece in room.receptacles}) == len(room.receptacles)


def test_the_household_is_consistent() -> None:
    for kind in ROOM_KINDS:
        names = [name for name, _, _ in kind.receptacles]
        assert set(names) <= set(RECEPTACLES)
        lit = any(set(bases) & {n for n, fewest, _ in kind.receptacles if fewest} for bases in LAMPS.values())
        assert lit == (kind.initial in "LB")
    for thing in OBJECTS:
        assert thing.places <= set(RECEPTACLES), thing.name
        for kind in ROOM_KINDS:
            if kind.initial in thing.rooms:
                assert thing.places & {name for name, _, _ in kind.receptacles}, (thing.name, kind.name)
    for _, _, appliance in TREATMENTS.values():
        assert appliance in RECEPTACLES
    names = [thing.name for thing in OBJECTS] + list(LAMPS) + list(RECEPTACLES)
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"([A-Z][a-z]+)+", name) for name in names)


def test_the_engine_knows_the_domain_as_it_is_shipped() -> None:
    text = (Path(seedbench_envs.mini.__file__).parent / "household.pddl").read_text(encoding="utf-8")
    domain = DOMAINS[hashlib.sha256(text.encode()).hexdigest()[:12]]
    declared = [name.lower() for name in re.findall(r"\(:action (\w+)", text)]
    assert sorted(declared) == sorted(domain.actions)
    for name, parameters in domain.parameters:
        match = re.search(rf"\(:action {name}\s+:parameters \(([^)]*)\)", text, re.IGNORECASE)
        assert match is not None
        pairs = re.findall(r"\?(\w+) - (\w+)", match[1].lower())
        assert tuple(pairs) == parameters, name

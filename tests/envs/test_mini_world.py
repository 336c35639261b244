"""The generated world of `mini-searchqa`: consistent facts, passages that state them, questions that they answer."""

import hashlib
import json
import re
from collections import Counter

import pytest

from seedbench_envs.bm25 import Bm25Index
from seedbench_envs.mini.world import Entity, World, generate_world, side
from seedbench_envs.mini.world_questions import ASK, FAMILIES, MOST_OF_AN_ANSWER, SIZES, write_questions
from seedbench_envs.mini.world_text import SENTENCES, Encyclopedia, write_encyclopedia
from seedbench_envs.searchqa.datasets import content_hash
from seedbench_envs.searchqa.records import Question
from seedbench_envs.searchqa.scoring import normalize


@pytest.fixture(scope="module")
def world() -> World:
    return generate_world()


@pytest.fixture(scope="module")
def encyclopedia(world: World) -> Encyclopedia:
    return write_encyclopedia(world)


@pytest.fixture(scope="module")
def questions(world: World, encyclopedia: Encyclopedia) -> list[Question]:
    return write_questions(world, encyclopedia)


@pytest.fixture(scope="module")
def index(encyclopedia: Encyclopedia) -> Bm25Index:
    return Bm25Index.build((passage.id, passage.contents) for passage in encyclopedia.passages)


def of_kind(world: World, *kinds: str) -> list[Entity]:
    return [entity for entity in world.values() if entity.kind in kinds]


def year(world: World, person: str, fact: str) -> int:
    return int(world[person].facts[fact])


# ---- the world -----------------------------------------------------------------------------------------------


def test_a_seed_gives_one_world_and_another_seed_another(world: World, encyclopedia: Encyclopedia) -> None:
    again = generate_world()
    assert {t: (e.kind, e.name, e.also, e.facts) for t, e in again.items()} == {
        t: (e.kind, e.name, e.also, e.facts) for t, e in world.items()
    }
    assert write_encyclopedia(again) == encyclopedia
    assert set(generate_world(1)) != set(world)


def test_generated_bytes_are_those_of_this_version(encyclopedia: Encyclopedia, questions: list[Question]) -> None:
    """A change here needs a new GENERATOR_VERSION and new panels."""
    text = json.dumps([[p.id, p.contents] for p in encyclopedia.passages] + [content_hash(q) for q in questions])
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "b3de1a78e91ae512fcfdbbcf601c124bcac77ac3fd578907741772d97ac94d9d"
    )


def test_titles_are_keys_and_facts_point_to_entities_of_the_right_kind(world: World) -> None:
    kinds = {
        "birthplace": "town", "deathplace": "town", "seat": "town", "setting": "town", "capital": "town",
        "school": "school", "spouse": "person", "founder": "person", "maker": "person", "architect": "person",
        "coach": "person", "climber": "person", "river": "river", "source": "mountain", "mouth": "lake",
        "region": "region",
    }  # fmt: skip
    literals = {"born", "died", "founded", "year", "opened", "climbed", "product", "trade"}
    for title, entity in world.items():
        assert entity.title == title
        for fact, value in entity.facts.items():
            assert fact in literals or world[value].kind == kinds[fact], (title, fact)


def test_lives_and_works_fit_in_time(world: World) -> None:
    for person in of_kind(world, "person"):
        assert 58 <= int(person.facts["died"]) - int(person.facts["born"]) <= 90
        if "school" in person.facts:
            school = world[person.facts["school"]]
            assert int(school.facts["founded"]) < int(person.facts["born"])
    made = {"maker": "year", "founder": "founded", "architect": "opened", "coach": "founded", "climber": "climbed"}
    for entity in world.values():
        for maker, when in made.items():
            if maker in entity.facts:
                name = entity.facts[maker]
                assert year(world, name, "born") + 20 <= int(entity.facts[when]) <= year(world, name, "died")


def test_marriages_are_mutual_and_of_one_generation(world: World) -> None:
    married = [person for person in of_kind(world, "person") if "spouse" in person.facts]
    assert len(married) > 600
    for person in married:
        spouse = world[person.facts["spouse"]]
        assert spouse.facts["spouse"] == person.title != spouse.title
        assert abs(int(spouse.facts["born"]) - int(person.facts["born"])) <= 10


def test_capitals_lie_in_their_regions(world: World) -> None:
    regions = of_kind(world, "region")
    assert len(regions) == 12
    for region in regions:
        assert world[region.facts["capital"]].facts["region"] == region.title


def test_names_are_near_each_other(world: World) -> None:
    """Distractors: shared family names, sister towns, films with the title of an earlier novel."""
    families = Counter(person.name.split()[1] for person in of_kind(world, "person"))
    assert sum(count > 1 for count in families.values()) > 200
    towns = {town.name for town in of_kind(world, "town")}
    assert sum(f"Upper {name}" in towns or f"New {name}" in towns for name in towns) > 20
    films = [film for film in of_kind(world, "film") if film.title.endswith(" (film)")]
    assert len(films) > 20
    for film in films:
        assert world[film.name].kind == "novel"
        assert int(world[film.name].facts["year"]) < int(film.facts["year"])


# ---- passages ------------------------------------------------------------------------------------------------


def test_passages_have_wiki_18_layout_and_state_every_fact(world: World, encyclopedia: Encyclopedia) -> None:
    assert len(encyclopedia.passages) >= 3_000
    assert [passage.id for passage in encyclopedia.passages] == [str(n) for n in range(len(encyclopedia.passages))]
    for title, entity in world.items():
        passage = encyclopedia.passages[int(encyclopedia.of[title])]
        assert passage.title == title
        said = {name for wordings in SENTENCES[entity.kind] for name in re.findall(r"{(\w+)}", " ".join(wordings))}
        for fact, value in entity.facts.items():
            assert fact in said, (entity.kind, fact)
            assert world[value].name in passage.text if value in world else value in passage.text, (title, fact)


def test_every_wording_of_a_sentence_says_the_same_facts() -> None:
    for wordings in SENTENCES.values():
        for sentence in wordings:
            assert len({frozenset(re.findall(r"{(\w+)}", wording)) - {"n"} for wording in sentence}) == 1


# ---- questions -----------------------------------------------------------------------------------------------


def test_numbers_of_questions(questions: list[Question]) -> None:
    counts = Counter((question.source, question.split) for question in questions)
    assert counts == {(family, split): n for family in FAMILIES for split, n in SIZES.items()}
    assert sum(SIZES.values()) * 2 >= 800
    assert len({question.id for question in questions}) == len({question.question for question in questions})
    assert questions[0].id == "one_hop/train/0"


def test_train_and_test_share_no_answer(questions: list[Question]) -> None:
    answers = {
        split: {normalize(answer) for q in questions if q.split == split for answer in q.answers} for split in SIZES
    }
    assert not answers["train"] & answers["test"]


def test_all_of_a_question_is_of_one_side(questions: list[Question], encyclopedia: Encyclopedia) -> None:
    for question in questions:
        chain = [encyclopedia.passages[int(identifier)].title for identifier in question.supporting]
        assert {side(title) for title in chain} == {question.split}


def test_the_last_gold_passage_says_the_answer(questions: list[Question], encyclopedia: Encyclopedia) -> None:
    for question in questions:
        assert len(question.supporting) == FAMILIES.index(question.source) + 1
        last = encyclopedia.passages[int(question.supporting[-1])]
        assert any(answer in last.text for answer in question.answers), question


def test_no_question_says_its_answer_or_its_middle(
    questions: list[Question], encyclopedia: Encyclopedia, world: World
) -> None:
    for question in questions:
        assert question.answers[0] not in question.question
        for identifier in question.supporting[1:]:
            assert world[encyclopedia.passages[int(identifier)].title].name not in question.question


def test_no_question_has_a_second_answer(questions: list[Question], world: World) -> None:
    """The entity that a question starts from is named by its kind and a name that no other of the kind has."""
    for kind in {kind for kind, _ in ASK}:
        names = [entity.name for entity in of_kind(world, kind)]
        assert len(names) == len(set(names))
    assert max(Counter((q.source, q.split, q.answers[0]) for q in questions).values()) <= MOST_OF_AN_ANSWER


def test_other_names_are_accepted(questions: list[Question]) -> None:
    rivers = [question for question in questions if question.answers[0].startswith("River ")]
    assert rivers
    for question in rivers:
        name = question.answers[0].removeprefix("River ")
        assert question.answers == (f"River {name}", name, f"{name} River")


def test_search_finds_the_passages(questions: list[Question], encyclopedia: Encyclopedia, index: Bm25Index) -> None:
    """By title always; by a one-hop question nearly always; a two-hop question needs a second search."""
    found = Counter[str]()
    for question in questions:
        for identifier in question.supporting:
            title = encyclopedia.passages[int(identifier)].title
            assert identifier in [hit for hit, _ in index.search(title, 3)], title
        hits = [hit for hit, _ in index.search(question.question, 3)]
        found[question.source] += set(question.supporting) <= set(hits)
    assert found["one_hop"] / 550 == pytest.approx(0.98, abs=0.005)
    assert found["two_hop"] / 550 == pytest.approx(0.275, abs=0.005)

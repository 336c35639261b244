"""Questions about the invented world, of one and two hops, with every accepted answer and the passages that answer.

Everything in a question's chain, the answer included, belongs to one split, so that no answer of a test question is
an answer of a training question. Two-hop questions name their middle entity by a fact about it only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from seedbench_envs.mini.rooms import Dice
from seedbench_envs.mini.world import Entity, World, side
from seedbench_envs.mini.world_text import Encyclopedia
from seedbench_envs.searchqa.records import Question

SIZES: Mapping[str, int] = {"train": 400, "test": 150}
"""Split -> questions of each family."""
FAMILIES = ("one_hop", "two_hop")
MOST_OF_AN_ANSWER = 3
"""So often may one split have the same answer in a family."""

_MAKER = {
    "novel": ("Who wrote {x}?", "the author of {x}"),
    "play": ("Who is the author of {x}?", "the author of {x}"),
    "film": ("Who directed {x}?", "the director of {x}"),
    "opera": ("Who composed {x}?", "the composer of {x}"),
    "painting": ("Who painted {x}?", "the painter of {x}"),
}
_YEAR = {
    "novel": "In which year was {x} published?", "play": "In which year did {x} come out?",
    "film": "In which year was {x} released?", "opera": "In which year was {x} first performed?",
    "painting": "In which year was {x} completed?",
}  # fmt: skip

ASK: Mapping[tuple[str, str], tuple[str, str]] = {
    ("person", "born"): ("In which year was {x} born?", ""),
    ("person", "died"): ("In which year did {x} die?", ""),
    ("person", "birthplace"): ("In which town was {x} born?", "the town where {x} was born"),
    ("person", "deathplace"): ("In which town did {x} die?", "the town where {x} died"),
    ("person", "school"): ("At which school did {x} study?", "the school where {x} studied"),
    ("person", "spouse"): ("Who was {x} married to?", "the person to whom {x} was married"),
    ("town", "region"): ("In which province is {x}?", "the province of {x}"),
    ("town", "river"): ("Which river flows through {x}?", "the river that flows through {x}"),
    ("town", "founded"): ("In which year was {x} founded?", ""),
    ("town", "product"): ("Which product is {x} known for?", ""),
    ("river", "source"): ("On which mountain does {x} rise?", "the mountain on which {x} rises"),
    ("river", "mouth"): ("Into which lake does {x} flow?", "the lake into which {x} flows"),
    ("mountain", "climber"): ("Who was the first to climb {x}?", "the first climber of {x}"),
    ("mountain", "climbed"): ("In which year was {x} first climbed?", ""),
    ("company", "founder"): ("Who founded {x}?", "the founder of {x}"),
    ("company", "seat"): ("In which town does {x} have its headquarters?", "the town where {x} has its headquarters"),
    ("company", "founded"): ("In which year was {x} founded?", ""),
    ("company", "product"): ("What does {x} produce?", ""),
    ("school", "founder"): ("Who founded {x}?", "the founder of {x}"),
    ("school", "seat"): ("In which town is {x}?", "the town that is home to {x}"),
    ("school", "founded"): ("In which year was {x} founded?", ""),
    ("building", "architect"): ("Who was the architect of {x}?", "the architect of {x}"),
    ("building", "opened"): ("In which year did {x} open?", ""),
    ("club", "coach"): ("Who was the first coach of {x}?", "the first coach of {x}"),
    ("club", "founded"): ("In which year was {x} founded?", ""),
    ("region", "capital"): ("What is the capital of {x}?", "the capital of {x}"),
    **{(kind, "maker"): pair for kind, pair in _MAKER.items()},
    **{(kind, "year"): (text, "") for kind, text in _YEAR.items()},
    # A painting shows its town.
    **{(kind, "setting"): ("In which town is {x} set?", "the town where {x} is set") for kind in list(_MAKER)[:4]},
}  # fmt: skip
"""(kind, fact) -> the question about it, and a phrase for the answer where it is an entity that has facts itself."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    shape: str
    """The facts asked for: questions of one shape take turns with those of others."""
    text: str
    answer: str
    chain: tuple[str, ...]
    """Titles of the entities whose passages answer, in order."""


def write_questions(world: World, encyclopedia: Encyclopedia, seed: int = 0) -> list[Question]:
    """The questions of both splits, `SIZES` of each family, ids `<family>/<split>/<n>`."""
    questions = []
    for family, candidates in (("one_hop", _one_hop(world)), ("two_hop", _two_hop(world))):
        by_split: dict[str, list[_Candidate]] = {split: [] for split in SIZES}
        for candidate in candidates:
            sides = {side(title, seed) for title in (*candidate.chain, candidate.answer)}
            if len(sides) == 1:
                by_split[sides.pop()].append(candidate)
        for split, found in by_split.items():
            chosen = _chosen(found, SIZES[split], Dice(f"{seed}/questions/{family}/{split}"))
            for number, candidate in enumerate(chosen):
                supporting = tuple(encyclopedia.of[title] for title in candidate.chain)
                answers = _answers(world, candidate.answer)
                identifier = f"{family}/{split}/{number}"
                questions.append(Question(identifier, candidate.text, answers, family, split, supporting))
    return questions


def _one_hop(world: World) -> Iterator[_Candidate]:
    for entity in world.values():
        for fact, value in entity.facts.items():
            if asked := ASK.get((entity.kind, fact)):
                text = asked[0].format(x=_said(entity))
                yield _Candidate(f"{entity.kind}.{fact}", text, value, (entity.title,))


def _two_hop(world: World) -> Iterator[_Candidate]:
    for entity in world.values():
        for fact, value in entity.facts.items():
            _, phrase = ASK.get((entity.kind, fact), ("", ""))
            middle = world.get(value)
            if not phrase or middle is None:
                continue
            for second, answer in middle.facts.items():
                asked = ASK.get((middle.kind, second))
                if asked and answer != entity.title and answer not in _said(entity):
                    text = asked[0].format(x=phrase.format(x=_said(entity)))
                    shape = f"{entity.kind}.{fact}.{second}"
                    yield _Candidate(shape, text, answer, (entity.title, middle.title))


def _said(entity: Entity) -> str:
    """The entity as a question names it."""
    kinds = {"novel", "play", "film", "opera", "painting"}
    if entity.kind in kinds or entity.kind == "company":
        return f"the {entity.kind} {entity.name}"
    return f"the {entity.name}" if entity.kind in ("river", "building") else entity.name


def _chosen(candidates: list[_Candidate], count: int, dice: Dice) -> list[_Candidate]:
    """`count` of them: shapes take turns in drawn order, and no answer comes too often."""
    shapes: dict[str, list[_Candidate]] = {}
    for candidate in candidates:
        shapes.setdefault(candidate.shape, []).append(candidate)
    chosen: list[_Candidate] = []
    used: dict[str, int] = {}
    while len(chosen) < count and shapes:
        for shape in sorted(shapes):
            pool = shapes[shape]
            candidate = pool.pop(dice.between(0, len(pool) - 1))
            if not pool:
                del shapes[shape]
            if used.get(candidate.answer, 0) < MOST_OF_AN_ANSWER:
                used[candidate.answer] = used.get(candidate.answer, 0) + 1
                chosen.append(candidate)
    return chosen[:count]


def _answers(world: World, answer: str) -> tuple[str, ...]:
    entity = world.get(answer)
    if entity is None:
        return (answer,)
    return tuple(dict.fromkeys((entity.name, *entity.also)))

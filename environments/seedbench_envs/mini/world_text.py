"""The encyclopedia of the invented world: passages that state its facts, in wiki-18 layout.

Every fact stands in a passage of its entity, in words that differ from the questions' and from passage to passage.
Towns have a second passage of the same title with their sons and daughters, as long articles have in wiki-18.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seedbench_envs.mini import world_words as words
from seedbench_envs.mini.rooms import Dice
from seedbench_envs.mini.world import Entity, World
from seedbench_envs.searchqa.records import Passage

Sentences = tuple[tuple[str, ...], ...]
"""For each sentence its wordings. `{n}` is the entity, `{known}` other names; the rest are facts and lists."""

_SCENE = ("Its scenes take place in {setting}.", "{setting} is where the story is laid.")
SENTENCES: Mapping[str, Sentences] = {
    "person": (
        ("{n}{known} ({born} – {died}) was {a} {trade}.",),
        ("A native of {birthplace}, {n} grew up among many cousins.", "{n} came into the world in {birthplace}."),
        ("The last years passed in {deathplace}, where a stone marks the grave.",),
        ("The years at {school} were decisive.", "Lessons at {school} led to this calling."),
        ("The marriage with {spouse} was a happy one.", "{spouse} was the partner of a long marriage."),
        ("The name is remembered for {made}.",),
    ),
    "town": (
        ("{n}{known} is a town in the province of {region}.",),
        ("{n} lies on both banks of the {river}.", "The {river} runs through the centre of {n}."),
        ("The charter of {n} dates from {founded}.", "{n} was laid out in {founded}, around a monastery."),
        ("The workshops of {n} are famous for {product}.", "Merchants come to {n} from afar to buy {product}."),
    ),
    "natives": (("Among those who first saw the light in {n} are {natives}.",), ("Articles on {seats} mention it.",)),
    "novel": (
        ("{n} is a novel by {maker}, published in {year}.", "{n} is a {year} novel from the pen of {maker}."),
        _SCENE,
    ),
    "play": (
        ("{n} is a play that {maker} wrote for the season of {year}.", "{n} is a stage play of {year} by {maker}."),
        _SCENE,
    ),
    "film": (
        ("{n} is a film of {year}, directed by {maker}.", "{n} is a picture that {maker} shot and released in {year}."),
        _SCENE,
    ),
    "opera": (
        (
            "{n} is an opera in three acts by {maker}, first heard in {year}.",
            "{n} is an opera with music by {maker}; the premiere was in {year}.",
        ),
        _SCENE,
    ),
    "painting": (
        (
            "{n} is an oil painting by {maker}, finished in {year}.",
            "{n} is a large canvas that {maker} signed in {year}.",
        ),
        ("It shows the roofs of {setting} before a storm.",),
    ),
    "company": (
        ("{n} is a company that makes {product}.",),
        ("{founder} set it up in {founded}.", "It goes back to {founder}, who opened a workshop in {founded}."),
        ("The head office is in {seat}.", "It is run from {seat}."),
    ),
    "school": (
        ("{n} is a place of learning in {seat}.",),
        ("{founder} endowed it in {founded}.", "It began in {founded} with a gift from {founder}."),
    ),
    "building": (
        ("The {n} is a landmark of {seat}.",),
        (
            "It was drawn by {architect} and inaugurated in {opened}.",
            "Built to the plans of {architect}, it let the public in from {opened} on.",
        ),
    ),
    "club": (
        ("{n} is a sports club from {seat}.",),
        (
            "It came into being in {founded}, with {coach} in charge of training.",
            "{coach} trained its first team, in {founded}, the year it began.",
        ),
    ),
    "river": (
        ("The {n} springs from the flank of {source} and empties into {mouth}.",),
        ("On its way it passes {towns}.",),
    ),
    "mountain": (
        ("{n} is a mountain in the province of {region}.",),
        ("{climber} stood on the summit in {climbed}, the earliest ascent on record.",),
        ("Springs on its slopes feed the {springs}.",),
    ),
    "lake": (("{n} is a lake in the province of {region}.",), ("It receives the {streams}.",)),
    "region": (("{n} is a province; it is governed from {capital}.",), ("Other places in it are {places}.",)),
}
_LISTS = {
    "made": ("maker", "founder", "architect"), "natives": ("birthplace",), "seats": ("seat", "setting"),
    "towns": ("river",), "springs": ("source",), "streams": ("mouth",), "places": ("region",),
}  # fmt: skip
"""Lists in sentences: the first few entities that have this one as one of these facts."""
_FILLERS = {"person": "person", "town": "town", "natives": "town"} | dict.fromkeys(
    ("novel", "play", "film", "opera", "painting"), "work"
) | dict.fromkeys(("river", "mountain", "lake", "region"), "nature")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Encyclopedia:
    """All passages, and which of them states an entity's facts."""

    passages: tuple[Passage, ...]
    of: Mapping[str, str]
    """Title -> id of the passage with the entity's facts."""


def write_encyclopedia(world: World, seed: int = 0) -> Encyclopedia:
    """The passages of a world, in drawn order; those of one entity follow each other. Ids are their numbers."""
    links = _links(world)
    passages: list[Passage] = []
    of: dict[str, str] = {}
    for title in sorted(world, key=lambda title: Dice(f"{seed}/order/{title}").between(0, 1 << 40)):
        entity, values = world[title], _values(world[title], links.get(title, {}))
        of[title] = str(len(passages))
        dice = Dice(f"{seed}/text/{title}")
        kinds = [entity.kind, *(["natives"] if entity.kind == "town" and "natives" in values else [])]
        for kind in kinds:
            passages.append(Passage(str(len(passages)), title, _text(kind, values, dice)))
    return Encyclopedia(tuple(passages), of)


def _links(world: World) -> dict[str, dict[str, list[Entity]]]:
    """Title -> fact -> the entities that have it: for a town, `birthplace` -> the people born there."""
    found: dict[str, dict[str, list[Entity]]] = {}
    for entity in world.values():
        for fact, value in entity.facts.items():
            if value in world:
                found.setdefault(value, {}).setdefault(fact, []).append(entity)
    return found


def _values(entity: Entity, links: Mapping[str, Sequence[Entity]]) -> dict[str, str]:
    """What sentences may say: the facts that the entity has, and the lists that are not empty."""
    lists = {name: [e.name for fact in facts for e in links.get(fact, ())] for name, facts in _LISTS.items()}
    word = "also known as" if entity.kind == "person" else "formerly"
    known = f", {word} {entity.also[0]}," if entity.also and entity.kind in ("person", "town") else ""
    article = "an" if entity.facts.get("trade", "")[:1] in tuple("aeiou") else "a"
    listed = {name: _listed(names[:6]) for name, names in lists.items() if names}
    return {**entity.facts, **listed, "n": entity.name, "known": known, "a": article}


def _text(kind: str, values: Mapping[str, str], dice: Dice) -> str:
    """The first sentence first, then the others and some fillers in drawn order."""
    said = []
    for wordings in SENTENCES[kind]:
        try:
            said.append(dice.pick(wordings).format_map(values))
        except KeyError:  # the entity lacks the fact
            continue
    pool = list(words.FILLERS[_FILLERS.get(kind, "thing")])
    fillers = [pool.pop(dice.between(0, len(pool) - 1)) for _ in range(2)]
    rest = sorted((*said[1:], *fillers), key=lambda _: dice.between(0, 1 << 40))
    return " ".join((said[0], *rest))


def _listed(names: Sequence[str]) -> str:
    """Names, at least one, as a list in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

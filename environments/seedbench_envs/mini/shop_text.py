"""Puts the generated shop into words: titles, descriptions, bullets, and what shoppers ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from seedbench_envs.mini.rooms import Dice
from seedbench_envs.mini.shop_kinds import KINDS, Feature, Kind
from seedbench_envs.mini.shop_words import (
    ASKS,
    CLOSINGS,
    FILLERS,
    LABELS,
    OPENINGS,
    OPTION_WORDS,
    QUALIFIERS,
    SENTENCES,
)

Options = tuple[tuple[str, tuple[str, ...]], ...]
"""(option name, values), in the order shown."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A product before it is put into words."""

    kind: Kind
    brand: str
    qualifier: str
    series: str
    material: str
    features: tuple[Feature, ...]
    """Four to seven; the title names up to two of the first."""
    options: Options


def title(dice: Dice, draft: Draft) -> str:
    """Brand, series, up to two features around the noun, and sometimes a first option value."""
    named = draft.features[: dice.between(0, 2)]
    before = " ".join(_capitals(feature.phrase) for feature in named if feature.place == "before")
    after = [f"{feature.place} {_capitals(feature.phrase)}" for feature in named if feature.place != "before"]
    words = (draft.brand, draft.series, draft.qualifier, before, _capitals(draft.material), _capitals(draft.kind.head))
    text = " ".join(filter(None, words))
    text = ", ".join((" ".join((text, *after[:1])), *after[1:]))
    if draft.options and dice.between(1, 100) <= 30:
        text += f" - {_capitals(draft.options[-1][1][0])}"
    return text


def description(dice: Dice, draft: Draft) -> str:
    """Two to four sentences about some of the features; empty for one product in four."""
    if dice.between(1, 4) == 1:
        return ""
    sentences = [dice.pick(OPENINGS)]
    sentences += [dice.pick(SENTENCES[feature.place]).replace("{phrase}", feature.phrase)
                  for feature in draft.features[1 : dice.between(1, 3)]]  # fmt: skip
    sentences.append(dice.pick(CLOSINGS))
    return _filled(" ".join(sentences), draft)


def bullets(dice: Dice, draft: Draft) -> list[str]:
    """One for every feature, in another order than the title's, and one or two that say nothing."""
    points = []
    for feature in reversed(draft.features):
        sentence = dice.pick(SENTENCES[feature.place]).replace("{phrase}", feature.phrase)
        points.append(f"{dice.pick(LABELS[feature.place])}: {feature.phrase}. {sentence}")
    points.insert(dice.between(0, 2), dice.pick(FILLERS))
    return [f"{_filled(point, draft)} " for point in points]


def _filled(text: str, draft: Draft) -> str:
    return (
        text.replace("{head}", draft.kind.head).replace("{material}", draft.material).replace("{series}", draft.series)
    )


def instruction(query: str, wanted: Sequence[Feature]) -> str:
    """The synthetic instruction, as the official file words it; the price clause and options come later."""
    before, after, use = (
        ", ".join(feature.phrase for feature in wanted if feature.place == place) for place in ("before", "with", "for")
    )
    return " ".join(
        filter(None, ("Find me", before, query, f"with {after}" if after else "", f"for {use}" if use else ""))
    )


def free_sentence(dice: Dice, kind: Kind, wanted: Sequence[Feature], chosen: Sequence[tuple[str, str]]) -> str:
    """A shopper's own words, lower case, without the price: `chosen` are (option name, value) pairs."""
    before = ", ".join(feature.phrase for feature in wanted if feature.place == "before")
    after = " and ".join(f"{feature.place} {feature.phrase}" for feature in wanted if feature.place != "before")
    item = " ".join(filter(None, (before, kind.head, after)))
    options = "".join(dice.pick(OPTION_WORDS[name]).format(value) for name, value in chosen)
    article = "some" if kind.head.endswith("s") else "an" if item[0] in "aeiou" else "a"
    return dice.pick(ASKS).format(a=article, item=item, options=options).lower()


def title_nouns(text: str) -> list[str]:
    """The nouns of a generated title, lower case, in order, with repeats: what a tagger would have to guess.

    Every word is one that is not known to be an adjective or a particle; numbers are none.
    """
    others = _not_nouns()
    words = (word.strip(",-").lower() for word in text.split())
    return [word for word in words if word.replace("'", "").isalpha() and word not in others]


@cache
def _not_nouns() -> frozenset[str]:
    nouns = {word for kind in KINDS for phrase in (kind.head, *kind.materials) for word in phrase.split()}
    others = {"with", "for", "and", "the", "of", "sensitive", "daily", "small", "dry", "fine", "long", "short"}
    for kind in KINDS:
        for feature in kind.features:
            if feature.place == "before":
                others.update(feature.phrase.split())
            else:
                nouns.add(feature.phrase.split()[-1])
    return frozenset(others - nouns) | {word.lower() for word in QUALIFIERS}


def _capitals(text: str) -> str:
    return " ".join(word[:1].upper() + word[1:] for word in text.split(" "))

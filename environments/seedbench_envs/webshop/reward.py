"""Upstream's reward of a purchase, with all its parts and its odd ends.

    total = r_type * (attributes met + options met + price met) / (attributes + options + 1)

in [0, 1]; a task is solved where it is 1. Texts are compared as thefuzz's `token_set_ratio` does (its own tidying of
texts, its rounding), on rapidfuzz, which thefuzz itself calls.

The odd ends, kept because scores of other work have them:
- A chosen value is cut to the first colour name that it contains, anywhere in it ("rectangular" becomes "tan"). The
  option of a synthetic goal is compared as the text of a (name, value) pair, which is not cut, so that 458 of the
  6,910 goals on the official 1,000 products cannot reach 1 with exactly what they ask for. `fix_colours` mends this.
- Titles that share under a tenth of the goal's nouns make r_type 0.1 or 0, even where the search query agrees.
- Prices compare with `<=`, and chosen options do not change the price.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from rapidfuzz.fuzz import token_set_ratio
from rapidfuzz.utils import default_process

from seedbench_envs.webshop.records import Goal, Product

CLOSE = 85
"""Two texts agree where their rounded ratio, 0 to 100, is above this."""
COLOURS = tuple(
    line
    for line in (files("seedbench_envs.webshop") / "data" / "colours.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
)
"""The names that values are cut to; the first one that occurs decides. Their file says where they come from."""
_LATIN_1 = dict.fromkeys(range(128, 256))


@dataclass(frozen=True, slots=True)
class Reward:
    """A purchase's reward and its parts."""

    total: float
    """In [0, 1]; 1 is success."""
    r_type: float
    """1, 0.5, 0.1 or 0: whether the product is of the kind asked for. The other parts are multiplied by it."""
    attribute: float
    """Share of the goal's attributes met, in [0, 1]; 1 where it has none."""
    option: float | None
    """Share of the goal's options met, in [0, 1]; None where it has none."""
    price: bool
    """Whether the price is at most the cap."""
    title_score: float
    """Distinct nouns that both titles have, over the goal title's nouns; 0.2 where that has none."""
    query_match: bool
    """Product and goal come from the same shop query."""
    category_match: bool
    """Their category paths share at least two names."""


def reward(
    product: Product, goal: Goal, price: float, chosen: Mapping[str, str], *, fix_colours: bool = False
) -> Reward:
    """The reward for buying `product` at `price` dollars with the options `chosen` (name -> value).

    With `fix_colours` a goal's option is also met by a chosen value that agrees with it as both stand, uncut; no
    reward gets lower by it.
    """
    r_type, title_score, query_match, category_match = _kind(
        product.query, product.product_category, product.nouns, goal.query, goal.product_category, goal.nouns
    )
    attributes = _attributes_met(
        goal.attributes, product.attributes, product.title, product.bullets, product.description
    )
    options = _options_met(goal.options, tuple(chosen.values()), fix_colours)
    affordable = price <= goal.price_upper
    wanted = len(goal.attributes) + len(goal.options) + 1
    return Reward(
        total=(attributes + options + affordable) / wanted * r_type,
        r_type=r_type,
        attribute=attributes / len(goal.attributes) if goal.attributes else 1.0,
        option=options / len(goal.options) if goal.options else None,
        price=affordable,
        title_score=title_score,
        query_match=query_match,
        category_match=category_match,
    )


def similarity(first: str, second: str) -> int:
    """How far two texts share their words, 0 to 100, as thefuzz's `token_set_ratio`; 0 if either has none."""
    return round(token_set_ratio(_tidy(first), _tidy(second)))


def cut_to_colour(value: str) -> str:
    """The first colour name that occurs anywhere in `value`; `value` itself if none does."""
    return next((colour for colour in COLOURS if colour in value), value)


@lru_cache(maxsize=8192)
def _tidy(text: str) -> str:
    """Lower case, letters and digits only. Upstream drops Latin-1 letters first and keeps those beyond."""
    return default_process(text.translate(_LATIN_1))


@lru_cache(maxsize=512)
def _kind(
    query: str, category: str, nouns: tuple[str, ...], goal_query: str, goal_category: str, goal_nouns: tuple[str, ...]
) -> tuple[float, float, bool, bool]:
    """(r_type, title_score, query_match, category_match)."""
    title_score = len(set(nouns) & set(goal_nouns)) / len(goal_nouns) if goal_nouns else 0.2
    query_match = query == goal_query
    category_match = len(_names(category) & _names(goal_category)) >= 2
    if title_score == 0:
        r_type = 0.0
    elif title_score < 0.1:
        r_type = 0.1
    else:
        r_type = 1.0 if query_match or category_match or title_score > 0.2 else 0.5
    return r_type, title_score, query_match, category_match


def _names(category: str) -> set[str]:
    return {name.strip() for name in category.split("›")}


@lru_cache(maxsize=512)
def _attributes_met(
    asked: tuple[str, ...], held: tuple[str, ...], title: str, bullets: tuple[str, ...], description: str
) -> int:
    """How many asked attributes are close to one of the product's, or stand in one of its texts."""
    texts = (title.lower(), " ".join(bullets).lower(), description.lower())
    return sum(
        any(similarity(attribute, wish) > CLOSE for attribute in held) or any(wish in text for text in texts)
        for wish in asked
    )


def _options_met(asked: Mapping[str, str] | tuple[str, ...], chosen: Iterable[str], fix_colours: bool) -> int:
    """How many asked options are close to one of the chosen values."""
    cut = [cut_to_colour(value) for value in chosen]
    if isinstance(asked, Mapping):
        texts = [(_pair_text(name, value), value) for name, value in asked.items()]
    else:
        texts = [(cut_to_colour(value), value) for value in asked]
    return sum(
        any(similarity(value, text) > CLOSE for value in cut) or (fix_colours and _uncut(wish, chosen))
        for text, wish in texts
    )


def _uncut(wish: str, chosen: Iterable[str]) -> bool:
    # Equal values without a letter or digit have no words to compare.
    return any(value == wish or similarity(value, wish) > CLOSE for value in chosen)


def _pair_text(name: str, value: str) -> str:
    """A synthetic goal's option as upstream compares it: its pair as Python prints it, quotes and escapes included.

    A colour "in" a pair is one of its two elements, so only a name or value that is a colour as a whole is cut.
    """
    return next((colour for colour in COLOURS if colour in (name, value)), str((name, value)))

"""What a page of WebShop shows: a sequence of texts, buttons, links and options, in upstream's order.

Pages know nothing of markup; `render` turns them into text or HTML. A text is kept as it stands in the product
file, spaces included, because a click must match it exactly.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from seedbench_envs.webshop.records import Product

SEARCH, BACK, NEXT, PREVIOUS, BUY = "Search", "Back to Search", "Next >", "< Prev", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews")


class Role(Enum):
    """What a segment is on its page."""

    TEXT = "text"
    BUTTON = "button"
    LINK = "link"
    """A product's link; the segment's `target` is its ASIN."""
    OPTION = "option"
    """One value of an option; the segment's `target` is the option's name."""


class Segment(NamedTuple):
    """One piece of a page. A tuple, because a page may have hundreds and is built anew at every step."""

    text: str
    role: Role = Role.TEXT
    target: str = ""
    chosen: bool = False
    """An option that is chosen at present; a link to a product looked at since the start page was last seen."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page as shown. `clickables` maps what an action may name to the segment that it stands for."""

    segments: tuple[Segment, ...]
    has_search_bar: bool = False
    clickables: Mapping[str, Segment] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "clickables", _clickables(self.segments))


def _clickables(segments: tuple[Segment, ...]) -> dict[str, Segment]:
    """Buttons, then links, then options. Equal names share the first's place and the last one is clicked."""
    named: dict[str, Segment] = {}
    for role in (Role.BUTTON, Role.LINK):
        for segment in segments:
            if segment.role is role:
                named[segment.text.lower()] = segment
    for segment in segments:
        if segment.role is Role.OPTION:
            named[segment.text] = segment
    return named


def _button(text: str) -> Segment:
    return Segment(text, Role.BUTTON)


_SEARCH, _BACK, _NEXT, _PREVIOUS, _BUY = map(_button, (SEARCH, BACK, NEXT, PREVIOUS, BUY))
_SUB_PAGES = tuple(map(_button, SUB_PAGES))
_INSTRUCTION = Segment("Instruction:")


def index_page(instruction: str) -> Page:
    """The start page, the only one with a search bar."""
    return Page((Segment("WebShop"), Segment("Instruction: "), Segment(instruction), _SEARCH), has_search_bar=True)


def results_page(
    instruction: str, number: int, total: int, products: Iterable[Product], visited: Container[str] = ()
) -> Page:
    """Page `number` of a search with `total` hits; `visited` holds the ASINs of products looked at.

    `Next >` is always there, `< Prev` only from page 2.
    """
    segments = [_INSTRUCTION, Segment(instruction), _BACK, Segment(f"Page {number} (Total results: {total})")]
    segments += [_PREVIOUS, _NEXT] if number > 1 else [_NEXT]
    for product in products:
        link = Segment(product.asin, Role.LINK, product.asin, product.asin in visited)
        segments += (link, Segment(product.title), Segment(product.price_text))
    return Page(tuple(segments))


def item_page(instruction: str, product: Product, chosen: Mapping[str, str]) -> Page:
    """A product with its options; `chosen` maps option names to the values chosen so far."""
    segments = [_INSTRUCTION, Segment(instruction), _BACK, _PREVIOUS]
    for name, values in product.options.items():
        picked = chosen.get(name)
        segments.append(Segment(name))
        segments += [Segment(value, Role.OPTION, name, value == picked) for value in values]
    segments += (Segment(product.title), Segment(f"Price: {product.price_text}"), Segment("Rating: N.A."))
    return Page((*segments, *_SUB_PAGES, _BUY))


def sub_page(instruction: str, product: Product, name: str) -> Page:
    """One of `SUB_PAGES` of a product. Reviews are always empty: the official data has none."""
    body: tuple[Segment, ...] = ()
    if name == "Description":
        body = (Segment(product.description),)
    elif name == "Features":
        body = tuple(Segment(f" {bullet}") for bullet in product.bullets)
    return Page((_INSTRUCTION, Segment(instruction), _BACK, _PREVIOUS, *body))


# Upstream's end page has places for a crowd worker's details, which are always empty here; "instuction" is its
# spelling. The text around the values is what an agent sees, so it is kept to the letter.
_DONE_BEFORE = (
    "Thank you for shopping with us!", "Your code: ", "None", " (Paste it in your MTurk interface.)", "Purchased",
    "asin",
)  # fmt: skip
_DONE_AFTER = (
    "attrs", "None", "category", "None", "query", "None", "product category", "None",
    "Target", "asin", "options", "attrs", "price upper", "instuction text", "category", "product category", "query",
    "Goal ", "None", "Reward", "Your score (min 0.0, max 1.0)",
)  # fmt: skip
_ESCAPES = str.maketrans({"<": r"\u003c", ">": r"\u003e", "&": r"\u0026", "'": r"\u0027"})


def done_page(asin: str, chosen: Mapping[str, str], score: float) -> Page:
    """The page after a purchase. It shows the true score in [0, 1], as upstream's does; there is nothing to click."""
    options = json.dumps(dict(chosen), sort_keys=True).translate(_ESCAPES)
    texts = (*_DONE_BEFORE, asin, "options", options, *_DONE_AFTER, str(score), "Reward Details ", "None")
    return Page(tuple(map(Segment, texts)))

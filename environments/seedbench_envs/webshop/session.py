"""A visit to the shop: the page at hand, what was searched, looked at and chosen, and what an action makes of it.

Equal to upstream's text environment action for action, its odd ends included: a search works on every page, also
after a purchase; what `< Prev` does is decided by names found anywhere in the URL, which holds the query; going
back to results drops the chosen options. Differences, each a sentence in `Result.reason` and no effect: searches on
which upstream breaks (`<a>`, `<c>` without a category, more distinct words than the index takes).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from seedbench_envs.bm25 import TooManyTerms
from seedbench_envs.webshop import pages
from seedbench_envs.webshop.actions import parse
from seedbench_envs.webshop.pages import SUB_PAGES, Page, Role
from seedbench_envs.webshop.records import Catalogue, Goal, Product, Search
from seedbench_envs.webshop.reward import Reward, reward

HOST = "http://127.0.0.1:3000"
HITS = 50
"""Most hits of a search; `<c>` and `<q>` list all there are."""
PAGE_SIZE = 10
_SUB_PAGE_OF = {name.lower(): name for name in SUB_PAGES}
_KINDS = ("search_results", "item_page", "item_sub_page", "done")


class Goals(Protocol):
    """The goals of an edition: `goal/<index>` (synthetic, upstream's order) and `human/<index>`."""

    def goal(self, goal_id: str) -> Goal:
        """The goal. Raises KeyError for an id that does not exist."""
        ...

    def counts(self) -> Mapping[str, int]:
        """How many goals there are of each kind: kind (`goal`, `human`) -> number; indices are 0 to number - 1."""
        ...


@dataclass(frozen=True, slots=True)
class Shop:
    """What every session of an edition shares; nothing in it changes."""

    catalogue: Catalogue
    search: Search
    """Over the catalogue's documents: every id that it gives is a product of `catalogue`."""
    goals: Goals

    def __deepcopy__(self, memo: object) -> Shop:
        # Gymnasium copies the arguments of what it makes; mapped files cannot be copied and need not be.
        return self


@dataclass(frozen=True, slots=True)
class Result:
    """What an action did. Nothing, if `reason` says why."""

    reward: float = 0.0
    """In [0, 1]; above 0 only for a purchase."""
    done: bool = False
    """A purchase ends the task; the session can be played on."""
    reason: str = ""
    bought: Reward | None = None


class Refused(Exception):
    """A search that cannot be done; the text says why."""


def page_kind(url: str) -> str:
    """The first of upstream's page names that occurs anywhere in the URL, the query's words included."""
    return next((kind for kind in _KINDS if kind in url), "")


class Session:
    """One visit, begun at the start page.

    Args:
        shop: products and search.
        goal: what is to be bought.
        number: upstream's session id in URLs: the goal's index.
        dice: draws the products of `<r>` searches, as Python's own generator does for upstream.
        fix_colours: see `reward`.
    """

    __slots__ = (
        "_hits", "dice", "fix_colours", "goal", "number", "options", "page", "page_number", "product", "shop", "url",
        "visited", "words",
    )  # fmt: skip

    page: Page
    url: str
    words: Sequence[str]
    """The query, split at spaces; empty before a search."""
    page_number: int
    product: Product | None
    options: dict[str, str]
    """What was chosen: option name -> value, in the order of the first choice."""
    visited: set[str]
    """ASINs of the products looked at since the start page was last seen."""
    _hits: Sequence[str]

    def __init__(self, shop: Shop, goal: Goal, number: str, dice: Random, *, fix_colours: bool = False) -> None:
        self.shop, self.goal, self.number, self.dice, self.fix_colours = shop, goal, number, dice, fix_colours
        self._start()

    def act(self, text: str) -> Result:
        """Do one action, whatever text it is."""
        action = parse(text)
        if action.argument is None or action.name not in ("search", "click"):
            return Result(reason="not of the form search[...] or click[...]")
        if action.name == "search":
            return self._search(action.argument)
        if action.argument == "search":
            return Result(reason="a search needs a query: search[...]")
        if action.argument not in self.page.clickables:
            return Result(reason="nothing of this name can be clicked on this page")
        return self._click(action.argument)

    def _search(self, query: str) -> Result:
        try:
            self._show_results(query.split(" "), 1)
        except Refused as refusal:
            return Result(reason=str(refusal))
        return Result()

    def _find(self, words: Sequence[str]) -> Sequence[str]:
        """ASINs for a query, best first. Raises Refused where upstream breaks."""
        catalogue, rest = self.shop.catalogue, " ".join(words[1:]).strip()
        match words[0]:
            case "<r>":
                # Positions instead of products: the same draws, and no need for the whole list.
                count = len(catalogue)
                return [catalogue.asins[at] for at in self.dice.sample(range(count), min(HITS, count))]
            case "<a>":
                raise Refused("search by attribute (<a>) does not exist")
            case "<c>":
                if len(words) == 1:
                    raise Refused("search by category (<c>) needs a category: search[<c> beauty]")
                return catalogue.of_category(words[1].strip())
            case "<q>":
                return catalogue.of_query(rest)
        try:
            return [asin for asin, _ in self.shop.search.search(" ".join(words), HITS)]
        except TooManyTerms as error:
            raise Refused(str(error)) from None

    def _click(self, name: str) -> Result:
        clicked, kind = self.page.clickables[name], page_kind(self.url)
        if clicked.role is Role.LINK:
            self.product = self.shop.catalogue.product(clicked.target)
            self.visited.add(clicked.target)
            self._show_item()
        # The order decides for options that are called like a button; it is upstream's.
        elif name == pages.BUY.lower():
            return self._buy()
        elif name == pages.BACK.lower():
            self._start()
        elif name == pages.NEXT.lower() and kind == "search_results":
            self._show_results(self.words, self.page_number + 1)
        elif name == pages.PREVIOUS.lower() and kind == "search_results":
            self._show_results(self.words, self.page_number - 1)
        elif name == pages.PREVIOUS.lower() and kind == "item_page":
            self._show_results(self.words, self.page_number)
        elif name in _SUB_PAGE_OF:
            self._show_sub_page(_SUB_PAGE_OF[name])
        else:  # an option, or back from a sub page
            if clicked.role is Role.OPTION:
                self.options[clicked.target] = name
            self._show_item()
        return Result()

    def _start(self) -> None:
        """The start page; forgets the search, the product and its options."""
        self.words, self._hits = (), ()
        self.page_number = 0
        self.visited = set()
        self._leave_product()
        self.page, self.url = pages.index_page(self.goal.instruction), f"{HOST}/{self.number}"

    def _leave_product(self) -> None:
        self.product, self.options = None, {}

    def _show_results(self, words: Sequence[str], number: int) -> None:
        """A results page, empty past the last one and on page 0. Raises Refused, then nothing has changed."""
        if words != self.words or words[0] == "<r>":  # random products are drawn anew for every view
            self._hits = self._find(words)
        self.words, self.page_number = words, number
        self._leave_product()
        asins = self._hits[(number - 1) * PAGE_SIZE : number * PAGE_SIZE]
        products = [self.shop.catalogue.product(asin) for asin in asins]
        self.page = pages.results_page(self.goal.instruction, number, len(self._hits), products, self.visited)
        self.url = f"{HOST}/search_results/{self.number}/{'+'.join(words)}/{number}"

    def _show_item(self) -> None:
        product = self._the_product()
        self.page = pages.item_page(self.goal.instruction, product, self.options)
        self.url = f"{HOST}/item_page/{self._address(product)}/{json.dumps(self.options)}"

    def _show_sub_page(self, name: str) -> None:
        product = self._the_product()
        self.page = pages.sub_page(self.goal.instruction, product, name)
        self.url = f"{HOST}/item_sub_page/{self._address(product)}/{name}/{self.options}"

    def _buy(self) -> Result:
        product = self._the_product()
        bought = reward(product, self.goal, product.price, self.options, fix_colours=self.fix_colours)
        self.page = pages.done_page(product.asin, self.options, bought.total)
        self.url = f"{HOST}/done/{self.number}/{product.asin}/{self.options}"
        return Result(reward=bought.total, done=True, bought=bought)

    def _address(self, product: Product) -> str:
        return f"{self.number}/{product.asin}/{'+'.join(self.words)}/{self.page_number}"

    def _the_product(self) -> Product:
        assert self.product is not None  # only pages of a product have what leads here
        return self.product

"""The oracle: buys a goal's product with the goal's options. Its reward is the ceiling of the goal.

It is found with the shop's own search and reward, so that it needs no stored solution and fits any catalogue.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from seedbench.errors import SeedBenchError
from seedbench_envs.bm25 import TooManyTerms
from seedbench_envs.webshop.actions import Action, clicks, parse
from seedbench_envs.webshop.pages import BACK, BUY, NEXT, PREVIOUS, SEARCH, SUB_PAGES
from seedbench_envs.webshop.records import Catalogue, Goal, Product
from seedbench_envs.webshop.reward import reward
from seedbench_envs.webshop.session import HITS, PAGE_SIZE, Shop

_UNSAYABLE = re.compile(r"[\[\]\s]+")
"""Brackets end an action's argument early; only single spaces set words apart in a search."""
_BUTTONS = frozenset(name.lower() for name in (BACK, BUY, NEXT, PREVIOUS, SEARCH, *SUB_PAGES))


def solve(shop: Shop, goal: Goal) -> list[str]:
    """Actions that find the goal's product, choose its options in their order on the page, and buy.

    An option value that no action can choose (it is called like a button, or cannot be written between brackets) is
    left out, and so is one whose click would choose for another option.

    Raises:
        SeedBenchError: no search brings up the product.
    """
    product = shop.catalogue.product(goal.asin)
    query, place = _way(shop, product)
    turns = ["click[next >]"] * (place // PAGE_SIZE)
    values = _chosen(product, goal).values()
    return [f"search[{query}]", *turns, *clicks((goal.asin.lower(), *values, BUY.lower()))]


def ceiling(catalogue: Catalogue, goal: Goal) -> float:
    """Reward of buying the goal's own product as `solve` does, in [0, 1]."""
    product = catalogue.product(goal.asin)
    return reward(product, goal, product.price, _chosen(product, goal)).total


def _chosen(product: Product, goal: Goal) -> dict[str, str]:
    """The goal's options as far as clicks can choose them, in their order on the page."""
    wanted = goal.options if isinstance(goal.options, Mapping) else _best_options(product, goal)
    return {name: wanted[name] for name in product.options if name in wanted and _chooses(product, name, wanted[name])}


def _way(shop: Shop, product: Product) -> tuple[str, int]:
    """A search that brings up the product, and its place among the hits, from 0; on the first page if possible."""
    found: list[tuple[int, str]] = []
    for query in _queries(product):
        try:
            asins = [asin for asin, _ in shop.search.search(query, HITS)]
        except TooManyTerms:
            continue
        if product.asin in asins[:PAGE_SIZE]:
            return query, 0
        if product.asin in asins:
            found.append((asins.index(product.asin), query))
    # As the session reads them: the whole rest is the query, but only one word is the category.
    lists = {
        f"<q> {product.query}": shop.catalogue.of_query(product.query.strip()),
        f"<c> {product.category}": shop.catalogue.of_category(product.category.split(" ")[0].strip()),
    }
    for query, listed in lists.items():
        asins = list(listed)
        if product.asin in asins and parse(f"search[{query}]") == Action("search", query):
            found.append((asins.index(product.asin), query))
    if not found:
        raise SeedBenchError(f"no search brings up the product {product.asin}.")
    place, query = min(found, key=lambda way: way[0])  # of equals the most natural one, which comes first
    return query, place


def _queries(product: Product) -> Iterator[str]:
    """Queries that should find the product, the most natural one first."""
    options = " ".join(value for values in product.options.values() for value in values)
    bullet = product.bullets[0] if product.bullets else ""
    parts = [product.title, f"{product.title} {product.query}", f"{product.title} {options}"]
    parts += [f"{product.title} {bullet}", f"{product.title} {product.description} {bullet} {options}"[:4000]]
    for part in parts:
        # A first word in angle brackets would ask for another kind of search.
        query = _UNSAYABLE.sub(" ", part).strip(" <").lower()
        if query:
            yield query


def _chooses(product: Product, name: str, value: str) -> bool:
    """Whether a click on `value` chooses it for the option `name`: the last option with that value gets the click."""
    holders = [other for other, values in product.options.items() if value in values]
    return bool(holders) and holders[-1] == name and value not in _BUTTONS


def _best_options(product: Product, goal: Goal) -> dict[str, str]:
    """The values with the highest reward, chosen for one option after the other; none where none adds to it.

    A human goal names values in the writer's words, so what fits is for the reward to say.
    """
    chosen: dict[str, str] = {}
    best = reward(product, goal, product.price, chosen).total
    for name, values in product.options.items():
        picked = ""
        for value in sorted(
            values, key=lambda value: value not in goal.options
        ):  # "pack of 1" also passes for "pack of 2"
            total = reward(product, goal, product.price, {**chosen, name: value}).total
            if total > best and _chooses(product, name, value):
                best, picked = total, value
        if picked:
            chosen[name] = picked
    return chosen

"""Goals: what shoppers are asked for, in upstream's order, with fixed price caps.

Synthetic goals are all combinations of a product's option values, for every product with an instruction. A
catalogue can have millions, so they are not written out: a `GoalPlan` holds each product's price cap and weight and
upstream's shuffle as a permutation, from which any goal follows. Human goals are few and written out.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from math import prod
from random import Random

import numpy as np
from numpy.typing import NDArray

from seedbench.errors import SeedBenchError
from seedbench_envs.webshop.loading import HumanInstruction
from seedbench_envs.webshop.prices import cap_clause, draw_cap
from seedbench_envs.webshop.records import Goal, Product

SHUFFLE_SEED = 233
"""Upstream's seed of the order of goals."""
MOST_GOALS = 100_000_000
"""More than the full official set has by an order of magnitude; past it the options are not what they should be."""


@dataclass(frozen=True, slots=True, eq=False)
class GoalPlan:
    """All synthetic goals of a catalogue. P products give goals, G goals in all."""

    rows: NDArray[np.uint32]
    """(P,): the products, by position in load order, ascending."""
    firsts: NDArray[np.uint32]
    """(P + 1,): how many goals the products before have; the last is G."""
    caps: NDArray[np.float64]
    """(P,): `price_upper` of a product's goals, dollars."""
    weights: NDArray[np.float64]
    """(P,): upstream's sampling weight of each of a product's goals."""
    order: NDArray[np.uint32]
    """(G,): goal i's place in the unshuffled list."""

    def place(self, index: int) -> tuple[int, int]:
        """Goal `index` as (position among the P products, number of the option combination)."""
        place = int(self.order[index])
        # A product with an empty option has no goals: the last of equal firsts is the one that has.
        at = int(np.searchsorted(self.firsts, place, side="right")) - 1
        return at, place - int(self.firsts[at])


class GoalPlanner:
    """Gathers what a plan needs while products stream by; memory is some tens of bytes a product."""

    def __init__(self) -> None:
        self._rows, self._sizes, self._prices = array("I"), array("Q"), array("d")
        self._counts: Counter[str] = Counter()
        # Attributes by number, because the same few thousand texts come again and again.
        self._numbers: dict[str, int] = {}
        self._asked, self._asked_ends = array("I"), array("Q")

    def add(self, row: int, product: Product) -> None:
        """Note the product at position `row` of the load order, if goals come from it."""
        if not product.instruction or not product.instruction_attributes:
            return
        size = combinations(product.options)
        self._rows.append(row)
        self._sizes.append(min(size, MOST_GOALS + 1))
        self._prices.append(product.price)
        for attribute in product.instruction_attributes:
            self._counts[attribute] += size
            self._asked.append(self._numbers.setdefault(attribute, len(self._numbers)))
        self._asked_ends.append(len(self._asked))

    def plan(self, dice: Random) -> GoalPlan:
        """The plan; `dice` must stand where the drawing of all products' prices left it.

        Raises:
            SeedBenchError: more than `MOST_GOALS` goals.
        """
        total = sum(self._sizes)
        if total > MOST_GOALS:
            worst = max(self._sizes)
            raise SeedBenchError(
                f"the products' options combine to more than {MOST_GOALS:,} goals (one product alone: {worst:,});"
                " expected the official files, or fewer options for each product that has an instruction."
            )
        caps = np.array([draw_cap(price, dice) for price in self._prices], np.float64)
        order = array("I", range(total))
        Random(SHUFFLE_SEED).shuffle(order)
        return GoalPlan(
            rows=np.array(self._rows, np.uint32),
            firsts=np.concatenate([[0], np.cumsum(self._sizes)]).astype(np.uint32),
            caps=caps,
            weights=np.array(self._weights(), np.float64),
            order=np.array(order, np.uint32),
        )

    def _weights(self) -> list[float]:
        # A product whose options have no combination has no goals, so its weight is never asked for.
        rarity = [1.0 / count if count else 0.0 for count in map(self._counts.__getitem__, self._numbers)]
        bounds = pairwise(chain((0,), self._asked_ends))
        return [sum(rarity[number] for number in self._asked[a:b]) / (b - a) for a, b in bounds]


def combinations(options: Mapping[str, tuple[str, ...]]) -> int:
    """How many goals a product with these options gives; 1 for one without options, 0 if any has no value."""
    return prod(map(len, options.values()))


def synthetic_goal(index: int, product: Product, combination: int, cap: float, weight: float) -> Goal:
    """Goal `index`: the product with one combination of option values, numbered 0 to `combinations` - 1.

    Option names count in alphabetical order, the values of the last one changing fastest.
    """
    chosen: dict[str, str] = {}
    for name in sorted(product.options, reverse=True):
        combination, value = divmod(combination, len(product.options[name]))
        chosen[name] = product.options[name][value]
    options = {name: chosen[name] for name in sorted(chosen)}
    wanted = ", and ".join(f"{name}: {value}" for name, value in options.items())
    instruction = product.instruction + (f" with {wanted}" if wanted else "") + cap_clause(cap)
    return _goal(f"goal/{index}", product, instruction, product.instruction_attributes, options, cap, weight)


@dataclass(frozen=True, slots=True)
class HumanGoal:
    """A human goal as it is stored: the product's position in load order, and what was asked."""

    row: int
    instruction: str
    """With the price clause."""
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    cap: float


def plan_human(asked: Iterable[tuple[int, float, Iterable[HumanInstruction]]], dice: Random) -> list[HumanGoal]:
    """Human goals in upstream's order, of (position, hidden price, instructions) in load order.

    `dice` must stand where the drawing of all products' prices left it: upstream makes human goals instead of
    synthetic ones, not after them.
    """
    goals = []
    for row, price, instructions in asked:
        for wish in instructions:
            cap = draw_cap(price, dice)
            goals.append(HumanGoal(row, wish.instruction + cap_clause(cap), wish.attributes, wish.options, cap))
    Random(SHUFFLE_SEED).shuffle(goals)
    return goals


def human_goal(index: int, product: Product, held: HumanGoal) -> Goal:
    """Human goal `index` with the product that it is about."""
    return _goal(f"human/{index}", product, held.instruction, held.attributes, held.options, held.cap, 1.0)


def _goal(
    goal_id: str,
    product: Product,
    instruction: str,
    attributes: tuple[str, ...],
    options: Mapping[str, str] | tuple[str, ...],
    cap: float,
    weight: float,
) -> Goal:
    return Goal(
        id=goal_id, asin=product.asin, category=product.category, query=product.query,
        product_category=product.product_category, title=product.title, instruction=instruction,
        attributes=attributes, options=options, price_upper=cap, nouns=product.nouns, weight=weight,
    )  # fmt: skip

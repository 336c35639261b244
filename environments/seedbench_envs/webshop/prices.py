"""Prices: what a page shows, the hidden price that the reward uses, and the price cap of a goal.

Upstream draws the hidden price of a product with a price range, and every goal's cap, from Python's own generator
without a seed, so no two of its processes agree. Here the generator is `random.Random(PRICE_SEED)`, drawn from in
upstream's order: first the prices of all products in load order, then the caps in the order in which goals are
made. Both are stored with the catalogue and never drawn again.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from random import Random

PRICE_SEED = 42
DEFAULT_PRICE = 100.0
"""Upstream's price of a product whose file entry has none, in dollars."""
NO_CAP = 1_000_000.0
"""`price_upper` of a goal without a price clause."""
_CAPS = tuple(10.0 * tens for tens in range(1, 100))
_NOT_A_PRICE = re.compile(r"[^\d.]")


def price_amounts(pricing: str | None) -> tuple[float, ...]:
    """The one or two amounts in dollars of a price field such as `$12.50` or `$10.00 to $20.00`.

    An empty field is `DEFAULT_PRICE`; of more than two amounts the first two count, as upstream. Raises ValueError
    for a field that names no amount or one that is no number (upstream breaks on it).
    """
    if not pricing:
        return (DEFAULT_PRICE,)
    try:
        amounts = [float(Decimal(_NOT_A_PRICE.sub("", part))) for part in pricing.split("$")[1:]]
    except InvalidOperation:
        amounts = []
    if not amounts or not all(map(math.isfinite, amounts)):
        raise ValueError(f"no price in {pricing!r}")
    return tuple(amounts[:2])


def price_text(amounts: tuple[float, ...]) -> str:
    """The price as pages show it: `$12.5`, or `$10.0 to $20.0`."""
    return " to ".join(f"${amount}" for amount in amounts)


def draw_price(amounts: tuple[float, ...], dice: Random) -> float:
    """The hidden price in dollars: uniform within a range (one draw), else the amount itself (no draw)."""
    return dice.uniform(*amounts) if len(amounts) == 2 else amounts[0]


def draw_cap(price: float, dice: Random) -> float:
    """A goal's `price_upper`: the larger of two of the next four multiples of 10 above `price`, at most 990.

    `NO_CAP`, without a draw, where fewer than two are left.
    """
    above = [cap for cap in _CAPS if cap > price][:4]
    return max(dice.sample(above, 2)) if len(above) >= 2 else NO_CAP


def cap_clause(cap: float) -> str:
    """What an instruction says of the cap; empty for `NO_CAP`. The reward accepts a price equal to the cap."""
    return "" if cap == NO_CAP else f", and price lower than {cap:.2f} dollars"

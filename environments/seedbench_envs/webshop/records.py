"""The records of WebShop that its parts pass to each other: products, goals, and what a catalogue and a search give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Product:
    """One product as upstream's `load_products` leaves it. All texts are as shown, case and spaces included."""

    asin: str
    """Ten characters, upper case as in the file."""
    title: str
    category: str
    query: str
    """Lower case."""
    product_category: str
    """`A › B › C`."""
    description: str
    bullets: tuple[str, ...]
    price_text: str
    """What pages show, e.g. `$12.5` or `$10.0 to $20.0`."""
    price: float
    """The hidden price that the reward uses, in dollars."""
    options: Mapping[str, tuple[str, ...]]
    """Option name (lower case) -> values (lower case), in file order."""
    attributes: tuple[str, ...]
    """Attributes that goals are scored on (items_ins file); lower case."""
    instruction: str
    """Synthetic instruction without its price clause; empty: no goals come from this product."""
    instruction_attributes: tuple[str, ...]
    nouns: tuple[str, ...]
    """Lower-cased nouns of the title, in order, with repeats."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a shopper is asked for. `id` is `goal/<index>` (synthetic) or `human/<index>`."""

    id: str
    asin: str
    category: str
    query: str
    product_category: str
    title: str
    instruction: str
    """With the price clause, as the agent reads it."""
    attributes: tuple[str, ...]
    options: Mapping[str, str] | tuple[str, ...]
    """Synthetic: option name -> value. Human: values only."""
    price_upper: float
    """1,000,000 where there is no price clause."""
    nouns: tuple[str, ...] = ()
    """Nouns of the goal product's title, as in `Product`: the reward compares them with the purchase's."""
    weight: float = 1.0
    """Upstream's sampling weight: the mean over the attributes of 1 / (goals that ask for it); human goals: 1."""


class Catalogue(Protocol):
    """Products by ASIN, in load order. Safe to share by any number of environments of a process."""

    asins: Sequence[str]
    """In load order."""

    def __len__(self) -> int: ...

    def product(self, asin: str) -> Product:
        """The product. Raises KeyError for an unknown ASIN."""
        ...

    def of_category(self, category: str) -> Sequence[str]:
        """ASINs of a category, in load order; empty for an unknown one."""
        ...

    def of_query(self, query: str) -> Sequence[str]:
        """ASINs of a query (exact, lower case), in load order; empty for an unknown one."""
        ...


class Search(Protocol):
    """Full-text search over a catalogue's documents."""

    def search(self, query: str, k: int = 50) -> list[tuple[str, float]]:
        """Document ids and scores, best first, at most `k`."""
        ...

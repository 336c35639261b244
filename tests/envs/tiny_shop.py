"""A hand-made shop of odd products, small enough to know what every page must show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from seedbench_envs.bm25 import Bm25Index
from seedbench_envs.webshop.records import Goal, Product
from seedbench_envs.webshop.session import Shop

NBSP = "\u00a0"


def product(asin: str, title: str, **changes: object) -> Product:
    """A product; everything not given is plain."""
    fields: dict[str, object] = {
        "asin": asin,
        "title": title,
        "category": "garden",
        "query": "lamps",
        "product_category": "Home › Lamps › Desk Lamps",
        "description": f"All about {title}.",
        "bullets": ("Bright ", "Small"),
        "price_text": "$12.5",
        "price": 12.5,
        "options": {},
        "attributes": ("easy clean", "long lasting"),
        "instruction": "Find me easy clean lamps",
        "instruction_attributes": ("easy clean",),
        "nouns": tuple(title.lower().split()),
    }
    return Product(**{**fields, **changes})  # type: ignore[arg-type]


LAMP = product("B000000001", "Red Lamp", options={"color": ("red", "dark blue"), "size": ("small", "large", "small")})
ODD = product(
    "B000000002",
    "",
    description="",
    bullets=("", " ", "\n", NBSP, "two\nlines"),
    price_text="",
    options={
        "kind": ("buy now", "reviews", "search", "a]b", "x [y]", "attributes"),
        "": ("", " ", "café"),
        "other": ("a]b",),
        "none": (),
    },
)
MARKUP = product(
    "B000000003",
    '<b>Lamp</b> & "Shade"  it\'s',
    description="<script>alert('x')</script>",
    options={"look": ("a<b>&'c'",)},
)
PLAIN = tuple(product(f"B0000001{number:02}", f"Lamp {number}", query="shelf lamps") for number in range(60))
SOAP = product(
    "B000000009",
    "Soap",
    category="beauty",
    query="soap",
    product_category="Beauty › Soap",
    price=3.0,
    options={"shape": ("rectangular", "round")},
)
PRODUCTS = (LAMP, ODD, MARKUP, SOAP, *PLAIN)

GOALS = {
    "goal/0": Goal(
        id="goal/0",
        asin=LAMP.asin,
        category="garden",
        query="lamps",
        product_category=LAMP.product_category,
        title=LAMP.title,
        instruction="Find me easy clean lamps with color: red, and price lower than 20.00 dollars",
        attributes=("easy clean",),
        options={"color": "red"},
        price_upper=20.0,
        nouns=LAMP.nouns,
    ),
    "goal/1": Goal(
        id="goal/1",
        asin=SOAP.asin,
        category="beauty",
        query="soap",
        product_category=SOAP.product_category,
        title=SOAP.title,
        instruction="Find me soap",
        attributes=("easy clean", "long lasting"),
        options={},
        price_upper=2.0,
        nouns=SOAP.nouns,
    ),
    "goal/2": Goal(
        id="goal/2",
        asin=SOAP.asin,
        category="beauty",
        query="soap",
        product_category=SOAP.product_category,
        title=SOAP.title,
        instruction="Find me long lasting soap with shape: rectangular, and price lower than 10.00 dollars",
        attributes=("long lasting",),
        options={"shape": "rectangular"},
        price_upper=10.0,
        nouns=SOAP.nouns,
    ),
    "human/0": Goal(
        id="human/0",
        asin=LAMP.asin,
        category="garden",
        query="lamps",
        product_category=LAMP.product_category,
        title=LAMP.title,
        instruction="i want a dark blue lamp",
        attributes=("easy clean",),
        options=("dark blue",),
        price_upper=1_000_000,
        nouns=LAMP.nouns,
    ),
}


class TinyCatalogue:
    """The products above, as a `Catalogue`."""

    def __init__(self) -> None:
        self._products = {product.asin: product for product in PRODUCTS}
        self.asins: Sequence[str] = tuple(self._products)

    def __len__(self) -> int:
        return len(self.asins)

    def product(self, asin: str) -> Product:
        return self._products[asin]

    def of_category(self, category: str) -> tuple[str, ...]:
        return tuple(asin for asin, found in self._products.items() if found.category == category)

    def of_query(self, query: str) -> tuple[str, ...]:
        return tuple(asin for asin, found in self._products.items() if found.query == query)


class TinyGoals:
    """The goals above, as `Goals`."""

    def goal(self, goal_id: str) -> Goal:
        return GOALS[goal_id]

    def counts(self) -> Mapping[str, int]:
        return {"goal": 3, "human": 1}


@cache
def tiny_shop() -> Shop:
    """The shop, with the real search over titles and descriptions."""
    documents = [(p.asin, f"{p.title} {p.description}".lower()) for p in PRODUCTS]
    return Shop(TinyCatalogue(), Bm25Index.build(documents), TinyGoals())

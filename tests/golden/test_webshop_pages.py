"""Every page of all 1,000 official products against the original's, by hash, and the same pages in HTML."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from seedbench_envs.webshop.pages import SUB_PAGES, Page, item_page, sub_page
from seedbench_envs.webshop.records import Product
from seedbench_envs.webshop.render import as_html, as_text
from tests.envs.page_reader import Reader
from tests.golden.official_shop import official_shop, recorded

pytestmark = [pytest.mark.real_data]


def pages_of(product: Product) -> dict[str, Page]:
    instruction = official_shop().goals.goal("goal/0").instruction
    pages = {"item": item_page(instruction, product, {})}
    return pages | {name.lower(): sub_page(instruction, product, name) for name in SUB_PAGES}


def products() -> Iterator[Product]:
    catalogue = official_shop().catalogue
    return (catalogue.product(asin) for asin in catalogue.asins)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def test_every_page_of_every_product_equals_the_original() -> None:
    recordings: dict[str, dict[str, Any]] = {row["asin"]: row for row in recorded("page_hashes")}
    assert len(recordings) == 1000
    for product in products():
        expected = recordings.pop(product.asin)
        pages = pages_of(product)
        for name, page in pages.items():
            text = as_text(page)
            assert len(text) == expected[f"{name}_chars"], (product.asin, name)
            assert digest(text) == expected[name], (product.asin, name)
        clickables = list(pages["item"].clickables)
        assert len(clickables) == expected["n_clickables"], product.asin
        assert digest("\n".join(clickables)) == expected["clickables"], product.asin
    assert recordings == {}


def test_html_of_every_product_has_the_same_texts_and_clickables() -> None:
    number = 0
    for product in products():
        for name, page in pages_of(product).items():
            read = Reader(as_html(page))
            assert " [SEP] ".join(read.texts) == as_text(page), (product.asin, name)
            assert read.clickables == list(page.clickables), (product.asin, name)
            number += 1
    assert number == 4000

"""A shop of five mugs in the official file format, for the tests of loading, catalogue and search."""

import json
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

from seedbench_envs.webshop.loading import Annotation, LoadReport, Sources, find_sources, products_of
from seedbench_envs.webshop.records import Product


def raw(asin: str, **changes: Any) -> dict[str, Any]:
    """An entry of the product file, complete and plain."""
    return {
        "asin": asin, "name": f"Mug {asin}", "category": "garden", "query": " Mugs ", "product_category": "A › B",
        "full_description": "A mug.", "small_description": ["Red", "Round "], "pricing": "$12.50",
        "customization_options": "", "images": ["x"], **changes,
    }  # fmt: skip


def values(*texts: str) -> list[dict[str, Any]]:
    return [{"value": text, "image": None} for text in texts]


SHELVES: list[Any] = [
    raw("B000000001", customization_options={"Size": values("S", "M/L"), "Color": values(" Red ", "Blue")}),
    raw("B000000002", pricing="$10.00 to $20.00", query="cups"),
    raw("B000000003", category="beauty", pricing="", customization_options={"Color": values("Tan"), "Fit": []}),
    raw("B000000004", pricing="$980"),
    raw("B000000005", pricing="$985.50"),
]
ASKED = {
    "B000000001": {
        "attributes": ["lead free"],
        "instruction": "Find me a mug",
        "instruction_attributes": ["lead free"],
    },
    "B000000002": {"attributes": [], "instruction": None},
    "B000000003": {"attributes": ["x"], "instruction": "Find me tan", "instruction_attributes": ["x", "lead free"]},
    "B000000004": {"attributes": ["x"], "instruction": "Find me 4", "instruction_attributes": ["x"]},
    "B000000005": {"instruction": "Find me 5", "instruction_attributes": ["x", "y"]},
}
HUMAN = {
    "B000000002": [
        {"instruction": "a cup.", "instruction_attributes": ["round"], "instruction_options": ["red"]},
        {"instruction": "no wish", "instruction_attributes": [], "instruction_options": []},
        {"instruction": ".another cup", "instruction_attributes": ["red", "round"], "instruction_options": []},
    ]
}


def no_nouns(title: str) -> None:
    return None


def write_files(folder: Path, shelves: object = SHELVES, asked: object = ASKED, human: object = HUMAN) -> Sources:
    folder.mkdir(exist_ok=True)
    for name, content in {"items_shuffle": shelves, "items_ins_v2": asked, "items_human_ins": human}.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return find_sources(folder, "full")


def loaded(entries: Iterable[object], asked: dict[str, Annotation] | None = None) -> tuple[list[Product], LoadReport]:
    report = LoadReport()
    table = {} if asked is None else asked
    return list(products_of(entries, table.get, Random(0), no_nouns, report)), report

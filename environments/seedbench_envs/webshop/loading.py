"""The official WebShop files as products: `items_shuffle*.json`, `items_ins_v2*.json`, `items_human_ins*.json`.

Texts come out as upstream's loader leaves them. Entries on which upstream breaks are mended where the files
themselves have a way to say "none" (no price, description, bullets or options), else left out; both are counted by
reason in a `LoadReport`. One entry is in memory at a time, and the attributes of the others lie in a temporary
database, so that the full set of 1.18 million products needs little more memory than the small one.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from seedbench.errors import SeedBenchError, unknown
from seedbench_envs.webshop.jsonstream import json_items, json_members
from seedbench_envs.webshop.nouns import NounLookup, fallback_nouns
from seedbench_envs.webshop.prices import DEFAULT_PRICE, draw_price, price_amounts, price_text
from seedbench_envs.webshop.records import Product

PRODUCT_FILE = "the WebShop product file (items_shuffle.json or items_shuffle_1000.json)"
ATTRIBUTE_FILE = "the WebShop attribute file (items_ins_v2.json or items_ins_v2_1000.json)"
HUMAN_FILE = "the WebShop file of human instructions (items_human_ins.json)"
EDITIONS: Mapping[str, tuple[str, int | None]] = {"1k": ("_1000", 1000), "100k": ("", 100_000), "full": ("", None)}
"""Edition -> ending of the official files' names, and how many entries of the product file belong to it."""
_NO_ATTRIBUTES = ("DUMMY_ATTR",)
"""Upstream's attributes of a product of which the attribute file says nothing."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of one catalogue. `limit`: only so many entries from the start of the product file."""

    products: Path
    attributes: Path
    human: Path | None = None
    limit: int | None = None


@dataclass(slots=True)
class LoadReport:
    """What was read, and what could not be taken as it stood: reason -> number of products."""

    read: int = 0
    kept: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    mended: Counter[str] = field(default_factory=Counter)
    fallback_nouns: int = 0
    """Titles whose nouns are not known: all their words count as nouns."""

    def lines(self) -> list[str]:
        """The report in sentences; the first has the totals."""
        lines = [f"{self.kept:,} products of {self.read:,} entries"]
        lines += [f"left out {count:,}: {reason}" for reason, count in sorted(self.skipped.items())]
        lines += [f"mended {count:,}: {reason}" for reason, count in sorted(self.mended.items())]
        if self.fallback_nouns:
            lines.append(
                f"the nouns of {self.fallback_nouns:,} titles are not known, so all their words count as nouns in the"
                " reward"
            )
        return lines


@dataclass(frozen=True, slots=True)
class Annotation:
    """What the attribute file says of a product. `attributes` is None, `instruction` empty where it says nothing."""

    attributes: tuple[str, ...] | None = None
    instruction: str = ""
    instruction_attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HumanInstruction:
    """One instruction written by a person, without its price clause."""

    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


def find_sources(folder: Path, edition: str = "1k") -> Sources:
    """The official files of an edition (`1k`, `100k`, `full`) in `folder`, plain or gzipped.

    Raises:
        SeedBenchError: a file is missing. Human instructions may be.
        UsageError: an unknown edition.
    """
    if edition not in EDITIONS:
        raise unknown("edition", edition, EDITIONS)
    ending, limit = EDITIONS[edition]

    def find(stem: str) -> Path | None:
        names = (f"{stem}.json", f"{stem}.json.gz")
        return next((folder / name for name in names if (folder / name).is_file()), None)

    def need(stem: str) -> Path:
        if (path := find(stem)) is None:
            raise SeedBenchError(
                f"'{folder}' has no {stem}.json or {stem}.json.gz, which the {edition} edition of WebShop needs; put"
                " the official files there, or name the folder that has them."
            )
        return path

    products, attributes = need(f"items_shuffle{ending}"), need(f"items_ins_v2{ending}")
    return Sources(products, attributes, find("items_human_ins"), limit)


def load_products(sources: Sources, dice: Random, nouns: NounLookup, report: LoadReport) -> Iterator[Product]:
    """The products of the official files in file order; `dice` gives their hidden prices, `report` is filled.

    Raises:
        SeedBenchError: a file is missing, damaged or another one.
    """
    entries = json_items(sources.products, PRODUCT_FILE)
    with _AttributeTable(sources.attributes) as table:
        yield from products_of(_first(entries, sources.limit), table.get, dice, nouns, report)
    if not report.kept:
        raise SeedBenchError(f"'{sources.products}' is not {PRODUCT_FILE}: none of its {report.read:,} entries is one.")


def products_of(
    entries: Iterable[object],
    annotations: Callable[[str], Annotation | None],
    dice: Random,
    nouns: NounLookup,
    report: LoadReport,
) -> Iterator[Product]:
    """Products of raw entries (the elements of items_shuffle.json); as `load_products`, without the files."""
    seen: set[str] = set()
    for entry in entries:
        report.read += 1
        try:
            asin = _asin(entry, seen)
            product = _product(asin, entry, annotations(asin), dice, nouns, report)  # type: ignore[arg-type]
        except _Skip as skip:
            report.skipped[str(skip)] += 1
            continue
        report.kept += 1
        yield product


def read_human(path: Path | None) -> dict[str, tuple[HumanInstruction, ...]]:
    """ASIN -> its human instructions, in file order; those that ask for no attribute are dropped, as upstream.

    Raises:
        SeedBenchError: the file is missing, damaged or another one.
    """
    if path is None:
        return {}
    held: dict[str, tuple[HumanInstruction, ...]] = {}
    for asin, entries in json_members(path, HUMAN_FILE):
        if not isinstance(entries, list):
            raise SeedBenchError(f"'{path}' is not {HUMAN_FILE}: '{asin}' has no list of instructions.")
        held[asin] = tuple(found for entry in entries if (found := _human(entry)) is not None)
    return held


class _Skip(Exception):
    """A product that cannot be used; the text is the reason that is counted."""


def _first(entries: Iterator[Any], limit: int | None) -> Iterator[Any]:
    for number, entry in enumerate(entries):
        if number == limit:
            return
        yield entry


def _asin(entry: object, seen: set[str]) -> str:
    """The entry's ASIN, added to `seen`. Upstream's own rules: not longer than 10, not `nan`, the first one counts."""
    if not isinstance(entry, dict):
        raise _Skip("not a product record")
    asin = entry.get("asin")
    if not isinstance(asin, str) or not asin.isascii() or not asin.isalnum() or len(asin) > 10 or asin == "nan":
        raise _Skip("no valid ASIN")
    if asin in seen:
        raise _Skip("ASIN seen before")
    seen.add(asin)
    return asin


def _product(
    asin: str,
    entry: Mapping[str, Any],
    annotation: Annotation | None,
    dice: Random,
    nouns: NounLookup,
    report: LoadReport,
) -> Product:
    title, category, query, kind = (_text(entry, key) for key in ("name", "category", "query", "product_category"))
    description = _text(entry, "full_description", report)
    bullets = _bullets(entry.get("small_description"), report)
    options = _options(entry.get("customization_options"), report)
    amounts = _amounts(entry.get("pricing"), report)
    if annotation is None:
        report.mended["no entry in the attribute file"] += 1
        annotation = Annotation()
    elif annotation.instruction and not annotation.instruction_attributes:
        report.mended["an instruction that asks for no attribute, so no goals"] += 1
    known = nouns(title)
    report.fallback_nouns += known is None
    return Product(
        asin=asin, title=title, category=category, query=query.lower().strip(), product_category=kind,
        description=description, bullets=bullets, price_text=price_text(amounts), price=draw_price(amounts, dice),
        options=options, attributes=_NO_ATTRIBUTES if annotation.attributes is None else annotation.attributes,
        instruction=annotation.instruction, instruction_attributes=annotation.instruction_attributes,
        nouns=fallback_nouns(title) if known is None else known,
    )  # fmt: skip


def _text(entry: Mapping[str, Any], key: str, report: LoadReport | None = None) -> str:
    """A text field; with a report, a missing one is empty and counted."""
    value = entry.get(key)
    if value is None and report is not None:
        report.mended[f"no {key}"] += 1
        return ""
    if not isinstance(value, str):
        raise _Skip(f"{key} is missing or no text")
    return value


def _bullets(value: object, report: LoadReport) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    found = _texts(value)
    if not isinstance(value, list) or len(found) < len(value):
        report.mended["small_description is missing or not all text"] += 1
    return found


def _texts(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _amounts(pricing: object, report: LoadReport) -> tuple[float, ...]:
    try:
        if pricing is not None and not isinstance(pricing, str):
            raise ValueError("not a text")
        return price_amounts(pricing)
    except ValueError:
        report.mended[f"a price that cannot be read, taken as ${DEFAULT_PRICE:g}"] += 1
        return (DEFAULT_PRICE,)


def _options(value: object, report: LoadReport) -> dict[str, tuple[str, ...]]:
    """Option name -> values as upstream shows them: lower case, stripped, `/` set off as ` | `."""
    if value == "":  # how the files say "none"
        return {}
    named = value if isinstance(value, dict) else {}
    broken = not isinstance(value, dict)
    options: dict[str, tuple[str, ...]] = {}
    for name, contents in named.items():
        if contents is None:
            continue
        held: Sequence[object] = contents if isinstance(contents, list) else ()
        values = [item["value"] for item in held if isinstance(item, dict) and isinstance(item.get("value"), str)]
        broken |= not isinstance(contents, list) or len(values) < len(held)
        if values or contents == []:
            options[name.lower()] = tuple(text.strip().replace("/", " | ").lower() for text in values)
    if broken:
        report.mended["customization_options are missing or damaged"] += 1
    return options


def _human(entry: object) -> HumanInstruction | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("instruction"), str):
        return None
    attributes, options = _texts(entry.get("instruction_attributes")), _texts(entry.get("instruction_options"))
    # Upstream strips full stops from both ends, because the price clause follows.
    return HumanInstruction(entry["instruction"].strip("."), attributes, options) if attributes else None


def annotation_of(entry: object) -> Annotation:
    """What an entry of the attribute file says; fields of another type than the official one count as absent."""
    if not isinstance(entry, dict):
        return Annotation()
    attributes, instruction = entry.get("attributes"), entry.get("instruction")
    return Annotation(
        _texts(attributes) if isinstance(attributes, list) else None,
        instruction if isinstance(instruction, str) else "",
        _texts(entry.get("instruction_attributes")),
    )


class _AttributeTable:
    """The attribute file by ASIN, in a temporary database: in memory while small, on disk past SQLite's cache."""

    def __init__(self, path: Path) -> None:
        self._rows = sqlite3.connect("")
        self._rows.execute("CREATE TABLE held (asin TEXT PRIMARY KEY, entry TEXT NOT NULL) WITHOUT ROWID")
        packed = ((json.dumps(asin), json.dumps(entry)) for asin, entry in json_members(path, ATTRIBUTE_FILE))
        try:
            self._rows.executemany("INSERT OR REPLACE INTO held VALUES (?, ?)", packed)
        except sqlite3.Error as error:
            raise SeedBenchError(
                f"cannot hold '{path}' in a temporary file: {error}. Free space and try again."
            ) from error

    def __enter__(self) -> _AttributeTable:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()

    def get(self, asin: str) -> Annotation | None:
        """What the file says of a product; None if nothing."""
        row = self._rows.execute("SELECT entry FROM held WHERE asin = ?", (json.dumps(asin),)).fetchone()
        return annotation_of(json.loads(row[0])) if row else None

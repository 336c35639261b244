"""Builds a catalogue: streams products into the file that `catalogue.open_catalogue` maps (its layout is there)."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from random import Random
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from seedbench.errors import SeedBenchError
from seedbench_envs.webshop.catalogue import (
    ASIN_BYTES,
    END,
    FILE,
    FORMAT,
    MAGIC,
    PLAN_PARTS,
    CatalogueInfo,
    StoredCatalogue,
    open_catalogue,
)  # fmt: skip
from seedbench_envs.webshop.goals import GoalPlan, GoalPlanner, HumanGoal, plan_human
from seedbench_envs.webshop.loading import HumanInstruction, LoadReport, Sources, load_products, read_human
from seedbench_envs.webshop.nouns import NounLookup, shipped_spans
from seedbench_envs.webshop.prices import PRICE_SEED
from seedbench_envs.webshop.records import Product

Human = Mapping[str, Sequence[HumanInstruction]]
"""ASIN -> its human instructions."""
_ALIGN = 64
_WINDOW = 32_000
"""Deflate looks back no further."""


def import_files(
    sources: Sources, folder: Path, nouns: NounLookup | None = None, nouns_from: str = ""
) -> tuple[StoredCatalogue, LoadReport]:
    """Build the catalogue of the official files in `folder` and open it.

    `nouns` gives the nouns of titles and `nouns_from` says what it is; by default the shipped spans of the official
    1,000 products, so that other titles fall back to all their words.

    Raises:
        SeedBenchError: a file is missing, damaged or another one, or the catalogue cannot be written.
    """
    if nouns is None:
        nouns, nouns_from = shipped_spans().nouns, shipped_spans().made_with
    dice, report = Random(PRICE_SEED), LoadReport()
    products = load_products(sources, dice, nouns, report)
    build_catalogue(folder, products, read_human(sources.human), dice, report, nouns_from)
    return open_catalogue(folder), report


def build_catalogue(
    folder: Path,
    products: Iterable[Product],
    human: Human,
    dice: Random,
    report: LoadReport,
    nouns_from: str = "",
) -> str:
    """Write a catalogue of `products` (in load order, ASINs distinct) and their goals; returns its hash.

    Args:
        folder: gets the file `catalogue.bin`, whole or not at all; a present one is replaced.
        products: read once. Their prices must come from `dice` while they are read, as upstream draws all prices
            before the caps of goals.
        human: instructions by ASIN.
        dice: goes on to draw the goals' price caps.
        report: filled while `products` is read; its sentences are kept.
        nouns_from: see `CatalogueInfo`.

    Raises:
        SeedBenchError: no products, too many goals, or the folder cannot be written.
    """
    draft = folder / f"{FILE}.{os.getpid()}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            writer = _Writer(file)
            counts = writer.write(products, human, dice)
            info = CatalogueInfo(
                writer.digest.hexdigest(), len(writer.ends), counts, PRICE_SEED, nouns_from, report.fallback_nouns,
                tuple(report.lines()),
            )  # fmt: skip
            writer.finish(info)
        draft.replace(folder / FILE)
    except OSError as error:
        raise SeedBenchError(
            f"cannot write a catalogue to '{folder}': {error.strerror or error}. Free space, or let SEEDBENCH_DATA name"
            " another folder, and try again."
        ) from error
    finally:
        with suppress(OSError):
            draft.unlink()  # where it failed half-way
    return info.hash


class _Writer:
    """One catalogue being written."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.sections = file, dict[str, tuple[str, int, int]]()
        self.digest = hashlib.sha256()
        self.dictionary = b""
        self.ends = array("Q")
        self.asins = bytearray()
        self.rows_of: dict[str, dict[str, array[int]]] = {"category": {}, "query": {}}

    def write(self, products: Iterable[Product], human: Human, dice: Random) -> Mapping[str, int]:
        """Everything but the footer; returns the number of goals by kind."""
        self.file.write(MAGIC)
        planner, asked = GoalPlanner(), list[tuple[int, float, Sequence[HumanInstruction]]]()
        for row, product in enumerate(self._sampled(products)):
            self._add(row, product)
            planner.add(row, product)
            if wishes := human.get(product.asin):
                asked.append((row, product.price, wishes))
        if not self.ends:
            raise SeedBenchError("a catalogue needs at least one product, and there is none.")
        state = dice.getstate()
        plan = planner.plan(dice)
        # Upstream makes either kind of goals, each straight after the prices.
        dice.setstate(state)
        human_goals = plan_human(asked, dice)
        self._indices()
        self._goals(plan, human_goals)
        return {"goal": len(plan.order), "human": len(human_goals)}

    def finish(self, info: CatalogueInfo) -> None:
        """The footer, and all of it on disk."""
        postings = {kind: [(name, len(rows)) for name, rows in held.items()] for kind, held in self.rows_of.items()}
        footer = {"format": FORMAT, "info": asdict(info), "sections": self.sections, "postings": postings}
        at = self.file.tell()
        self.file.write(json.dumps(footer).encode() + END.pack(at, MAGIC))
        self.file.flush()
        os.fsync(self.file.fileno())

    def _sampled(self, products: Iterable[Product]) -> Iterator[Product]:
        """The products; before the first is given out, the dictionary is made of the first few dozen."""
        stream = iter(products)
        first = list(islice(stream, 64))
        self.dictionary = b"".join(map(_record_text, first))[-_WINDOW:]
        # Raw deflate: the usual form would sum up the dictionary anew for every record that is read.
        self.deflate = zlib.compressobj(6, wbits=-15, zdict=self.dictionary)
        yield from first
        yield from stream

    def _add(self, row: int, product: Product) -> None:
        asin, record = product.asin.encode("ascii"), _record_text(product)
        if len(asin) > ASIN_BYTES:
            raise ValueError(f"'{product.asin}' is longer than {ASIN_BYTES} characters")
        self.digest.update(asin + b"\t" + record + b"\n")
        deflate = self.deflate.copy()
        self.file.write(deflate.compress(record) + deflate.flush())
        self.ends.append(self.file.tell())
        self.asins += asin.ljust(ASIN_BYTES, b"\0")
        self.rows_of["category"].setdefault(product.category, array("I")).append(row)
        self.rows_of["query"].setdefault(product.query, array("I")).append(row)

    def _indices(self) -> None:
        self._section("dictionary", np.frombuffer(self.dictionary, np.uint8))
        self._section("record_ends", np.array(self.ends, np.uint64))
        asins = np.frombuffer(self.asins, f"S{ASIN_BYTES}")
        order = np.argsort(asins, kind="stable")
        self._section("asins", asins)
        self._section("sorted_asins", asins[order])
        self._section("sorted_rows", order.astype(np.uint32))
        for kind, held in self.rows_of.items():
            self._section(f"{kind}_rows", np.concatenate([np.array(rows, np.uint32) for rows in held.values()]))

    def _goals(self, plan: GoalPlan, human: Sequence[HumanGoal]) -> None:
        for name in PLAN_PARTS:
            self._section(f"goal_{name}", getattr(plan, name), hashed=name)
        text = json.dumps([asdict(goal) for goal in human]).encode()
        self._section("human", np.frombuffer(text, np.uint8), hashed="human")

    def _section(self, name: str, values: NDArray[Any], hashed: str = "") -> None:
        """Append an array, in little-endian order; one with a name to hash enters the catalogue's hash."""
        self.file.write(bytes(-self.file.tell() % _ALIGN))
        values = values.astype(values.dtype.newbyteorder("<"))
        self.sections[name] = (values.dtype.str, self.file.tell(), len(values))
        content = values.tobytes()
        self.file.write(content)
        if hashed:
            self.digest.update(hashed.encode() + content)


def _record_text(product: Product) -> bytes:
    """The product but its ASIN as JSON, the same on every machine (floats and escapes as Python writes them)."""
    fields = [
        product.title, product.category, product.query, product.product_category, product.description,
        product.bullets, product.price_text, product.price, dict(product.options), product.attributes,
        product.instruction, product.instruction_attributes, product.nouns,
    ]  # fmt: skip
    return json.dumps(fields, separators=(",", ":")).encode()

"""A catalogue on disk: products and goals in one memory-mapped file that any number of processes share.

`build.build_catalogue` streams products into `FOLDER/catalogue.bin`; `open_catalogue` maps it. Records are deflated
one by one against a common dictionary and decoded when asked for; the few hundred last used stay decoded.

Layout: magic, deflated records, arrays (each at a multiple of 64), a JSON footer that says where they are, then the
footer's place and the magic again. A file whose end is missing is therefore never taken for a catalogue.
`hash` covers the content (records, goals, prices, order) and neither the compression nor the layout, so it is the
same on every machine.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbench.errors import SeedBenchError
from seedbench_envs.webshop.goals import MOST_GOALS, GoalPlan, HumanGoal, human_goal, synthetic_goal
from seedbench_envs.webshop.records import Goal, Product

FILE = "catalogue.bin"
FORMAT = 1
ASIN_BYTES = 10
"""Upstream skips longer ones."""
DECODED = 512
"""Products kept decoded in a process, about 5 kB each."""
MAGIC = b"SBSHOP\r\n"
END = struct.Struct("<Q8s")
"""The footer's place and the magic."""
PLAN_PARTS = ("rows", "firsts", "caps", "weights", "order")
_MEND = "import the data again with `seedbench data fetch`"


@dataclass(frozen=True, slots=True)
class CatalogueInfo:
    """What a catalogue says of itself."""

    hash: str
    products: int
    counts: Mapping[str, int]
    """Goals by kind: `goal` (synthetic) and `human`."""
    price_seed: int
    nouns_from: str
    """Where the nouns of titles come from: versions of spaCy and its model, or another source."""
    fallback_nouns: int
    """Titles all of whose words stand in for their nouns, which are not known."""
    report: tuple[str, ...]
    """What was found while loading, in sentences."""


class Asins(Sequence[str]):
    """ASINs at some positions of the load order, or all of them, decoded when asked for."""

    def __init__(self, asins: NDArray[np.bytes_], rows: NDArray[np.uint32] | None = None) -> None:
        self._asins, self._rows = asins, rows

    def __len__(self) -> int:
        return len(self._asins if self._rows is None else self._rows)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return tuple(map(self.__getitem__, range(*at.indices(len(self)))))
        return bytes(self._asins[at if self._rows is None else self._rows[at]]).decode()


class StoredCatalogue:
    """A catalogue opened for reading: products, goals, hashes. Shared by threads and by all environments."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data, footer = _map(path)
        try:
            info = footer["info"]
            self.info = CatalogueInfo(**{**info, "report": tuple(info["report"])})
            self._open_sections(footer["sections"])
            self._postings = {kind: _bounds(names) for kind, names in footer["postings"].items()}
            self._human = [_stored_wish(held) for held in json.loads(self._array["human"].tobytes())]
        except (KeyError, TypeError, ValueError) as error:
            raise SeedBenchError(f"'{path}' is damaged ({error}); {_MEND}.") from error
        self.asins: Sequence[str] = Asins(self._array["asins"])
        self._decoded = lru_cache(DECODED)(lambda asin: self._decode(self._row(asin)))

    def _open_sections(self, sections: Mapping[str, tuple[str, int, int]]) -> None:
        self._array = {
            name: np.frombuffer(self._data, np.dtype(kind), count, at) for name, (kind, at, count) in sections.items()
        }
        held = self._array
        self._plan = GoalPlan(*(held[f"goal_{part}"] for part in PLAN_PARTS))
        self._dictionary = held["dictionary"].tobytes()
        self._ends = held["record_ends"]

    def __reduce__(self) -> tuple[Any, ...]:
        return open_catalogue, (self.path.parent,)

    def __len__(self) -> int:
        return self.info.products

    @property
    def hash(self) -> str:
        """SHA-256 over products, prices and goals (64 hex digits), the same on every machine."""
        return self.info.hash

    def product(self, asin: str) -> Product:
        """The product. Raises KeyError for an unknown ASIN, SeedBenchError for a damaged file."""
        return self._decoded(asin)

    def products(self) -> Iterator[Product]:
        """All products in load order, each decoded and let go."""
        return map(self._decode, range(len(self)))

    def of_category(self, category: str) -> Sequence[str]:
        """ASINs of a category in load order; empty for an unknown one."""
        return self._posted("category", category)

    def of_query(self, query: str) -> Sequence[str]:
        """ASINs of a query (exact, lower case) in load order; empty for an unknown one."""
        return self._posted("query", query)

    def counts(self) -> Mapping[str, int]:
        """Goals by kind: `goal` and `human`; indices are 0 to the number - 1."""
        return self.info.counts

    def goal_ids(self, kind: str = "goal") -> Sequence[str]:
        """Ids of the goals of a kind (`goal` or `human`) in order. Raises KeyError for another kind."""
        return GoalIds(kind, self.info.counts[kind])

    def goal(self, goal_id: str) -> Goal:
        """The goal `goal/<index>` or `human/<index>`. Raises KeyError for an id that does not exist."""
        kind, _, digits = goal_id.partition("/")
        index = int(digits) if re.fullmatch("0|[1-9][0-9]{0,9}", digits) else MOST_GOALS
        if index >= self.info.counts.get(kind, 0):
            raise KeyError(goal_id)
        if kind == "human":
            held = self._human[index]
            return human_goal(index, self._decoded(self.asins[held.row]), held)
        plan = self._plan
        at, combination = plan.place(index)
        product = self._decoded(self.asins[int(plan.rows[at])])
        return synthetic_goal(index, product, combination, float(plan.caps[at]), float(plan.weights[at]))

    def task_hash(self, goal_id: str) -> str:
        """SHA-256 of a goal in this shop: its id and content, and the catalogue's hash. Raises as `goal`."""
        text = json.dumps([self.hash, asdict(self.goal(goal_id))], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def verify(self) -> None:
        """Read everything and compare with the hash. Raises SeedBenchError where they differ."""
        digest = hashlib.sha256()
        for row, asin in enumerate(self.asins):
            digest.update(asin.encode() + b"\t" + self._record(row) + b"\n")
        for name in PLAN_PARTS:
            digest.update(name.encode() + self._array[f"goal_{name}"].tobytes())
        digest.update(b"human" + self._array["human"].tobytes())
        if digest.hexdigest() != self.hash:
            raise SeedBenchError(f"'{self.path}' is damaged: its content does not have its hash; {_MEND}.")

    def _row(self, asin: str) -> int:
        found = self._array["sorted_asins"]
        try:
            key = asin.encode("ascii")
        except (AttributeError, UnicodeEncodeError):
            raise KeyError(asin) from None
        at = int(np.searchsorted(found, np.bytes_(key)))
        # numpy takes no account of NUL characters at the end, so the last word is Python's.
        if at == len(found) or bytes(found[at]) != key:
            raise KeyError(asin)
        return int(self._array["sorted_rows"][at])

    def _record(self, row: int) -> bytes:
        first = int(self._ends[row - 1]) if row else len(MAGIC)
        inflate = zlib.decompressobj(wbits=-15, zdict=self._dictionary)
        try:
            return inflate.decompress(self._data[first : int(self._ends[row])])
        except zlib.error as error:
            raise SeedBenchError(f"'{self.path}' is damaged ({error}); {_MEND}.") from error

    def _decode(self, row: int) -> Product:
        try:
            title, category, query, kind, description, bullets, price_text, price, options, *rest = json.loads(
                self._record(row).decode()
            )
            attributes, instruction, asked, nouns = rest
        except ValueError as error:
            raise SeedBenchError(f"'{self.path}' is damaged ({error}); {_MEND}.") from error
        return Product(
            self.asins[row], title, category, query, kind, description, tuple(bullets), price_text, price,
            {name: tuple(values) for name, values in options.items()}, tuple(attributes), instruction, tuple(asked),
            tuple(nouns),
        )  # fmt: skip

    def _posted(self, kind: str, name: str) -> Sequence[str]:
        first, end = self._postings[kind].get(name, (0, 0))
        return Asins(self._array["asins"], self._array[f"{kind}_rows"][first:end])


class GoalIds(Sequence[str]):
    """`kind/0`, `kind/1`, ... without a list of them."""

    def __init__(self, kind: str, count: int) -> None:
        self._kind, self._numbers = kind, range(count)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return tuple(f"{self._kind}/{number}" for number in self._numbers[at])
        return f"{self._kind}/{self._numbers[at]}"


def open_catalogue(folder: Path) -> StoredCatalogue:
    """The catalogue in `folder`, opened once in a process for each state of its file.

    Raises:
        SeedBenchError: there is none, or it is damaged, cut off or of another version.
    """
    path = folder / FILE
    try:
        state = path.stat()
    except OSError as error:
        raise SeedBenchError(f"no WebShop catalogue in '{folder}' ({error.strerror}); {_MEND}.") from error
    return _opened(path.resolve(), state.st_mtime_ns, state.st_ino)


@lru_cache(maxsize=8)
def _opened(path: Path, modified_ns: int, inode: int) -> StoredCatalogue:
    return StoredCatalogue(path)


def _map(path: Path) -> tuple[mmap.mmap, dict[str, Any]]:
    """The mapped file and its footer."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        at, magic = END.unpack(data[-END.size :])
        if magic != MAGIC or data[: len(MAGIC)] != MAGIC:
            raise ValueError("it does not begin or end as one")
        footer = json.loads(data[at : -END.size])
        version = footer["format"]
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise SeedBenchError(f"'{path}' is no whole catalogue ({error}); {_MEND}.") from error
    if version != FORMAT:
        raise SeedBenchError(f"'{path}' is a catalogue of version {version}, expected {FORMAT}; {_MEND}.")
    return data, footer


def _bounds(names: Iterable[tuple[str, int]]) -> dict[str, tuple[int, int]]:
    """Name -> (first, end) in its array of positions, of (name, count) in order."""
    bounds, end = {}, 0
    for name, count in names:
        bounds[name] = (end, end + count)
        end += count
    return bounds


def _stored_wish(held: Mapping[str, Any]) -> HumanGoal:
    return HumanGoal(**{**held, "attributes": tuple(held["attributes"]), "options": tuple(held["options"])})

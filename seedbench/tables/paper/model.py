"""What a paper table holds, for its renderers. All texts in it are inert single lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from seedbench.tables.paper.layouts import ColumnGroup, PaperColumn

RowKind = Literal["measured", "difference", "reported"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One number, as a fraction: a rate, a mean, or a difference of them."""

    value: float | None
    n: int = 0
    """Attempts counted, over all seeds; 0 for what is reported."""
    lo: float | None = None
    hi: float | None = None
    """The 95 % interval; None where none can be given."""
    seeds: int = 1
    bold: bool = False
    mark: str = ""
    """How a printed average was taken: micro, macro, batch (a mean of batches), unknown."""


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A method, with a cell or None for each column of the table."""

    label: str
    kind: RowKind
    cells: tuple[Cell | None, ...]
    seeds: Mapping[str, int] = field(default_factory=dict)
    """Suite -> how many training seeds its cells there are the mean of."""
    unfinished: bool = False
    notes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Suite -> numbers of the footnotes to its cells there."""

    def footnotes(self, suite: str = "") -> tuple[int, ...]:
        """The numbers of all its footnotes, or of those to one suite, in ascending order."""
        found = {number for of, numbers in self.notes.items() if suite in ("", of) for number in numbers}
        return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class Source:
    """Where the cells of a measured block come from, for one panel."""

    suite: str
    panel: str
    panel_hash: str
    protocol: str
    protocol_hash: str
    split: str
    official: bool
    text: str
    """All of it and n by column, as a sentence."""


@dataclass(frozen=True, slots=True)
class PaperBlock:
    """A model: what was measured, then what papers report."""

    model: str
    measured: tuple[PaperRow, ...] = ()
    reported: tuple[PaperRow, ...] = ()
    sources: tuple[Source, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PaperTable:
    """A whole table."""

    layout: str
    title: str
    groups: tuple[ColumnGroup, ...]
    blocks: tuple[PaperBlock, ...]
    caption: tuple[tuple[str, str], ...]
    """Sentences, each behind the suite that it is about; empty: all of them."""
    footnotes: tuple[str, ...] = field(default=())
    """Numbered from 1."""

    @property
    def columns(self) -> tuple[PaperColumn, ...]:
        """All columns in their order."""
        return tuple(column for group in self.groups for column in group.columns)

    def sentences(self, suite: str = "") -> list[str]:
        """The caption, or what of it holds for one suite."""
        return [text for of, text in self.caption if not suite or of in ("", suite)]

    def places(self, group: ColumnGroup) -> range:
        """Where the group's columns stand in a row's cells."""
        start = sum(len(other.columns) for other in self.groups[: self.groups.index(group)])
        return range(start, start + len(group.columns))


def printed(cell: Cell | None, kind: RowKind) -> str:
    """A cell's number in percent: 75.0, +3.1 for a difference, digits as printed for what is reported; - for none."""
    if cell is None or cell.value is None:
        return "-"
    value = round(100 * cell.value, 10)
    if kind == "reported":
        return f"{value:.1f}" if round(value, 1) == value else f"{value:g}"
    return f"{value:+z.1f}" if kind == "difference" else f"{value:.1f}"


def interval(cell: Cell | None, dash: str = "-") -> str:
    """`[80-99]`; of a difference `[-3 to 12]`, told by `dash=' to '`; empty where there is none."""
    if cell is None or cell.lo is None or cell.hi is None:
        return ""
    return f"[{100 * cell.lo:z.0f}{dash}{100 * cell.hi:z.0f}]"

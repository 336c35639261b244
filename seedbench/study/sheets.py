"""What a report is made of, and its Markdown and CSV: sections of tables, figures, sentences and samples."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from seedbench.tables.markdown import escape
from seedbench.tables.text import BLANK, no_formula
from seedbench.ui.tally import one_line

_LINE = 600
"""Longest sentence, in characters."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A rate in [0, 1], or a difference of two, with its 95 % interval."""

    mean: float
    lo: float
    hi: float


Value = str | int | float | Estimate | None


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table; `name` is its file's."""

    kind: ClassVar[str] = "sheet"
    name: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    caption: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture beside the report: NAME.svg and NAME.png."""

    kind: ClassVar[str] = "figure"
    name: str
    title: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Lines:
    """Sentences, as a list."""

    kind: ClassVar[str] = "lines"
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Samples:
    """Texts to read: of each, what it is and its parts as (what, text)."""

    kind: ClassVar[str] = "samples"
    name: str
    title: str
    items: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    caption: str


Block = str | Sheet | Figure | Lines | Samples
"""A string is a paragraph."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report; `name` is its anchor."""

    name: str
    title: str
    blocks: tuple[Block, ...]


def sheets(sections: Sequence[Section]) -> list[Sheet]:
    """Every table, in order."""
    return [block for section in sections for block in section.blocks if isinstance(block, Sheet)]


def to_markdown(block: Block) -> str:
    """A block as Markdown: a table with title and caption, rates in percent with their interval in brackets."""
    match block:
        case Sheet():
            return _table(block)
        case Figure():
            return "\n\n".join(filter(None, [f"![{escape(block.title)}]({block.name}.svg)", escape(block.caption)]))
        case Lines():
            return "\n".join(f"- {_escaped(line)}" for line in block.lines)
        case Samples():
            items = "\n".join(
                f"- {_escaped(head)}\n" + "\n".join(f"  - {escape(what)}: {_escaped(text)}" for what, text in parts)
                for head, parts in block.items
            )
            return f"### {escape(block.title)}\n\n{items}\n\n{escape(block.caption)}"
    return escape(block)


def _escaped(text: str) -> str:
    return escape(one_line(text, _LINE))


def _table(sheet: Sheet) -> str:
    lines = [sheet.head, *([shown(value) for value in row] for row in sheet.rows)]
    body = [f"| {' | '.join(escape(one_line(cell)) for cell in line)} |" for line in lines]
    rule = f"| {' | '.join(':--' if text else '--:' for text in text_columns(sheet))} |"
    return f"### {escape(sheet.title)}\n\n" + "\n".join([body[0], rule, *body[1:]]) + f"\n\n{escape(sheet.caption)}"


def text_columns(sheet: Sheet) -> list[bool]:
    """Of each column, whether it holds nothing but text; a number that is written out is none."""
    return [
        all(isinstance(row[i], str) and number(row[i]) is None for row in sheet.rows) for i in range(len(sheet.head))
    ]


def number(value: Value) -> float | None:
    """What a value is sorted by: its mean, or the number that its text is; None where it is no number."""
    if isinstance(value, Estimate):
        return value.mean
    try:
        return None if value is None else float(value)
    except ValueError:
        return None


def shown(value: Value) -> str:
    """A value as people read it; an estimate that has no interval as its mean alone."""
    if isinstance(value, Estimate):
        limits = f" [{100 * value.lo:z.0f} to {100 * value.hi:z.0f}]" if value.lo < value.hi else ""
        return f"{100 * value.mean:z.1f}{limits}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return BLANK if value is None else f"{value:,}" if isinstance(value, int) else value or BLANK


def to_csv(sheet: Sheet) -> str:
    """One line a row; a column with rates becomes three, the limits after the mean, all as fractions.

    A text that a spreadsheet would run gets an apostrophe in front.
    """
    wide = [any(isinstance(row[i], Estimate) for row in sheet.rows) for i in range(len(sheet.head))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [no_formula(name) for title, w in zip(sheet.head, wide, strict=True) for name in _names(title, w)]
    )  # fmt: skip
    for row in sheet.rows:
        writer.writerow([cell for value, w in zip(row, wide, strict=True) for cell in _cells(value, w)])
    return out.getvalue()


def _names(title: str, wide: bool) -> list[str]:
    return [title, f"{title} lo", f"{title} hi"] if wide else [title]


def _cells(value: Value, wide: bool) -> list[object]:
    if isinstance(value, Estimate):
        return [value.mean, value.lo, value.hi]
    shown = "" if value is None else no_formula(value)
    return [shown, "", ""] if wide else [shown]

"""Text and numbers for people, shared by the formats."""

import math
from typing import Any

from seedbench.statistics import Rate
from seedbench.ui.text import inert

BLANK = "-"
"""What stands where there is no number."""


def one_line(text: str) -> str:
    """`text` from outside as one inert, encodable line; `(unnamed)` where nothing is left of it."""
    encodable = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return " ".join(inert(encodable, limit=200).split()) or "(unnamed)"


_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def no_formula(value: Any) -> Any:
    """`value`; a text that a spreadsheet would take for a formula with an apostrophe in front."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value


def percent(rate: Rate | float | None) -> str:
    """95.8 for a rate of 0.958...; a plain number as `amount` writes it."""
    if isinstance(rate, int | float):
        return amount(rate)
    return BLANK if rate is None or rate.rate is None else f"{100 * rate.rate:.1f}"


def amount(value: float) -> str:
    """Three digits, or all before the point: 0.0123, 4.50, 67.8, 12,346; from four decimals on they are cut."""
    decimals = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{min(max(decimals, 0), 4)}f}"


def limits(rate: Rate | float | None, dash: str = "-") -> str:
    """80-99: the interval in whole percent; empty where there is no rate."""
    if not isinstance(rate, Rate) or rate.rate is None:
        return ""
    return f"{100 * rate.lo:.0f}{dash}{100 * rate.hi:.0f}"


def bracketed(rate: Rate | float | None) -> str:
    """[80-99]; empty where there is no rate."""
    interval = limits(rate)
    return f"[{interval}]" if interval else ""


def counted(rate: Rate | float | None) -> str:
    """n=24; empty where the run does not have the column, or only others' episodes were counted."""
    return "" if not isinstance(rate, Rate) or (rate.rate is None and rate.n) else f"n={rate.n}"


def steps(mean: float | None) -> str:
    """Mean turns of an episode."""
    return BLANK if mean is None else f"{mean:.1f}"

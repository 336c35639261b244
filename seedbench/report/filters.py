"""What templates write of numbers, turns and tokens. Colours of tokens are those of the terminal."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from seedbench.tables.text import amount, counted, limits
from seedbench.traces import Token
from seedbench.types import Outcome, Turn
from seedbench.ui.tally import UNKNOWN, outcome_label
from seedbench.ui.traces import EDGES, figures, signed, token_pieces
from seedbench.ui.viewer import TEXT_LIMIT, turn_markers

__all__ = [
    "amount", "cells", "classes", "counted", "figures", "label", "limits", "markers", "percent", "plural", "seen",
    "short", "signed", "whole",
]  # fmt: skip


def label(outcome: Outcome | str) -> str:
    """The outcome in words."""
    return outcome_label(Outcome(outcome))


def markers(turn: Turn) -> str:
    """What stands behind an action that was invalid, refused or cut; empty for one that was not."""
    return turn_markers(turn).plain.strip()


def whole(count: float | None) -> str:
    """12,345; a dash for None."""
    return UNKNOWN if count is None else f"{count:,.0f}"


def percent(share: float | None) -> str:
    """95.8 for 0.958; a dash for None."""
    return UNKNOWN if share is None else f"{100 * share:.1f}"


def plural(count: int, noun: str) -> str:
    """1 turn, 2 turns, 1,200 turns."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def short(text: str, limit: int = 100) -> str:
    """The beginning of a text on one line, as a list shows it."""
    line = " ".join(text[: 4 * limit].split())  # enough of it: a text may be a megabyte long
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[:limit]}…"


def seen(tokens: Sequence[Token]) -> tuple[list[tuple[str, Token]], int]:
    """The tokens that have a text, as many as fit into the limit and at least one, and how many do not fit."""
    pieces = list(token_pieces(tokens))
    ends = accumulate(len(text) for text, _ in pieces)
    fitting = max(1, sum(end <= TEXT_LIMIT for end in ends))
    return pieces[:fitting], len(pieces[fitting:])


def classes(delta: float | None, gate: float | None = None) -> str:
    """A token's colour, none for a Delta that is small or not there, and `gated` for a gate over one half."""
    level = 0 if delta is None else bisect_right(EDGES, abs(delta))
    shade = f"{'less' if delta is not None and delta < 0 else 'more'}{level}" if level else ""
    return f"{shade} gated".strip() if gate is not None and gate > 0.5 else shade


def cells(token: Token) -> tuple[str, str, str]:
    """Delta, gate and log-probability as they are written."""
    delta, logprob = (UNKNOWN if value is None else signed(value) for value in (token.delta, token.logprob))
    return delta, UNKNOWN if token.gate is None else f"{token.gate:.2f}", logprob

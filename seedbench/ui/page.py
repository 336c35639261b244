"""Episodes and traces as one HTML page: `seedbench view RUN --html FILE`.

The page is static: no script, no network, works from a file. Whatever the template writes passes through `inert` and is
escaped, so that no text from a model, a server or a game can become markup or hide. Colours are those of the terminal.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from seedbench.errors import SeedBenchError, UsageError
from seedbench.traces import Token, Trace
from seedbench.types import Episode, Turn
from seedbench.ui.tally import UNKNOWN, outcome_label
from seedbench.ui.text import inert
from seedbench.ui.traces import EDGES, figures, signed, token_pieces, trace_facts
from seedbench.ui.viewer import TEXT_LIMIT, turn_markers


@dataclass(frozen=True, slots=True)
class _Entry:
    episode: Episode
    facts: dict[str, str]
    scored: bool | None
    """Whether a token was scored behind a skill; None for an evaluation's episode, which has no tokens."""
    turns: Sequence[tuple[Turn, float | None, Sequence[Token]]]
    """Every turn with its advantage and its tokens."""


def write_page(file: Path, title: str, about: str, entries: Iterable[Episode | Trace]) -> None:
    """Write the entries into `file` in one step, reading each only when it is its turn.

    `title` heads the page and `about` is the line under it, plain text both. Raises UsageError for a name that does not
    end in .html, SeedBenchError where the file cannot be written, and what reading the entries raises.
    """
    if file.suffix.lower() != ".html":  # so that a slip overwrites nothing else
        raise UsageError(f"--html '{file}': the name of a page ends in .html, e.g. `--html view.html`.")
    draft = file.with_name(f".{file.name}.tmp")
    try:
        with draft.open("w", encoding="utf-8", newline="\n") as page:
            page.writelines(_template().generate(title=title, about=about, entries=map(_entry, entries), edges=EDGES))
        draft.replace(file)
    except OSError as error:
        raise SeedBenchError(
            f"cannot write the page '{file}': {error.strerror}. Give --html a name in an existing folder that you may"
            " write to, on a disk with free space."
        ) from error
    finally:
        with suppress(OSError):
            draft.unlink()


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("seedbench", "ui"),
        autoescape=True,
        finalize=_inert,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "figures": figures, "label": outcome_label, "markers": lambda turn: turn_markers(turn).plain.strip(),
        "cells": _cells, "classes": _classes, "seen": _seen, "signed": signed,
    }  # fmt: skip
    return environment.get_template("page.html.jinja")


def _inert(value: Any) -> Any:
    # A macro's result is Markup: its parts have been here before.
    return inert(value, TEXT_LIMIT) if isinstance(value, str) and not isinstance(value, Markup) else value


def _entry(entry: Episode | Trace) -> _Entry:
    if isinstance(entry, Episode):
        return _Entry(entry, {}, None, [(turn, None, ()) for turn in entry.turns])
    facts = {name: fact.plain for name, fact in trace_facts(entry, None).items() if name != "legend"}
    analysed = "skill" in entry.notes
    facts.setdefault("skill", "none: the trajectory was not analysed" if analysed else "none: no skill was asked for")
    scored = any(token.delta is not None for turn in entry.tokens for token in turn)
    turns = list(zip(entry.episode.turns, entry.advantage, entry.tokens, strict=True))
    return _Entry(entry.episode, facts, scored, turns)


def _seen(tokens: Sequence[Token]) -> tuple[list[tuple[str, Token]], int]:
    """The tokens that have a text, as many as fit into the limit and at least one, and how many do not fit."""
    pieces = list(token_pieces(tokens))
    ends = accumulate(len(text) for text, _ in pieces)
    fitting = max(1, sum(end <= TEXT_LIMIT for end in ends))
    return pieces[:fitting], len(pieces[fitting:])


def _classes(delta: float | None, gate: float | None = None) -> str:
    """A token's colour, none for a Delta that is small or not there, and `gated` for a gate over one half."""
    level = 0 if delta is None else bisect_right(EDGES, abs(delta))
    shade = f"{'less' if delta is not None and delta < 0 else 'more'}{level}" if level else ""
    return f"{shade} gated".strip() if gate is not None and gate > 0.5 else shade


def _cells(token: Token) -> tuple[str, str, str]:
    """Delta, gate and log-probability as they are written."""
    delta, logprob = (UNKNOWN if value is None else signed(value) for value in (token.delta, token.logprob))
    return delta, UNKNOWN if token.gate is None else f"{token.gate:.2f}", logprob

"""Episodes and traces as pages show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seedbench.traces import Token, Trace
from seedbench.types import Episode, Turn
from seedbench.ui.traces import trace_facts


@dataclass(frozen=True, slots=True)
class Entry:
    """One article of a page."""

    number: int
    """From 1; its anchor is `e1`."""
    episode: Episode
    facts: dict[str, str]
    """What a trace says beside its episode: update, reward, skill..."""
    scored: bool | None
    """Whether a token was scored behind a skill; None for an evaluation's episode, which has no tokens."""
    turns: Sequence[tuple[Turn, float | None, Sequence[Token]]]
    """Every turn with its advantage and its tokens."""


def entry(number: int, given: Episode | Trace) -> Entry:
    """The article of an episode or a trace."""
    if isinstance(given, Episode):
        return Entry(number, given, {}, None, [(turn, None, ()) for turn in given.turns])
    facts = {name: fact.plain for name, fact in trace_facts(given, None).items() if name != "legend"}
    analysed = "skill" in given.notes
    facts.setdefault("skill", "none: the trajectory was not analysed" if analysed else "none: no skill was asked for")
    scored = any(token.delta is not None for turn in given.tokens for token in turn)
    turns = list(zip(given.episode.turns, given.advantage, given.tokens, strict=True))
    return Entry(number, given.episode, facts, scored, turns)

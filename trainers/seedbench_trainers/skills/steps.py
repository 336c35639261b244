"""What the rules analyzers of all suites share: lists of actions that fit into few words, and faults any agent has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from seedbench.types import Episode, Turn

MOST_WORDS = 40
"""Longest skill in words."""
ORDER = "Do in this order:"
LISTED = "Say only what is listed."
NOT_AGAIN = "Do not repeat"


def worked(turn: Turn) -> bool:
    """Whether the action was taken as one."""
    return turn.valid and turn.admissible is not False


def effective(episode: Episode) -> Iterator[Turn]:
    """Turns whose action was accepted and brought another observation than the one before."""
    seen = episode.first_observation
    for turn in episode.turns:
        if worked(turn) and turn.observation != seen:
            yield turn
        seen = turn.observation


def mostly_refused(episode: Episode) -> bool:
    """Whether at least half of the actions were invalid or refused; an episode without a turn has none."""
    refused = sum(not worked(turn) for turn in episode.turns)
    return bool(refused) and 2 * refused >= len(episode.turns)


def most_repeated(actions: Sequence[str], least: int) -> str:
    """The action that came most often, the first of equals; empty where none came `least` times."""
    counts = Counter(actions)
    most = max(counts, key=lambda action: counts[action], default="")
    return most if most and counts[most] >= least else ""


def words(text: str) -> int:
    """Words of a text, by white space."""
    return len(text.split())


def in_order(actions: Sequence[str], spare: int = 0) -> str:
    """The sentence that tells a list of actions; the last ones are left out where it would pass the limit.

    `spare`: words of the limit that are needed for something else. Empty for an empty list.
    """
    kept = list(actions)
    while kept and words(f"{ORDER} {', '.join(kept)}") > MOST_WORDS - spare:
        kept.pop()
    return f"{ORDER} {', '.join(kept)}." if kept else ""


def clip(text: str, most: int) -> str:
    """The first `most` words."""
    return " ".join(text.split()[:most])

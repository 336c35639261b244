"""The rules analyzer for shops (WebShop): the search, the product, its options, the purchase."""

from __future__ import annotations

import re
from collections.abc import Sequence

from seedbench.types import Episode
from seedbench_trainers.skills.steps import (
    LISTED,
    NOT_AGAIN,
    clip,
    in_order,
    most_repeated,
    mostly_refused,
    words,
    worked,
)

BUY = "click[buy now]"
_ASIDE = frozenset(
    f"click[{name}]" for name in ("description", "features", "reviews", "attributes", "< prev", "back to search")
)
_QUERY_WORDS = 6
_OPTION = re.compile(r"(?:with|and) [a-z][a-z -]*: ([^,]+)")
PARTS = {
    "type": "Do not buy another kind of product.",
    "option": "Do not buy before every option is clicked.",
    "price": "Do not buy above the price.",
    "attribute": "Do not buy before every word of the task is found on the page.",
}
"""Parts of the reward, the gravest first, and the rule against losing it."""


def is_shop(actions: Sequence[str], observation: str) -> bool:
    """Whether these are a shop's actions, or its first page."""
    return any(action.startswith(("search[", "click[")) for action in actions) or " [SEP] " in observation


def skill(episode: Episode, plan: Sequence[str] | None) -> tuple[str, str]:
    """What went wrong, in a sentence (empty where the episode was solved), and the skill."""
    done = [turn.action for turn in episode.turns if worked(turn)]
    if episode.success:
        return "", in_order(_way(done))
    fault = _fault(episode, done)
    advice = in_order(_way(list(plan)), words(fault)) if plan else _hint(episode, done, words(fault))
    return fault, f"{fault} {advice}".strip()


def _way(actions: list[str]) -> list[str]:
    """From the last search on: turned pages, the product, each option once, the purchase."""
    start = max((n for n, action in enumerate(actions) if action.startswith("search[")), default=0)
    kept: dict[str, None] = {}
    for action in actions[start:]:
        if action not in _ASIDE:
            kept[_told(action)] = None
    return list(kept)


_FILL = frozenset(
    ("find", "me", "i", "i'm", "am", "looking", "for", "a", "an", "the", "with", "and", "that", "of", "to")
)


def _query(query: str) -> str:
    """The first words of a query, without those that say nothing and without the price."""
    told = re.findall(r"[a-z0-9][a-z0-9'-]*", query.lower().partition("price lower than")[0])
    return " ".join([word for word in dict.fromkeys(told) if word not in _FILL][:_QUERY_WORDS]) or clip(
        query, _QUERY_WORDS
    )


def _told(action: str) -> str:
    return f"search[{_query(action[7:-1])}]" if action.startswith("search[") else action


def _fault(episode: Episode, done: list[str]) -> str:
    if mostly_refused(episode):
        return LISTED
    if BUY not in done:
        again = most_repeated(done, 3)
        return f"{NOT_AGAIN} {_told(again)}." if again else "Buy before the steps end."
    return next((rule for part, rule in PARTS.items() if episode.metrics.get(part, 1.0) < 1), "Do not buy at once.")


def _hint(episode: Episode, done: list[str], spare: int) -> str:
    """The search that the task itself suggests, and the options that it names."""
    options = [f"click[{value.strip().lower()}]" for value in _OPTION.findall(episode.instruction)]
    missing = [option for option in options if option not in done]
    return in_order([f"search[{_query(episode.instruction)}]", *missing, BUY], spare)

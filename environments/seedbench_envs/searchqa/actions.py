"""The actions of Search-QA: `<search>query</search>` and `<answer>text</answer>`, one pair and nothing around it.

Which pair of a longer response counts is the protocol's business. Here the other kind of tag inside a pair is a part
of its text, as in Search-R1, and a second pair of the same kind makes no action.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

MAX_QUERY = 4_000
"""Longest query in characters: responses of the protocols are a quarter of it, and servers refuse more."""
_OPENING = re.compile(r"<(search|answer)>", re.I | re.A)
_CLOSINGS = {kind: re.compile(f"</{kind}>", re.I | re.A) for kind in ("search", "answer")}
_UNFIT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]+")


@dataclass(frozen=True, slots=True)
class Action:
    """An action as it was read. `kind` "invalid": `text` says why."""

    kind: Literal["search", "answer", "invalid"]
    text: str


def parse(action: str) -> Action:
    """Read an action; anything is read, in linear time.

    The text of a query or an answer loses the white space around it, and lone surrogates and control characters (tabs
    and line breaks stay), which not every server takes.

    >>> parse("<search> who wrote X </search>")
    Action(kind='search', text='who wrote X')
    """
    action = action.strip()
    opening = _OPENING.match(action)
    if opening is None:
        return Action("invalid", "it does not begin with <search> or <answer>")
    kind = opening[1].lower()
    closing = _CLOSINGS[kind].search(action, opening.end())
    if closing is None:
        return Action("invalid", f"</{kind}> is missing")
    if closing.end() < len(action):
        return Action("invalid", f"something follows </{kind}>")
    text = _UNFIT.sub(" ", action[opening.end() : closing.start()]).strip()
    if kind == "answer":
        return Action("answer", text)
    if not text:
        return Action("invalid", "the query is empty")
    if len(text) > MAX_QUERY:
        return Action("invalid", f"the query has {len(text):,} characters; {MAX_QUERY:,} are allowed")
    return Action("search", text)


def search(query: str) -> str:
    """The action that searches for `query`."""
    return f"<search>{query}</search>"


def answer(text: str) -> str:
    """The action that answers `text`."""
    return f"<answer>{text}</answer>"

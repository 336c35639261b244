"""The action grammar of WebShop: `search[...]` and `click[...]`, read as upstream reads them.

Upstream's rule is "two parts, the second in brackets", greedy and not anchored at the end, so that
`click[x] please` clicks and `search[a]b]` searches for `a]b`, while `click[[x]]` or ` click[x]` are no actions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

SEARCH_FORM = "search[<your query>]"
"""How a search is listed among the admissible actions: a template, to be sent with a query of one's own."""


@dataclass(frozen=True, slots=True)
class Action:
    """An action as it was read: its name, and its argument (lower case, spaces kept), None without brackets."""

    name: str
    argument: str | None


def parse(text: str) -> Action:
    """Read an action; anything is read, whatever its length, in linear time.

    Only the first line counts. The name is everything before the last bracket that opens a non-empty argument;
    the argument ends at the line's last closing bracket.

    >>> parse("Search[Red Shoes] now")
    Action(name='Search', argument='red shoes')
    >>> parse("buy")
    Action(name='buy', argument=None)
    """
    line = text.split("\n", 1)[0]
    close = line.rfind("]")
    # At least one character before the bracket and one inside.
    opening = line.rfind("[", 1, close - 1) if close > 2 else -1
    if opening < 0:
        return Action(text, None)
    return Action(line[:opening], line[opening + 1 : close].lower())


def clicks(names: Iterable[str]) -> list[str]:
    """The actions that click what is called so, in order.

    Left out are names that no action can say (empty, with a line break, some with brackets) and `search`, a button
    that upstream lists and ignores.

    >>> clicks(["search", "buy now", "x [y]", "a]b"])
    ['click[buy now]', 'click[a]b]']
    """
    return [f"click[{name}]" for name in names if name not in ("", "search") and _can_be_said(name)]


def _can_be_said(name: str) -> bool:
    plain = "[" not in name and "\n" not in name
    return plain or parse(f"click[{name}]") == Action("click", name)

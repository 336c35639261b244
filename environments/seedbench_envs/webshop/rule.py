"""The rule baseline: search for the instruction, take the first hit, choose the options that it names, buy.

It reads what an agent reads and remembers nothing: what it does follows from the turn's number and the page.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from seedbench_envs.webshop.pages import BACK, BUY, NEXT, PREVIOUS

_BUY, _BACK, _NEXT, _PREVIOUS = (f"click[{name.lower()}]" for name in (BUY, BACK, NEXT, PREVIOUS))
_BRACKETS = re.compile(r"[\[\]\s]+")


def rule(instruction: str, admissible: Sequence[str], observation: str, turn: int) -> str:
    """The next action.

    Args:
        instruction: what the shopper asks for, price clause included.
        admissible: the actions that the environment lists, in its order.
        observation: the page; not read, since all that the rule needs is in `admissible`.
        turn: 0 for the first action of the episode.
    """
    if turn == 0:
        # Brackets end an action's argument early, whatever they mean in the text.
        return f"search[{_BRACKETS.sub(' ', instruction).strip()}]"
    if turn == 1:
        return next((action for action in admissible if action not in (_BACK, _NEXT, _PREVIOUS)), _BACK)
    if _BUY not in admissible:
        return _BACK
    wanted = named_options(instruction, list(admissible)[list(admissible).index(_BUY) + 1 :])
    return wanted[turn - 2] if turn - 2 < len(wanted) else _BUY


def named_options(instruction: str, options: Sequence[str]) -> list[str]:
    """The clicks on options whose value stands in the instruction as words of its own.

    The longest comes last, because a later click on a value of the same option replaces the earlier one: of `red`
    and `red wine`, the second is what was meant.
    """
    text = instruction.lower()
    found = [option for option in options if _names(text, option[len("click[") : -1])]
    return sorted(found, key=len)


def _names(text: str, value: str) -> bool:
    return bool(value.strip()) and bool(re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text))

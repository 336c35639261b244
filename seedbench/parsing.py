"""Reading an action from a response, and saying whether the response is valid.

Three forms: one tag around the action (`<action>go to desk 1</action>`), a choice of tags that name the kind of
action (`<search>...</search>` or `<answer>...</answer>`, handed on with the tag), or a bare first line. All rules
are the protocol's; all of them take time linear in the response, whatever a model writes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ParserSettings(BaseModel):
    """The `[parser]` section of a protocol."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action_tag: str = "action"
    """Tag around the action; empty: the action is the first line that is not empty."""
    action_tags: tuple[str, ...] = ()
    """Instead of `action_tag`: tags of which each is a kind of action; the action keeps its tag."""
    choose: Literal["first", "priority"] = "first"
    """Of several pairs: the one that stands first, or the one whose tag stands first in `action_tags`."""
    once: bool = False
    """More than one opening tag makes a response invalid (its action is still played)."""
    think_tag: str = ""
    """Tag that a response must open and close to be valid; empty: none is asked for."""
    lowercase: bool = True
    tail: int = Field(default=30, ge=0)
    """Without an action tag, so many last characters of the response are played as the action (upstream's rule)."""
    reject: str = ""
    """Regular expression that makes a response invalid wherever it matches."""


@dataclass(frozen=True, slots=True)
class ParsedAction:
    """What the parser found in a response."""

    action: str
    valid: bool


class ActionParser:
    """Applies parser settings. `asks_thinking` False drops the check of the thinking tag.

    Raises:
        re.error: `reject` is no regular expression.
    """

    def __init__(self, settings: ParserSettings, *, asks_thinking: bool) -> None:
        self._settings = settings
        self._think = settings.think_tag if asks_thinking else ""
        self._reject = re.compile(settings.reject) if settings.reject else None
        names = settings.action_tags or ((settings.action_tag,) if settings.action_tag else ())
        self._tags = {
            name: (re.compile(f"<{re.escape(name)}>", re.I), re.compile(f"</{re.escape(name)}>", re.I))
            for name in names
        }

    def parse(self, response: str) -> ParsedAction:
        """Find the action in a response. Says nothing of admissibility: that is the environment's word."""
        action, valid = self._found(response)
        if self._settings.once:
            openings = sum(sum(1 for _ in opening.finditer(response)) for opening, _ in self._tags.values())
            valid = valid and openings == 1
        if self._think:
            valid = valid and f"<{self._think}>" in response and f"</{self._think}>" in response
        if self._reject and self._reject.search(response):
            valid = False
        return ParsedAction(action.lower() if self._settings.lowercase else action, valid)

    def format(self, action: str) -> str:
        """The response that says an action and nothing else: what scripted policies answer."""
        rules = self._settings
        think = f"<{rules.think_tag}></{rules.think_tag}>" if rules.think_tag else ""
        if rules.action_tags or not rules.action_tag:
            return think + action
        return f"{think}<{rules.action_tag}>{action}</{rules.action_tag}>"

    def _found(self, response: str) -> tuple[str, bool]:
        rules = self._settings
        if not self._tags:
            action = next((line.strip() for line in response.splitlines() if line.strip()), "")
            return action, bool(action)
        pairs = [(*pair, name) for name in self._tags if (pair := self._pair(name, response))]
        if not pairs:
            return (response[-rules.tail :] if rules.tail and not rules.action_tags else ""), False
        _, text, name = pairs[0] if rules.choose == "priority" else min(pairs)
        return (f"<{name}>{text}</{name}>" if rules.action_tags else text), True

    def _pair(self, name: str, response: str) -> tuple[int, str] | None:
        """Where the tag first opens and the stripped text up to its close; None without a complete pair."""
        # Two searches, not one pattern with `.*?`: that would be quadratic in unclosed tags.
        opens, closes = self._tags[name]
        opening = opens.search(response)
        closing = closes.search(response, opening.end()) if opening else None
        if opening is None or closing is None:
            return None
        return opening.start(), response[opening.end() : closing.start()].strip()

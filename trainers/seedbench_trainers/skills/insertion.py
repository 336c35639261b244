"""H(h, s): a skill put into a prompt (SEED, section on hindsight skills).

The block stands right after the line with the task (the paper's place), or at the end of the last user message, so
that everything before it is a prefix which the plain and the skill context share. No limit cuts the block away: a
prompt that would be too long for a budget is made to fit by `fit_skill`, before it is inserted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from seedbench.errors import SeedBenchError
from seedbench.types import Message

TITLE = "Episode-Level Skill"
ADVICE = "Consult this before you choose an action:"
PREFIXES = ("Your task is to:", "Your question:", "Question:")
"""How the shipped protocols begin the line with the task, the surest first."""
Position = Literal["after_task", "end"]


def skill_block(skill: str) -> str:
    """The text that is inserted: three lines without a line break at either end; white space in the skill is folded."""
    return f"{TITLE}\n{ADVICE}\n[{' '.join(skill.split())}]"


def insert_skill(
    messages: Sequence[Message],
    skill: str,
    position: Position = "after_task",
    *,
    instruction: str = "",
    protocol: str = "",
) -> tuple[Message, ...]:
    """The prompt in the skill context; the messages before and after the changed one are the same objects.

    Args:
        messages: the plain prompt of a turn, of any context kind.
        skill: not blank.
        position: after_task, or end: behind everything else in the last user message.
        instruction: the task's own words, where they are known: the line that holds them is the task line, whatever
            it begins with. Without them it is the first line with one of `PREFIXES` in the last user message that
            has one (earlier ones belong to worked examples).
        protocol: its name, for the error.

    Raises:
        SeedBenchError: no user message, or no task line where one is needed.
        ValueError: a blank skill.
    """
    if not skill.strip():
        raise ValueError("the skill is blank")
    if position == "end":
        place = _last_user(messages)
        at = len(messages[place].content) if place is not None else 0
    else:
        place, at = _task_line(messages, instruction)
    if place is None:
        name = f" of the protocol '{protocol}'" if protocol else ""
        begins = " or ".join(f"'{prefix}'" for prefix in PREFIXES)
        raise SeedBenchError(
            f"no user message in a prompt{name} has a line that holds the task or begins with {begins}, after which a"
            " skill could stand: add such a line to its templates, or set skill_position = 'end'."
        )
    content = messages[place].content
    changed = replace(messages[place], content=f"{content[:at]}\n{skill_block(skill)}{content[at:]}")
    return (*messages[:place], changed, *messages[place + 1 :])


def holds_skill(messages: Sequence[Message]) -> bool:
    """Whether a skill block stands anywhere in a prompt: what proves that an evaluation was asked plainly."""
    return any(TITLE in message.content for message in messages)


def fit_skill(skill: str, budget: int, count: Callable[[str], int] = len) -> str:
    """As many first words of a skill as `budget` allows by `count` (characters, or a tokenizer's tokens).

    Empty where not even one word fits: then there is no skill to insert, and the caller counts it as lost.
    """
    words = skill.split()
    fits, over = 0, len(words) + 1
    while over - fits > 1:
        middle = (fits + over) // 2
        fits, over = (middle, over) if count(" ".join(words[:middle])) <= budget else (fits, middle)
    return " ".join(words[:fits])


def _last_user(messages: Sequence[Message]) -> int | None:
    users = [number for number, message in enumerate(messages) if message.role == "user"]
    return users[-1] if users else None


def _task_line(messages: Sequence[Message], instruction: str) -> tuple[int | None, int]:
    """Message and offset of the end of the task line; None where there is none."""
    users = [number for number, message in enumerate(messages) if message.role == "user"]
    told = instruction.strip()
    if told:
        lines = [f"{prefix} {told}" for prefix in PREFIXES]
        # A short instruction may also occur by chance: the whole task line goes before it.
        for sought in (lines, [told]):
            for number in users:
                content = messages[number].content
                ends = [at + len(text) for text in sought if (at := content.find(text)) >= 0]
                if ends:
                    return number, _line_end(content, min(ends))
    for prefix in PREFIXES:
        for number in reversed(users):
            if line := re.search(rf"^[ \t]*{re.escape(prefix)}", messages[number].content, re.M):
                return number, _line_end(messages[number].content, line.end())
    return None, 0


def _line_end(content: str, at: int) -> int:
    end = content.find("\n", at)
    return len(content) if end < 0 else end

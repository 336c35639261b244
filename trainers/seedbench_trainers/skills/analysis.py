"""The analyzer's prompt and its answer: a finished episode in, a summary and one hindsight skill out.

The prompt is one user message; the answer is a JSON object with `episode_summary` and `episode_skill`. What does not
hold a usable skill is no analysis: the caller trains that trajectory without one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from seedbench.types import Episode, Message, Outcome

SUMMARY_KEY, SKILL_KEY = "episode_summary", "episode_skill"
Style = Literal["full", "brief"]
PROMPT_CHARS = 48_000
"""Default length of a prompt in characters: about 16,384 tokens at three characters each, the worst of English text."""
SKILL_CHARS = 2_000
"""Longest skill in characters: a longer one would fill the prompts that it is put into."""
NOTHING, NO_OBJECT = "empty answer", "no JSON object with a skill"
TOO_LONG, OTHER_SCRIPT = f"skill of over {SKILL_CHARS:,} characters", "skill not in Latin letters"
REASONS = (NOTHING, NO_OBJECT, TOO_LONG, OTHER_SCRIPT)
_TEXT_CHARS = {"full": 2_000, "brief": 240}
"""Longest observation or response that is shown whole."""
_OUTCOMES = {
    Outcome.SOLVED: "solved",
    Outcome.FAILED: "failed",
    Outcome.STEP_LIMIT: "failed: step limit",
    Outcome.CONTEXT_OVERFLOW: "failed: prompt too long",
    Outcome.INFRA_ERROR: "broken off",
}
_LEFT_OUT = re.compile(r"^\[(\d+) steps left out\]$", re.M)

_ORDERS = """\
Below is everything that an agent did in one episode, and how the episode really ended. Work out what a later agent \
with the same or a similar task should know when it picks its actions.

Reply with a single JSON object and no other text:
{{"episode_summary": "<what happened, in one or two sentences>", "episode_skill": "<the advice>"}}

The advice is for the agent, in the imperative, at most 60 words, without telling the story again.
{wanted}
"""
_SOLVED = """\
This episode was solved. Give a procedure that can be used again: what decides the next step, and in which order the \
steps come. Leave out detours."""
_NOT_SOLVED = """\
This episode was not solved. Give a rule that avoids the failure: the mistake that mattered, the signs by which it is \
noticed early, and what to do in its place."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """What an analyzer says about an episode. `skill` is never blank."""

    summary: str
    skill: str


OUTCOMES = tuple(_OUTCOMES.values())
"""What `outcome_word` can say."""


def outcome_word(episode: Episode) -> str:
    """How the episode ended, as the prompts tell it: solved, or failed with the reason."""
    return "solved" if episode.success else _OUTCOMES[episode.outcome]


def analysis_prompt(
    episode: Episode, *, style: Style = "full", limit: int = PROMPT_CHARS, count: Callable[[str], int] = len
) -> tuple[Message, ...]:
    """The prompt that asks for the analysis of a finished episode: one user message.

    Args:
        episode: it may have ended in any way; the outcome is told as it was.
        style: full, or brief: no orders, only task, did and saw, outcome; for models that are trained on it.
        limit: longest message, as `count` measures it; steps are left out from the middle (`steps_left_out`), the
            orders, the task and the outcome never.
        count: length of a text, in characters unless given, e.g. by a tokenizer.
    """
    head, steps, tail = (_brief if style == "brief" else _full)(episode)
    kept = _shortened(steps, limit - count("\n".join([*head, *tail])), count)
    return (Message("user", "\n".join([*head, *kept, *tail])),)


def steps_left_out(messages: Sequence[Message]) -> int:
    """How many steps of the episode an analysis prompt lacks."""
    found = _LEFT_OUT.search(messages[-1].content)
    return int(found[1]) if found else 0


def format_analysis(analysis: Analysis) -> str:
    """The analysis as compact JSON on one line: the target of stage 1. `parse_analysis` reads it back."""
    value = {SUMMARY_KEY: analysis.summary, SKILL_KEY: analysis.skill}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def parse_analysis(text: str) -> Analysis | None:
    """The analysis in an answer, or None.

    Read from a fenced block or from anywhere in the text: objects that hold `episode_skill`, trailing commas and raw
    line breaks allowed. Of several the last one with a usable skill counts, fenced ones first. Time is linear in the
    text, whatever a model writes.
    """
    fenced = text.split("```")[1::2]
    for parts in (fenced, [text]):
        found = [analysis for part in parts for value in _holders(part) if (analysis := _analysis(value))]
        if found:
            return found[-1]
    return None


def review(text: str) -> tuple[Analysis | None, str]:
    """The analysis in an answer, or why the answer is refused: one of `REASONS`."""
    analysis = parse_analysis(text)
    if analysis is None:
        return None, NOTHING if not text.strip() else NO_OBJECT
    if len(analysis.skill) > SKILL_CHARS:
        return None, TOO_LONG
    letters = [c for c in analysis.skill if c.isalpha()]
    if 2 * sum(c.isascii() for c in letters) < len(letters) or not letters:
        return None, OTHER_SCRIPT
    return analysis, ""


def _analysis(value: dict[str, Any]) -> Analysis | None:
    skill, summary = value[SKILL_KEY], value.get(SUMMARY_KEY)
    if not isinstance(skill, str) or not _clean(skill):
        return None
    return Analysis(_clean(summary) if isinstance(summary, str) else "", _clean(skill))


def _clean(text: str) -> str:
    """Without lone surrogates and control characters, which JSON escapes can smuggle in; white space folded."""
    shown = "".join(c if c.isprintable() else " " for c in text.encode("utf-8", "ignore").decode())
    return " ".join(shown.split())


_NEAR = 8
"""How many mentions of the key, and how many braces before each, are tried: the bound that keeps time linear."""
_REPAIRED = 20_000
"""Characters of an object whose commas are mended: no usable analysis is longer."""
_DECODER = json.JSONDecoder(strict=False)
# A string is skipped whole, closed or not, so that no scan starts twice from the same place.
_COMMA = re.compile(r'("(?:[^"\\]|\\.)*+(?:"|\Z))|,(?=\s*+[}\]])', re.S)


def _holders(text: str) -> Iterator[dict[str, Any]]:
    """Decodable objects that hold the key, outermost first where they are nested, in the order of the text."""
    end = 0
    for start in _starts(text):
        if start < end:
            continue
        decoded = _decoded(text, start)
        if decoded is not None and SKILL_KEY in decoded[0]:
            end = decoded[1]
            yield decoded[0]


def _starts(text: str) -> list[int]:
    """Offsets of the braces that may open an object with the key."""
    starts: set[int] = set()
    at = len(text)
    for _ in range(_NEAR):
        at = text.rfind(f'"{SKILL_KEY}"', 0, at)
        if at < 0:
            break
        brace = at
        for _ in range(_NEAR):
            brace = text.rfind("{", 0, brace)
            if brace < 0:
                break
            starts.add(brace)
    return sorted(starts)


def _decoded(text: str, start: int) -> tuple[dict[str, Any], int] | None:
    """The object that begins at `start` and where it ends in `text`; None where there is none."""
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        pass
    try:
        repaired = _COMMA.sub(lambda match: match[1] or "", text[start : start + _REPAIRED])
        value, length = _DECODER.raw_decode(repaired)
    except (ValueError, RecursionError):
        return None
    return value, start + length  # short by the commas, which only matters to objects nested at the very end


def _full(episode: Episode) -> tuple[list[str], list[str], list[str]]:
    wanted = _SOLVED if episode.success else _NOT_SOLVED
    head = [_ORDERS.format(wanted=wanted), f"Task: {_short(episode.instruction)}", f"Outcome: {outcome_word(episode)}"]
    steps, seen = [], episode.first_observation
    for number, turn in enumerate(episode.turns, start=1):
        valid = "yes" if turn.valid and turn.admissible is not False else "no"
        lines = (
            f"Step {number}",
            f"observation: {_short(seen)}",
            f"response: {_short(turn.response)}",
            f"action valid: {valid}",
        )
        steps.append("\n".join(lines))
        seen = turn.observation
    return head, steps, [f"Last observation: {_short(seen)}", "Now write the JSON object."]


def _brief(episode: Episode) -> tuple[list[str], list[str], list[str]]:
    steps = [f"> {_short(turn.action, 'brief')}\n{_short(turn.observation, 'brief')}" for turn in episode.turns]
    return [f"Your task is to: {_short(episode.instruction)}"], steps, [outcome_word(episode), "JSON:"]


def _short(text: str, style: Style = "full") -> str:
    """On one line, the middle cut out of long text."""
    line, most = " ".join(text.split()), _TEXT_CHARS[style]
    if len(line) <= most:
        return line
    return f"{line[: most * 2 // 3].rstrip()} ... {line[-(most // 3) :].lstrip()}"


def _shortened(steps: list[str], budget: int, count: Callable[[str], int]) -> list[str]:
    """The first and the last steps that fit, in turn, with a mark between them for the rest."""
    lengths = [count(f"{step}\n") for step in steps]
    if sum(lengths) <= budget:
        return steps
    budget -= count(f"[{len(steps)} steps left out]\n")
    first, last = 0, len(steps)
    while first < last:
        at_end = len(steps) - last < first
        length = lengths[last - 1] if at_end else lengths[first]
        if length > budget:
            break
        budget -= length
        first, last = (first, last - 1) if at_end else (first + 1, last)
    return [*steps[:first], f"[{last - first} steps left out]", *steps[last:]]

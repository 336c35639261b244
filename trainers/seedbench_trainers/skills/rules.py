"""The rules analyzer: outcome, trajectory and, where it is known, the oracle's plan make a skill. No model is needed.

A solved episode gives a workflow made of what it really did, without the detours; a failed one the fault that shows
first and what the plan would have done. Skills are short (at most `steps.MOST_WORDS` words) and made of the suite's
own words, so that tokenizers made from its text spend few tokens on them.
"""

from __future__ import annotations

from collections.abc import Sequence

from seedbench.types import Episode
from seedbench_trainers.skills import household, questions, shop
from seedbench_trainers.skills.analysis import OUTCOMES, Analysis, format_analysis, outcome_word
from seedbench_trainers.skills.insertion import skill_block
from seedbench_trainers.skills.steps import (
    LISTED,
    MOST_WORDS,
    NOT_AGAIN,
    ORDER,
    clip,
    effective,
    in_order,
    most_repeated,
    mostly_refused,
    words,
)

VERSION = 1
"""Counts up when the same episode would get another skill."""

FIXED = (
    skill_block("Do"),
    ORDER,
    LISTED,
    NOT_AGAIN,
    "Do not take",
    "Do not move",
    "before you clean it. before you heat it. before you cool it.",
    # A verb after a comma is another piece than one that begins an answer.
    ", go to, take, move, put, open, use, clean, heat, cool, click, search, <search",
    "then answer with the words that were found.",
    *(f"{outcome} in 12 steps." for outcome in OUTCOMES),
    format_analysis(Analysis("solved in 4 steps.", ORDER)),
    "JSON:",
)
"""What skills, their block and brief analyses say beside the suites' own words: for tokenizers that are made
from text."""


def analyse(episode: Episode, plan: Sequence[str] | None = None, family: str = "") -> Analysis:
    """Analyse a finished episode; the same episode always gets the same analysis.

    Args:
        episode: of any suite; what is not a household, a shop or a question is told as a list of actions.
        plan: actions that solve the task, where they are known; only failed episodes need them.
        family: the task's; the episode's own where it is empty.
    """
    fault, skill = _skill(episode, plan, family or episode.family)
    steps = f"{len(episode.turns)} step{'s' if len(episode.turns) != 1 else ''}"
    summary = f"{outcome_word(episode)} in {steps}. {fault}".strip()
    return Analysis(summary, clip(skill, MOST_WORDS) or "Do what the task says, one step at a time.")


def _skill(episode: Episode, plan: Sequence[str] | None, family: str) -> tuple[str, str]:
    actions = [*(turn.action for turn in episode.turns), *(plan or ())]
    if questions.is_question(actions):
        return questions.skill(episode, plan)
    if shop.is_shop(actions, episode.first_observation):
        return shop.skill(episode, plan)
    if household.is_household(actions, episode.first_observation):
        return household.skill(episode, plan, family)
    return _generic(episode, plan)


def _generic(episode: Episode, plan: Sequence[str] | None) -> tuple[str, str]:
    if episode.success:
        return "", in_order(list(dict.fromkeys(turn.action for turn in effective(episode))))
    again = most_repeated([turn.action for turn in episode.turns], 2)
    fault = LISTED if mostly_refused(episode) else f"{NOT_AGAIN} {clip(again, 8)}." if again else ""
    return fault, f"{fault} {in_order(list(plan or ()), words(fault))}".strip()

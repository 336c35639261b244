"""Where the skill of a trajectory comes from: files by family, or an analysis of the finished trajectory.

The policy analyses its own trajectories greedily and in one attempt, as the paper does; an answer that holds no usable
skill is no skill. The rules and a server are analyzers outside the policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from seedbench.errors import UsageError
from seedbench.policies.base import PolicyFault, Sampling
from seedbench.types import Episode, Message
from seedbench_trainers.base import Metrics, Tools
from seedbench_trainers.records import Batch, Trajectory
from seedbench_trainers.skills.analysis import analysis_prompt, review
from seedbench_trainers.skills.static import static_skill

if TYPE_CHECKING:
    from seedbench_trainers.distillation import TeacherSettings
    from seedbench_trainers.skills.analyzers import Analyzer

STATIC, OWN, RULES = SOURCES = ("static", "own", "rules")
"""Sources that have a name; servers and files of static skills are the others."""
_MARGIN = 32
"""Tokens by which a text may be longer than the sum of its parts."""
_AT_ONCE = 64
"""Questions to a server that are open at a time."""


def is_server(source: str) -> bool:
    """Whether a source is an analyzer behind an OpenAI-compatible server."""
    return source.startswith("openai:")


def skills_of(batch: Batch, tools: Tools, settings: TeacherSettings) -> tuple[list[str | None], Metrics]:
    """A skill, or None, for every trajectory of the batch, and figures on them.

    Raises SeedBenchError where a file has no text for a family or a server cannot serve, UsageError for a bad file.
    """
    wanted = [_is_wanted(trajectory, settings.analyze) for trajectory in batch.trajectories]
    asked = [trajectory for trajectory, wants in zip(batch.trajectories, wanted, strict=True) if wants]
    if settings.skill == OWN:
        found = _reviewed(asked, _own(asked, tools, settings))
    elif settings.skill == RULES or is_server(settings.skill):
        found = _reviewed(asked, _outside(asked, tools, settings))
    else:
        file = "" if settings.skill == STATIC else settings.skill
        found = [static_skill(tools.config.suite, trajectory.episode.family, file) for trajectory in asked]
    rest = iter(found)
    skills = [next(rest) if wants else None for wants in wanted]
    return skills, _figures(asked, found)


def _is_wanted(trajectory: Trajectory, analyze: str) -> bool:
    return analyze == "all" or trajectory.episode.success == (analyze == "solved")


def _own(asked: Sequence[Trajectory], tools: Tools, settings: TeacherSettings) -> list[str]:
    """What the policy writes about its trajectories; empty where the prompt does not fit."""
    sampling = Sampling(
        temperature=0.0,
        max_new_tokens=settings.analysis_tokens,
        max_prompt_tokens=settings.analysis_prompt_tokens,
        thinking=tools.protocol.settings.sampling.thinking,
    )
    prompts = own_prompts([trajectory.episode for trajectory in asked], tools, settings)
    answers = tools.ask(prompts, sampling)
    if lacking := sum(answer is None for answer in answers):
        tools.note(
            f"{lacking} of {len(answers)} analyses cannot be had: the prompt does not fit into the model's context"
        )
    return ["" if answer is None else answer.text for answer in answers]


def own_prompts(episodes: Sequence[Episode], tools: Tools, settings: TeacherSettings) -> list[tuple[Message, ...]]:
    """What the policy is asked for its analyses, shortened to `analysis_prompt_tokens` and the model's context.

    Raises UsageError where `analysis_tokens` fill the context.
    """
    limit, context = settings.analysis_prompt_tokens, tools.loaded.context
    if context is not None:
        limit = min(limit, context - settings.analysis_tokens)
        if limit < 1:
            raise UsageError(
                f"an analysis of up to {settings.analysis_tokens} tokens leaves no room for its prompt in the model's"
                f" context of {context}: lower it, e.g. --set method.analysis_tokens={max(1, context // 8)}."
            )
    limit -= len(tools.encode((Message("user", ""),))) + _MARGIN

    def count(text: str) -> int:
        return len(tools.loaded.tokenizer(text, add_special_tokens=False)["input_ids"])

    return [analysis_prompt(episode, style=settings.analysis_style, limit=limit, count=count) for episode in episodes]


def _outside(asked: Sequence[Trajectory], tools: Tools, settings: TeacherSettings) -> list[str]:
    from seedbench_trainers.skills.analyzers import make_analyzer

    analyzer = make_analyzer(
        settings.skill,
        tools.panel,
        style=settings.analysis_style,
        prompt_tokens=settings.analysis_prompt_tokens,
        new_tokens=settings.analysis_tokens,
    )
    episodes = [trajectory.episode for trajectory in asked]
    return tools.once(lambda: asyncio.run(_answers(episodes, analyzer, tools.note)))


async def _answers(episodes: Sequence[Episode], analyzer: Analyzer, note: Callable[[str], None]) -> list[str]:
    """An analyzer's answers in the order of the episodes; empty, and told of, where one cannot be had."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def one(episode: Episode) -> str:
        async with turns:
            try:
                return (await analyzer.answer(episode)).text
            except PolicyFault as fault:
                note(f"no analysis of {episode.task}: {fault}")
                return ""

    await analyzer.open()
    try:
        return list(await asyncio.gather(*map(one, episodes)))
    finally:
        await analyzer.close()


def _reviewed(asked: Sequence[Trajectory], answers: Sequence[str]) -> list[str | None]:
    """The skills that answers hold; what was said stays with the trajectory."""
    skills: list[str | None] = []
    for trajectory, answer in zip(asked, answers, strict=True):
        analysis, reason = review(answer)
        trajectory.notes["analysis"] = answer
        if reason:
            trajectory.notes["refused"] = reason
        skills.append(analysis.skill if analysis else None)
    return skills


def _figures(asked: Sequence[Trajectory], skills: Sequence[str | None]) -> Metrics:
    """Share of trajectories that got a skill of those asked about (over all, by success and family), words a skill."""
    got: dict[str, list[bool]] = {}
    for trajectory, skill in zip(asked, skills, strict=True):
        episode = trajectory.episode
        for name in ("", "/solved" if episode.success else "/unsolved", f"/{episode.family}"):
            got.setdefault(name, []).append(skill is not None)
    figures = {f"skill/parsed{name}": sum(values) / len(values) for name, values in got.items()}
    words = [len(skill.split()) for skill in skills if skill]
    return {"skill/asked": float(len(asked)), **figures, "skill/words": sum(words) / max(1, len(words))}

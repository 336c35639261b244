"""Episodes with their tokens: the harness's own roll-out, watched by a recorder that keeps what was sampled.

All episodes of an iteration are open at once, so that the policy sees the same batches however fast the machine is:
with environments that answer at once (`slow` is False), two runs of one seed give equal numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from seedbench.errors import SeedBenchError
from seedbench.panels import Panel
from seedbench.policies.base import Policy, Request, Response, Sampled
from seedbench.protocol import Protocol
from seedbench.registry import get_suite
from seedbench.rollout import run_episode
from seedbench.types import Episode, Message, Outcome, Task
from seedbench_trainers.distributed import World

Rewrite = Callable[[Task, tuple[Message, ...]], tuple[Message, ...]]


@dataclass(frozen=True, slots=True)
class Attempt:
    """An episode to play. `repeat` must differ between attempts at one task that are played together."""

    task: Task
    repeat: int
    group: int
    seed: int


@dataclass(frozen=True, slots=True)
class Played:
    """A finished episode with what the policy was asked and, token by token, what it said."""

    attempt: Attempt
    episode: Episode
    prompts: tuple[tuple[Message, ...], ...]
    """As asked in each turn, before `rewrite`."""
    sampled: tuple[Sampled, ...]
    """One a turn; empty for policies that do not record tokens."""


@dataclass(slots=True)
class _Heard:
    prompts: list[tuple[Message, ...]] = field(default_factory=list)
    sampled: list[Sampled] = field(default_factory=list)


class _Recorder(Policy):
    """Stands before a policy and keeps, by episode, what it was asked and what it sampled."""

    def __init__(self, policy: Policy, rewrite: Rewrite | None) -> None:
        self.name = policy.name
        self.needs_prompt = policy.needs_prompt
        self.heard: dict[tuple[str, int], _Heard] = {}
        self._policy = policy
        self._rewrite = rewrite

    def identity(self) -> dict[str, Any]:
        return self._policy.identity()

    def forget(self, task: Task, repeat: int) -> None:
        self._policy.forget(task, repeat)

    async def act(self, request: Request) -> Response:
        asked = request.messages
        if self._rewrite is not None:
            request = _with_messages(request, self._rewrite(request.task, asked))
        response = await self._policy.act(request)
        heard = self.heard.setdefault((request.task.id, request.repeat), _Heard())
        heard.prompts.append(asked)
        if response.sampled is not None:
            heard.sampled.append(response.sampled)
        return response


def _with_messages(request: Request, messages: tuple[Message, ...]) -> Request:
    from dataclasses import replace

    return replace(request, messages=messages)


def play(
    attempts: Sequence[Attempt],
    panel: Panel,
    protocol: Protocol,
    policy: Policy,
    *,
    rewrite: Rewrite | None = None,
    told: Callable[[Episode], None] | None = None,
    max_infra: float = 0.2,
    world: World | None = None,
) -> list[Played]:
    """Play attempts, all at once, and return them in the order given, without those that broke (`unbroken`).

    Args:
        attempts: what to play; tasks of `panel`.
        panel: decides the environment's data.
        protocol: how the policy is asked.
        policy: what answers; it is opened and closed here.
        rewrite: changes the messages that the policy is asked.
        told: is told of every finished episode.
        max_infra: see `unbroken`.
        world: processes that make the same call; each plays its groups, and all of them return everything.

    Raises:
        SeedBenchError: what concerns the whole run, and too many infrastructure errors.
    """
    world = world or World()

    def work(some: Sequence[Attempt]) -> list[Played]:
        return perform(some, panel, protocol, policy, rewrite=rewrite, told=told) if some else []

    played = world.shared(attempts, [attempt.group for attempt in attempts], work)
    if told is not None:
        for one in played:
            if one.attempt.group % world.size != world.rank:
                told(one.episode)
    return unbroken(played, max_infra)


def perform(
    attempts: Sequence[Attempt],
    panel: Panel,
    protocol: Protocol,
    policy: Policy,
    *,
    rewrite: Rewrite | None = None,
    told: Callable[[Episode], None] | None = None,
) -> list[Played]:
    """As `play`, with the episodes that broke in their places."""
    return asyncio.run(_play(attempts, panel, protocol, _Recorder(policy, rewrite), policy, told))


def unbroken(played: Sequence[Played], max_infra: float = 0.2) -> list[Played]:
    """What did not end in an infrastructure error: that says nothing of the policy.

    Raises SeedBenchError where more than a share of `max_infra` did (one episode may always), or all.
    """
    kept = [one for one in played if one.episode.outcome is not Outcome.INFRA_ERROR]
    broken = [one.episode.error for one in played if one.episode.outcome is Outcome.INFRA_ERROR]
    if len(broken) > max(max_infra * len(played), 1) or not kept:
        reason = broken[-1].rstrip(".") if broken else ""
        raise SeedBenchError(
            f"{len(broken)} of {len(played)} training episodes ended in infrastructure errors (the last: {reason})."
            " Mend the cause and run the same command again."
        )
    return kept


async def _play(
    attempts: Sequence[Attempt],
    panel: Panel,
    protocol: Protocol,
    recorder: _Recorder,
    policy: Policy,
    told: Callable[[Episode], None] | None,
) -> list[Played]:
    suite, options = get_suite(panel.suite), protocol.settings.environment

    async def one(attempt: Attempt) -> Episode:
        env = suite.make(panel, "native", **options)
        try:
            episode = await run_episode(env, attempt.task, protocol, recorder, repeat=attempt.repeat, seed=attempt.seed)
        finally:
            with suppress(Exception):  # what broke in the episode may break here too
                env.close()
        if told is not None:
            told(episode)
        return episode

    try:
        await policy.open()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(attempt)) for attempt in attempts]
    except* SeedBenchError as errors:
        raise errors.exceptions[0] from None  # the first says what happened; the rest follow from it
    finally:
        await policy.close()
    played = []
    for attempt, task in zip(attempts, tasks, strict=True):
        heard = recorder.heard.get((attempt.task.id, attempt.repeat), _Heard())
        played.append(Played(attempt, task.result(), tuple(heard.prompts), tuple(heard.sampled)))
    return played

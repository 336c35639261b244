"""One episode as a coroutine: the only place where environment, protocol and policy meet.

Evaluation and training use the same roll-out. What can go wrong becomes an outcome of the episode
(infra_error, context_overflow); only what concerns the whole run is raised: a wrong dialect, a template that
does not render, a policy that says it can never answer (SeedBenchError).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from seedbench.errors import SeedBenchError
from seedbench.policies.base import ContextOverflow, Policy, PolicyFault, Request, Response
from seedbench.protocol import Past, Protocol
from seedbench.suite import Environment
from seedbench.types import Episode, Message, Outcome, Task, Turn, Usage, checked_metrics

T = TypeVar("T")


def derive_seed(*parts: object) -> int:
    """A seed in [0, 2**63) from anything printable: the same parts give the same seed on every machine."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def prompt_hash(messages: tuple[Message, ...]) -> str:
    """SHA-256 of a prompt's roles and contents."""
    return hashlib.sha256(json.dumps([[m.role, m.content] for m in messages]).encode()).hexdigest()


class EnvironmentFault(Exception):
    """The environment broke in this episode; a fresh one is needed for the next."""


async def run_episode(
    env: Environment,
    task: Task,
    protocol: Protocol,
    policy: Policy,
    *,
    repeat: int,
    seed: int,
    keep_prompts: bool = False,
) -> Episode:
    """Play one task to its end.

    Args:
        env: an environment that can play `task`; it is reset first, so it may be used again afterwards.
        task: the task; its content is taken to be what its hash says.
        protocol: how the policy is asked and how its answers are read.
        policy: what answers.
        repeat: which attempt at the task this is, from 0.
        seed: seed of the episode; each turn's seed is derived from it and the turn number alone.
        keep_prompts: keep the prompts' texts in the record (their hashes are kept always).

    Raises:
        SeedBenchError: for what concerns the whole run.
    """
    start = time.perf_counter()
    rollout = _Rollout(env, task, protocol, policy, repeat, seed, keep_prompts)
    error = ""
    try:
        outcome = await rollout.play()
    except ContextOverflow as overflow:
        outcome, error = Outcome.CONTEXT_OVERFLOW, str(overflow)
    except PolicyFault as fault:
        outcome, error = Outcome.INFRA_ERROR, f"policy: {fault}"
    except EnvironmentFault as fault:
        outcome, error = Outcome.INFRA_ERROR, f"environment: {fault}"
    finally:
        policy.forget(task, repeat)
    return Episode(
        task=task.id,
        task_sha256=task.sha256,
        family=task.family,
        repeat=repeat,
        seed=seed,
        outcome=outcome,
        success=rollout.success,
        score=rollout.score,
        instruction=rollout.instruction,
        first_observation=rollout.first_observation,
        turns=tuple(rollout.turns),
        usage=sum((turn.usage for turn in rollout.turns), Usage()),
        seconds=round(time.perf_counter() - start, 6),
        error=error,
        metrics=rollout.metrics,
    )


@dataclass(slots=True)
class _Rollout:
    """An episode under way; what it has gathered makes the record, however it ends."""

    env: Environment
    task: Task
    protocol: Protocol
    policy: Policy
    repeat: int
    seed: int
    keep_prompts: bool
    instruction: str = ""
    first_observation: str = ""
    turns: list[Turn] = field(default_factory=list)
    success: bool = False
    score: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)

    async def play(self) -> Outcome:
        """Take turns until the task is decided or the step limit is reached."""
        reset = partial(self.env.reset, seed=self.seed % 2**31, options={"task": self.task.id})
        observation, info = await _call(self.env, reset)
        self.instruction, self.first_observation = info["instruction"], observation
        self.metrics = _metrics(info)
        past: list[Past] = []
        for number in range(self.protocol.settings.limits.steps):
            admissible = info["admissible_actions"]
            if problem := self.protocol.dialect_problem(admissible, start=number == 0):
                raise SeedBenchError(f"{self.task.id}: {problem}")
            now = Past(observation, None if admissible is None else tuple(admissible))
            messages, response = await self._ask(past, now)
            # A scripted answer takes the same way as a model's, so that the parser sees every action.
            scripted = response.action is not None
            text = self.protocol.format_action(response.action or "") if scripted else response.text
            parsed = self.protocol.parse(text)
            step = partial(self.env.step, parsed.action)
            observation, _, terminated, truncated, info = await _call(self.env, step)
            self.turns.append(
                Turn(
                    response=text,
                    action=parsed.action,
                    valid=parsed.valid,
                    admissible=info.get("action_valid"),
                    observation=observation,
                    prompt_sha256=prompt_hash(messages) if messages else "",
                    prompt=messages if self.keep_prompts else (),
                    finish_reason=response.finish_reason,
                    usage=response.usage,
                )
            )
            self._judge(info)
            past.append(Past(now.observation, now.admissible, text, parsed.action))
            if terminated or truncated:
                return Outcome.SOLVED if self.success else Outcome.FAILED
        return Outcome.STEP_LIMIT

    def _judge(self, info: dict[str, Any]) -> None:
        """Take over what the environment says of its state; all of it, or none where a part is not allowed."""
        metrics, score = _metrics(info), float(info["score"])
        if not math.isfinite(score):
            raise EnvironmentFault(f"the score must be a finite number, not {score}")
        self.success, self.score, self.metrics = bool(info["success"]), score, metrics

    async def _ask(self, past: list[Past], now: Past) -> tuple[tuple[Message, ...], Response]:
        messages = self.protocol.messages(self.instruction, past, now) if self.policy.needs_prompt else ()
        choices = self._choices(now)
        request = Request(
            task=self.task,
            repeat=self.repeat,
            turn=len(past),
            seed=derive_seed(self.seed, len(past)),
            messages=messages,
            sampling=self.protocol.sampling(),
            observation=now.observation,
            admissible_actions=now.admissible,
            instruction=self.instruction,
            choices=choices,
        )
        response = await self.policy.act(request)
        # Scripted policies may say what is hidden; a model that may not choose freely must not have done so.
        if choices and response.action is None and response.text not in choices:
            raise SeedBenchError(
                f"{self.task.id}: the policy '{self.policy.name}' answered {response.text[:80]!r}, which is not one of"
                f" the {len(choices)} choices of the protocol '{self.protocol.name}': use a policy that decodes among"
                " them, enough response tokens for each, or a protocol whose decode is 'free'."
            )
        return messages, response

    def _choices(self, now: Past) -> tuple[str, ...]:
        try:
            return self.protocol.choices(now.admissible)
        except SeedBenchError as error:
            raise SeedBenchError(f"{self.task.id}: {error}") from error


def _metrics(info: dict[str, Any]) -> dict[str, float]:
    try:
        return checked_metrics(info.get("metrics", {}))
    except ValueError as error:
        raise EnvironmentFault(str(error)) from error


async def _call(env: Environment, function: Callable[[], T]) -> T:
    """Call the environment; in a thread if it blocks for long. What it raises is its fault, not the agent's."""
    try:
        return await _in_thread(function) if getattr(env, "slow", False) else function()
    except Exception as error:
        raise EnvironmentFault(f"{type(error).__name__}: {error}") from error


async def _in_thread(function: Callable[[], T]) -> T:
    """Call in a thread. A cancelled call is waited for: nobody else may touch the environment before it is done."""
    call = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait([call])
        call.exception()  # taken note of: nobody is left to hear it
        raise

"""A scripted player for demonstrations: the oracle's plan with random detours, by a rule that fits every suite."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from seedbench.errors import SeedBenchError
from seedbench.policies.base import Policy, Request, Response
from seedbench.policies.random_ import RandomPolicy
from seedbench.registry import get_suite
from seedbench.rollout import derive_seed
from seedbench_trainers.collect import Attempt

if TYPE_CHECKING:
    from seedbench.panels import Panel
    from seedbench.protocol import Protocol


_BLANK = "<your "
"""How a blank in a listed action begins, as in `search[<your query>]`."""


def attempts(panel: Panel, count: int, seed: int) -> list[Attempt]:
    """`count` attempts at a panel's tasks: passes over the panel, each in an order of its own; every one a group."""
    found: list[Attempt] = []
    while len(found) < count:
        repeat = len(found) // len(panel.tasks)
        for task in sorted(panel.tasks, key=lambda task: derive_seed(seed, repeat, task.sha256))[: count - len(found)]:
            found.append(Attempt(task, repeat, len(found), derive_seed(seed, "episode", repeat, task.sha256)))
    return found


class Script(Policy):
    """The oracle's plan, left now and then for a random action.

    In each turn, with probability `noise`, the action is random among those that a model would be offered. Otherwise
    it is the latest action of the plan, at or before the one that comes next, that is admissible now: after a detour
    earlier actions (going back to where the plan goes on) are played again. Where none is admissible the action is
    random, which may lead back. Actions with a blank to fill in are never drawn: only the plan knows what to write.
    Where the environment lists no actions the plan alone is played.
    """

    name = "script"

    def __init__(self, panel: Panel, protocol: Protocol, noise: float) -> None:
        self.seen: set[str] = set()
        """Every action that was offered."""
        self.planned: dict[tuple[str, int], list[bool]] = {}
        """By task hash and repeat: which turns played what the plan says."""
        self._panel = panel
        self._protocol = protocol
        self._noise = noise
        self._plans: dict[str, Sequence[str]] = {}
        self._next: dict[tuple[str, int], int] = {}
        self._random = RandomPolicy()

    def identity(self) -> dict[str, Any]:
        """The kind and the share of random actions."""
        return {"kind": "script", "noise": self._noise}

    async def act(self, request: Request) -> Response:
        """The next action, as a response. Raises SeedBenchError where the oracle has no plan."""
        key = (request.task.sha256, request.repeat)
        plan, offered, following = self._plan(request), self._offered(request), self._next.get(key, 0)
        place = _place(plan, following, offered)
        drawable = tuple(action for action in offered or () if _BLANK not in action)
        if place is None and not drawable:
            place = min(following, len(plan) - 1)
        wanders = random.Random(derive_seed(request.seed, "noise")).random() < self._noise
        if place is None or (wanders and drawable):
            drawn = await self._random.act(replace(request, choices=(), admissible_actions=drawable))
            action = drawn.action or ""
        else:
            action = plan[place]
        follows = place is not None and action == plan[place]
        if place is not None and follows:
            self._next[key] = max(following, place + 1)
        self.planned.setdefault(key, []).append(follows)
        return Response(text=self._protocol.format_action(action))

    def _plan(self, request: Request) -> Sequence[str]:
        task = request.task
        if task.sha256 not in self._plans:
            self._plans[task.sha256] = get_suite(self._panel.suite).oracle(self._panel, task)
        if not self._plans[task.sha256]:
            raise SeedBenchError(f"the oracle's plan for {task.id} is empty: leave the task out of the panel.")
        return self._plans[task.sha256]

    def _offered(self, request: Request) -> tuple[str, ...] | None:
        actions = request.admissible_actions
        if actions is None:
            return None
        hidden = self._protocol.settings.prompts.hide
        offered = tuple(action for action in actions if action not in hidden)
        self.seen.update(offered)
        return offered


def _place(plan: Sequence[str], following: int, offered: Sequence[str] | None) -> int | None:
    """Index of the plan's action for now: the latest admissible one up to `following`; None: none of them is."""
    last = min(following, len(plan) - 1)
    if offered is None:
        return last
    return next((place for place in range(last, -1, -1) if _admits(offered, plan[place])), None)


def _admits(offered: Sequence[str], action: str) -> bool:
    """Whether an action is listed, as it stands or as one with a blank to fill in (`search[<your query>]`)."""
    return action in offered or any(
        _BLANK in listed and action.startswith(listed.partition(_BLANK)[0]) and action.endswith("]")
        for listed in offered
    )

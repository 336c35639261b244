"""Evaluation with skills in the prompt: the starred rows of the tables (Skill-Prompt*, Skill-GRPO*).

`seedbench eval skills:SPEC` asks the policy of SPEC with the static skill of each task's family. The run's record of
prompts is the protocol's; the policy's identity says what was added to them.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

from seedbench.errors import UsageError
from seedbench.panels import Panel
from seedbench.policies import ModelOptions, make_policy
from seedbench.policies.base import Policy, Request, Response
from seedbench.types import Task
from seedbench_trainers.skills.insertion import Position, insert_skill, skill_block
from seedbench_trainers.skills.static import static_skill


class SkilledPolicy(Policy):
    """Another policy behind prompts that hold a skill. `skills`: family -> skill, for every family that is asked."""

    def __init__(self, policy: Policy, skills: dict[str, str], position: Position) -> None:
        self.name = f"{policy.name}*"
        self._policy, self._skills, self._position = policy, skills, position

    def identity(self) -> dict[str, Any]:
        """The other policy's, with the skills' hash and position."""
        texts = "\x1f".join(f"{family}\x1e{skill_block(text)}" for family, text in sorted(self._skills.items()))
        digest = sha256(texts.encode()).hexdigest()
        identity = self._policy.identity()
        return {**identity, "skills_sha256": digest, "skill_position": self._position}

    async def open(self) -> None:
        """Open the other policy, which may learn its name then."""
        await self._policy.open()
        self.name = f"{self._policy.name}*"
        self.gpus, self.origin = self._policy.gpus, self._policy.origin

    async def close(self) -> None:
        """Close the other policy."""
        await self._policy.close()

    def skill_of(self, task: Task) -> str | None:
        """The skill that a task's prompts get: its family's. None: they stay as they are."""
        return self._skills[task.family]

    async def act(self, request: Request) -> Response:
        """Raises SeedBenchError where a prompt has no place for the skill, and as the other policy."""
        skill = self.skill_of(request.task)
        if skill is None:
            return await self._policy.act(request)
        messages = insert_skill(request.messages, skill, self._position, instruction=request.instruction)
        return await self._policy.act(replace(request, messages=messages))

    def forget(self, task: Task, repeat: int) -> None:
        """Pass on that the episode has ended."""
        self._policy.forget(task, repeat)


def skilled_policy(rest: str, panel: Panel, options: ModelOptions) -> SkilledPolicy:
    """The policy of `skills:REST`, with REST = [POSITION:][FILE.toml:]SPEC.

    Args:
        rest: POSITION is after_task (unless given) or end; FILE.toml holds static skills in place of the suite's own;
            SPEC is what `seedbench eval` takes.
        panel: the tasks it will be asked about; every family of them must have a skill.
        options: of the model of SPEC.

    Raises:
        UsageError: SPEC is missing, unknown, or names a policy that reads no prompt.
        SeedBenchError: a family without a skill.
    """
    position, file, spec = _parts(rest)
    if not spec:
        raise UsageError("skills: needs a policy behind it, e.g. skills:path/to/checkpoint.")
    policy = make_policy(spec, panel, options)
    if not policy.needs_prompt:
        raise UsageError(f"'{spec}' reads no prompt, so that a skill would change nothing: leave out 'skills:'.")
    skills = {family: static_skill(panel.suite, family, file) for family in panel.families()}
    return SkilledPolicy(policy, skills, position)


def _parts(rest: str) -> tuple[Position, str, str]:
    position: Position = "after_task"
    file = ""
    head, colon, tail = rest.partition(":")
    if colon and head in ("after_task", "end"):
        position, rest = "end" if head == "end" else "after_task", tail
        head, colon, tail = rest.partition(":")
    if colon and head.endswith(".toml"):
        file, rest = head, tail
    return position, file, rest

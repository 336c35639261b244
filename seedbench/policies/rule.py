"""Rule policies: the scripted baselines that a suite brings along."""

from __future__ import annotations

from typing import Any

from seedbench.policies.base import Policy, Request, Response
from seedbench.suite import Rule


class RulePolicy(Policy):
    """Answers with what the suite's function says. The function sees what an agent sees, and no solution."""

    needs_prompt = False
    gpus = 0

    def __init__(self, suite: str, name: str, rule: Rule) -> None:
        self.name = name
        self._suite = suite
        self._rule = rule

    def identity(self) -> dict[str, Any]:
        """Kind, suite and name; the code is that of the recorded package version."""
        return {"kind": "rule", "suite": self._suite, "name": self.name}

    async def act(self, request: Request) -> Response:
        """The rule's action."""
        admissible = request.admissible_actions or ()
        return Response(action=self._rule(request.instruction, admissible, request.observation, request.turn))

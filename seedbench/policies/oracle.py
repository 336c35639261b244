"""The oracle: plays what is known to solve a task. Its row is the ceiling of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from seedbench.errors import SeedBenchError
from seedbench.policies.base import Policy, PolicyFault, Request, Response
from seedbench.types import Task


class OraclePolicy(Policy):
    """Answers turn t with the t-th action of the task's solution; repeats the last one if that was not enough."""

    name = "oracle"
    needs_prompt = False
    gpus = 0

    def __init__(self, solution: Callable[[Task], Sequence[str]]) -> None:
        self._solution = solution

    def identity(self) -> dict[str, Any]:
        """The kind alone: solutions belong to the tasks, whose hashes the panel has."""
        return {"kind": "oracle"}

    async def act(self, request: Request) -> Response:
        """The next action. Raises PolicyFault where no solution is known."""
        try:
            actions = self._solution(request.task)
        except SeedBenchError as error:
            raise PolicyFault(str(error)) from error
        if not actions:
            raise PolicyFault(f"the stored solution of {request.task.id} is empty")
        return Response(action=actions[min(request.turn, len(actions) - 1)])

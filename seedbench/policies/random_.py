"""The random policy: an admissible action, uniformly. Its row is the floor of a table."""

from __future__ import annotations

import random
from typing import Any

from seedbench.policies.base import Policy, PolicyFault, Request, Response


class RandomPolicy(Policy):
    """Draws each action uniformly from the admissible ones, with the turn's seed."""

    name = "random"
    needs_prompt = False

    def identity(self) -> dict[str, Any]:
        """The kind and the generator, whose stream Python keeps stable."""
        return {"kind": "random", "generator": "python-mersenne-twister"}

    async def act(self, request: Request) -> Response:
        """One admissible action. Raises PolicyFault where the suite lists none."""
        actions = request.admissible_actions
        if not actions:
            raise PolicyFault("the environment lists no admissible actions to choose from")
        # `choice` may change between Python versions; the stream of `random` is promised to stay.
        return Response(action=actions[int(random.Random(request.seed).random() * len(actions))])

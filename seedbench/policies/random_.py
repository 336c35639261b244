"""The random policy: an admissible action, uniformly. Its row is the floor of a table."""

from __future__ import annotations

import random
import re
from typing import Any

from seedbench.errors import SeedBenchError
from seedbench.policies.base import Policy, PolicyFault, Request, Response

_BLANK = re.compile(r"(?<=\[)<your [a-z ]+>(?=\]$)")
_BRACKETS = re.compile(r"[\[\]\s]+")


class RandomPolicy(Policy):
    """Draws each action uniformly from the admissible ones, with the turn's seed; from the choices where the protocol
    restricts decoding to some.

    Where an action has a blank to fill in, such as `search[<your query>]`, it writes the instruction there.
    """

    name = "random"
    needs_prompt = False
    gpus = 0

    def identity(self) -> dict[str, Any]:
        """The kind and the generator, whose stream Python keeps stable."""
        return {"kind": "random", "generator": "python-mersenne-twister"}

    async def act(self, request: Request) -> Response:
        """One admissible action. Raises PolicyFault where there is none, SeedBenchError where the suite lists none."""
        if request.choices:
            return Response(text=_drawn(request.choices, request.seed))
        actions = request.admissible_actions
        if actions is None:
            raise SeedBenchError(
                "the random policy chooses among listed actions, and this suite lists none: use another."
            )
        if not actions:
            raise PolicyFault("the environment lists no admissible actions to choose from")
        action = _drawn(actions, request.seed)
        words = _BRACKETS.sub(" ", request.instruction)  # a bracket would end the action's argument early
        return Response(action=_BLANK.sub(lambda _: words, action))


def _drawn(items: tuple[str, ...], seed: int) -> str:
    # `choice` may change between Python versions; the stream of `random` is promised to stay.
    return items[int(random.Random(seed).random() * len(items))]

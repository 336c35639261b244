"""The tools that the loop lends a method (`base.Tools`): roll-outs, scores, prompts and answers of the snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from seedbench.panels import Panel
from seedbench.policies.base import ContextOverflow, Policy, PolicyFault, Request, Response, Sampling
from seedbench.policies.prompts import PromptTokens
from seedbench.policies.transformers_ import TransformersPolicy
from seedbench.protocol import Protocol
from seedbench.rollout import derive_seed
from seedbench.types import Message, Task, Usage
from seedbench_trainers.base import Method
from seedbench_trainers.config import TrainConfig
from seedbench_trainers.distributed import World, evenly
from seedbench_trainers.packed import score_packed
from seedbench_trainers.records import Batch, Floats, Sample
from seedbench_trainers.rollouts import RolloutPlan
from seedbench_trainers.setup import rollout_protocol
from seedbench_trainers.trainee import Trainee
from seedbench_trainers.view import TrainView

if TYPE_CHECKING:
    from seedbench_trainers.engines.turns import EngineTurns
    from seedbench_trainers.remote import Rollers

T = TypeVar("T")
Asked = tuple[int, tuple[Message, ...]]


def rollout_policy(
    config: TrainConfig, trainee: Trainee, *, record: bool = False, identity: dict[str, object] | None = None
) -> TransformersPolicy:
    """A trainee as a policy of the harness, at its present weights; `record` keeps the tokens."""
    return TransformersPolicy.serving(
        trainee.loaded,
        name=config.method,
        identity=dict(identity or trainee.loaded.identity),
        batch_size=config.rollout.batch_size,
        record=record,
        cache_gib=config.rollout.cache_gib,
        autocast_dtype=trainee.autocast,
    )


class Toolbox:
    """Implements `base.Tools` over a trainee."""

    def __init__(
        self,
        config: TrainConfig,
        panel: Panel,
        protocol: Protocol,
        out: Path,
        trainee: Trainee,
        method: Method,
        view: TrainView,
        rollers: Rollers | None = None,
        world: World | None = None,
        engine: EngineTurns | None = None,
    ) -> None:
        self.config, self.panel, self.protocol, self.out = config, panel, protocol, out
        self._trainee, self._view, self._world = trainee, view, world or World()
        self._asked = Usage()
        self.loaded = loaded = trainee.loaded
        self._prompts = PromptTokens(loaded.tokenizer, loaded.template, name=config.model, eos=loaded.eos)
        rewrite = method.prompt if type(method).prompt is not Method.prompt else None
        self._plan = RolloutPlan(
            config=config,
            panel=panel,
            protocol=rollout_protocol(config, protocol),
            policy=lambda: self._snapshot(record=True),
            rewrite=rewrite,
            told=view.episode,
            elsewhere=None if rollers is None else partial(rollers.play, rewrite=rewrite, told=view.episode),
            world=self._world,
        )
        self._engine = engine

    def policy(self, *, record: bool = False, identity: dict[str, object] | None = None) -> TransformersPolicy:
        """The model under training as a policy of the harness, at its present weights."""
        return rollout_policy(self.config, self._trainee, record=record, identity=identity)

    def _snapshot(self, *, record: bool = False) -> Policy:
        """The present weights as whatever plays this run's roll-outs holds them."""
        return self._engine.policy(record=record) if self._engine else self.policy(record=record)

    def rollouts(self, iteration: int) -> Batch:
        """See `base.Tools`."""
        if self._engine:
            self._engine.begin()
        return self._plan.collect(iteration)

    def rest(self) -> None:
        """An update follows: what plays elsewhere gives its memory back."""
        if self._engine:
            self._engine.end()

    def score(self, samples: Sequence[Sample], *, reference: bool = False) -> list[Floats]:
        """See `base.Tools`."""
        trainee = self._trainee
        if reference:
            assert trainee.reference is not None, "the method's needs_reference is False"
            with trainee.reference_weights(), trainee.precision():
                return self._score(trainee.reference, samples)
        with trainee.precision():
            return self._score(trainee.snapshot, samples)

    def _score(self, scorer: object, samples: Sequence[Sample]) -> list[Floats]:
        # Without gradients nothing is kept for a backward pass, so that four times the tokens fit.
        budget = 4 * self.config.update.tokens
        warmth = self.config.rollout.temperature

        def work(some: Sequence[Sample]) -> list[Floats]:
            return score_packed(scorer, some, tokens=budget, temperature=warmth)  # type: ignore[arg-type]

        # Neighbours stay together: contexts that begin alike are computed once.
        return self._world.shared(samples, evenly([len(s.ids) for s in samples], self._world.size), work)

    def fill_reference(self, samples: Sequence[Sample]) -> None:
        """Write the reference's log-probabilities into the signal `ref`."""
        for sample, logprobs in zip(samples, self.score(samples, reference=True), strict=True):
            sample.signals["ref"] = logprobs

    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """See `base.Tools`."""
        return tuple(self._prompts.encode(messages, self.protocol.settings.sampling.thinking))

    def ask(self, prompts: Sequence[tuple[Message, ...]], sampling: Sampling) -> list[Response | None]:
        """See `base.Tools`."""
        numbered = list(enumerate(prompts))

        def work(some: Sequence[Asked]) -> list[Response | None]:
            return asyncio.run(self._ask(some, sampling)) if some else []

        answers = self._world.shared(numbered, range(len(numbered)), work)
        self._asked = sum((answer.usage for answer in answers if answer), self._asked)
        return answers

    def asked(self) -> Usage:
        """Tokens of the answers of `ask` since the last call of this function."""
        spent, self._asked = self._asked, Usage()
        return spent

    async def _ask(self, prompts: Sequence[Asked], sampling: Sampling) -> list[Response | None]:
        policy = self._snapshot()
        task = Task("", "", "", "")

        async def one(number: int, messages: tuple[Message, ...]) -> Response | None:
            request = Request(
                task=task,
                repeat=number,
                turn=0,
                seed=derive_seed(self.config.seed, "ask", number),
                messages=messages,
                sampling=sampling,
                observation="",
                admissible_actions=None,
            )
            try:
                return await policy.act(request)
            except (ContextOverflow, PolicyFault):
                return None

        await policy.open()
        try:
            return list(await asyncio.gather(*(one(n, messages) for n, messages in prompts)))
        finally:
            await policy.close()

    def once(self, work: Callable[[], T]) -> T:
        """See `base.Tools`."""
        return self._world.first(work)

    def note(self, message: str) -> None:
        """See `base.Tools`."""
        self._view.note(message)

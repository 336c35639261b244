"""Training roll-outs on Ray: workers that hold the model under training and play parts of an iteration's attempts.

Who plays what follows from an attempt's place and the number of workers, and a worker opens all of its part at once, so
that two runs of one seed with as many workers give equal numbers. Another number of workers makes other batches: the
same tokens, whose log-probabilities may differ in the last bit (bit for bit the same with rollout.batch_size 1). The
weights travel with the attempts, under the number of the iteration: no episode can be played with others. Where a
worker dies, its part is played again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbench import __version__
from seedbench.errors import SeedBenchError
from seedbench.evaluate import check_data
from seedbench.panels import Panel
from seedbench.protocol import Protocol
from seedbench.remote.cluster import (
    TRIES,
    Cluster,
    actor,
    answer_of,
    connected,
    death_of,
    enter,
    insist,
    placed,
    refuse_unlike,
)
from seedbench.types import Episode
from seedbench_trainers.collect import Attempt, Played, Rewrite, perform
from seedbench_trainers.config import TrainConfig

if TYPE_CHECKING:
    from seedbench_trainers.trainee import Trainee

Weights = Mapping[str, Any]
"""Name of a parameter -> its values, a float32 array."""


def weights_of(trainee: Trainee) -> dict[str, Any]:
    """What the optimiser changes, as arrays on the CPU: all weights, or those of the adapters."""
    named = trainee.loaded.model.named_parameters()
    return {name: value.detach().cpu().numpy() for name, value in named if value.requires_grad}


def facts_of(trainee: Trainee, start: Mapping[str, Any], panel: Panel, protocol: Protocol) -> dict[str, Any]:
    """What must be equal here and in all workers. Weights that are sent are not among it; others (LoRA's base) are.

    `start`: identity of the model that training began from, which workers load. A run that goes on has loaded its own
    checkpoint, whose configuration is the same in other words, and perhaps with newer packages.
    """
    sent = () if trainee.lora else ("weights_sha256", "adapter_sha256")
    model = {key: value for key, value in start.items() if key not in (*sent, "name")}
    model |= {package: trainee.loaded.identity[package] for package in ("transformers", "torch")}
    return {"model": model, "environment": check_data(panel, protocol), "seedbench": __version__}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a worker is told of the training."""

    config: TrainConfig
    model: str
    """Folder or hub name that the training began from, which every machine must find."""
    panel: Panel
    protocol: Protocol
    folder: str
    """Where the command was given."""


class Roller:
    """Plays attempts in a process of its own: the class behind the Ray actors."""

    def __init__(self, plan: Plan) -> None:
        enter(plan.folder)
        self._plan = plan
        self._trainee: Trainee
        self._version: int | None = None

    def ready(self) -> None:
        """Answer once the process is there."""

    def open(self) -> dict[str, Any]:
        """Load the model; returns `facts_of`. Raises as `load_trainee` and `check_data`."""
        from seedbench_trainers.trainee import load_trainee

        plan = self._plan
        # Which GPU is this worker's, Ray says: it is the only one that it sees.
        device = "cpu" if plan.config.device == "cpu" else "auto"
        config = plan.config.model_copy(update={"device": device})
        self._trainee = load_trainee(config, plan.model, reference=False)
        return facts_of(self._trainee, self._trainee.loaded.identity, plan.panel, plan.protocol)

    def play(
        self, version: int, weights: Weights, attempts: Sequence[Attempt], rewrite: Rewrite | None
    ) -> list[Played]:
        """Play attempts with the given weights, all at once; in the order given, broken ones included."""
        from seedbench_trainers.toolbox import rollout_policy

        if version != self._version:
            self._version = None  # until all of them are there
            self._load(weights)
            self._version = version
        policy = rollout_policy(self._plan.config, self._trainee, record=True)
        return perform(attempts, self._plan.panel, self._plan.protocol, policy, rewrite=rewrite)

    def _load(self, weights: Weights) -> None:
        import torch

        named = dict(self._trainee.loaded.model.named_parameters())
        with torch.no_grad():
            for name, values in weights.items():
                named[name].copy_(torch.from_numpy(values.copy()))  # what Ray shares is read-only


@dataclass(slots=True)
class _Slot:
    name: str
    actor: Any = None


class Rollers:
    """The roll-out workers of a run, started when this is made.

    `start`: identity of the model that training began from.

    Raises SeedBenchError as `connected` and the workers do, and where they have another model, data or version.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: TrainConfig,
        model: str,
        panel: Panel,
        protocol: Protocol,
        trainee: Trainee,
        note: Callable[[str], None],
        *,
        start: Mapping[str, Any],
    ) -> None:
        self._cluster, self._trainee, self._note = cluster, trainee, note
        self._slots = [_Slot(f"worker {n + 1}") for n in range(cluster.workers)]
        self._facts = facts_of(trainee, start, panel, protocol)
        self._version: int | None = None
        self._weights: Any = None
        self._held = ExitStack()
        self._ray: Any = self._held.enter_context(connected(cluster))
        try:
            self._plan = self._ray.put(Plan(config, model, panel, protocol, str(Path.cwd())))
            asyncio.run(self._start_all())
        except BaseException:
            self.close()
            raise

    async def _start_all(self) -> None:
        await asyncio.gather(*(self._start(slot) for slot in self._slots))

    async def _start(self, slot: _Slot) -> None:
        async def start() -> dict[str, Any]:
            slot.actor = actor(self._ray, Roller, self._cluster, self._plan)
            await placed(slot.actor)
            facts: dict[str, Any] = await answer_of(slot.actor.open.remote())
            return facts

        refuse_unlike(slot.name, self._facts, await insist(start, slot.name, self._note))

    def play(
        self,
        attempts: Sequence[Attempt],
        version: int,
        *,
        rewrite: Rewrite | None = None,
        told: Callable[[Episode], None],
    ) -> list[Played]:
        """Play attempts with the trainee's present weights; in the order given, broken ones included.

        Args:
            attempts: what to play.
            version: number of the present weights: another one means that they have changed.
            rewrite: changes the messages that the policy is asked; it is pickled.
            told: is told of every episode once its worker has ended its part.

        Raises SeedBenchError for what concerns the whole run, and where workers die again and again.
        """
        if version != self._version:
            self._weights, self._version = self._ray.put(weights_of(self._trainee)), version
        played: list[Any] = [None] * len(attempts)
        asyncio.run(self._play(attempts, rewrite, told, played))
        return played

    async def _play(
        self,
        attempts: Sequence[Attempt],
        rewrite: Rewrite | None,
        told: Callable[[Episode], None],
        played: list[Any],
    ) -> None:
        count = len(self._slots)

        async def part(number: int, slot: _Slot) -> None:
            mine = attempts[number::count]
            if mine:
                played[number::count] = done = await self._part(slot, mine, rewrite)
                for one in done:
                    told(one.episode)

        await asyncio.gather(*(part(number, slot) for number, slot in enumerate(self._slots)))

    async def _part(self, slot: _Slot, attempts: Sequence[Attempt], rewrite: Rewrite | None) -> list[Played]:
        from ray.exceptions import RayError

        for left in range(TRIES - 1, -1, -1):
            try:
                done: list[Played] = await answer_of(
                    slot.actor.play.remote(self._version, self._weights, attempts, rewrite)
                )
                return done
            except RayError as death:
                self._kill(slot)
                if not left:
                    raise SeedBenchError(
                        f"{slot.name} died {TRIES} times over the same {len(attempts)} episodes ({death_of(death)})."
                        " Look at the memory of its machine, and run the same command again with more --workers or a"
                        " smaller rollout.batch_size; it goes on from the last checkpoint."
                    ) from death
                self._note(f"{slot.name} died ({death_of(death)}); its {len(attempts)} episodes are played again")
                await self._start(slot)
        raise AssertionError("unreachable")

    def _kill(self, slot: _Slot) -> None:
        with suppress(Exception):  # gone already
            self._ray.kill(slot.actor)

    def close(self) -> None:
        """End the workers, and the cluster where it is this command's own."""
        for slot in self._slots:
            if slot.actor is not None:
                self._kill(slot)
        self._held.close()

"""An evaluation whose episodes are played by workers on a Ray cluster.

A worker has environments and a policy of its own, made from the same settings, and a copy of the data in its own store,
checked against the panel. Attempts are handed out a few at a time and come back as the lines of a log; this process
alone writes the run folder. Seeds follow from the attempt, so that neither the number of workers nor who plays what
changes a result. Where a worker dies, what it had open is played again.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seedbench import __version__
from seedbench.errors import SeedBenchError
from seedbench.evaluate import Attempt, Evaluation, Stage, check_data
from seedbench.panels import Panel
from seedbench.policies.base import Policy, Request, Response
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

MakePolicy = Callable[[], Policy]

_STORE_BYTES = 200 << 20
_CLOSE_SECONDS = 10.0


def on_ray(job: Evaluation, make: MakePolicy, cluster: Cluster) -> Evaluation:
    """The same evaluation, played by `cluster.workers` processes that answer with policies of their own.

    Args:
        job: the evaluation; its policy gives the name until the workers are there, and is never opened.
        make: makes a worker's policy; it is pickled, and called once in each worker.
        cluster: where the workers run. `job.concurrency` is shared by them, at least one episode each.
    """
    crew = Crew(job, make, cluster)
    return replace(job, policy=crew, player=crew.play)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a worker is told of the evaluation: everything by content, and nothing of where it is written."""

    panel: Panel
    protocol: Protocol
    settings: Mapping[str, Any]
    """Fields of `Evaluation`."""
    make: MakePolicy
    folder: str
    """Where the command was given."""

    def job(self) -> Evaluation:
        """The evaluation, with a policy that was just made."""
        return Evaluation(self.panel, self.protocol, self.make(), Path(os.devnull), **self.settings)


def plan_of(job: Evaluation, make: MakePolicy) -> Plan:
    """The plan of an evaluation."""
    names = ("repeats", "seed", "engine", "keep_prompts")
    return Plan(job.panel, job.protocol, {name: getattr(job, name) for name in names}, make, str(Path.cwd()))


@dataclass(frozen=True, slots=True)
class About:
    """What a worker says of itself once its policy is open."""

    name: str
    facts: dict[str, Any]
    """What must be equal in all workers: `policy` (its identity), `environment`, `seedbench` (the version)."""
    gpus: int | None
    origin: Mapping[str, Any] | None


class Worker:
    """Plays attempts in a process of its own: the class behind the Ray actors. At most `lanes` episodes are open."""

    def __init__(self, plan: Plan, lanes: int) -> None:
        enter(plan.folder)
        self._plan, self._lanes = plan, lanes
        self._job: Evaluation
        self._stage: Stage
        self._waiting: asyncio.Queue[Attempt] = asyncio.Queue()
        self._ended: list[str] = []
        self._failed: BaseException | None = None
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def ready(self) -> None:
        """Answer once the process is there."""

    async def open(self) -> About:
        """Check the data and open the policy. Raises as `evaluate` does."""
        self._job = job = self._plan.job()
        environment = check_data(job.panel, job.protocol, job.engine)
        await job.policy.open()
        self._stage = Stage(job)
        self._tasks = [asyncio.create_task(self._lane()) for _ in range(self._lanes)]
        facts = {"policy": job.policy.identity(), "environment": environment, "seedbench": __version__}
        return About(job.policy.name, facts, job.policy.gpus, job.policy.origin)

    async def exchange(self, attempts: Sequence[tuple[int, int]]) -> list[str]:
        """Take further attempts (place in the panel, repeat); return the episodes that have ended, at least one.

        Episodes are the log's JSON. Raises what concerns the whole run.
        """
        for place, repeat in attempts:
            self._waiting.put_nowait((self._job.panel.tasks[place], repeat))
        await self._news.wait()
        if self._failed is not None:
            raise self._failed
        ended, self._ended = self._ended, []
        self._news.clear()
        return ended

    async def _lane(self) -> None:
        try:
            while True:
                episode = await self._stage.one(*await self._waiting.get())
                self._ended.append(json.dumps(episode.to_json()))
                self._news.set()
                await asyncio.sleep(0)  # lets `exchange` in where the policy never waits
        except Exception as error:
            self._failed = self._failed or error
            self._news.set()

    async def close(self) -> None:
        """Give up what is open and close policy and environments."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._stage.close()
        await self._job.policy.close()


@dataclass(slots=True)
class _Slot:
    """A worker's place; the worker in it may be replaced."""

    name: str
    lanes: int
    actor: Any = None


class Crew(Policy):
    """The workers of an evaluation. As a policy it stands for theirs: their name, identity and origin."""

    needs_prompt = False  # prompts are rendered where they are answered

    def __init__(self, job: Evaluation, make: MakePolicy, cluster: Cluster) -> None:
        self.name = job.policy.name
        self._job, self._cluster, self._plan = job, cluster, plan_of(job, make)
        each, more = divmod(max(job.concurrency, cluster.workers), cluster.workers)
        self._slots = [_Slot(f"worker {n + 1}", each + (n < more)) for n in range(cluster.workers)]
        self._place = {task.id: place for place, task in enumerate(job.panel.tasks)}
        self._deaths: Counter[tuple[str, int]] = Counter()
        self._note: Callable[[str], None] = lambda _: None
        self._facts: dict[str, Any] = {}
        self._held = ExitStack()
        self._ray: Any = None
        self._sent: Any = None

    def identity(self) -> dict[str, Any]:
        """The identity of every worker's policy. After `open`."""
        return dict(self._facts["policy"])

    async def act(self, request: Request) -> Response:
        """Never asked: the workers' own policies answer."""
        raise AssertionError("a crew plays whole episodes")

    async def open(self) -> None:
        """Connect, start the workers and open their policies.

        Raises as `connected` and the workers' own `open` do, and SeedBenchError where workers differ in their policy,
        their data or their version.
        """
        self._ray = self._held.enter_context(connected(self._cluster, store_bytes=_STORE_BYTES))
        self._sent = self._ray.put(self._plan)
        environment = check_data(self._job.panel, self._job.protocol, self._job.engine)
        self._facts = {"environment": environment, "seedbench": __version__}
        abouts = await asyncio.gather(*(self._start(slot) for slot in self._slots))
        self.name, self.origin = abouts[0].name, abouts[0].origin
        known = [about.gpus for about in abouts if about.gpus is not None]
        share = self._cluster.gpus if 0 < self._cluster.gpus < 1 else 1
        self.gpus = math.ceil(share * sum(known)) if len(known) == len(abouts) else None

    async def _start(self, slot: _Slot) -> About:
        async def start() -> About:
            slot.actor = actor(self._ray, Worker, self._cluster, self._sent, slot.lanes)
            await placed(slot.actor)
            about: About = await answer_of(slot.actor.open.remote())
            return about

        about = await insist(start, slot.name, self._note)
        self._facts.setdefault("policy", about.facts["policy"])
        refuse_unlike(slot.name, self._facts, about.facts)
        return about

    async def play(
        self, attempts: Sequence[Attempt], told: Callable[[Episode], None], note: Callable[[str], None]
    ) -> None:
        """See `seedbench.evaluate.Player`."""
        self._note = note
        waiting = deque(attempts)
        async with asyncio.TaskGroup() as group:
            for slot in self._slots:
                group.create_task(self._keep_busy(slot, waiting, told))

    async def _keep_busy(self, slot: _Slot, waiting: deque[Attempt], told: Callable[[Episode], None]) -> None:
        """Hand attempts to a slot's worker until none are left, and to the next worker where it dies."""
        from ray.exceptions import RayError

        out: dict[tuple[str, int], Attempt] = {}
        ahead = 1
        while waiting or out:
            # As many more than can be played as ended last time: lanes must not wait for this process.
            room = slot.lanes + ahead - len(out)
            new = [waiting.popleft() for _ in range(min(room, len(waiting)))]
            out.update(((task.sha256, repeat), (task, repeat)) for task, repeat in new)
            call = slot.actor.exchange.remote([(self._place[task.id], repeat) for task, repeat in new])
            try:
                lines = await answer_of(call)
            except RayError as death:
                waiting.extendleft(reversed(out.values()))
                self._blame(slot, out, death)
                out.clear()
                await self._start(slot)
                continue
            for line in lines:
                episode = Episode.from_json(json.loads(line))
                del out[episode.key]
                told(episode)
            ahead = len(lines)

    def _blame(self, slot: _Slot, out: Mapping[tuple[str, int], Attempt], death: Exception) -> None:
        with suppress(Exception):  # it may be alive and out of reach
            self._ray.kill(slot.actor)
        self._deaths.update(out.keys())
        fatal = next((task.id for key, (task, _) in out.items() if self._deaths[key] >= TRIES), None)
        if fatal is not None:
            raise SeedBenchError(
                f"{TRIES} workers died while they played the same episodes, one of {fatal} among them"
                f" ({death_of(death)}). Finished episodes are kept: look at the memory of the machines, and run the"
                " same command again with a smaller --concurrency."
            )
        self._note(f"{slot.name} died ({death_of(death)}); its {len(out)} open episodes are played again")

    async def close(self) -> None:
        """End the workers, and the cluster where it is this command's own."""
        actors = [slot.actor for slot in self._slots if slot.actor is not None]
        with suppress(TimeoutError):
            goodbyes = (answer_of(one.close.remote()) for one in actors)
            await asyncio.wait_for(asyncio.gather(*goodbyes, return_exceptions=True), _CLOSE_SECONDS)
        for one in actors:
            with suppress(Exception):  # gone already
                self._ray.kill(one)
        self._held.close()

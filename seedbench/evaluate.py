"""A panel, a protocol and a policy make a run: every task once or k times, resumable, the same in any order."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from seedbench.errors import SeedBenchError, UsageError
from seedbench.manifest import describe_machine, describe_source, package_versions
from seedbench.metrics import summarise
from seedbench.panels import Panel, data_problems
from seedbench.policies.base import Policy
from seedbench.protocol import Protocol
from seedbench.registry import get_suite
from seedbench.rollout import derive_seed, run_episode
from seedbench.runs import SUMMARY, Run, finished, read_episodes, refuse_other_settings, write_json
from seedbench.suite import Environment
from seedbench.types import Episode, Outcome, Task
from seedbench.ui.live import Progress

Attempt = tuple[Task, int]
"""A task and which repeat of it, from 0."""

Player = Callable[[Sequence[Attempt], Callable[[Episode], None], Callable[[str], None]], Awaitable[None]]
"""Plays attempts: (attempts, told, note). Each once, in any order; `told` hears of every episode as it ends, and what
it raises ends all; `note` shows a line to the user. Raises SeedBenchError for what concerns the whole run."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation, resolved. Only what is in `settings` decides the result."""

    panel: Panel
    protocol: Protocol
    policy: Policy
    out: Path
    repeats: int = 1
    seed: int = 0
    engine: str = "native"
    concurrency: int = 16
    """Episodes open at once; does not change results."""
    keep_prompts: bool = False
    max_infra: float = 0.05
    """Share of infrastructure errors above which the run fails."""
    shuffle: int | None = None
    """Seed of another order of the same episodes; does not change results."""
    player: Player | None = None
    """Plays the episodes elsewhere (`seedbench.remote`); does not change results. None: this process plays them."""

    def settings(self) -> dict[str, Any]:
        """What the result depends on, but for the policy's identity (known once it is loaded)."""
        return {
            "panel": {"name": self.panel.name, "hash": self.panel.hash},
            "protocol": {"name": self.protocol.name, "hash": self.protocol.hash},
            "repeats": self.repeats,
            "seed": self.seed,
            # Not the address behind it: the environment says what answers there (see `_environment_settings`).
            "engine": self.engine.partition(":")[0],
        }


def check_evaluation(job: Evaluation) -> dict[str, Any]:
    """Refuse what cannot work before anything costly is loaded; returns the settings but for the policy's identity.

    Raises:
        UsageError: a protocol for another suite, counts below 1, an unknown engine, or a run folder of other settings.
        SeedBenchError: the store lacks tasks of the panel, or holds other content under their names.
    """
    suites = job.protocol.settings.suites
    if job.panel.suite not in suites:
        raise UsageError(
            f"the protocol '{job.protocol.name}' is for {', '.join(suites)}, the panel '{job.panel.name}' for"
            f" {job.panel.suite}. Choose a protocol of that suite (`seedbench protocols list`)."
        )
    if job.repeats < 1 or job.concurrency < 1:
        raise UsageError(f"repeats ({job.repeats}) and concurrency ({job.concurrency}) must be at least 1.")
    refuse_other_settings(job.out, job.settings())
    settings = {**job.settings(), **check_data(job.panel, job.protocol, job.engine)}
    refuse_other_settings(job.out, settings)
    return settings


def check_data(panel: Panel, protocol: Protocol, engine: str = "native") -> dict[str, Any]:
    """Compare this machine's data with the panel; returns what observations depend on beside it.

    That is what the environment says of itself (a search engine, its corpus); most say nothing.

    Raises:
        UsageError: an unknown engine or option.
        SeedBenchError: the store lacks tasks of the panel, or holds other content under their names; the environment
            cannot be made.
    """
    suite = get_suite(panel.suite)
    problems = data_problems(panel, dict(suite.content_hashes(panel)))
    if problems:
        raise SeedBenchError(f"{'; '.join(problems)}. Fetch the data again: `seedbench data fetch {suite.name}`.")
    env = suite.make(panel, engine, **protocol.settings.environment)
    try:
        describe = getattr(env, "identity", None)
        return {"environment": describe()} if describe else {}
    finally:
        env.close()


def evaluate(job: Evaluation, progress: Progress) -> dict[str, Any]:
    """Run what is missing of the evaluation and return the summary, which is also written to the run folder.

    Raises:
        UsageError, SeedBenchError: as `check_evaluation`, and when the policy cannot be loaded, the disk is full, the
            action dialect is wrong, or too many infrastructure errors occur. Finished episodes are kept; the same
            command continues.
        KeyboardInterrupt: passed on after the summary of what is there was written.
    """
    settings = check_evaluation(job)
    return asyncio.run(_evaluate(job, settings, progress))


async def _evaluate(job: Evaluation, settings: dict[str, Any], progress: Progress) -> dict[str, Any]:
    try:
        await job.policy.open()
        settings = {**settings, "policy": job.policy.identity()}
        about = _manifest(job)
        with Run(job.out, settings, about) as run:
            return await _fill(job, run, progress, about)
    finally:
        await job.policy.close()


async def _fill(job: Evaluation, run: Run, progress: Progress, about: dict[str, Any]) -> dict[str, Any]:
    """Play the missing episodes, then derive the summary from the log."""
    done = {key for key, outcome in finished(job.out).items() if outcome is not Outcome.INFRA_ERROR}
    # By content hash: families come mixed, so that the live view says something of each from the start.
    tasks = sorted(job.panel.tasks, key=lambda task: task.sha256)
    missing = [(task, repeat) for repeat in range(job.repeats) for task in tasks if (task.sha256, repeat) not in done]
    if job.shuffle is not None:
        random.Random(job.shuffle).shuffle(missing)
    total = len(job.panel.tasks) * job.repeats
    families = {family: n * job.repeats for family, n in job.panel.families().items()}
    title = f"{job.policy.name} · {job.panel.name} · {job.protocol.name}"
    session: dict[str, Any] = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "command": ["seedbench", *sys.argv[1:]],
        "concurrency": job.concurrency,
        # A run may be continued by another version of the code: say so where it differs from the first.
        **{key: about[key] for key in ("source", "packages") if about[key] != run.manifest.get(key)},
    }
    clock = time.perf_counter()

    def close() -> dict[str, Any]:
        wall = round(time.perf_counter() - clock, 3)
        gpus = job.policy.gpus
        gpu = None if gpus is None else round(wall * gpus, 3)
        run.add_session({**session, "wall_seconds": wall, "gpu_seconds": gpu})
        return write_summary(job, run.manifest)

    with progress:
        progress.start(total, families, title, _counted(job.out, done))
        try:
            await _play_all(job, run, missing, progress, total)
        except BaseException:
            # What is finished is a run that can be read and continued. (A full disk has been reported by then.)
            with suppress(SeedBenchError):
                close()
            raise
    return close()


def _counted(folder: Path, done: set[tuple[str, int]]) -> Iterator[Episode]:
    """Logged episodes that count as done (an infrastructure error is tried again)."""
    return (e for e in read_episodes(folder) if e.key in done and e.outcome is not Outcome.INFRA_ERROR)


async def _play_all(job: Evaluation, run: Run, missing: Sequence[Attempt], progress: Progress, total: int) -> None:
    infra = 0
    allowed = max(job.max_infra * total, 3)

    def told(episode: Episode) -> None:
        nonlocal infra
        run.append(episode)
        progress.update(episode)
        if episode.outcome is not Outcome.INFRA_ERROR:
            return
        infra += 1
        progress.note(f"{episode.task}: {episode.error}")
        if infra > allowed:
            reason = episode.error.rstrip(".")
            raise SeedBenchError(
                f"{infra} of {total} episodes ended in infrastructure errors (the last: {reason})."
                " They count as nothing; mend the cause and run the same command again."
            )

    try:
        await (job.player or Stage(job).play)(missing, told, progress.note)
    except* (SeedBenchError, OSError) as errors:  # OSError: nobody reads the progress any more
        raise errors.exceptions[0] from None  # the first one says what happened; the rest follow from it


class Stage:
    """Plays attempts of an evaluation in this process; environments are kept from one episode to the next.

    Use from one event loop only. `seed`s follow from the run's and the attempt alone.
    """

    def __init__(self, job: Evaluation) -> None:
        self._job, self._suite = job, get_suite(job.panel.suite)
        self._base_panel = job.panel.name.partition("[")[0]  # a subset plays its tasks with the same seeds
        self._free: list[Environment] = []

    async def play(
        self, attempts: Sequence[Attempt], told: Callable[[Episode], None], note: Callable[[str], None]
    ) -> None:
        """See `Player`: at most `concurrency` at once."""
        waiting = iter(attempts)

        async def lane() -> None:
            for task, repeat in waiting:  # the iterator is shared: each lane takes the next episode
                told(await self.one(task, repeat))
                await asyncio.sleep(0)  # lets Ctrl-C and other episodes in where the policy never waits

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._job.concurrency, len(attempts))):
                    group.create_task(lane())
        finally:
            self.close()

    async def one(self, task: Task, repeat: int) -> Episode:
        """Play one attempt. Raises as `run_episode`."""
        job = self._job
        env = self._free.pop() if self._free else self._make()
        broken = True
        try:
            episode = await run_episode(
                env,
                task,
                job.protocol,
                job.policy,
                repeat=repeat,
                seed=derive_seed(job.seed, self._base_panel, task.sha256, repeat),
                keep_prompts=job.keep_prompts,
            )
            broken = episode.outcome is Outcome.INFRA_ERROR
        finally:
            if broken:
                with suppress(Exception):  # what broke in an episode may break here too
                    env.close()
            else:
                self._free.append(env)
        return episode

    def close(self) -> None:
        """Close the environments that are kept."""
        while self._free:
            self._free.pop().close()

    def _make(self) -> Environment:
        return self._suite.make(self._job.panel, self._job.engine, **self._job.protocol.settings.environment)


def write_summary(job: Evaluation, manifest: dict[str, Any]) -> dict[str, Any]:
    """Derive the summary from the log and write it."""
    panel = job.panel
    summary = summarise(
        read_episodes(job.out),
        panel={
            "name": panel.name, "hash": panel.hash, "n": len(panel.tasks),
            "suite": panel.suite, "split": panel.split, "official": panel.official,
        },
        protocol=manifest["settings"]["protocol"],
        policy={"name": manifest["policy"]["name"], "identity": manifest["settings"]["policy"]},
        repeats=job.repeats,
        seed=job.seed,
        families=list(panel.families()),
        environment=manifest["settings"].get("environment", {}),
        wall_seconds=_spent(manifest, "wall_seconds"),
        gpu_seconds=_spent(manifest, "gpu_seconds"),
    )  # fmt: skip
    write_json(job.out / SUMMARY, summary)
    return summary


def _spent(manifest: dict[str, Any], key: str) -> float | None:
    """Seconds of all sessions; None where one of them does not say."""
    seconds = [session.get(key) for session in manifest["sessions"]]
    return None if None in seconds else round(sum(seconds), 3)


def _manifest(job: Evaluation) -> dict[str, Any]:
    panel = job.panel
    return {
        "policy": {
            "name": job.policy.name,
            **({"trained": dict(job.policy.origin)} if job.policy.origin is not None else {}),
        },
        "panel": {"official": panel.official, "suite": panel.suite, "split": panel.split, "n": len(panel.tasks)},
        "protocol": job.protocol.content(),
        "configuration": {"keep_prompts": job.keep_prompts, "max_infra": job.max_infra, "shuffle": job.shuffle},
        "source": describe_source(),
        "packages": package_versions(),
    }  # fmt: skip

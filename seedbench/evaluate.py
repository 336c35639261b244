"""A panel, a protocol and a policy make a run: every task once or k times, resumable, the same in any order."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Iterator, Sequence
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
from seedbench.types import Episode, Outcome, Task
from seedbench.ui.live import Progress


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
    suite = get_suite(job.panel.suite)
    problems = data_problems(job.panel, dict(suite.content_hashes(job.panel)))
    if problems:
        raise SeedBenchError(f"{'; '.join(problems)}. Fetch the data again: `seedbench data fetch {suite.name}`.")
    settings = {**job.settings(), **_environment_settings(job)}
    refuse_other_settings(job.out, settings)
    return settings


def _environment_settings(job: Evaluation) -> dict[str, Any]:
    """What observations depend on beside the panel, where the environment says so (a search engine, its corpus).

    Raises UsageError for an unknown engine or option, SeedBenchError where the environment cannot be made.
    """
    env = get_suite(job.panel.suite).make(job.panel, job.engine, **job.protocol.settings.environment)
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
        run.add_session({**session, "wall_seconds": round(time.perf_counter() - clock, 3)})
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


async def _play_all(
    job: Evaluation, run: Run, missing: Sequence[tuple[Task, int]], progress: Progress, total: int
) -> None:
    waiting = iter(missing)
    base_panel = job.panel.name.partition("[")[0]  # a subset plays its tasks with the same seeds
    suite, options = get_suite(job.panel.suite), job.protocol.settings.environment
    infra = 0
    allowed = max(job.max_infra * total, 3)

    async def worker() -> None:
        nonlocal infra
        env = suite.make(job.panel, job.engine, **options)
        try:
            for task, repeat in waiting:  # the iterator is shared: each worker takes the next episode
                seed = derive_seed(job.seed, base_panel, task.sha256, repeat)
                episode = await run_episode(
                    env,
                    task,
                    job.protocol,
                    job.policy,
                    repeat=repeat,
                    seed=seed,
                    keep_prompts=job.keep_prompts,
                )
                run.append(episode)
                progress.update(episode)
                if episode.outcome is Outcome.INFRA_ERROR:
                    infra += 1
                    progress.note(f"{task.id}: {episode.error}")
                    with suppress(Exception):  # what broke in an episode may break here too
                        env.close()
                    env = suite.make(job.panel, job.engine, **options)
                    if infra > allowed:
                        reason = episode.error.rstrip(".")
                        raise SeedBenchError(
                            f"{infra} of {total} episodes ended in infrastructure errors (the last: {reason})."
                            " They count as nothing; mend the cause and run the same command again."
                        )
                await asyncio.sleep(0)  # lets Ctrl-C and other episodes in where the policy never waits
        finally:
            env.close()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(job.concurrency, len(missing))):
                group.create_task(worker())
    except* (SeedBenchError, OSError) as errors:  # OSError: nobody reads the progress any more
        raise errors.exceptions[0] from None  # the first one says what happened; the rest follow from it


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
        wall_seconds=round(sum(session["wall_seconds"] for session in manifest["sessions"]), 3),
    )  # fmt: skip
    write_json(job.out / SUMMARY, summary)
    return summary


def _manifest(job: Evaluation) -> dict[str, Any]:
    panel = job.panel
    return {
        "policy": {"name": job.policy.name},
        "panel": {"official": panel.official, "suite": panel.suite, "split": panel.split, "n": len(panel.tasks)},
        "protocol": job.protocol.content(),
        "configuration": {"keep_prompts": job.keep_prompts, "max_infra": job.max_infra, "shuffle": job.shuffle},
        "source": describe_source(),
        "packages": package_versions(),
    }  # fmt: skip

"""Environments that block: they run in a thread, one call at a time, and are left alone until it is over."""

import asyncio
import gc
import threading
from collections import Counter
from typing import Any

import pytest

from seedbench.rollout import run_episode
from seedbench.types import Episode, Outcome
from tests.eval.helpers import CountingEnv, Script, Step, protocol, task

RIGHT = "<think>so</think><action>right</action>"


def play(policy: Script, env: CountingEnv) -> Episode:
    return asyncio.run(run_episode(env, task("three", 0), protocol(), policy, repeat=0, seed=7))


class Slow(CountingEnv):
    """Blocks in its calls and notes which threads make them."""

    slow = True

    def __init__(self) -> None:
        super().__init__(Counter())
        self.threads: set[int] = set()
        self.inside = threading.Event()
        self.go_on = threading.Event()
        self.log: list[str] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.threads.add(threading.get_ident())
        return super().reset(seed=seed, options=options)

    def step(self, action: str) -> Step:
        self.threads.add(threading.get_ident())
        self.inside.set()
        assert self.go_on.wait(30)
        self.log.append("step done")
        return super().step(action)

    def close(self) -> None:
        self.log.append("closed")


def test_slow_environment_does_not_block_the_others() -> None:
    env = Slow()

    async def both() -> list[Outcome]:
        slow = asyncio.create_task(run_episode(env, task("one", 0), protocol(), Script(RIGHT), repeat=0, seed=1))
        while not env.inside.is_set():
            await asyncio.sleep(0.001)
        quick = await run_episode(CountingEnv(Counter()), task("one", 1), protocol(), Script(RIGHT), repeat=0, seed=1)
        assert not slow.done()
        env.go_on.set()
        return [quick.outcome, (await slow).outcome]

    assert asyncio.run(both()) == [Outcome.SOLVED, Outcome.SOLVED]
    assert threading.get_ident() not in env.threads


def test_fast_environment_stays_in_the_thread() -> None:
    class Noting(Slow):
        slow = False

    env = Noting()
    env.go_on.set()
    assert play(Script(RIGHT), env).outcome is Outcome.SOLVED
    assert env.threads == {threading.get_ident()}


def test_fault_of_a_slow_environment() -> None:
    class Broken(Slow):
        def step(self, action: str) -> Step:
            raise RuntimeError("worker died")

    assert play(Script(RIGHT), Broken()).error == "environment: RuntimeError: worker died"


@pytest.mark.parametrize("fails", [False, True])
def test_cancelled_step_is_over_before_the_environment_is_closed(fails: bool, caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(Slow):
        def step(self, action: str) -> Step:
            done = super().step(action)
            if fails:
                raise RuntimeError("torn away")
            return done

    env = Stuck()

    async def interrupted() -> None:
        async def worker() -> None:
            try:
                await run_episode(env, task("three", 0), protocol(), Script(RIGHT), repeat=0, seed=1)
            finally:
                env.close()

        running = asyncio.create_task(worker())
        while not env.inside.is_set():
            await asyncio.sleep(0.001)
        running.cancel()
        threading.Timer(0.05, env.go_on.set).start()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(interrupted())
    assert env.log == ["step done", "closed"]
    gc.collect()
    assert caplog.text == ""  # no "exception was never retrieved"

"""The Ray cluster that workers run on: a small one of this machine alone, or one that is already there.

Ray asks for no password by itself: whoever reaches its ports can run code. A local cluster therefore listens on the
loopback address only, without its dashboard; keep others in a private network.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from seedbench.errors import SeedBenchError, UsageError
from seedbench.runs import differences

T = TypeVar("T")

LOCAL = "local"
TRIES = 3
"""Deaths without progress after which a worker, or an attempt, is given up."""

_REACH_SECONDS = 10.0
_PLACE_SECONDS = 300.0

# Ray reads these when it is imported; what it has to say comes as errors, which are told in our words.
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
}
# Ray's own switch for machines that form no cluster, which makes 127.0.0.1 the address of everything it starts.
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where workers run, and how many.

    Raises UsageError for an address of another form, and for counts that cannot be.
    """

    address: str
    """`local`: processes of this machine, as long as the command runs; `auto`: the cluster that this machine belongs
    to; HOST:PORT: the same, by the address of its head."""
    workers: int = 1
    gpus: float = 0.0
    """GPUs a worker, or a share of one; 0: a worker sees none."""

    def __post_init__(self) -> None:
        host, _, port = self.address.rpartition(":")
        if self.address not in (LOCAL, "auto") and not (host and port.isdecimal() and "/" not in host):
            raise UsageError(
                f"--ray takes local, auto or HOST:PORT of a cluster's head, not '{self.address}'; run the command on a"
                " machine of that cluster."
            )
        if self.workers < 1:
            raise UsageError(f"--workers must be at least 1, not {self.workers}.")
        if self.gpus < 0 or (self.gpus > 1 and self.gpus != int(self.gpus)):
            raise UsageError(f"--gpus-per-worker is a whole number or a share below 1, not {self.gpus:g}.")


@contextmanager
def connected(cluster: Cluster, *, store_bytes: int | None = None) -> Iterator[Any]:
    """The `ray` module, connected to the cluster for as long as the context lasts.

    Call it from the main thread. A program that is connected already keeps its connection, whatever the address
    says. `store_bytes` bounds the shared memory of a local cluster; None: Ray's own share of the memory.

    Raises SeedBenchError where Ray is missing, the cluster is not reached, or it has too few CPUs or GPUs.
    """
    os.environ.update({key: value for key, value in _QUIET.items() if key not in os.environ})
    if cluster.address == LOCAL:
        os.environ.update(_LOOPBACK)
    try:
        import ray
    except ImportError as error:
        raise SeedBenchError(
            "Ray is not installed: pip install 'seedbench[ray]', here and on every machine of the cluster."
        ) from error
    ours = not ray.is_initialized()
    try:
        if ours:
            with _own_signals():
                _connect(ray, cluster, store_bytes)
        _check_size(ray, cluster)
        yield ray
    finally:
        if ours:
            ray.shutdown()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep SIGTERM as it is handled now: Ray takes it over. (A thread is no way out: what it starts ends with it.)"""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)


def _connect(ray: Any, cluster: Cluster, store_bytes: int | None) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if cluster.address == LOCAL:
            gpus = None if cluster.gpus else 0
            slots = {"num_cpus": cluster.workers, "num_gpus": gpus, "object_store_memory": store_bytes}
            ray.init(address=LOCAL, include_dashboard=False, **slots, **quiet)
        else:
            _reach(cluster.address)
            ray.init(address=cluster.address, **quiet)
    except SeedBenchError:
        raise
    except Exception as error:  # no cluster, another version, no memory for the store: several kinds of error
        raise SeedBenchError(
            f"cannot use the Ray cluster '{cluster.address}' ({_first_line(error)}). Start one with `ray start --head`"
            " (and `ray start --address HEAD:6379` on the other machines), or use --ray local."
        ) from error


def _reach(address: str) -> None:
    """Ask before Ray does: it would try for a minute and end the process."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise SeedBenchError(
            f"nothing answers at the Ray cluster's address '{address}' ({error}). Start its head with `ray start"
            " --head` and give the address that it prints, or use --ray local."
        ) from error


def _check_size(ray: Any, cluster: Cluster) -> None:
    held = ray.cluster_resources()
    for name, option, wanted in (("CPU", "--workers", cluster.workers), ("GPU", "--gpus-per-worker", _gpus(cluster))):
        if held.get(name, 0) < wanted:
            raise SeedBenchError(
                f"the Ray cluster has {held.get(name, 0):g} {name}s and {cluster.workers} workers need {wanted:g}:"
                f" start more machines, or give a smaller {option}."
            )


def _gpus(cluster: Cluster) -> float:
    # Shares do not add up across GPUs: two workers of 0.6 need two.
    if 0 < cluster.gpus < 1:
        each = int(1 / cluster.gpus)
        return -(-cluster.workers // each)
    return cluster.workers * cluster.gpus


def actor(ray: Any, worker: type, cluster: Cluster, *arguments: object) -> Any:
    """Start a worker, which Ray itself neither restarts nor asks twice: who talks to it decides what is repeated."""
    options = {"num_cpus": 1, "num_gpus": cluster.gpus, "max_restarts": 0, "max_task_retries": 0}
    return ray.remote(**options)(worker).remote(*arguments)


async def placed(handle: Any) -> None:
    """Wait until a worker's `ready` answers. Raises SeedBenchError where the cluster has no place for it."""
    try:
        await asyncio.wait_for(_whole(handle.ready.remote()), _PLACE_SECONDS)
    except TimeoutError:
        raise SeedBenchError(
            f"the Ray cluster gave a worker no place within {_PLACE_SECONDS:.0f} s: its CPUs or GPUs are in use. Wait"
            " for the other jobs, or give fewer --workers."
        ) from None


async def _whole(answer: Awaitable[T]) -> T:
    return await answer


async def answer_of(call: Awaitable[T]) -> T:
    """What a worker answers; what it raised is raised as it was raised there, without Ray's wrapping."""
    from ray.exceptions import RayTaskError

    try:
        return await call
    except RayTaskError as error:
        raise error.cause from error


async def insist(start: Callable[[], Awaitable[T]], name: str, note: Callable[[str], None]) -> T:
    """Start a worker, again where it dies; `TRIES` deaths in a row raise SeedBenchError with the reason."""
    from ray.exceptions import RayError

    for left in range(TRIES - 1, -1, -1):
        try:
            return await start()
        except RayError as death:
            if not left:
                raise SeedBenchError(
                    f"{name} died {TRIES} times as it started ({death_of(death)}). Look at the memory and the"
                    " installation of its machine, and run the same command again."
                ) from death
            note(f"{name} died as it started ({death_of(death)}) and is started again")
    raise AssertionError("unreachable")


def death_of(error: Exception) -> str:
    """Why a worker died, in a few words."""
    text = str(error)
    if "creation task" in text:  # its constructor raised: the traceback's last line says what
        return [line for line in text.splitlines() if line.strip()][-1].strip()[:300]
    if "OutOfMemory" in text or "memory monitor" in text or type(error).__name__ == "OutOfMemoryError":
        return "its machine ran out of memory"
    return f"its process ended, {type(error).__name__}"


def _first_line(error: Exception) -> str:
    return next((line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()), type(error).__name__)[
        :300
    ]


def enter(folder: str) -> None:
    """Go to the folder that the command was given in, where this machine has it: paths are meant from there."""
    if Path(folder).is_dir():
        os.chdir(folder)


def refuse_unlike(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Raise SeedBenchError where a worker has another policy, data or version than this machine and its fellows."""
    if changed := differences(ours, theirs):
        raise SeedBenchError(
            f"{name} would not answer as this machine or the other workers do: {'; '.join(changed)}. Give every machine"
            " the same packages, weights and data."
        )

"""How the processes of a training are started and ended: the launcher's environment, GPUs, and who speaks.

`torchrun` sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; anything else that does will do.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from seedbench.errors import SeedBenchError, UsageError
from seedbench.ui.text import inert
from seedbench_trainers.distributed import World, is_agreed
from seedbench_trainers.interrupts import Interrupts

if TYPE_CHECKING:
    from seedbench_trainers.config import TrainConfig

LARGE = 1_000_000_000
"""Parameters from which on a model on GPUs is sharded unless told otherwise."""
_PATIENCE = timedelta(days=7)
"""How long a process waits for the others: the first may be validating. Ended ones are noticed at once."""
_INTERRUPTED = "interrupted; run the same command again to continue."


def several() -> int:
    """How many processes were started together, by the environment: 1 without a launcher.

    Raises UsageError where it is no number.
    """
    text = os.environ.get("WORLD_SIZE", "1")
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"WORLD_SIZE is '{text}', not a number of processes; unset it, or start with torchrun.")
    return int(text)


def leads() -> bool:
    """Whether this process writes and shows, by the environment."""
    return several() == 1 or os.environ.get("RANK", "0") == "0"


def join(interrupts: Interrupts | None = None) -> World:
    """The world that the environment describes, joined unless this process is in it already.

    Raises UsageError where the environment says that there are several processes and lacks the rest, SeedBenchError
    where they cannot be reached.
    """
    size = several()
    if size == 1:
        return World(interrupts)
    import torch
    import torch.distributed as dist

    lacking = [name for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if lacking:
        raise UsageError(
            f"WORLD_SIZE says {size} processes, but {', '.join(lacking)} is not set: start them with torchrun, or unset"
            " WORLD_SIZE."
        )
    if not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        try:
            dist.init_process_group(backend, timeout=_PATIENCE)
        except (RuntimeError, ValueError) as error:
            raise SeedBenchError(
                f"process {os.environ['RANK']} of {size} cannot reach the others ({str(error)[:200]}); check"
                " MASTER_ADDR, MASTER_PORT and the network."
            ) from error
    return World(interrupts, dist.get_rank(), size)


def is_sharded(config: TrainConfig, size: int, parameters: int, *, gpu: bool) -> bool:
    """Whether a model of so many parameters is trained in shards (fsdp) by `size` processes; see `Distributed`."""
    asked = config.distributed.strategy
    if size == 1 or config.lora.rank or asked == "ddp":
        return False
    return asked == "fsdp" or (gpu and parameters >= LARGE)


def placed(config: TrainConfig, world: World) -> TrainConfig:
    """The configuration with the GPU of this process, where there are several processes and GPUs.

    Raises UsageError for a device that only one process can have, SeedBenchError for more processes than GPUs.
    """
    if world.size == 1 or config.device == "cpu":
        return config
    import torch

    if ":" in config.device:
        raise UsageError(
            f"device is {config.device}, one GPU for {world.size} processes; say cuda, and each gets its own."
        )
    if config.device == "auto" and not torch.cuda.is_available():
        return config
    local, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if local >= gpus:
        raise SeedBenchError(
            f"process {local + 1} of this machine has no GPU of its own: {gpus} are there; start torchrun with"
            f" --nproc-per-node {max(1, gpus)}."
        )
    torch.cuda.set_device(local)
    return config.model_copy(update={"device": f"cuda:{local}"})


@contextmanager
def one_voice() -> Iterator[World]:
    """Join the others; an error of which all processes know is told by the first, the others end with the same code.

    A process that fails while the others wait for its tensors tells it itself and ends at once, without the tidying
    up in which it would wait for them.
    """
    world = join()
    try:
        yield world
    except BaseException as error:
        if world.size == 1 or isinstance(error, SystemExit):
            raise
        if not is_agreed(error) or not isinstance(error, SeedBenchError | KeyboardInterrupt):
            traceback.print_exception(error)
            sys.stderr.flush()
            os._exit(1)
        if world.leads:
            _say(error)
        with suppress(SeedBenchError):
            world.agree(lambda: None)  # a launcher ends the others as soon as one has: the first speaks before that
        code = error.exit_code if isinstance(error, SeedBenchError) else 130
        raise SystemExit(code) from None
    finally:
        _leave()


def _say(error: SeedBenchError | KeyboardInterrupt) -> None:
    said = f"error: {inert(str(error))}" if isinstance(error, SeedBenchError) else _INTERRUPTED
    print(said, file=sys.stderr, flush=True)


def _leave() -> None:
    if several() > 1:
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()

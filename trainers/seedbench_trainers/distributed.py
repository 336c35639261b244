"""Several processes that train one model: who they are, what they tell one another, how they end together.

`torchrun` starts them (or anything that sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT). All run the
same loop in step and hold the same numbers; the first alone writes files and shows the view. What is told are Python
objects over gloo; gradients and weights go over nccl where there are GPUs.

An error on one process ends all: it travels with whatever they tell one another next. That does not hold while they
exchange tensors in a fixed order (`entangled`): a process that fails there ends, and its launcher ends the others.
A single process does none of this, and what is written here costs it nothing.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from seedbench.errors import SeedBenchError, UsageError
from seedbench.ui.text import inert
from seedbench_trainers.interrupts import Interrupts

if TYPE_CHECKING:
    import torch

    from seedbench_trainers.config import TrainConfig

T = TypeVar("T")
R = TypeVar("R")

LARGE = 1_000_000_000
"""Parameters from which on a model on GPUs is sharded unless told otherwise."""
_PATIENCE = timedelta(days=7)
"""How long a process waits for the others: the first may be validating. Ended ones are noticed at once."""


@dataclass(frozen=True, slots=True)
class _Fault:
    """An exception on its way to the other processes."""

    kind: str
    text: str
    rank: int


class World:
    """The processes of a training run; alone by default.

    Args:
        interrupts: signals wait while processes tell one another something.
        rank: number of this process, from 0.
        size: how many there are.
    """

    def __init__(self, interrupts: Interrupts | None = None, rank: int = 0, size: int = 1) -> None:
        self.interrupts = interrupts or Interrupts()
        self.rank, self.size = rank, size
        self.entangled = False
        """Whether tensors are being exchanged in a fixed order, so that an error cannot be told."""

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes and shows."""
        return self.rank == 0

    def agree(self, work: Callable[[], T]) -> T:
        """Do the work on every process and return its own result; an error on any is raised on all.

        Raises what `work` raised; on the other processes a SeedBenchError or UsageError of the same text, or
        KeyboardInterrupt.
        """
        return self._run(work, tell=False)[0]

    def exchange(self, work: Callable[[], T]) -> list[T]:
        """The results of all processes, in order; the rest is as in `agree`. Results are pickled."""
        return self._run(work, tell=True)[1]

    def first(self, work: Callable[[], T]) -> T:
        """Do the work on the first process alone and return its result on all; errors are as in `agree`."""
        return self.exchange(lambda: work() if self.leads else None)[0]  # type: ignore[return-value]

    def shared(self, items: Sequence[T], owners: Iterable[int], work: Callable[[list[T]], Sequence[R]]) -> list[R]:
        """`work` on the items of which this process is the owner (modulo the number of processes).

        Returns the results of all items in their order, on every process.
        """
        mine = [index for index, owner in enumerate(owners) if owner % self.size == self.rank]
        parts = self.exchange(lambda: list(zip(mine, work([items[index] for index in mine]), strict=True)))
        found = dict(chain.from_iterable(parts))
        return [found[index] for index in range(len(items))]

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Replace the gradient of each parameter by the sum over all processes; one that has none anywhere keeps none.

        The parameters must be the same ones in the same order everywhere.
        """
        if self.size == 1:
            return
        import torch
        import torch.distributed as dist

        present = torch.tensor([p.grad is not None for p in parameters], device=parameters[0].device).int()
        dist.all_reduce(present, dist.ReduceOp.MAX)
        pending = []
        for parameter in (p for p, anywhere in zip(parameters, present.tolist(), strict=True) if anywhere):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            pending.append(dist.all_reduce(parameter.grad, async_op=True))
        for one in pending:
            one.wait()

    def _run(self, work: Callable[[], T], *, tell: bool) -> tuple[T, list[Any]]:
        if self.size == 1:
            value = work()
            return value, [value]
        error: BaseException | None = None
        result: list[T] = []
        try:
            result.append(work())
        except BaseException as caught:
            if is_agreed(caught) or self.entangled:
                raise
            error = caught
        with self.interrupts.shielded():
            told = self._tell(_fault(error, self.rank), result if tell else [])
            faults = sorted((fault for fault, _ in told if fault), key=lambda fault: fault.kind == "KeyboardInterrupt")
            if faults:
                raise _agreed(faults[0], error if faults[0].rank == self.rank else None, self.size)
        return result[0], [value for _, values in told for value in values]

    def _tell(self, fault: _Fault | None, values: list[Any]) -> list[tuple[_Fault | None, list[Any]]]:
        import torch.distributed as dist

        told: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(told, (fault, values))
        except RuntimeError as error:  # gloo's way of saying that another has gone
            lost = _Fault("SeedBenchError", _ENDED, 0)
            raise _agreed(lost, None, self.size) from error
        return told


_INTERRUPTED = "interrupted; run the same command again to continue."
_ENDED = (
    "another process of this training has ended, and what it said last tells why. Run the same command again: it"
    " continues from the last whole checkpoint."
)


def _fault(error: BaseException | None, rank: int) -> _Fault | None:
    if error is None:
        return None
    text = str(error) if isinstance(error, SeedBenchError) else f"{type(error).__name__}: {error}"
    return _Fault(type(error).__name__, text, rank)


def _agreed(fault: _Fault, mine: BaseException | None, size: int) -> BaseException:
    """The exception that a fault is here, marked as one of which all processes know."""
    if mine is not None:
        error = mine
    elif fault.kind == "KeyboardInterrupt":
        error = KeyboardInterrupt()
    elif fault.kind == "UsageError":
        error = UsageError(fault.text)
    elif fault.kind == "SeedBenchError":
        error = SeedBenchError(fault.text)
    else:
        error = SeedBenchError(
            f"process {fault.rank + 1} of {size} failed ({fault.text[:300]}); its own output says more."
        )
    error.agreed = True  # type: ignore[attr-defined]
    return error


def is_agreed(error: BaseException) -> bool:
    """Whether an exception was raised on all processes."""
    return bool(getattr(error, "agreed", False))


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


def evenly(sizes: Sequence[int], parts: int) -> list[int]:
    """Owners, ascending from 0 to at most parts - 1, under which consecutive items make parts of similar size."""
    total, before, owners = max(1, sum(sizes)), 0, []
    for size in sizes:
        owners.append(min(parts - 1, parts * before // total))
        before += size
    return owners

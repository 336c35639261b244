"""Several processes that train one model: what they tell one another, and how an error on one ends all.

All run the same loop in step and hold the same numbers; the first alone writes files and shows the view. What is told
are Python objects over gloo; gradients and weights go over nccl where there are GPUs. `launch.py` starts and ends them.

An error on one process ends all: it travels with whatever they tell one another next. That does not hold while they
exchange tensors in a fixed order (`entangled`): a process that fails there ends, and its launcher ends the others.
A single process does none of this, and what is written here costs it nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from seedbench.errors import SeedBenchError, UsageError
from seedbench_trainers.interrupts import Interrupts

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
R = TypeVar("R")


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

    @contextmanager
    def entangling(self) -> Iterator[None]:
        """A block in which tensors are exchanged: an error within ends this process (see `entangled`)."""
        self.entangled = True
        yield
        self.entangled = False

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

        with self.entangling():
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
                self.interrupts.heard()
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


_ENDED = (
    "another process of this training has ended, and what it said last tells why. Run the same command again: it"
    " continues from the last whole checkpoint."
)


def _fault(error: BaseException | None, rank: int) -> _Fault | None:
    if error is None:
        return None
    for kind in (UsageError, SeedBenchError):
        if isinstance(error, kind):
            return _Fault(kind.__name__, str(error), rank)
    return _Fault(type(error).__name__, f"{type(error).__name__}: {error}", rank)


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


def evenly(sizes: Sequence[int], parts: int) -> list[int]:
    """Owners, ascending from 0 to at most parts - 1, under which consecutive items make parts of similar size."""
    total, before, owners = max(1, sum(sizes)), 0, []
    for size in sizes:
        owners.append(min(parts - 1, parts * before // total))
        before += size
    return owners

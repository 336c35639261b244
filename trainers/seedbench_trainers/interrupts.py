"""Ctrl-C and SIGTERM in a training run: stop where nothing is lost."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self


class Interrupts:
    """While active, SIGINT and SIGTERM raise KeyboardInterrupt, but never inside `shielded`.

    In a shielded block (an optimiser step, the writing of a checkpoint) the signal waits for the end of the block;
    a second one does not wait. Outside the main thread signals are left alone. `once`: further signals are ignored,
    for a process that others wait for.
    """

    def __init__(self, once: bool = False) -> None:
        self._once = once
        self._shielded = False
        self._asked = False
        self._waiting = False
        self._old: dict[int, signal.Handlers | object] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._old[number] = signal.signal(number, self._handle)
            except ValueError:  # not the main thread
                return self
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._old.clear()

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """A block that a first signal does not cut short."""
        outer, self._shielded = self._shielded, True
        try:
            yield
        finally:
            self._shielded = outer
        if self._waiting and not outer:
            self._waiting = False
            raise KeyboardInterrupt

    def heard(self) -> None:
        """All processes end together: signals that wait, or still come where they are ignored, say nothing new."""
        self._asked, self._waiting = True, False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._asked and self._once:
            return
        if self._shielded and not self._asked:
            self._asked = self._waiting = True
            return
        self._asked = True
        _hush()
        raise KeyboardInterrupt


def _hush() -> None:
    """Keep an event loop that is cut short from printing tracebacks of its tasks: they were broken off on purpose."""
    try:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    except RuntimeError:  # no loop is running
        return

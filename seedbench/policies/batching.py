"""Turns concurrent single requests into batches for a worker thread.

Deliberately simple: one batch runs at a time, a batch is never extended while it runs, and only requests
of equal group (the sampling settings) share one. Answers must not depend on what else is in the batch;
that is the answering function's promise, this module only decides who rides together.
"""

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")

# Long enough for episodes whose environment steps in a thread to come back, short against any generation.
_SETTLE_SECONDS = 0.002


class Batcher(Generic[Question, Answer]):
    """Collects `submit`ted questions and answers them in batches of at most `limit` in `worker`.

    `answer` gets the batch and returns one answer or exception a question, in the same order; an exception
    it raises itself goes to every question of that batch. `group` gives the key that a batch must share.
    Use from one event loop only. `limit` may be lowered at any time.
    """

    def __init__(
        self,
        answer: Callable[[list[Question]], list[Answer | Exception]],
        *,
        worker: Executor,
        limit: int,
        group: Callable[[Question], Hashable],
    ) -> None:
        self.limit = limit
        self._answer = answer
        self._worker = worker
        self._group = group
        self._waiting: list[tuple[Question, asyncio.Future[Answer]]] = []
        self._pump: asyncio.Task[None] | None = None

    async def submit(self, question: Question) -> Answer:
        """The answer to one question. Raises what the answering function returned or raised for it."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._serve())
        return await future

    async def close(self) -> None:
        """Give up what is waiting: its callers are cancelled. A batch that is running is not awaited."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
            self._pump = None
        for _, future in self._waiting:
            future.cancel()
        self._waiting.clear()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            await self._settle()
            batch = self._take()
            if not batch:
                continue
            try:
                answers = await loop.run_in_executor(self._worker, self._answer, [q for q, _ in batch])
            except asyncio.CancelledError:
                for _, future in batch:
                    future.cancel()
                raise
            except Exception as error:  # the episodes decide what a broken batch means
                answers = [error] * len(batch)
            for (_, future), answer in zip(batch, answers, strict=True):
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)

    async def _settle(self) -> None:
        """Wait while requests are still arriving, so that concurrent episodes join one batch."""
        seen = -1
        while seen < len(self._waiting) < self.limit:
            seen = len(self._waiting)
            await asyncio.sleep(_SETTLE_SECONDS)

    def _take(self) -> list[tuple[Question, asyncio.Future[Answer]]]:
        """Remove and return the oldest request and those behind it that may share its batch."""
        waiting = [entry for entry in self._waiting if not entry[1].done()]
        if not waiting:
            self._waiting = []
            return []
        key = self._group(waiting[0][0])
        batch = [entry for entry in waiting if self._group(entry[0]) == key][: self.limit]
        taken = {id(entry) for entry in batch}
        self._waiting = [entry for entry in waiting if id(entry) not in taken]
        return batch

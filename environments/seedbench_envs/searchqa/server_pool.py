"""Searches in threads, off the event loop: a bounded queue in front, and batches of whatever waits in it.

A batch holds requests for the same number of passages only: an approximate engine may find others for another k, and
an answer must not depend on who else is asking.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from seedbench_envs.searchqa.records import Hit, Retriever

Found = list[list[Hit]]


class Busy(Exception):
    """The queue has no room for the request."""


@dataclass(frozen=True, slots=True)
class _Job:
    queries: Sequence[str]
    k: int
    future: Future[Found] = field(default_factory=Future)


class SearchPool:
    """Threads that answer searches with one retriever.

    Args:
        retriever: searched from all threads at once.
        threads: searches under way at once.
        batch: most queries that one search is given; a larger request is cut into several.
        room: queries that may wait; requests beyond it are refused at once.
    """

    def __init__(self, retriever: Retriever, *, threads: int, batch: int, room: int) -> None:
        self._retriever = retriever
        self._batch = batch
        self._room = room
        self._jobs: deque[_Job] = deque()
        self._waiting = 0
        self._closed = False
        self._change = threading.Condition()
        # Daemons: a search that hangs must not keep the process from ending.
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Queries in the queue."""
        return self._waiting

    async def search(self, queries: Sequence[str], k: int) -> Found:
        """At most `k` hits for each query, as the retriever finds them.

        Raises:
            Busy: there is no room in the queue, or the pool is closed.
            Exception: whatever the retriever raised for these queries.
        """
        parts = await asyncio.gather(*map(asyncio.wrap_future, self._submit(queries, k)))
        return [hits for part in parts for hits in part]

    def close(self, seconds: float = 5.0) -> None:
        """Refuse what waits, and give the searches under way so many seconds to end."""
        with self._change:
            self._closed = True
            for job in self._jobs:
                job.future.cancel()
            self._jobs.clear()
            self._waiting = 0
            self._change.notify_all()
        for thread in self._threads:
            thread.join(seconds / len(self._threads))

    def _submit(self, queries: Sequence[str], k: int) -> list[Future[Found]]:
        size = self._batch
        jobs = [_Job(queries[start : start + size], k) for start in range(0, len(queries), size)]
        with self._change:
            if self._closed or self._waiting + len(queries) > self._room:
                raise Busy
            self._jobs.extend(jobs)
            self._waiting += len(queries)
            self._change.notify(len(jobs))
        return [job.future for job in jobs]

    def _work(self) -> None:
        while (jobs := self._take()) is not None:
            if jobs:
                self._answer(jobs)

    def _take(self) -> list[_Job] | None:
        """The next batch, empty where its clients are gone; None once the pool is closed."""
        taken: list[_Job] = []
        count = 0
        with self._change:
            while not self._jobs and not self._closed:
                self._change.wait()
            if self._closed:
                return None
            k = self._jobs[0].k
            while self._jobs and self._jobs[0].k == k and (not count or self._fits(count)):
                job = self._jobs.popleft()
                count += len(job.queries)
                self._waiting -= len(job.queries)
                if job.future.set_running_or_notify_cancel():
                    taken.append(job)
        return taken

    def _fits(self, count: int) -> bool:
        return count + len(self._jobs[0].queries) <= self._batch

    def _answer(self, jobs: list[_Job]) -> None:
        try:
            found = self._retriever.search([query for job in jobs for query in job.queries], jobs[0].k)
        except Exception as error:  # every fault is one request's answer; the thread lives on
            if len(jobs) == 1:
                jobs[0].future.set_exception(error)
                return
            for job in jobs:  # one request's fault is not the others'
                self._answer([job])
            return
        answers = iter(found)
        for job in jobs:
            job.future.set_result([next(answers) for _ in job.queries])

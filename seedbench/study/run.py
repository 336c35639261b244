"""What is missing of a study, run in processes of their own: `seedbench train`, then `seedbench eval` on each panel.

Runs are left to themselves: each refuses a folder that is not its own and goes on where it stopped. A run that fails
stops nothing but what begins from it. Processor time of every process is kept in usage.jsonl.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from seedbench.errors import SeedBenchError
from seedbench.journal import METRICS
from seedbench.panels import Panel, load_panel
from seedbench.study import plan
from seedbench.study.plan import Job, evaluation
from seedbench.study.spec import Study
from seedbench.subject import TRAINING
from seedbench.tables import load_summary
from seedbench.ui.live import is_interactive
from seedbench.ui.tally import format_seconds, one_line
from seedbench.ui.text import inert

USAGE, LOGS = "usage.jsonl", "logs"
_TAIL = 8
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
"""One thread a run: its numbers then do not depend on how many run at once."""

_TIED = """
import ctypes, os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGINT)
    os.getppid() == int(sys.argv[1]) or sys.exit("the study has ended")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Makes a command listen to SIGINT, which a shell's background jobs ignore, and stop with the study however that ends
(PR_SET_PDEATHSIG, on Linux)."""


class _Stopped(Exception):
    """The study was interrupted: nothing more is begun."""


def is_trained(job: Job) -> bool:
    """Whether a run has its final weights and the journal's line of its last update."""
    label = job.folder / "final" / "seedbench.json"
    try:
        return bool(last_update(job.folder) >= json.loads(label.read_text(encoding="utf-8"))["update"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def last_update(folder: Path) -> int:
    """The last update that a run's journal holds; -1 where there is none."""
    try:
        with (folder / METRICS).open("rb") as journal:
            journal.seek(max(0, journal.seek(0, os.SEEK_END) - (1 << 17)))
            lines = journal.read().split(b"\n")[:-1]  # what comes after the last line feed is torn
        return int(json.loads(lines[-1])["update"])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return -1


def is_evaluated(study: Study, job: Job, panel: str) -> bool:
    """Whether the evaluation on a panel is there, whole, and the one that the study asks for."""
    try:
        summary = load_summary(evaluation(job, panel))
    except SeedBenchError:
        return False
    asked, tasks = study.evaluation, asked_panel(study, panel)
    found = (summary["panel"]["hash"], summary["protocol"]["hash"], summary["repeats"], summary["seed"])
    wanted = (tasks.hash, study.asked.hash, asked.repeats, asked.seed)
    return found == wanted and summary["episodes"] == len(tasks.tasks) * asked.repeats


def asked_panel(study: Study, panel: str) -> Panel:
    """The tasks of an evaluation, by its name in the report."""
    return load_panel(study.evaluation.panels[panel]).subset(limit=study.evaluation.limit)


def state(study: Study, job: Job) -> str:
    """finished, trained, begun or missing."""
    if is_trained(job):
        panels = () if job.is_start else study.evaluation.panels
        return "finished" if all(is_evaluated(study, job, panel) for panel in panels) else "trained"
    return "begun" if (job.folder / TRAINING).is_file() else "missing"


class Runner:
    """Runs jobs of a study, some at once."""

    def __init__(self, study: Study, out: Path, workers: int, console: Console) -> None:
        self.study, self.out, self.workers = study, out, workers
        self.failures: dict[str, str] = {}
        """Run -> what it said last."""
        self._console = console
        self._lock = threading.Lock()
        self._stopped = False
        self._running: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
        self._done = 0

    def run(self, jobs: Sequence[Job]) -> None:
        """Run what is missing of `jobs`, starts before what needs them.

        Raises KeyboardInterrupt, for SIGTERM too, once every process that was running has saved and ended.
        """
        (self.out / LOGS).mkdir(parents=True, exist_ok=True)
        futures: dict[str, Future[str]] = {}
        with _terminable(), ThreadPoolExecutor(self.workers) as pool:
            # In order, so that a job that waits for its start never keeps it from a thread.
            for job in jobs:
                futures[job.name] = pool.submit(self._one, job, futures.get(job.start))
            try:
                self._watch(list(futures.values()))
            except KeyboardInterrupt:
                self._stop(futures.values())
                raise
        for name, future in futures.items():
            if failure := future.result():
                self.failures[name] = failure

    def _watch(self, futures: Sequence[Future[str]]) -> None:
        """Show what is running until all is done."""
        if not is_interactive(self._console):
            wait(futures)
            return
        began = time.monotonic()
        with self._console.status("") as status:
            while wait(futures, timeout=1).not_done:
                with self._lock:
                    running = [f"{name} {self._at(name, stage)}" for name, (stage, _) in self._running.items()]
                head = f"{self._done}/{len(futures)} runs · {format_seconds(time.monotonic() - began)}"
                status.update(one_line(" · ".join([head, *running]), self._console.width - 4))

    def _at(self, name: str, stage: str) -> str:
        folders = (self.out / place / name for place in ("runs", "starts"))
        return f"update {max(0, *map(last_update, folders))}" if stage == "train" else stage

    def _stop(self, futures: Any) -> None:
        self._say("stopping: runs save where they stand")
        while True:
            try:
                with self._lock:
                    self._stopped = True
                    for _, process in self._running.values():
                        with suppress(ProcessLookupError):
                            os.kill(process.pid, signal.SIGINT)
                wait([future for future in futures if not future.cancel()])
                return
            except KeyboardInterrupt:  # once more: runs do not wait for a step to end then
                continue

    def _one(self, job: Job, start: Future[str] | None) -> str:
        """Bring one run to its end; what went wrong, else an empty text."""
        if start is not None and start.result():
            return f"not run: its start '{job.start}' failed."
        steps = [] if is_trained(job) else [("train", plan.train_command(self.study, job))]
        for panel in () if job.is_start else self.study.evaluation.panels:
            if steps or not is_evaluated(self.study, job, panel):
                steps.append((f"evaluation {panel}", plan.eval_command(self.study, job, panel)))
        failure, began = "", time.monotonic()
        try:
            for stage, words in steps:
                if failure := self._process(job, stage, words):
                    break
        except _Stopped:
            return "stopped."
        with self._lock:
            self._done += 1
        took = f"in {format_seconds(time.monotonic() - began)}" if steps else "before"
        self._say(f"{job.name}: {'FAILED' if failure else f'finished {took}'}")
        return failure

    def _process(self, job: Job, stage: str, words: Sequence[str]) -> str:
        """Run one command to its end, its output in the run's log; the log's last lines if it failed."""
        log = self.out / LOGS / f"{job.name}.log"
        environment = {**_ENVIRONMENT, **os.environ}
        began = time.monotonic()
        with log.open("ab") as output:
            start = output.tell()
            with self._lock:
                if self._stopped:
                    raise _Stopped
                # A session of its own: Ctrl-C on the terminal reaches it once, from here.
                process = subprocess.Popen(
                    [sys.executable, "-S", "-c", _TIED, str(os.getpid()), *plan.COMMAND, *words],
                    stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment, start_new_session=True,
                )  # fmt: skip
                self._running[job.name] = (stage, process)
            self._say(f"{job.name}: {stage}")
            _, status, used = os.wait4(process.pid, 0)
            with self._lock:
                process.returncode = os.waitstatus_to_exitcode(status)
                del self._running[job.name]
                self._note(job, stage, time.monotonic() - began, used.ru_utime + used.ru_stime)
        if self._stopped:
            raise _Stopped
        if not process.returncode:
            return ""
        said = log.read_bytes()[start:].decode("utf-8", "replace").strip().splitlines()[-_TAIL:]
        return f"{stage} ended with code {process.returncode}:\n" + inert("\n".join(f"  {line[:500]}" for line in said))

    def _note(self, job: Job, stage: str, wall: float, cpu: float) -> None:
        line = {"run": job.name, "stage": stage, "wall_seconds": round(wall, 2), "cpu_seconds": round(cpu, 2)}
        with (self.out / USAGE).open("a", encoding="utf-8") as usage:
            usage.write(json.dumps(line) + "\n")

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

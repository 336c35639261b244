"""`seedbench eval --ray local` against one process: episodes a second, and memory while a long run goes on.

    python benchmarks/ray_eval.py [--episodes 100000] [--workers 2] [--policy oracle] [--steps 30]

Scripted episodes on mini-alfworld/valid_unseen (120 generated games, repeated), so that nothing but the harness is
measured: the least favourable case for workers, because an episode takes about as long as it takes to send. Memory is
the resident set of this process and the largest of a worker's, when 10 %, 50 % and 100 % of the episodes are there.
One process plays a tenth of the episodes; its rate does not depend on their number. Summaries are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from functools import partial
from pathlib import Path

from seedbench.evaluate import Evaluation, evaluate
from seedbench.panels import load_panel
from seedbench.policies import ModelOptions, make_policy
from seedbench.protocol import load_protocol
from seedbench.remote.cluster import Cluster
from seedbench.remote.evaluation import on_ray
from seedbench.runs import SUMMARY
from seedbench.types import Episode
from seedbench.ui.live import Progress

MARKS = (0.1, 0.5, 1.0)


class Memory(Progress):
    """Notes memory at the marks, and when the first and the last episode came."""

    def __init__(self, total: int) -> None:
        self.total, self.count = total, 0
        self.first = self.last = 0.0
        self.rows: list[tuple[int, float, float]] = []

    def update(self, episode: Episode) -> None:
        """Count an episode."""
        self.count += 1
        self.last = time.perf_counter()
        self.first = self.first or self.last
        if self.count in {int(self.total * mark) for mark in MARKS}:
            workers = [mib(pid) for pid in worker_pids()]
            self.rows.append((self.count, mib("self"), max(workers, default=0.0)))

    def rate(self) -> float:
        """Episodes a second, without the start."""
        return (self.count - 1) / (self.last - self.first)


def mib(pid: int | str) -> float:
    """Resident set of a process in MiB."""
    text = Path(f"/proc/{pid}/statm").read_text(encoding="ascii")
    return int(text.split()[1]) * 4096 / 2**20


def worker_pids() -> list[int]:
    """The Ray actors among the processes that this one has started."""
    parents, actors = dict[int, int](), list[int]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
            parents[int(folder.name)] = int(after_name.split()[1])
            if (folder / "cmdline").read_bytes().startswith(b"ray::Worker"):
                actors.append(int(folder.name))
        except OSError:  # it has ended
            continue
    return [pid for pid in actors if descends(pid, os.getpid(), parents)]


def descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    """Whether the one process was started by the other, or by one that was."""
    while pid not in (0, ancestor):
        pid = parents.get(pid, 0)
    return pid == ancestor


def main() -> None:
    """Run both and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--policy", default="oracle")
    parser.add_argument("--steps", type=int, default=30)
    given = parser.parse_args()
    panel = load_panel("mini-alfworld/valid_unseen")
    protocol = load_protocol("alfworld/seed").with_settings(steps=given.steps)
    make = partial(make_policy, given.policy, panel, ModelOptions())

    def run(folder: Path, repeats: int, cluster: Cluster | None) -> Memory:
        memory = Memory(repeats * len(panel.tasks))
        job = Evaluation(panel, protocol, make(), folder, repeats=repeats)
        evaluate(job if cluster is None else on_ray(job, make, cluster), memory)
        return memory

    repeats = max(1, given.episodes // len(panel.tasks))
    tenth = max(1, repeats // 10)
    cluster = Cluster("local", given.workers)
    with tempfile.TemporaryDirectory() as place:
        run(Path(place, "warm"), 1, None)  # games are read where they are first played
        alone = run(Path(place, "alone"), tenth, None)
        run(Path(place, "check"), tenth, cluster)
        same = summary(Path(place, "alone")) == summary(Path(place, "check"))
        spread = run(Path(place, "spread"), repeats, cluster)
    print(f"one process          {alone.rate():8,.0f} episodes/s   ({alone.count:,} episodes)")
    ratio = spread.rate() / alone.rate()
    print(f"{given.workers} workers on Ray     {spread.rate():8,.0f} episodes/s   ({spread.count:,})   {ratio:.2f}x")
    print(f"same summary on {alone.count:,} episodes: {'yes' if same else 'NO'}")
    for count, here, worker in spread.rows:
        print(f"after {count:>8,} episodes   this process {here:6.0f} MiB   largest worker {worker:6.0f} MiB")


def summary(folder: Path) -> dict[str, object]:
    """A run's summary, less the seconds."""
    return {**json.loads((folder / SUMMARY).read_text(encoding="utf-8")), "seconds": None}


if __name__ == "__main__":
    main()

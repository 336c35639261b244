"""Native ALFWorld engine against the reference engine, in one run: steps, new episodes, memory.

    python benchmarks/alfworld_engine.py [--games 8] [--panel alfworld/valid_unseen]

Both engines play the same games with the same seeded random admissible commands. Times are medians of
repeats in one process on one core; ratios are what to read, since both sides share the machine's noise.
Without the reference engine (see docs/alfworld.md) only the native column is printed.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from seedbench.panels import load_panel
from seedbench.ui.tally import format_number
from seedbench_envs.alfworld.engine import Engine
from seedbench_envs.alfworld.env import ALFWorldEnv
from seedbench_envs.alfworld.game import parse_game
from seedbench_envs.alfworld.library import library
from seedbench_envs.alfworld.reference import reference_python

STEPS = 20


def commands(env: ALFWorldEnv, task: str, seed: int, steps: int = STEPS) -> list[str]:
    """Seeded random admissible commands of a game, found on the native engine."""
    rng = random.Random(seed)
    _, info = env.reset(options={"task": task})
    chosen = []
    for _ in range(steps):
        chosen.append(rng.choice(info["admissible_actions"]))
        info = env.step(chosen[-1])[4]
    return chosen


def native_times(tasks: list[str], edition: str) -> tuple[float, float]:
    """Median seconds of a step (observation, sorted commands, won) and of a new episode (read, parse, reset)."""
    games = library(edition, "2.1.2")
    env = ALFWorldEnv(edition)  # type: ignore[arg-type]
    steps, episodes = [], []
    for task in tasks:
        plan = commands(env, task, seed=1, steps=2000)
        start = time.perf_counter()
        engine = Engine(parse_game(games.read(task), task))
        engine.reset()
        episodes.append(time.perf_counter() - start)
        start = time.perf_counter()
        for command in plan:
            engine.step(command)
            engine.admissible  # noqa: B018  (building the list is part of a step)
        steps.append((time.perf_counter() - start) / len(plan))
    return median(steps), median(episodes)


def reference_times(tasks: list[str], edition: str) -> tuple[float, float, float]:
    """The same for the reference engine, whose answers are compared on the way, and its process's memory in MB."""
    native = ALFWorldEnv(edition)  # type: ignore[arg-type]
    reference = ALFWorldEnv(edition, engine="reference")  # type: ignore[arg-type]
    steps, episodes = [], []
    reference.reset(options={"task": tasks[0]})  # starts the worker
    for task in tasks:
        plan = commands(native, task, seed=1)
        start = time.perf_counter()
        first = reference.reset(options={"task": task})
        episodes.append(time.perf_counter() - start)
        assert first == native.reset(options={"task": task}), task
        for command in plan:
            start = time.perf_counter()
            answer = reference.step(command)
            steps.append(time.perf_counter() - start)
            assert answer == native.step(command), (task, command)
    worker = reference._engine._process  # type: ignore[union-attr]
    pages = int(Path(f"/proc/{worker.pid}/statm").read_text().split()[1])
    memory = pages * resource.getpagesize() / 1e6
    reference.close()
    return median(steps), median(episodes), memory


_THOUSAND = """
import resource
from seedbench_envs.alfworld.env import ALFWorldEnv
from seedbench.panels import load_panel
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tasks = [task.id for task in load_panel({panel!r}).tasks]
envs = [ALFWorldEnv({edition!r}) for _ in range(1000)]
for number, env in enumerate(envs):
    _, info = env.reset(options={{"task": tasks[number % len(tasks)]}})
for _ in range(5):
    for number, env in enumerate(envs):
        env.step("go to " + "shelf 1")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000, before / 1000, len(set(tasks[:1000])))
"""


def thousand_memory(panel: str, edition: str) -> tuple[float, float, int]:
    """Peak MB of a process with 1,000 environments, MB before they were made, and how many games they play."""
    script = _THOUSAND.format(panel=panel, edition=edition)
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    return float(out[0]), float(out[1]), int(out[2])


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=8, help="games played on the reference engine")
    parser.add_argument("--panel", default="alfworld/valid_unseen")
    parser.add_argument("--memory-panel", default="alfworld/train", help="games of the 1,000 environments")
    options = parser.parse_args()
    panel = load_panel(options.panel).subset(limit=options.games)
    edition = "mini" if panel.suite.startswith("mini-") else "official"
    tasks = [task.id for task in panel.tasks]
    step, episode = native_times(tasks, edition)
    print(f"{len(tasks)} games of {options.panel}, one core")
    print(f"native     {1 / step:>10,.0f} steps/s   new episode {episode * 1000:>8.2f} ms")
    if reference_python():
        slow_step, slow_episode, memory = reference_times(tasks, edition)
        speed = f"{1 / slow_step:>10,.1f} steps/s   new episode {slow_episode * 1000:>8.0f} ms"
        print(f"reference  {speed}   {memory:.0f} MB a process")
        ratios = f"{format_number(slow_step / step)}x a step, {format_number(slow_episode / episode)}x an episode"
        print(f"ratio      {ratios}; all {len(tasks) * STEPS} compared steps are equal")
    else:
        print("reference  not installed (docs/alfworld.md)")
    peak, before, games = thousand_memory(options.memory_panel, edition)
    print(f"1,000 environments in one process, {games} different games: {peak:.0f} MB ({before:.0f} MB before them)")


if __name__ == "__main__":
    main()

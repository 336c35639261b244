"""What training runs have learned: success before and after on the same validation tasks, with a paired test.

    for seed in 0 1 2; do seedbench train --method grpo --suite mini-alfworld --seed $seed --out runs/grpo-$seed; done
    python benchmarks/learning.py runs/grpo-0 runs/grpo-1 runs/grpo-2

Prints a line a run: tasks, success before and after, their ratio, tasks won only after and only before, the p-value of
the exact McNemar test on those (scipy's binomial test), and seconds by the clock.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from scipy.stats import binomtest

from seedbench.runs import read_episodes


def solved(folder: Path) -> dict[str, bool]:
    """Task hash -> success of a validation with one attempt a task."""
    return {episode.task_sha256: episode.success for episode in read_episodes(folder)}


def line(run: Path) -> str:
    """The line of a run."""
    folders = sorted((run / "validation").glob("update-*"))
    before, after = solved(folders[0]), solved(folders[-1])
    if before.keys() != after.keys():
        raise SystemExit(f"{run}: the first and the last validation are not of the same tasks.")
    gained = sum(after[task] and not won for task, won in before.items())
    lost = sum(won and not after[task] for task, won in before.items())
    p_value = binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    rates = [sum(of.values()) / len(of) for of in (before, after)]
    seconds = sum(s["wall_seconds"] for s in json.loads((run / "training.json").read_text())["sessions"])
    ratio = rates[1] / rates[0] if rates[0] else float("inf")
    return (
        f"{run.name}: n {len(before)}, before {rates[0]:.1%}, after {rates[1]:.1%}, ratio {ratio:.2f}, won only after"
        f" {gained}, only before {lost}, McNemar p {p_value:.1e}, {seconds:,.0f} s"
    )


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(line(Path(name)))

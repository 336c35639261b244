"""A SEED iteration against a GRPO iteration on the same roll-outs, phase by phase, and their peak memory.

    python benchmarks/seed_iteration.py [--tasks 2 --group 8 --turns 15 --scale 0.25 --hidden 192 --layers 4]

Lengths are the paper's, times `--scale`: prompts of 1,000 tokens, skills of 120, responses of 200 a step; the prompt
of an analysis of about 4,000, 200 tokens written, one analysis a trajectory (phase signals). The model is random: what
it writes as an analysis is replaced by one that holds a skill. Both methods start from the same weights and seeds, with
the paper's settings of each. Each runs in a process of its own on one thread; times are CPU seconds, medians of
`--repeats` iterations.

SEED's update also holds the gradient norms of its terms, on eight samples whatever the batch: the fewer tasks, the more
they weigh. With so small a model answers are cheap to sample, so that the teacher's pass weighs more than on a GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.talk_world import Bench, Lengths, build_model, configuration, talk, words
from benchmarks.trainer import peak
from seedbench_trainers.skills.analysis import Analysis, format_analysis

SIZES = {"tasks": 2, "group": 8, "turns": 15, "scale": 0.25, "hidden": 192, "layers": 4, "repeats": 1}
PHASES = ("rollout", "reference", "signals", "teacher", "update")
PROMPT, SKILL, RESPONSE, WRITTEN = 1000, 120, 200, 200
_SEEN, _TASK, _FRAME = 60, 100, 20


def lengths(options: argparse.Namespace) -> Lengths:
    """An observation of 60 tokens, a task of 100, the rest of a prompt possible actions; scaled."""
    scaled = [round(options.scale * count) for count in (_TASK, _SEEN, RESPONSE, PROMPT - _TASK - _SEEN)]
    task, seen, said, menu = scaled
    return Lengths(task, seen, said, max(1, menu - _FRAME), options.turns)


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Iterations of one method; phases in CPU seconds."""
    model = build_model(folder / "model", options.hidden, options.layers)
    own: dict[str, Any] = {}
    if options.method == "seed":
        tokens = round(options.scale * WRITTEN)
        own = {"options": {"analysis_tokens": tokens, "skill_position": options.position, "stage1": {"run": False}}}
    bench = Bench(configuration(model, options.method, options.tasks, options.group, **own), folder)
    phases: dict[str, list[float]] = {phase: [] for phase in PHASES}
    figures: dict[str, float] = {}
    with _watched(bench, round(options.scale * SKILL)):
        for number in range(options.repeats):
            bench.times.clear()
            batch = bench.rollouts(number)
            figures = bench.signals(batch)
            bench.update(batch, number)
            times = {name: sum(seconds) for name, seconds in bench.times.items()}
            times["update"] -= times.get("teacher", 0.0)
            for phase in PHASES:
                phases[phase].append(times.get(phase, 0.0))
    return {
        "phases": {phase: median(seconds) for phase, seconds in phases.items()},
        "peak": peak(),
        "samples": len(batch.samples),
        "prompt": sum(len(s.ids) - s.length for s in batch.samples) / len(batch.samples),
        "skill": figures.get("skill/words", 0.0),
        "asked": figures.get("skill/asked", 0.0),
    }


@contextmanager
def _watched(bench: Bench, count: int) -> Iterator[None]:
    """Time the teacher's scores as a phase of their own, and let every analysis hold a skill of `count` words."""
    ask, teach = bench.tools.ask, bench.updater._score_context

    def asked(prompts: Any, sampling: Any) -> Any:
        answers = ask(prompts, sampling)
        skills = [format_analysis(Analysis("", words(count, number))) for number in range(len(prompts))]
        return [answer and replace(answer, text=skill) for answer, skill in zip(answers, skills, strict=True)]

    def taught(*given: Any) -> None:
        with bench.timed("teacher"):
            teach(*given)

    with patch.object(bench.tools, "ask", asked), patch.object(bench.updater, "_score_context", taught):
        yield


def in_process(options: argparse.Namespace, method: str, position: str) -> dict[str, Any]:
    """A method in a process of its own."""
    sizes = [f"--{key}={getattr(options, key)}" for key in SIZES]
    chosen = [*sizes, "--method", method, "--position", position]
    done = subprocess.run([sys.executable, __file__, *chosen], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def report(options: argparse.Namespace) -> None:
    """Run GRPO, SEED, and SEED with the skill at the prompt's end, and print their phases beside each other."""
    ways = {"GRPO": ("grpo", "after_task"), "SEED": ("seed", "after_task"), "SEED, skill at end": ("seed", "end")}
    results = {name: in_process(options, *way) for name, way in ways.items()}
    grpo, seed = results["GRPO"], results["SEED"]
    print(f"{grpo['samples']} samples, prompts of {grpo['prompt']:.0f} tokens, ", end="")
    print(f"{seed['asked']:.0f} analyses, skills of {seed['skill']:.0f} words; CPU-s")
    print(f"  {'':20}" + "".join(f"{phase:>10}" for phase in (*PHASES, "all")) + "     ratio   peak GB     ratio")
    base = sum(grpo["phases"].values())
    for name, result in results.items():
        total = sum(result["phases"].values())
        cells = [*(result["phases"][phase] for phase in PHASES), total]
        print(f"  {name:20}" + "".join(f"{cell:10.2f}" for cell in cells), end="")
        print(f"{total / base:9.2f}x{result['peak'] / 1e9:10.2f}{result['peak'] / grpo['peak']:9.2f}x")
    print("  aims: at most 1.15x the time and 1.05x the memory of GRPO")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for key, size in SIZES.items():
        parser.add_argument(f"--{key}", type=type(size), default=size)
    parser.add_argument("--method", choices=("grpo", "seed"), help=argparse.SUPPRESS)
    parser.add_argument("--position", default="after_task", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.method:
        report(options)
        return
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, talk(Path(folder), lengths(options)):
        print(json.dumps(run(options, Path(folder))))


if __name__ == "__main__":
    main()

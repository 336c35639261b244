"""What a skill is worth to the policy that reads it: the same tasks again, with hindsight skills in the prompt.

    python benchmarks/hindsight.py CHECKPOINT [--panel mini-alfworld/train-small --protocol alfworld/choose --tasks 240]

A policy plays each task once as in training (temperature 1). Its trajectories are analysed by the policy itself, as
SEED does it, and by the rules, which know the oracle's plan: an upper bound of any analysis. Then it plays the same
tasks greedily: without a skill, with its own, with the rules', and with the suite's static one. A teacher that succeeds
no more often than the student has nothing that a distillation could pass on.

Prints success of each condition with n, after a solved and after a failed first attempt too, and the exact McNemar test
against the attempt without a skill. A task whose analysis holds no skill is played without one.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from seedbench.evaluate import Evaluation, evaluate
from seedbench.panels import Panel, load_panel
from seedbench.policies import ModelOptions, make_policy
from seedbench.policies.base import Policy
from seedbench.protocol import load_protocol
from seedbench.runs import read_episodes
from seedbench.statistics import wilson
from seedbench.statistics.paired import mcnemar
from seedbench.types import Task
from seedbench.ui.live import make_progress
from seedbench_trainers.skills.analyzers import make_analyzer
from seedbench_trainers.skills.annotate import annotate
from seedbench_trainers.skills.policy import SkilledPolicy
from seedbench_trainers.skills.static import static_skill


class Told(SkilledPolicy):
    """A policy behind prompts with a skill for each task. `skills`: hash of the task -> skill; others stay plain."""

    def skill_of(self, task: Task) -> str | None:
        """The skill of this very task."""
        return self._skills.get(task.sha256)


def play(options: argparse.Namespace, panel: Panel, policy: Policy, out: Path, temperature: float) -> dict[str, bool]:
    """Hash of each task -> whether one attempt solved it."""
    protocol = load_protocol(options.protocol).with_settings(temperature=temperature)
    evaluate(Evaluation(panel, protocol, policy, out, concurrency=64), make_progress(Console(), quiet=True))
    return {episode.task_sha256: episode.success for episode in read_episodes(out)}


def analysed(options: argparse.Namespace, panel: Panel, analyzer: str, run: Path) -> dict[str, str]:
    """Hash of each task -> the skill that an analyzer made of its first attempt."""
    writer = make_analyzer(
        analyzer, panel, ModelOptions(batch_size=64, concurrency=64), style=options.style,
        prompt_tokens=options.prompt_tokens, new_tokens=options.new_tokens,
    )  # fmt: skip
    notes = annotate(run, writer, run / f"{Path(analyzer).name}.jsonl", concurrency=64)
    return {note.task_sha256: note.skill for note in notes if note.kept}


def line(name: str, solved: Mapping[str, bool], first: Mapping[str, bool], plain: Mapping[str, bool]) -> str:
    """A row of the table."""
    cells = [_rate([solved[task] for task in first])]
    cells += [_rate([solved[task] for task in first if first[task] is won]) for won in (True, False)]
    gained = sum(solved[task] and not plain[task] for task in first)
    lost = sum(plain[task] and not solved[task] for task in first)
    return f"{name:<22}{''.join(f'{cell:>26}' for cell in cells)}   +{gained} -{lost}  p = {mcnemar(lost, gained):.2g}"


def _rate(values: Sequence[bool]) -> str:
    found = wilson(sum(values), len(values))
    return (
        "-" if found.rate is None else f"{100 * found.rate:.1f} [{100 * found.lo:.0f}-{100 * found.hi:.0f}] n={found.n}"
    )


def main() -> None:
    """Play, analyse, play again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--panel", default="mini-alfworld/train-small")
    parser.add_argument("--protocol", default="alfworld/choose")
    parser.add_argument("--tasks", type=int, default=240)
    parser.add_argument("--style", default="brief", choices=("brief", "full"))
    parser.add_argument("--prompt-tokens", type=int, default=16_384)
    parser.add_argument("--new-tokens", type=int, default=64)
    options = parser.parse_args()
    panel = load_panel(options.panel).subset(limit=options.tasks)
    policy = make_policy(options.checkpoint, panel, ModelOptions(batch_size=64, concurrency=64))
    with TemporaryDirectory(prefix="seedbench-") as place:
        folder = Path(place)
        first = play(options, panel, policy, folder / "first", 1.0)
        skills: dict[str, dict[str, str]] = {
            "none": {},
            "own": analysed(options, panel, options.checkpoint, folder / "first"),
            "rules (oracle's plan)": analysed(options, panel, "rules", folder / "first"),
            "static": {task.sha256: static_skill(panel.suite, task.family) for task in panel.tasks},
        }
        print(f"{'skill':<22}{'all':>26}{'solved at first':>26}{'failed at first':>26}   against none")
        plain: dict[str, bool] = {}
        for number, (name, texts) in enumerate(skills.items()):
            solved = play(options, panel, Told(policy, texts, "after_task"), folder / str(number), 0.0)
            plain = plain or solved
            print(line(f"{name} ({len(texts)})", solved, first, plain), flush=True)
        print(line("first attempt, T = 1", first, first, plain))


if __name__ == "__main__":
    main()

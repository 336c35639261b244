"""The panels of Search-QA: one a set, the questions with known passages, and a balanced mix.

No question text is in their files.

A panel of a set has the split that papers report. Its file names each question by id, content hash, and a hash of the
normalised question, by which `panels check` proves that no question of one split is asked in another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

from seedbench.panels import Panel, write_panel
from seedbench.types import Task
from seedbench_envs.searchqa.datasets import CONTEXT, SETS, content_hash, official_count, question_group
from seedbench_envs.searchqa.questions import Questions
from seedbench_envs.searchqa.records import Question
from seedbench_envs.searchqa.scoring import normalize

MIX = 125
"""Questions of each set in the mix: as many as the smallest set has."""
SHIPPED = ("nq", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")
"""Sets that have a panel of all their questions in the package; importing another one writes its panel to the store."""


def official_panels(stored: Questions) -> list[Panel]:
    """The panels of the package, of a store that holds every set it needs."""
    panels = [set_panel(stored, source, SETS[source].split) for source in SHIPPED]
    located = [q for source in SETS for q in stored.of_set(source, CONTEXT).values() if q.supporting]
    mixed = [q for source in SETS for q in _sample(stored.of_set(source, SETS[source].split).values(), MIX)]
    return [
        *panels,
        _panel("searchqa/context@1", CONTEXT, located, question_group, official=False, partition=CONTEXT),
        _panel("searchqa/mix@1", "mix", mixed, question_group, official=False, partition="mix"),
    ]


def mini_panels(stored: Questions) -> list[Panel]:
    """`train` and `test` of the generated world; no answer of one is an answer of the other."""
    panels = []
    for split in ("train", "test"):
        found = [q for source, part in stored.sets() if part == split for q in stored.of_set(source, part).values()]
        panels.append(_panel(f"mini-searchqa/{split}@1", split, found, answer_group, official=False))
    return panels


def set_panel(stored: Questions, source: str, split: str) -> Panel:
    """All stored questions of a set and split; official where they are as many as the published set has."""
    found = list(stored.of_set(source, split).values())
    complete = len(found) == official_count(source, split)
    return _panel(f"searchqa/{source}-{split}@1", split, found, question_group, official=complete)


def answer_group(question: Question) -> str:
    """Equal for questions with one answer (16 hex digits)."""
    return hashlib.sha256(normalize(question.answers[0]).encode()).hexdigest()[:16]


def write_panels(panels: Iterable[Panel], folder: Path) -> list[Path]:
    """Write panels to `folder`, named as the package's are; returns the files. Raises SeedBenchError."""
    paths = []
    for panel in panels:
        paths.append(folder / f"{panel.name.replace('/', '--')}.jsonl.gz")
        write_panel(panel, paths[-1])
    return paths


def _panel(
    name: str,
    split: str,
    found: Iterable[Question],
    group: Callable[[Question], str],
    *,
    official: bool,
    partition: str = "",
) -> Panel:
    found = list(found)
    tasks = tuple(Task(question.id, question.source, split, content_hash(question)) for question in found)
    groups = {question.id: group(question) for question in found}
    return Panel(name, name.partition("/")[0], split, official, "", tasks, partition, groups)


def _sample(found: Iterable[Question], count: int) -> list[Question]:
    """The `count` questions whose content hashes come first, in their own order."""
    everything = list(found)
    kept = set(sorted(everything, key=content_hash)[:count])
    return [question for question in everything if question in kept]

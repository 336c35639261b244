"""Which goals are in which panel, and the panels themselves.

`test` and `train` are upstream's: goals 0-499 and the rest. They share products, because a product has one goal for
every combination of its options. `test-disjoint` and `train-disjoint` also hold every synthetic goal once, but no
product of one is in the other.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from seedbench.panels import Panel, write_panel
from seedbench.types import Task
from seedbench_envs.webshop.catalogue import StoredCatalogue

TEST_GOALS = 500
MOST_PER_PRODUCT = 25
"""A product with more goals goes to train: no product may be more than 5 % of the disjoint test panel."""
PAIRS = (("test", "train"), ("test-disjoint", "train-disjoint"))
"""Panels that share no task. Those of the second pair share no product either."""
DISJOINT = "-disjoint"
"""Ending of the splits whose panels name the product of every task, so that `panels check` proves it."""


def split_goals(asins: Sequence[str]) -> dict[str, list[int]]:
    """Split -> indices of goals, ascending. `asins` is the product of every synthetic goal, in order."""
    chosen = disjoint_products(Counter(asins))
    everything = range(len(asins))
    return {
        "test": list(everything[:TEST_GOALS]),
        "train": list(everything[TEST_GOALS:]),
        "test-disjoint": [index for index in everything if asins[index] in chosen],
        "train-disjoint": [index for index in everything if asins[index] not in chosen],
    }


def disjoint_products(goals: Mapping[str, int]) -> set[str]:
    """The products of `test-disjoint`, of ASIN -> number of goals.

    In order of the SHA-256 of their ASINs, every product is taken that has at most `MOST_PER_PRODUCT` goals and with
    which there are no more than `TEST_GOALS` goals in all.
    """
    chosen: set[str] = set()
    total = 0
    for asin in sorted(goals, key=lambda asin: hashlib.sha256(asin.encode()).digest()):
        if goals[asin] <= MOST_PER_PRODUCT and total + goals[asin] <= TEST_GOALS:
            chosen.add(asin)
            total += goals[asin]
    return chosen


def panels_of(suite: str, catalogue: StoredCatalogue, *, official: bool) -> list[Panel]:
    """The panels of a shop: those of `split_goals`, and `human` with all human goals where there are any."""
    ids = catalogue.goal_ids("goal")
    goals = [catalogue.goal(goal) for goal in ids]
    parts = {split: [ids[i] for i in found] for split, found in split_goals([goal.asin for goal in goals]).items()}
    parts["human"] = list(catalogue.goal_ids("human"))
    panels = []
    for split, members in parts.items():
        tasks = (Task(goal, catalogue.goal(goal).category, split, catalogue.task_hash(goal)) for goal in members)
        apart = split.endswith(DISJOINT)
        groups = {goal: product_group(catalogue.goal(goal).asin) for goal in members} if apart else {}
        partition = "disjoint" if apart else ""
        panels.append(Panel(f"{suite}/{split}@1", suite, split, official, "", tuple(tasks), partition, groups))
    return [panel for panel in panels if panel.tasks]


def product_group(asin: str) -> str:
    """What a panel file has in place of an ASIN: equal for equal products (16 hex digits)."""
    return hashlib.sha256(asin.encode()).hexdigest()[:16]


def write_panels(suite: str, catalogue: StoredCatalogue, folder: Path, *, official: bool) -> list[Path]:
    """Write the panels of a shop to `folder` under the names that the harness looks for; returns the files."""
    paths = []
    for panel in panels_of(suite, catalogue, official=official):
        paths.append(folder / f"{suite}--{panel.split}@1.jsonl.gz")
        write_panel(panel, paths[-1])
    return paths

"""Checks that a suite is what it says: every task of a panel can be won by its own oracle."""

from __future__ import annotations

from collections.abc import Mapping

from seedbench.errors import SeedBenchError
from seedbench.panels import Panel
from seedbench.suite import Suite


def unsolved(suite: Suite, panel: Panel, held: Mapping[str, str], engine: str = "native") -> list[tuple[str, str]]:
    """(task id, reason) of every task that is missing, differs from the panel, or is not won by the oracle."""
    env = suite.make(panel, engine)
    failures = []
    try:
        for task in panel.tasks:
            if held.get(task.id) != task.sha256:
                failures.append((task.id, "not in the store" if task.id not in held else "differs from the panel"))
                continue
            try:
                plan = suite.oracle(panel, task)
                _, info = env.reset(options={"task": task.id})
                for action in plan:
                    _, _, _, _, info = env.step(action)
            except SeedBenchError as error:
                failures.append((task.id, str(error)))
                continue
            if not info["success"]:
                failures.append((task.id, f"the {len(plan)} actions of the oracle do not win"))
    finally:
        env.close()
    return failures

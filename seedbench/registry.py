"""Suites and training methods by name, found through entry points."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from seedbench.errors import SeedBenchError, unknown

if TYPE_CHECKING:
    from seedbench.suite import Suite

TRAINERS = "seedbench.trainers"
"""Entry-point group of training methods: name -> a subclass of `seedbench_trainers.base.Method`."""


@cache
def _points(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def suite_names() -> list[str]:
    """Names of the installed suites, sorted."""
    return sorted(_points("seedbench.environments"))


@cache
def get_suite(name: str) -> Suite:
    """The suite of that name. Raises UsageError (nearest name offered) or SeedBenchError if it does not load."""
    points = _points("seedbench.environments")
    if name not in points:
        raise unknown("suite", name, points)
    try:
        suite: Suite = points[name].load()
    except Exception as error:  # other people's packages fail in their own ways, and must not stop the rest
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        raise SeedBenchError(
            f"the suite '{name}' ({points[name].value}) is registered but does not load: {reason}. Mend or uninstall"
            " its package."
        ) from error
    return suite


def method_names() -> list[str]:
    """Names of the installed training methods, sorted."""
    return sorted(_points(TRAINERS))


@cache
def get_method(name: str) -> Any:
    """The class of the training method of that name. Raises as `get_suite`."""
    points = _points(TRAINERS)
    if name not in points:
        raise unknown("method", name, points)
    try:
        return points[name].load()
    except Exception as error:  # as in get_suite
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        raise SeedBenchError(
            f"the method '{name}' ({points[name].value}) is registered but does not load: {reason}. Mend or uninstall"
            " its package."
        ) from error

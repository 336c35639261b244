"""The predicates of the ALFRED domain as relations over an engine state.

Each relation says how to test a fact and how to list the facts that agree with what is known, always in
sorted order of entity indices (which is the sorted order of entity ids: TextWorld's order). Names are in
lower case, as the reference engine's PDDL parser makes them.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seedbench_envs.alfworld.state import State


@dataclass(frozen=True, slots=True)
class Relation:
    """Access paths of one predicate. For a unary one the second argument is always -1."""

    arity: int
    test: Callable[[State, int, int], bool]
    firsts: Callable[[State, int], Sequence[int]]
    """All x with p(x, y), sorted; for a unary predicate all x with p(x)."""
    seconds: Callable[[State, int], Sequence[int]]
    """All y with p(x, y), sorted."""
    lefts: Callable[[State], Sequence[int]]
    """All x with p(x, y) for some y, sorted."""


def _none(*_: object) -> Sequence[int]:
    return ()


def _static(name: str) -> Relation:
    """A unary predicate that no action changes."""
    return Relation(
        1,
        lambda state, x, _: x in state.game.static[name],
        lambda state, _: sorted(state.game.static[name]),
        _none,
        _none,
    )


def _fluent(attribute: str) -> Relation:
    """A unary predicate kept as a set on the state."""
    return Relation(
        1,
        lambda state, x, _: x in getattr(state, attribute),
        lambda state, _: sorted(getattr(state, attribute)),
        _none,
        _none,
    )


def _indexed(
    by_second: Callable[[State], dict[int, list[int]]],
) -> Relation:
    """A binary predicate kept as second argument -> sorted list of first arguments."""

    def seconds(state: State, x: int) -> list[int]:
        return sorted(y for y, xs in by_second(state).items() if x in xs)

    return Relation(
        2,
        lambda state, x, y: x in by_second(state).get(y, ()),
        lambda state, y: by_second(state).get(y, ()),
        seconds,
        lambda state: sorted({x for xs in by_second(state).values() for x in xs}),
    )


def _agent(value: Callable[[State], int]) -> Relation:
    """`p(agent, x)` with at most one x; -1 stands for none."""

    def listed(x: int) -> Sequence[int]:
        return (x,) if x >= 0 else ()

    return Relation(
        2,
        lambda state, a, x: a == state.game.agent and x == value(state) and x >= 0,
        lambda state, x: (state.game.agent,) if x == value(state) and x >= 0 else (),
        lambda state, a: listed(value(state)) if a == state.game.agent else (),
        lambda state: (state.game.agent,) if value(state) >= 0 else (),
    )


STATIC = (
    "openable", "isreceptacleobject", "pickupable", "moveable", "toggleable",
    "sliceable", "cleanable", "heatable", "coolable",
)  # fmt: skip
"""Unary predicates that no action changes."""

FLUENT = {
    "opened": "opened", "isclean": "clean", "ishot": "hot", "iscool": "cool",
    "istoggled": "toggled", "ison": "on", "issliced": "sliced",
}  # fmt: skip
"""Unary predicates that actions change, and the set of the state that holds each."""

RELATIONS: dict[str, Relation] = {
    **{name: _static(name) for name in STATIC},
    **{name: _fluent(attribute) for name, attribute in FLUENT.items()},
    "inreceptacle": _indexed(lambda state: state.contents),
    "objectatlocation": _indexed(lambda state: state.objects_at),
    "receptacleatlocation": _indexed(lambda state: state.game.receptacles_at),
    "inreceptacleobject": _indexed(lambda state: state.game.inside),
    "objecttype": _indexed(lambda state: state.game.objects_of_type),
    "receptacletype": _indexed(lambda state: state.game.receptacles_of_type),
    "atlocation": _agent(lambda state: state.location),
    "holds": _agent(lambda state: state.held),
    "holdsany": Relation(
        1,
        lambda state, a, _: state.held >= 0 and a == state.game.agent,
        lambda state, _: (state.game.agent,) if state.held >= 0 else (),
        _none,
        _none,
    ),
    # Negations exist only once a fact was deleted (TextWorld drops them from the initial state).
    "not_inreceptacle": _indexed(lambda state: state.taken_from),
    # No action ever deletes isToggled, so this one never holds: lamps say "is on" or nothing special.
    "not_istoggled": Relation(1, lambda *_: False, _none, _none, _none),
}


def insert(index: dict[int, list[int]], second: int, first: int) -> None:
    """Add the fact (first, second) to an index of sorted lists; twice is once."""
    items = index.setdefault(second, [])
    if first not in items:
        insort(items, first)


def discard(index: dict[int, list[int]], second: int, first: int) -> None:
    """Remove the fact (first, second) from an index of sorted lists if it is there."""
    items = index.get(second)
    if items and first in items:
        items.remove(first)


def index_of(pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """Build an index second -> sorted firsts from (first, second) pairs."""
    index: dict[int, list[int]] = {}
    for first, second in pairs:
        insert(index, second, first)
    return index

"""Conjunctive queries over the facts of a state: conditions of the grammar and goals of the problem.

A query is a sequence of literals over variables and constants. `compile_query` turns it into nested
generators with the access path of every literal chosen beforehand, from what is bound by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seedbench_envs.alfworld.facts import RELATIONS, Relation

if TYPE_CHECKING:
    from seedbench_envs.alfworld.state import State

Binding = dict[str, int]
Answers = Callable[["State", Binding], Iterable[Binding]]


class QueryError(ValueError):
    """A predicate is unknown or has another number of arguments."""


@dataclass(frozen=True, slots=True)
class Literal:
    """`predicate(arguments)`; an argument is a variable's name or, in goals, an entity's index."""

    predicate: str
    arguments: tuple[str | int, ...]


def compile_query(
    literals: tuple[Literal, ...], types: Mapping[str, str], bound: frozenset[str], *, distinct: bool
) -> Answers:
    """Compile to a function (state, binding) -> bindings that satisfy every literal, in sorted order.

    Args:
        literals: evaluated left to right; facts are enumerated in sorted order of their arguments.
        types: variable -> type; with `distinct`, variables of one type never share a value.
        bound: variables that the given binding holds already.
        distinct: TextWorld's rule for grammar conditions; goals write `(not (= x y))` instead.

    Raises:
        QueryError: for an unknown predicate or a wrong number of arguments.
    """
    steps: list[Answers] = []
    known = set(bound)
    for literal in literals:
        steps.append(_step(literal, types, frozenset(known), distinct))
        known.update(name for name in literal.arguments if isinstance(name, str))
    if len(steps) == 1:
        return steps[0]

    def run(state: State, binding: Binding, depth: int = 0) -> Iterator[Binding]:
        if depth == len(steps):
            yield binding
            return
        for extended in steps[depth](state, binding):
            yield from run(state, extended, depth + 1)

    return run


def order_literals(literals: Iterable[Literal]) -> tuple[Literal, ...]:
    """The same literals with the most bound ones first: cheap to evaluate where only existence matters."""
    left, known, ordered = list(literals), set[str](), list[Literal]()

    def cost(literal: Literal) -> int:
        unbound = sum(isinstance(name, str) and name not in known for name in literal.arguments)
        return unbound + (9 if unbound and literal.predicate == "distinct" else 0)  # it binds nothing

    while left:
        best = min(left, key=cost)
        left.remove(best)
        ordered.append(best)
        known.update(name for name in best.arguments if isinstance(name, str))
    return tuple(ordered)


def _step(literal: Literal, types: Mapping[str, str], known: frozenset[str], distinct: bool) -> Answers:
    if literal.predicate == "distinct":
        first, second = (_value(argument) for argument in literal.arguments)
        return lambda state, binding: (binding,) if first(binding) != second(binding) else ()
    relation = RELATIONS.get(literal.predicate)
    if relation is None:
        raise QueryError(f"unknown predicate '{literal.predicate}'")
    if len(literal.arguments) != relation.arity:
        raise QueryError(f"'{literal.predicate}' takes {relation.arity} arguments")
    free = [a for a in literal.arguments if isinstance(a, str) and a not in known]
    others = {
        name: tuple(other for other in known if distinct and types.get(other) == types.get(name)) for name in free
    }
    if relation.arity == 1:
        return _unary(relation, literal.arguments[0], free, others)
    return _binary(relation, literal.arguments, free, others)


def _value(argument: str | int) -> Callable[[Binding], int]:
    if isinstance(argument, int):
        return lambda binding: argument
    return lambda binding: binding[argument]


def _extend(name: str, others: tuple[str, ...], values: Iterable[int], binding: Binding) -> Iterator[Binding]:
    for value in values:
        if not any(binding[other] == value for other in others):
            yield {**binding, name: value}


def _unary(relation: Relation, argument: str | int, free: list[str], others: Mapping[str, tuple[str, ...]]) -> Answers:
    if free:
        name = free[0]
        return lambda state, binding: _extend(name, others[name], relation.firsts(state, -1), binding)
    value = _value(argument)
    return lambda state, binding: (binding,) if relation.test(state, value(binding), -1) else ()


def _binary(
    relation: Relation,
    arguments: tuple[str | int, ...],
    free: list[str],
    others: Mapping[str, tuple[str, ...]],
) -> Answers:
    first, second = arguments
    if not free:
        left, right = _value(first), _value(second)
        return lambda state, binding: (binding,) if relation.test(state, left(binding), right(binding)) else ()
    if free == [first]:
        right = _value(second)
        name = free[0]
        return lambda state, binding: _extend(name, others[name], relation.firsts(state, right(binding)), binding)
    if free == [second]:
        left = _value(first)
        name = free[0]
        return lambda state, binding: _extend(name, others[name], relation.seconds(state, left(binding)), binding)
    if first == second:
        raise QueryError(f"'{first}' stands twice in one literal")

    def pairs(state: State, binding: Binding) -> Iterator[Binding]:
        for one in _extend(free[0], others[free[0]], relation.lefts(state), binding):
            values = relation.seconds(state, one[free[0]])
            yield from _extend(free[1], others[free[1]], values, one)

    return pairs

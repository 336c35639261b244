"""Conjunctive queries over the facts of a state: conditions of the grammar and goals of the problem.

A query is a sequence of literals over variables and constants. `compile_query` turns it into one search
function whose access path for every literal was chosen beforehand, from what is bound by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seedbench_envs.alfworld.facts import RELATIONS, Relation

if TYPE_CHECKING:
    from seedbench_envs.alfworld.state import State

Binding = dict[str, int]
Visit = Callable[[Binding], bool | None]
Search = Callable[["State", Binding, Visit], bool]
"""Shows each answer to the visitor until that returns True; returns whether it did. The binding it shows is
reused for the next answer: a visitor reads it at once or copies it."""


def stop(_: Binding) -> bool:
    """The visitor that asks only whether there is an answer."""
    return True


class QueryError(ValueError):
    """A predicate is unknown or has another number of arguments."""


@dataclass(frozen=True, slots=True)
class Literal:
    """`predicate(arguments)`; an argument is a variable's name or, in goals, an entity's index."""

    predicate: str
    arguments: tuple[str | int, ...]


def compile_query(
    literals: tuple[Literal, ...], types: Mapping[str, str], bound: frozenset[str], *, distinct: bool
) -> Search:
    """Compile to a search for the bindings that satisfy every literal, in sorted order.

    Args:
        literals: evaluated left to right; facts are enumerated in sorted order of their arguments.
        types: variable -> type; with `distinct`, variables of one type never share a value.
        bound: variables that the given binding holds already.
        distinct: TextWorld's rule for grammar conditions; goals write `(not (= x y))` instead.

    Raises:
        QueryError: for an unknown predicate or a wrong number of arguments.
    """
    known_at = [set(bound)]
    for literal in literals:
        known_at.append(known_at[-1] | {name for name in literal.arguments if isinstance(name, str)})
    search: Search = _visit
    for literal, known in zip(reversed(literals), reversed(known_at[:-1]), strict=True):
        search = _step(literal, types, frozenset(known), distinct, search)
    if known_at[-1] == bound:
        return search
    return lambda state, binding, visit: search(state, dict(binding), visit)


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


def _visit(state: State, scope: Binding, visit: Visit) -> bool:
    return visit(scope) is True


def _step(literal: Literal, types: Mapping[str, str], known: frozenset[str], distinct: bool, then: Search) -> Search:
    """The search for one literal that goes on with `then` for each of its answers."""
    if literal.predicate == "distinct":
        first, second = (_value(argument) for argument in literal.arguments)
        return lambda state, scope, visit: first(scope) != second(scope) and then(state, scope, visit)
    relation = RELATIONS.get(literal.predicate)
    if relation is None:
        raise QueryError(f"unknown predicate '{literal.predicate}'")
    if len(literal.arguments) != relation.arity:
        raise QueryError(f"'{literal.predicate}' takes {relation.arity} arguments")
    free = [a for a in literal.arguments if isinstance(a, str) and a not in known]
    if len(set(free)) < len(free):
        raise QueryError(f"'{free[0]}' stands twice in one literal")
    others = {
        name: tuple(other for other in known if distinct and types.get(other) == types.get(name)) for name in free
    }
    if not free:
        return _check(relation, literal.arguments, then)
    for name in reversed(free):
        then = _choose(name, others[name], _candidates(relation, literal.arguments, name, free), then)
    return then


def _value(argument: str | int) -> Callable[[Binding], int]:
    if isinstance(argument, int):
        return lambda scope: argument
    return lambda scope: scope[argument]


def _check(relation: Relation, arguments: tuple[str | int, ...], then: Search) -> Search:
    """A literal whose arguments are all known."""
    test, first = relation.test, _value(arguments[0])
    if relation.arity == 1:
        return lambda state, scope, visit: test(state, first(scope), -1) and then(state, scope, visit)
    second = _value(arguments[1])
    return lambda state, scope, visit: test(state, first(scope), second(scope)) and then(state, scope, visit)


def _candidates(
    relation: Relation, arguments: tuple[str | int, ...], name: str, free: list[str]
) -> Callable[[State, Binding], Iterable[int]]:
    """Sorted values of a free argument, given what is known when its turn comes."""
    if relation.arity == 1:
        return lambda state, scope: relation.firsts(state, -1)
    if name == arguments[1]:
        first = _value(arguments[0])
        return lambda state, scope: relation.seconds(state, first(scope))
    if len(free) == 2:  # the second argument follows
        return lambda state, scope: relation.lefts(state)
    second = _value(arguments[1])
    return lambda state, scope: relation.firsts(state, second(scope))


def _choose(
    name: str, others: tuple[str, ...], candidates: Callable[[State, Binding], Iterable[int]], then: Search
) -> Search:
    """Try every candidate for a free variable."""

    def search(state: State, scope: Binding, visit: Visit) -> bool:
        for value in candidates(state, scope):
            if others and any(scope[other] == value for other in others):
                continue
            scope[name] = value
            if then(state, scope, visit):
                return True
        return False

    return search

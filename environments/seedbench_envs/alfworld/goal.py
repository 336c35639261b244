"""Goals of ALFWorld problems: conjunctions of existentially quantified conjunctions.

All six task families have this form. A goal of another form is refused when the game is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from seedbench_envs.alfworld.query import Literal, QueryError, compile_query, order_literals, stop

if TYPE_CHECKING:
    from seedbench_envs.alfworld.state import State

Tree: TypeAlias = "str | list[Tree]"


_CONNECTIVES = frozenset({"or", "not", "forall", "imply", "="})


class GoalError(ValueError):
    """The goal has a form that this module does not evaluate."""


def read_tree(text: str) -> Tree:
    """Read the first parenthesised expression of `text`. Raises GoalError where it does not close."""
    stack: list[list[Tree]] = []
    for token in re.findall(r"[()]|[^\s()]+", text):
        if token == "(":
            stack.append([])
        elif token == ")":
            if not stack:
                break
            done = stack.pop()
            if not stack:
                return done
            stack[-1].append(done)
        elif stack:
            stack[-1].append(token.lower())
    raise GoalError("the goal does not close its parentheses")


def goal_literals(tree: Tree) -> list[tuple[Literal, ...]]:
    """The goal's independent blocks, each a conjunction of literals whose variables start with `?`.

    Nested quantifiers inside a block are flattened (an inner variable that shadows an outer one is refused).
    """
    blocks: list[tuple[Literal, ...]] = []
    for part in _conjuncts(tree):
        blocks.append(tuple(_flatten(part, set())))
    return blocks


def compile_goal(blocks: list[tuple[Literal, ...]], entities: Mapping[str, int]) -> Callable[[State], bool]:
    """Compile blocks to a test of a state; constants are looked up in `entities` (id in lower case -> index).

    A constant that no fact of the problem mentions makes the goal unreachable, as upstream.
    """
    tests = []
    for block in blocks:
        literals = tuple(
            Literal(
                literal.predicate,
                tuple(
                    argument if isinstance(argument, int) or argument.startswith("?") else entities.get(argument, -2)
                    for argument in literal.arguments
                ),
            )
            for literal in block
        )
        try:
            tests.append(compile_query(order_literals(literals), {}, frozenset(), distinct=False))
        except QueryError as error:
            raise GoalError(str(error)) from error

    def reached(state: State) -> bool:
        return all(test(state, {}, stop) for test in tests)

    return reached


def _conjuncts(tree: Tree) -> Iterator[Tree]:
    if isinstance(tree, list) and tree and tree[0] == "and":
        for part in tree[1:]:
            yield from _conjuncts(part)
    else:
        yield tree


def _flatten(tree: Tree, seen: set[str]) -> Iterator[Literal]:
    match tree:
        case ["and", *parts]:
            for part in parts:
                yield from _flatten(part, seen)
        case ["exists", [*variables], body]:
            for name in variables:
                if isinstance(name, str) and name.startswith("?"):
                    if name in seen:
                        raise GoalError(f"the variable {name} is quantified twice")
                    seen.add(name)
            yield from _flatten(body, seen)
        case ["not", ["=", str(first), str(second)]]:
            yield Literal("distinct", (first, second))
        case [str(predicate), *arguments] if predicate not in _CONNECTIVES and not predicate.startswith("not_"):
            yield Literal(predicate, tuple(str(argument) for argument in arguments))
        case _:
            raise GoalError(f"cannot evaluate the goal part {str(tree)[:80]}")

"""An ALFWorld game file, parsed: entities, facts, wording, goal. Immutable and shared by all episodes.

Entities are numbered by the sorted order of their ids in lower case, which is the order in which TextWorld
enumerates them; all facts are kept over these numbers. The display names follow the upstream demangler
(`alfworld.agents.utils.misc.Demangler`): numbers count down over the sorted ids of a type, and only
entities that occur in some fact are counted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from sys import intern
from typing import TYPE_CHECKING, Any

from seedbench.errors import SeedBenchError
from seedbench_envs.alfworld.domain import APPLIANCES, CHANGES, DOMAINS, KNIVES, Domain
from seedbench_envs.alfworld.facts import FLUENT, RELATIONS, STATIC, index_of
from seedbench_envs.alfworld.goal import GoalError, compile_goal, goal_literals, read_tree
from seedbench_envs.alfworld.wording import Grammar, GrammarError, compile_grammar, split_task

if TYPE_CHECKING:
    from seedbench_envs.alfworld.state import State

TASK_PREFIX = "Your task is to: "


class GameError(SeedBenchError):
    """A game file that cannot be played by this engine; the message says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Game:
    """One parsed game. Entity indices are positions in `ids`; an index maps second -> sorted firsts."""

    dialect: str
    task_sentence: str
    walkthrough: tuple[str, ...] | None
    grammar: Grammar
    domain: Domain
    ids: tuple[str, ...]
    names: tuple[str, ...]
    agent: int
    start: int
    """Location of the agent at the start."""
    location_of: dict[int, int]
    """Receptacle -> its location."""
    receptacles_at: dict[int, list[int]]
    inside: dict[int, list[int]]
    """Outer object -> objects inside it (isReceptacleObject)."""
    static: dict[str, frozenset[int]]
    object_types: dict[int, list[int]]
    receptacle_types: dict[int, list[int]]
    objects_of_type: dict[int, list[int]]
    receptacles_of_type: dict[int, list[int]]
    accepts: frozenset[tuple[int, int]]
    """(receptacle type, object type) pairs of canContain."""
    appliances: dict[str, frozenset[int]]
    """cleanobject, heatobject, coolobject -> receptacles that can do it."""
    knives: frozenset[int]
    initial: dict[str, tuple[tuple[int, ...], ...]]
    """Initial facts of every predicate that actions change."""
    goal: tuple[tuple[Any, ...], ...]
    """The goal's blocks of literals, for solvers and the generator."""
    reached: Callable[[State], bool]
    decisive: frozenset[str]
    """Actions that change a predicate which the goal reads: only after these can it be newly (un)reached."""
    commands: dict[tuple[str, int, int], str] = field(default_factory=dict)
    """Rendered commands by (action, first, second); filled as they come up."""
    go_to: dict[int, tuple[dict[str, int], list[str]]] = field(default_factory=dict)
    """Location -> ('go to' command -> receptacle, the same commands sorted); filled as they come up."""

    @property
    def instruction(self) -> str:
        """The task sentence without its prefix and final full stop."""
        return self.task_sentence.removeprefix(TASK_PREFIX).rstrip().removesuffix(".")


def parse_game(data: bytes, name: str = "game") -> Game:
    """Parse the bytes of a `game.tw-pddl` file.

    Args:
        data: the whole file.
        name: what error messages call it.

    Raises:
        GameError: truncated or malformed file, unknown domain (its hash is named), or a grammar, goal or fact
            that the native engine does not implement. The reference engine may still play such a game.
    """
    try:
        content = json.loads(data)
        domain_text, grammar_text, problem = (
            content["pddl_domain"],
            content["grammar"],
            content["pddl_problem"],
        )
        walkthrough = content.get("walkthrough") or []
        texts = (domain_text, grammar_text, problem, *walkthrough)
        if not isinstance(walkthrough, list) or not all(isinstance(text, str) for text in texts):
            raise TypeError("a field is not text")
        digest = hashlib.sha256(domain_text.encode()).hexdigest()
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise GameError(
            f"{name}: not a complete ALFWorld game file ({len(data):,} bytes, {error}). Fetch it again:"
            " `seedbench data fetch alfworld`."
        ) from error
    domain = DOMAINS.get(digest[:12])
    if domain is None:
        raise GameError(
            f"{name}: unknown PDDL domain {digest[:12]} (known: {', '.join(DOMAINS)}). The native engine plays"
            " the domains of data releases 2.1.1 and 2.1.2; use engine='reference' for others."
        )
    try:
        shared, task_sentence = split_task(grammar_text)
        grammar = compile_grammar(shared, domain.parameters)
        return _build(problem, domain, grammar, task_sentence, tuple(walkthrough) if walkthrough else None)
    except (GrammarError, GoalError, _ProblemError) as error:
        raise GameError(f"{name}: {error}. Use engine='reference' for this game.") from error


class _ProblemError(ValueError):
    """A problem with facts that the native engine does not implement."""


_FACT = re.compile(r"\(([^\s()]+)((?:\s+[^\s()]+)*)\s*\)")
_CHANGING = frozenset({*FLUENT, "inreceptacle", "objectatlocation", "atlocation", "holds", "holdsany"})
_ARITY = {
    "cancontain": 2,
    **{name: relation.arity for name, relation in RELATIONS.items() if not name.startswith("not_")},
}
"""Predicates of initial facts, and how many arguments each takes."""
_IGNORED = frozenset(
    {
        "=",
        "checked",
        "examined",
        "full",
        "wasinreceptacle",
        "isreceptacleobjectfull",
        "holdsanyreceptacleobject",
    }
)
"""Predicates that no precondition, goal or sentence of the known domains reads."""


def _facts(problem: str) -> tuple[dict[str, list[tuple[str, ...]]], str]:
    """Split a problem into its initial facts by predicate (lower case) and the text of its goal."""
    text = re.sub(r";[^\n]*", "", problem).lower() if ";" in problem else problem.lower()
    head, begin, rest = text.partition("(:init")
    init, middle, goal = rest.partition("(:goal")
    if not begin or not middle or "(:objects" not in head:
        raise _ProblemError("the problem has no objects, initial state or goal")
    if re.search(r"\(\s*not\s", init):
        raise _ProblemError("the initial state has a negated fact")
    facts: dict[str, list[tuple[str, ...]]] = {}
    for predicate, arguments in _FACT.findall(init):
        facts.setdefault(predicate, []).append(tuple(arguments.split()))
    return facts, goal


def _build(
    problem: str, domain: Domain, grammar: Grammar, task_sentence: str, walkthrough: tuple[str, ...] | None
) -> Game:
    named, goal_text = _facts(problem)
    for predicate in _IGNORED:
        named.pop(predicate, None)
    ids = tuple(intern(i) for i in sorted({a for rows in named.values() for row in rows for a in row}))
    number = {identifier: index for index, identifier in enumerate(ids)}
    facts = {p: [tuple(number[a] for a in row) for row in rows] for p, rows in named.items()}

    for predicate, rows in facts.items():
        if predicate not in _ARITY:
            raise _ProblemError(f"the initial state uses the predicate '{predicate}'")
        if any(len(row) != _ARITY[predicate] for row in rows):
            raise _ProblemError(f"'{predicate}' takes {_ARITY[predicate]} arguments")
    agents = facts.get("atlocation", [])
    if len(agents) != 1:
        raise _ProblemError(f"the initial state places {len(agents)} agents; expected one")
    holders = [row[0] for row in facts.get("holds", [])]
    if len(holders) > 1 or holders != [row[0] for row in facts.get("holdsany", [])]:
        raise _ProblemError("the initial state's holds and holdsAny do not agree on one object in hand")
    places = facts.get("receptacleatlocation", [])
    location_of: dict[int, int] = dict(places)  # type: ignore[arg-type]
    if len(location_of) != len(set(places)):
        raise _ProblemError("a receptacle stands at two locations")

    type_ids = {index: identifier for identifier, index in number.items()}
    object_types = index_of((kind, entity) for entity, kind in facts.get("objecttype", []))
    receptacle_types = index_of((kind, entity) for entity, kind in facts.get("receptacletype", []))
    blocks = goal_literals(read_tree(goal_text))

    return Game(
        dialect=domain.dialect,
        task_sentence=task_sentence,
        walkthrough=walkthrough,
        grammar=grammar,
        domain=domain,
        ids=ids,
        names=_display_names(ids),
        agent=agents[0][0],
        start=agents[0][1],
        location_of=location_of,
        receptacles_at=index_of(places),  # type: ignore[arg-type]
        inside=index_of(facts.get("inreceptacleobject", [])),  # type: ignore[arg-type]
        static={p: frozenset(row[0] for row in facts.get(p, [])) for p in STATIC},
        object_types=object_types,
        receptacle_types=receptacle_types,
        objects_of_type=index_of(facts.get("objecttype", [])),  # type: ignore[arg-type]
        receptacles_of_type=index_of(facts.get("receptacletype", [])),  # type: ignore[arg-type]
        accepts=_shared(frozenset(facts.get("cancontain", []))),
        appliances={
            action: frozenset(r for r, kinds in receptacle_types.items() if any(type_ids[k] in wanted for k in kinds))
            for action, wanted in APPLIANCES.items()
        },
        knives=frozenset(o for o, kinds in object_types.items() if any(type_ids[k] in KNIVES for k in kinds)),
        initial={p: tuple(rows) for p, rows in facts.items() if p in _CHANGING},
        goal=tuple(blocks),
        reached=compile_goal(blocks, number),
        decisive=frozenset(
            action for action, changed in CHANGES.items() for block in blocks for p in block if p.predicate in changed
        ),
    )


@lru_cache(maxsize=512)
def _shared(pairs: frozenset[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """One object for equal sets: games of a room hold the same canContain table."""
    return pairs


def _display_names(ids: tuple[str, ...]) -> tuple[str, ...]:
    """Names such as `sinkbasin 1`, numbered downwards over the sorted ids of a type (upstream's Demangler)."""
    kinds = []
    for identifier in ids:
        kind, bar, _ = identifier.partition("_bar_")
        kinds.append((kind + "basin" if bar and "basin" in identifier else kind, bool(bar)))
    left = Counter(kind for kind, numbered in kinds if numbered)
    names = []
    for kind, numbered in kinds:
        names.append(intern(f"{kind} {left[kind] if numbered else ''}"))
        left[kind] -= numbered
    return tuple(names)

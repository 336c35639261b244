"""A symbolic solver: the shortest list of commands that wins an ALFWorld game, from its goal and facts.

Every way to satisfy the goal assigns things to its variables: which objects, which receptacle, which lamp.
An assignment becomes a handful of errands (take, treat, put, switch on), whose moves and openings follow
from where things are; the shortest list is played on the native engine, which has the last word.
Simplifications: objects are dealt with one after the other, in the order of the goal's variables, lamps last
(no order is shorter in the six task families), and an agent that starts with the wrong thing in hand is
not told to put it down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from seedbench_envs.alfworld.engine import Action, Engine
from seedbench_envs.alfworld.facts import FLUENT, STATIC, index_of
from seedbench_envs.alfworld.game import Game
from seedbench_envs.alfworld.query import Binding, Literal, compile_query, order_literals
from seedbench_envs.alfworld.state import State

Block = tuple[Literal, ...]
Plan = tuple[Action, ...]

# Goal condition -> the action that brings it about.
_TREATMENTS = {"isclean": "cleanobject", "ishot": "heatobject", "iscool": "coolobject"}
# Conditions about one thing that errands bring about -> the position of that thing among the arguments.
_ACHIEVED = {**dict.fromkeys(_TREATMENTS, 0), "istoggled": 0, "inreceptacle": 0, "holds": 1}
# Conditions that no action changes and that choose what a variable stands for.
_CHOOSING = frozenset({*STATIC, "objecttype", "receptacletype", "distinct"})


def solve(game: Game) -> tuple[str, ...] | None:
    """A shortest plan from the initial state, as commands in the game's own wording.

    Returns:
        The commands; `()` where the goal holds at the start; None where no plan is found. Deterministic.
    """
    engine = Engine(game)
    if engine.won:
        return ()
    plans = sorted((_with_moves(engine.state, errands) for errands in _errands(engine.state)), key=len)
    for plan in plans:  # the sort is stable: equal lengths keep the order of the entities' ids
        commands = _play(engine, plan)
        if commands is not None:
            return commands
        engine.reset()
    return None


def _play(engine: Engine, plan: Plan) -> tuple[str, ...] | None:
    """The plan's commands up to the one that wins; None where a step is not admissible or nothing wins."""
    commands = []
    for action in plan:
        available = engine.admissible  # this renders the commands that the next line looks up
        command = engine.game.commands.get(action)
        if command is None or command not in available:
            return None
        engine.step(command)
        commands.append(command)
        if engine.won:
            return tuple(commands)
    return None


def _with_moves(state: State, errands: Plan) -> Plan:
    """The errands (thing, receptacle) with the moves and openings that they need."""
    game, here = state.game, state.location
    opened = set(state.opened)
    plan: list[Action] = []
    for errand in errands:
        name, _, receptacle = errand
        if game.location_of[receptacle] != here:
            here = game.location_of[receptacle]
            plan.append(("gotolocation", receptacle, -1))
        closed = receptacle in game.static["openable"] and receptacle not in opened
        if closed and name in ("pickupobject", "putobject"):
            plan.append(("openobject", receptacle, -1))
            opened.add(receptacle)
        if name != "gotolocation":
            plan.append(errand)
    return tuple(plan)


def _errands(state: State) -> Iterator[Plan]:
    """The errands of every assignment of the goal's variables."""
    game = state.game
    number = {identifier: index for index, identifier in enumerate(game.ids)}
    # Official games record some things in two receptacles at once, such as a shelf and the desk below it.
    places = index_of((receptacle, item) for receptacle, items in state.contents.items() for item in items)
    # Lamps last: they can be switched on with full hands, and the goal asks the agent to be there.
    blocks = sorted(game.goal, key=lambda block: any(literal.predicate == "istoggled" for literal in block))
    choices = [list(_block_errands(_resolved(block, number), state, places)) for block in blocks]
    for parts in product(*choices):
        yield tuple(errand for part in parts for errand in part)


def _resolved(block: Block, number: Mapping[str, int]) -> Block:
    """The block with its constants as entity indices (-2: an entity that no fact mentions)."""

    def index(argument: str | int) -> str | int:
        constant = isinstance(argument, str) and not argument.startswith("?")
        return number.get(str(argument), -2) if constant else argument

    return tuple(Literal(literal.predicate, tuple(map(index, literal.arguments))) for literal in block)


def _block_errands(block: Block, state: State, places: Mapping[int, list[int]]) -> Iterator[Plan]:
    """The errands of every assignment of one block's variables and every choice of appliances."""
    choosing = tuple(literal for literal in block if literal.predicate in _CHOOSING)
    for binding in _bindings(choosing, state):
        wanted: dict[int, dict[str, int]] = {}
        for literal in block:
            if literal.predicate in _ACHIEVED:
                item = _value(literal.arguments[_ACHIEVED[literal.predicate]], binding)
                wanted.setdefault(item, {})[literal.predicate] = _value(literal.arguments[-1], binding)
        jobs = [_jobs(item, conditions, state, places) for item, conditions in wanted.items()]
        for choice in product(*jobs):
            yield tuple(errand for job in choice for errand in job)


def _bindings(literals: Block, state: State) -> list[Binding]:
    """Every assignment that satisfies the literals."""
    found: list[Binding] = []

    def keep(binding: Binding) -> None:
        found.append(dict(binding))

    compile_query(order_literals(literals), {}, frozenset(), distinct=False)(state, {}, keep)
    return found


def _value(argument: str | int, binding: Binding) -> int:
    """The entity that an argument stands for; -1 where nothing has chosen one."""
    return argument if isinstance(argument, int) else binding.get(argument, -1)


def _jobs(item: int, conditions: Mapping[str, int], state: State, places: Mapping[int, list[int]]) -> list[Plan]:
    """All ways to bring one thing into the wanted conditions (condition -> last argument); empty: none."""
    game, sources, target = state.game, places.get(item, []), conditions.get("inreceptacle", -1)
    if "istoggled" in conditions:
        name = "gotolocation" if item in state.toggled else "toggleobject"
        return [((name, item, source),) for source in sources]
    treatments = [
        action
        for condition, action in _TREATMENTS.items()
        if condition in conditions and item not in getattr(state, FLUENT[condition])
    ]
    if not treatments and target in sources and "holds" not in conditions:
        return [()]
    takings: list[Plan] = [()] if state.held == item else [(("pickupobject", item, at),) for at in sources]
    if item not in game.static["pickupable"]:
        takings = []
    appliances = [sorted(game.appliances[action]) for action in treatments]
    jobs: list[Plan] = []
    for taking in takings:
        left = {at for at in sources if not taking or at != taking[0][2]}
        putting = [("putobject", item, target)] if target >= 0 and target not in left else []
        for chosen in product(*appliances):
            treating = [(action, item, at) for action, at in zip(treatments, chosen, strict=True)]
            jobs.append((*taking, *treating, *putting))
    return jobs

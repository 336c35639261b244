"""The two PDDL domains that the native engine knows, and what it takes from them.

The engine implements the actions of the ALFRED domain in code (engine.py), so a game is accepted only
if its domain is one of these, recognised by the hash of its text.
"""

import hashlib
import json
from dataclasses import dataclass
from types import MappingProxyType

_AGENT = ("a", "agent")
_LOCATION = ("l", "location")
_OBJECT = ("o", "object")
_RECEPTACLE = ("r", "receptacle")

_AT_RECEPTACLE = (_AGENT, _LOCATION, _RECEPTACLE)
_WITH_RECEPTACLE = (_AGENT, _LOCATION, _RECEPTACLE, _OBJECT)

PARAMETERS: dict[str, tuple[tuple[str, str], ...]] = {
    "look": (_AGENT, _LOCATION),
    "inventory": (_AGENT,),
    "examinereceptacle": (_AGENT, _RECEPTACLE),
    "examineobject": (_AGENT, _OBJECT),
    "gotolocation": (_AGENT, ("lstart", "location"), ("lend", "location"), _RECEPTACLE),
    "openobject": _AT_RECEPTACLE,
    "closeobject": _AT_RECEPTACLE,
    "pickupobject": (_AGENT, _LOCATION, _OBJECT, _RECEPTACLE),
    "putobject": (_AGENT, _LOCATION, _OBJECT, _RECEPTACLE, ("ot", "otype"), ("rt", "rtype")),
    "cleanobject": _WITH_RECEPTACLE,
    "heatobject": _WITH_RECEPTACLE,
    "coolobject": _WITH_RECEPTACLE,
    "toggleobject": (_AGENT, _LOCATION, _OBJECT, _RECEPTACLE),
    "sliceobject": (_AGENT, _LOCATION, ("co", "object"), ("ko", "object")),
}
"""Parameters of every action, in the domain's order, as (name, type) in lower case."""

APPLIANCES = MappingProxyType(
    {
        "cleanobject": frozenset({"sinktype", "sinkbasintype"}),
        "heatobject": frozenset({"microwavetype"}),
        "coolobject": frozenset({"fridgetype"}),
    }
)
"""Receptacle types that each state-changing action needs."""

CHANGES = MappingProxyType(
    {
        "gotolocation": frozenset({"atlocation"}),
        "openobject": frozenset({"opened"}),
        "closeobject": frozenset({"opened"}),
        "pickupobject": frozenset({"inreceptacle", "holds", "holdsany", "objectatlocation"}),
        "putobject": frozenset({"inreceptacle", "holds", "holdsany", "objectatlocation"}),
        "cleanobject": frozenset({"isclean"}),
        "heatobject": frozenset({"ishot", "iscool"}),
        "coolobject": frozenset({"ishot", "iscool"}),
        "toggleobject": frozenset({"ison", "istoggled"}),
        "sliceobject": frozenset({"issliced"}),
    }
)
"""Predicates that each action changes."""

KNIVES = frozenset({"knifetype", "butterknifetype"})
"""Object types that slice."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A known domain: the data release whose dialect it speaks, and its actions."""

    dialect: str
    actions: tuple[str, ...]

    @property
    def parameters(self) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
        """(action, parameters) pairs, hashable."""
        return tuple((name, (_AGENT,) if name == "help" else PARAMETERS[name]) for name in self.actions)


DOMAINS = MappingProxyType(
    {
        # release 2.1.2: "move X to Y", "You arrive at Y", and the action `help`
        "0af55e7f92d1": Domain("2.1.2", (*PARAMETERS, "help")),
        # release 2.1.1: "put X in/on Y", "You arrive at loc N"
        "34172c333dff": Domain("2.1.1", tuple(PARAMETERS)),
        # generated games (seedbench_envs/mini/household.pddl): the same actions, wording of release 2.1.2
        "b96d72682616": Domain("2.1.2", (*PARAMETERS, "help")),
    }
)
"""First 12 hex digits of the SHA-256 of the domain text -> what it is."""


def domain_of(game_file: bytes) -> Domain | None:
    """The domain of a game file; None where it is unknown or the file is not complete JSON."""
    digest = _digest(game_file)
    return DOMAINS.get(digest) if digest else None


def domain_problem(game_file: bytes) -> str:
    """What is wrong with a game file that `domain_of` knows no domain of; an unknown domain is named by its hash."""
    digest = _digest(game_file)
    return f"has an unknown PDDL domain ({digest})" if digest else "is damaged (no complete JSON with a PDDL domain)"


def _digest(game_file: bytes) -> str | None:
    """First 12 hex digits of the SHA-256 of the domain text; None where the file is not complete JSON."""
    try:
        return hashlib.sha256(json.loads(game_file)["pddl_domain"].encode()).hexdigest()[:12]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None

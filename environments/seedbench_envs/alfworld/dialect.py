"""The two wordings of putting something down: "move X to Y" (2.1.2) and "put X in/on Y" (2.1.1)."""

import re

from seedbench.errors import unknown

_FORMS = {
    "2.1.2": (re.compile(r"\s*move (.+) to (.+?)\s*"), "move {} to {}"),
    "2.1.1": (re.compile(r"\s*put (.+) in/on (.+?)\s*"), "put {} in/on {}"),
}

DIALECTS = tuple(_FORMS)


def to_dialect(command: str, dialect: str) -> str:
    """Word a command as `dialect` does; commands of that dialect and other verbs come back unchanged.

    >>> to_dialect("put mug 1 in/on shelf 2", "2.1.2")
    'move mug 1 to shelf 2'
    """
    if dialect not in _FORMS:
        raise unknown("dialect", dialect, _FORMS)
    for name, (pattern, _) in _FORMS.items():
        if name != dialect and (match := pattern.fullmatch(command)):
            return _FORMS[dialect][1].format(*match.groups())
    return command

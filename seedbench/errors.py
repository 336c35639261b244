"""The errors that a user can cause. The command line prints their text and exits; nothing else is caught.

`UsageError` (exit code 2) means that the request cannot be right: an unknown panel, settings that
contradict each other. `SeedBenchError` (exit code 1) means that a right request failed: missing data,
an unreachable server. The text names the thing, what was expected and what to do.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class SeedBenchError(Exception):
    """A failure that the user can mend. `str(error)` is the whole message."""

    exit_code = 1


class UsageError(SeedBenchError):
    """A request that cannot be right as it stands."""

    exit_code = 2


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that does not exist: it offers the nearest known name and lists the rest.

    >>> str(unknown("layout", "alfwrld", ["alfworld", "webshop"]))
    "unknown layout 'alfwrld': did you mean 'alfworld'? Known: alfworld, webshop."
    """
    names = sorted(known)
    nearest = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f": did you mean '{nearest[0]}'?" if nearest else "."
    listing = ", ".join(names) if names else "(none installed)"
    return UsageError(f"unknown {kind} '{name}'{hint} Known: {listing}.")

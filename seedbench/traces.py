"""Traces of training: a few trajectories of an update, token by token.

A training run keeps them in `traces/update-000010.jsonl.gz`, one JSON object a line: the fields of `Trace` by name, the
episode as in a run's log, a token as [text, log-probability, Delta or null, gate or null].
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from seedbench.errors import SeedBenchError, UsageError
from seedbench.types import Episode

FOLDER = "traces"


class Token(NamedTuple):
    """One sampled token."""

    text: str
    """The texts of a turn's tokens, joined, are its response; special tokens, and all but the last token of a
    character that takes several, have none."""
    logprob: float | None
    """Natural log-probability when it was sampled; None where that is not finite."""
    delta: float | None
    """log p behind the skill minus `logprob`; None where no skill context was scored."""
    gate: float | None
    """sigmoid(beta * delta), in [0, 1]; None where there is no delta or the method has no gate."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One trajectory of an update."""

    update: int
    """Number of the update that was made with it, from 1."""
    group: int
    """Trajectories of one group are attempts at one task."""
    reward: float
    """Scaled return, without penalties."""
    advantage: tuple[float | None, ...]
    """One a turn; None where the method has none or the turn left no token."""
    notes: dict[str, Any]
    """What the method kept with the trajectory: skill, analysis..."""
    episode: Episode
    tokens: tuple[tuple[Token, ...], ...]
    """Those of every turn; none where the policy said nothing."""

    def to_json(self) -> dict[str, Any]:
        """The trace as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Trace:
        """Inverse of `to_json`. Raises KeyError, TypeError or ValueError on a record of another shape."""
        tokens = tuple(tuple(_token(*values) for values in turn) for turn in data["tokens"])
        trace = cls(
            update=int(data["update"]),
            group=int(data["group"]),
            reward=float(data["reward"]),
            advantage=tuple(map(_number, data["advantage"])),
            notes=dict(data["notes"]),
            episode=Episode.from_json(data["episode"]),
            tokens=tokens,
        )
        if not len(trace.episode.turns) == len(trace.advantage) == len(tokens):
            raise ValueError("turns, advantages and token lists differ in number")
        return trace


def _token(text: object, *numbers: Any) -> Token:
    if not isinstance(text, str):
        raise TypeError("a token's text is no text")
    return Token(text, *map(_number, numbers))


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def trace_file(folder: Path, update: int) -> Path:
    """Where the traces of an update of the run in `folder` lie."""
    return folder / FOLDER / f"update-{update:06d}.jsonl.gz"


def traced_updates(folder: Path) -> list[int]:
    """Numbers of the updates that a run has traces of, ascending."""
    names = (re.fullmatch(r"update-(\d+)\.jsonl\.gz", path.name) for path in (folder / FOLDER).glob("update-*"))
    return sorted(int(name[1]) for name in names if name)


def read_traces(folder: Path, update: int | None = None) -> list[Trace]:
    """The traces of an update of the training run in `folder`, the latest that has any unless one is named.

    Raises:
        UsageError: no traces of that update; those there are, are named.
        SeedBenchError: a damaged file.
    """
    known = traced_updates(folder)
    if not known:
        raise UsageError(
            f"'{folder}' has no traces: methods that play roll-outs leave some after the first update, every"
            " track.traces_every, and the last, unless track.traces is 0. Validations are shown one by one, e.g."
            f" `seedbench view {folder}/validation/update-000000`."
        )
    if update is not None and update not in known:
        raise UsageError(f"'{folder}' has no traces of update {update}; it has those of {', '.join(map(str, known))}.")
    path = trace_file(folder, known[-1] if update is None else update)
    try:
        return [Trace.from_json(json.loads(line)) for line in gzip.decompress(path.read_bytes()).splitlines()]
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        reason = f"{type(error).__name__}: {str(error)[:100]}"
        raise SeedBenchError(
            f"the traces in '{path}' cannot be read ({reason}): delete that file, or look at another update with"
            " --update."
        ) from error

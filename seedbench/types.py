"""The records that everything passes on: tasks, turns, episodes, outcomes, usage.

They hold plain values only, so that a record survives a trip through JSON unchanged
(`to_json` / `from_json` are exact inverses).
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from numbers import Real
from typing import Any


class Outcome(StrEnum):
    """How an attempt at a task ended. Exactly one of five, never a silent sixth."""

    SOLVED = "solved"
    """The environment says success."""
    FAILED = "failed"
    """The environment ended the episode without success."""
    STEP_LIMIT = "step_limit"
    """The protocol's step limit was reached."""
    CONTEXT_OVERFLOW = "context_overflow"
    """The next prompt would not fit the protocol's or the model's context."""
    INFRA_ERROR = "infra_error"
    """Something outside the agent broke (server, engine, memory). Reported apart, never averaged in."""


@dataclass(frozen=True, slots=True)
class Task:
    """One game, goal or question. `sha256` is the hash of its content (64 hex digits)."""

    id: str
    family: str
    split: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts, as the policy's own tokenizer counts them. Zero where no model was asked."""

    prompt_tokens: int = 0
    generated_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.prompt_tokens + other.prompt_tokens, self.generated_tokens + other.generated_tokens)


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message; `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One prompt, its response, the action taken from it and what the environment answered."""

    response: str
    action: str
    valid: bool
    """Valid under the protocol's parser (tags, thinking, characters); says nothing of admissibility."""
    admissible: bool | None
    """Whether the environment accepted the action; None where it does not say."""
    observation: str
    """The observation after the action."""
    prompt_sha256: str = ""
    """Hash of the prompt's messages; empty where the policy needs no prompt."""
    prompt: tuple[Message, ...] = ()
    """The prompt itself, where the run keeps prompts (`--keep-prompts`)."""
    finish_reason: str = ""
    """stop, length, or empty for policies that do not generate."""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished attempt at a task; one line of a run's log."""

    task: str
    task_sha256: str
    family: str
    repeat: int
    seed: int
    """Seed of this episode, in [0, 2**63): a hash of (run seed, panel, task, repeat)."""
    outcome: Outcome
    success: bool
    score: float
    instruction: str
    first_observation: str
    turns: tuple[Turn, ...]
    usage: Usage
    seconds: float
    """Wall seconds from reset to end, waiting for the policy included."""
    error: str = ""
    """The reason of an infra_error or context_overflow, in words."""
    metrics: dict[str, float] = field(default_factory=dict)
    """What the environment says of the end state beside the score, e.g. the parts of it; see `checked_metrics`."""

    @property
    def key(self) -> tuple[str, int]:
        """What identifies the attempt inside a run: the task's content hash and the repeat."""
        return (self.task_sha256, self.repeat)

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON values, fields in declaration order."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Episode":
        """Inverse of `to_json`. Raises TypeError or ValueError on a record of another shape.

        A record without metrics has none: logs of earlier versions can be read.
        """
        turns = tuple(
            Turn(
                **{
                    **turn,
                    "usage": Usage(**turn["usage"]),
                    "prompt": tuple(Message(**message) for message in turn["prompt"]),
                }
            )
            for turn in data["turns"]
        )
        return cls(
            **{
                **data,
                "outcome": Outcome(data["outcome"]),
                "turns": turns,
                "usage": Usage(**data["usage"]),
                "metrics": checked_metrics(data.get("metrics", {})),
            }
        )


def checked_metrics(metrics: object) -> dict[str, float]:
    """A copy of an environment's metrics, checked: ASCII identifiers -> finite numbers in [0, 1], as floats.

    Raises ValueError that says what is wrong; true and false are no numbers.
    """
    if not isinstance(metrics, Mapping):
        raise ValueError(f"metrics must map names to numbers, not be a {type(metrics).__name__}")
    for name, value in metrics.items():
        if not (isinstance(name, str) and name.isascii() and name.isidentifier()):
            raise ValueError(f"the name of a metric must be an ASCII identifier, not {_short(name)}")
        if not _is_share(value):
            raise ValueError(f"the metric '{name}' must be a number in [0, 1], not {_short(value)}")
    return {name: float(value) for name, value in metrics.items()}


def _is_share(value: Any) -> bool:
    number = isinstance(value, Real) and not isinstance(value, bool)
    return number and bool(0 <= value <= 1)  # False for NaN


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

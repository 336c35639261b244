"""What answers prompts: the contract of a policy.

A policy is asked once a turn and answers with text (a model) or with an action (oracle, random, replay).
It must not keep anything between requests that could change an answer, but for the tokens of the same episode's
earlier turns: the answer depends on the request and on what was said in its episode, whatever else is in the batch
and however many episodes run at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seedbench.types import Message, Task, Usage


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a response is drawn. `temperature` 0 is greedy decoding; then top_p and top_k do not matter."""

    temperature: float
    max_new_tokens: int
    """Upper bound on generated tokens of one response."""
    max_prompt_tokens: int = 0
    """Longest prompt the protocol allows, in tokens; 0: only the model's own context bounds it."""
    top_p: float = 1.0
    top_k: int = 0
    """0: no top-k cut."""
    stop: tuple[str, ...] = ()
    """Generation ends after the first of these strings, which stays in the response."""
    thinking: str = "default"
    """on, off, or default: what the chat template does when it is not told."""
    decode: str = "free"
    """free, or admissible: a response is one of the request's `choices` and nothing else."""


@dataclass(frozen=True, slots=True)
class Request:
    """One turn's question. Model policies read `messages`; scripted ones read the environment's own words."""

    task: Task
    repeat: int
    turn: int
    """0 for the first action of the episode."""
    seed: int
    """Seed of this turn, in [0, 2**63)."""
    messages: tuple[Message, ...]
    sampling: Sampling
    observation: str
    admissible_actions: tuple[str, ...] | None
    instruction: str = ""
    """The task in a sentence."""
    choices: tuple[str, ...] = ()
    """With `decode` "admissible": every response that is allowed, in full; else empty."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A response as the policy drew it, token by token: what training needs and text cannot give back.

    Lengths: P prompt tokens, R response tokens (the end-of-sequence token included, where one was drawn).
    """

    prompt: tuple[int, ...]
    """(P,) ids the model was fed before the response."""
    ids: tuple[int, ...]
    """(R,) ids that were drawn or, with `choices`, that followed from what was drawn."""
    logprobs: tuple[float, ...]
    """(R,) natural log-probabilities in float32 of the distribution that was drawn from, temperature included; 0 for
    a token that was the only one allowed."""
    allowed: tuple[tuple[int, ...], ...] = ()
    """(R,) sorted ids that were allowed at each position, where decoding was restricted; else empty."""


@dataclass(frozen=True, slots=True)
class Response:
    """A policy's answer. Either `text` (then the protocol's parser finds the action) or `action` is set."""

    text: str = ""
    action: str | None = None
    usage: Usage = field(default_factory=Usage)
    finish_reason: str = ""
    sampled: Sampled | None = None
    """The tokens behind `text`, from policies that were asked to record them."""


class ContextOverflow(Exception):
    """Raised by `act` when the prompt does not fit; the episode ends as context_overflow."""


class PolicyFault(Exception):
    """Raised by `act` when this one answer cannot be had (after retries); the episode ends as infra_error."""


class Policy(ABC):
    """Answers requests, many at a time: `act` is a coroutine and is called concurrently."""

    name: str
    """Short name for tables, e.g. `oracle` or the checkpoint folder's name."""
    needs_prompt: bool = True
    """False for policies that never read `Request.messages` (then no prompt is rendered)."""
    gpus: int | None = None
    """GPUs that the policy computes on, known once it is open; None where it cannot know, as of a server."""
    origin: Mapping[str, Any] | None = None
    """What the training that made the policy says of itself (`seedbench.json` of its checkpoint), known once it is
    open; plain JSON values, None where nothing says."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What the answers depend on (kind, weights hash, dtype...): plain JSON values, no machine paths.

        Two policies with the same identity give the same answers; a run is resumed only under the same one.
        """

    async def open(self) -> None:  # noqa: B027  (optional hook)
        """Called once before the first request, inside the event loop. Raises SeedBenchError if it cannot serve."""

    async def close(self) -> None:  # noqa: B027  (optional hook)
        """Called once after the last request, also after a failure."""

    @abstractmethod
    async def act(self, request: Request) -> Response:
        """Answer one request. Raises `ContextOverflow` or `PolicyFault` for this request alone."""

    def forget(self, task: Task, repeat: int) -> None:  # noqa: B027  (optional hook)
        """The episode has ended: what was kept between its turns (tokens, keys and values) may go."""

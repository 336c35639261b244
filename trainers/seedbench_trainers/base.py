"""The contract of a training method, and the tools that the loop lends it.

The loop knows no method by name. An iteration is: `gather` a batch, fill the samples' `signals`, then update: the
loss of every response token, term by term. A method is one small file that says these three things; register its
class under the entry-point group `seedbench.trainers` (docs/adding-a-method.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from seedbench.policies.base import Policy, Response, Sampling
from seedbench.types import Message, Task
from seedbench_trainers.records import Batch, Floats, Sample

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from seedbench.panels import Panel
    from seedbench.policies.loading import Loaded
    from seedbench.protocol import Protocol as AgentProtocol
    from seedbench_trainers.config import TrainConfig

Metrics = dict[str, float]
T = TypeVar("T")


class Settings(BaseModel):
    """Base of a method's own settings, the `[method]` table of a recipe: frozen, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Term:
    """One term of the loss: weight * sum(value * mask) / normaliser, over an optimiser step's whole mini-batch.

    The normaliser is the mini-batch's, not the micro-batch's, so that gradients do not depend on how the mini-batch
    was cut to fit into memory.
    """

    name: str
    weight: float = 1.0
    mask: str = ""
    """Name of a signal with values >= 0 that masks or weighs the term; empty: every response token."""
    average: Literal["token", "sequence"] = "token"
    """token: over all (masked) tokens of the mini-batch; sequence: first over each sample's, then over samples."""


@dataclass(slots=True)
class Tokens:
    """Response tokens of a micro-batch as tensors (B, L), padded on the right; what a loss is computed from."""

    logprobs: torch.Tensor
    """log pi_theta, float32, with gradient."""
    old: torch.Tensor
    """Log-probabilities at sampling time."""
    mask: torch.Tensor
    """1 for response tokens, 0 for padding, float32."""
    entropy: torch.Tensor | None
    """Entropy of the distribution at each token in nats, with gradient; only if the method asks for it."""
    signals: Mapping[str, torch.Tensor]
    """The samples' signals by name, 0 in the padding."""


class Tools(Protocol):
    """What the loop lends a method. The policy is the frozen snapshot of this iteration until the update begins."""

    config: TrainConfig
    protocol: AgentProtocol
    panel: Panel
    """The training panel, after the data fraction."""
    out: Path
    """The run folder; a method may write files of its own there."""
    loaded: Loaded
    """The policy in memory: model, tokenizer, chat template, end tokens, context."""

    def rollouts(self, iteration: int) -> Batch:
        """Play `rollout.group` episodes of each of `rollout.tasks` drawn tasks with the policy."""
        ...

    def score(self, samples: Sequence[Sample], *, reference: bool = False) -> list[Floats]:
        """Log-probabilities (L,) of each sample's response tokens, without gradient, by the policy or the reference."""
        ...

    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Token ids of a rendered prompt, as the policy would be fed it."""
        ...

    def ask(self, prompts: Sequence[tuple[Message, ...]], sampling: Sampling) -> list[Response | None]:
        """The policy's answer to each prompt outside any episode; None where the prompt does not fit."""
        ...

    def policy(self, *, identity: dict[str, object] | None = None) -> Policy:
        """The policy as the harness's evaluation takes it, at its present weights; `identity`: what it says of itself
        in place of the weights that were loaded."""
        ...

    def once(self, work: Callable[[], T]) -> T:
        """Do what must not be done by every process of a training (asking a server, writing a file), and return its
        result, which is pickled, on all. Everything else in a method is done by all alike."""
        ...

    def note(self, message: str) -> None:
        """Show one line in the live view."""
        ...


class Method(ABC):
    """A training algorithm. Subclasses set `name` and `summary`, and usually `Settings`.

    Raises (when made): UsageError for settings that contradict each other or the run's configuration.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for `seedbench train --list`."""
    Settings: ClassVar[type[Settings]] = Settings
    samples_policy: ClassVar[bool] = True
    """False for methods that play no roll-outs (SFT): the roll-out settings are then refused or ignored."""

    def __init__(self, settings: Any, config: TrainConfig) -> None:
        self.settings = settings
        self.config = config

    @property
    def needs_reference(self) -> bool:
        """Whether the reference policy is scored every iteration, into the signal `ref`."""
        return False

    @property
    def needs_entropy(self) -> bool:
        """Whether `loss` reads `Tokens.entropy` (it costs a pass over the logits)."""
        return False

    @property
    def fresh(self) -> tuple[str, ...]:
        """Names of the samples' contexts that are scored anew, without gradient, by the weights of every optimiser
        step, into the signals of the same names."""
        return ()

    @property
    def tracked_terms(self) -> bool:
        """Whether the gradient norm of each term is logged, measured on a few samples of every update."""
        return False

    def prepare(self, model: str, train: Trainer) -> str:
        """Run stages that come first (an SFT stage) and return the model to start from: `model` unless overridden.

        `train` trains another configuration into a sub-folder of this run, or finds it done, and returns its weights.
        """
        return model

    def prompt(self, task: Task, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """What the policy is asked in a training roll-out, where a method asks more than the protocol does."""
        return messages

    def gather(self, tools: Tools, iteration: int) -> Batch:
        """The samples of an iteration; roll-outs of the policy unless overridden."""
        return tools.rollouts(iteration)

    @abstractmethod
    def signals(self, batch: Batch, tools: Tools) -> Metrics:
        """Fill the samples' signals (advantages, teacher scores) and return figures for the log."""

    def after(self, batch: Batch) -> Metrics:
        """Figures that are known only once the batch was trained on."""
        return {}

    @abstractmethod
    def terms(self) -> Sequence[Term]:
        """The terms of the loss; the same for the whole run."""

    @abstractmethod
    def loss(self, tokens: Tokens) -> Mapping[str, torch.Tensor]:
        """Per-token values (B, L) of every term, by its name. Also returns detached per-token statistics under other
        names (`ratio`, `clipped`...), which the loop averages over response tokens and logs."""


class Trainer(Protocol):
    """Trains a configuration as a stage of another run."""

    def __call__(self, config: TrainConfig, folder: str) -> str:
        """Train into `<run>/<folder>` (or go on there) and return the final checkpoint's path."""
        ...

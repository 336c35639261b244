"""A row of a batch: its prompt, the answer that grows behind it, and where that answer ends."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from seedbench.policies.choices import ChoiceTree
from seedbench.policies.sampling import ResponseEnds


@dataclass(frozen=True, slots=True)
class Row:
    """A prompt to answer."""

    prompt: Sequence[int]
    """(P,) ids, at least one."""
    seed: int
    """Of the row's own generator, in [0, 2**63)."""
    tree: ChoiceTree | None = None
    """Restricts the answer to its choices; stop strings do not matter then."""
    episode: Hashable | None = None
    """What the row's keys and values are kept under for a later row; None keeps nothing."""


@dataclass(frozen=True, slots=True)
class Generated:
    """An answer to a row."""

    ids: list[int]
    """(R,) ids up to and including the token that ended it."""
    logprobs: list[float]
    """(R,) as in `base.Sampled`; empty unless recorded."""
    ended: bool
    """False where the token limit, or a cancellation, cut it short."""


@dataclass(slots=True, eq=False)
class Line:
    """A row under way: its tokens, and how many of prompt and answer the model has been fed."""

    number: int
    row: Row
    ends: ResponseEnds
    limit: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    fed: int = 0
    ended: bool = False

    def __post_init__(self) -> None:
        self._force()

    @property
    def done(self) -> bool:
        """Whether no token is to follow."""
        return self.ended or len(self.ids) >= self.limit

    @property
    def hungry(self) -> int:
        """How many tokens the model has not been fed."""
        return len(self.row.prompt) + len(self.ids) - self.fed

    def known(self, count: int) -> list[int]:
        """The first `count` tokens of prompt and answer."""
        return [*self.row.prompt[:count], *self.ids[: max(0, count - len(self.row.prompt))]]

    def rest(self) -> list[int]:
        """The tokens that the model has not been fed."""
        start = self.fed - len(self.row.prompt)
        return self.ids[start:] if start >= 0 else [*self.row.prompt[self.fed :], *self.ids]

    def accept(self, token: int, logprob: float) -> None:
        """Take a token that was drawn, and the run that it forces."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        if self.row.tree is None:
            self.ended = self.ends(self.ids)
        else:
            self._force()

    def _force(self) -> None:
        if self.row.tree is None:
            return
        run = self.row.tree.forced(self.ids)[: self.limit - len(self.ids)]
        self.ids += run
        self.logprobs += [0.0] * len(run)
        self.ended = not self.row.tree.allowed(self.ids)

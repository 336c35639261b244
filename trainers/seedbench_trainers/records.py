"""What a training iteration passes on: samples (token sequences with their masks), trajectories, the batch of both.

Everything that is "per response token" has length L, the number of sampled tokens of a sample in the order of its
sequence. Prompts, observations and padding have no entry there, so that nothing can be trained on them by mistake.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbench.policies.base import Sampled
from seedbench.types import Episode, Message

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]


@dataclass(slots=True, eq=False)
class Sample:
    """One token sequence to learn from, exactly as the policy saw and sampled it; nothing is tokenised again."""

    ids: Ints
    """(T,) prompt and response tokens in order; after the last response nothing follows."""
    spans: tuple[tuple[int, int], ...]
    """Half-open ranges of `ids` that the policy sampled, in order: one, or one a turn of a conversation. None starts
    at 0: a token is scored from what stands before it."""
    logprobs: Floats
    """(L,) log-probabilities at sampling time; zeros for demonstrations."""
    allowed: tuple[tuple[int, ...], ...] = ()
    """(L,) ids that were allowed at each response token (`decode = "admissible"`); empty: the whole vocabulary."""
    trajectory: int = 0
    """Index of its trajectory in the batch."""
    turns: tuple[int, ...] = ()
    """The turn of the trajectory that each span answers."""
    signals: dict[str, Floats] = field(default_factory=dict)
    """Named arrays (L,): advantage, ref, teacher... A method writes them; its loss reads them by name."""
    contexts: dict[str, Sample] = field(default_factory=dict)
    """The same response tokens behind another prompt, by name: what a method wants scored beside the plain context."""

    @property
    def length(self) -> int:
        """L, the number of response tokens."""
        return sum(end - start for start, end in self.spans)

    @property
    def positions(self) -> NDArray[np.int64]:
        """(L,) indices into `ids` of the response tokens."""
        return np.concatenate([np.arange(start, end) for start, end in self.spans])

    def spread(self, values: Sequence[float] | Floats) -> Floats:
        """One value a span -> one a response token (L,)."""
        lengths = [end - start for start, end in self.spans]
        return np.repeat(np.asarray(values, dtype=np.float32), lengths)


@dataclass(slots=True, eq=False)
class Trajectory:
    """A finished episode with what its policy was shown."""

    episode: Episode
    group: int
    """Number of its task draw within the iteration: trajectories of one group are attempts at one task."""
    prompts: tuple[tuple[Message, ...], ...]
    """The messages of every turn, as the policy was asked."""
    reward: float
    """Return of the episode, already scaled (`reward.scale`); penalties are apart."""
    penalties: tuple[float, ...]
    """What each turn loses for an invalid action, >= 0."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What a method keeps with the trajectory for the log, e.g. the skill: plain JSON values."""


@dataclass(slots=True, eq=False)
class Batch:
    """The samples of one iteration."""

    trajectories: list[Trajectory]
    samples: list[Sample]
    discarded: list[Episode] = field(default_factory=list)
    """Episodes that were played and are not trained on: their group was drawn again for want of variance."""
    broken: int = 0
    """Attempts that ended in infrastructure errors: they say nothing of the policy, and stand in nothing above."""

    def groups(self) -> Iterator[list[int]]:
        """Indices of the trajectories of each group, groups in order of their first trajectory."""
        members: dict[int, list[int]] = {}
        for index, trajectory in enumerate(self.trajectories):
            members.setdefault(trajectory.group, []).append(index)
        yield from members.values()


def in_context(sample: Sample, prompt: Sequence[int]) -> Sample:
    """The sample with another prompt before its first response: the response tokens and all after them as they were."""
    start = sample.spans[0][0]
    shift = len(prompt) - start
    return Sample(
        ids=np.concatenate([np.asarray(prompt, dtype=np.int32), sample.ids[start:]]),
        spans=tuple((first + shift, end + shift) for first, end in sample.spans),
        logprobs=sample.logprobs,
        allowed=sample.allowed,
        trajectory=sample.trajectory,
        turns=sample.turns,
    )


def merge_turns(turns: Sequence[Sampled], trajectory: int) -> list[Sample]:
    """The samples of one trajectory: turns are joined wherever a prompt is exactly what stood there before.

    A conversation whose prompt grows token by token becomes one sample with a span a turn; step-independent prompts
    become one sample each, and so does a turn before which a chat template has rewritten what was said.
    """
    samples: list[Sample] = []
    open_run: list[int] = []

    def close() -> None:
        if not open_run:
            return
        last = turns[open_run[-1]]
        spans = []
        for index in open_run:
            start = len(turns[index].prompt)
            spans.append((start, start + len(turns[index].ids)))
        samples.append(
            Sample(
                ids=np.asarray((*last.prompt, *last.ids), dtype=np.int32),
                spans=tuple(spans),
                logprobs=np.asarray([p for i in open_run for p in turns[i].logprobs], dtype=np.float32),
                allowed=tuple(a for i in open_run for a in turns[i].allowed),
                trajectory=trajectory,
                turns=tuple(open_run),
            )
        )
        open_run.clear()

    for index, turn in enumerate(turns):
        if not turn.ids:  # a policy that said nothing left nothing to learn from
            continue
        if open_run:
            before = turns[open_run[-1]]
            said = (*before.prompt, *before.ids)
            alike = bool(before.allowed) == bool(turn.allowed)
            if turn.prompt[: len(said)] != said or not alike:
                close()
        open_run.append(index)
    close()
    return samples

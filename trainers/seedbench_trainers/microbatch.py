"""Samples as the tensors of one forward and backward pass: how a batch is cut, and how it is laid out.

Per-response-token values have two layouts: (N,), all samples' response tokens one after the other, which the scorer
works in, and (B, L), a row a sample padded on the right with 0, which losses work in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seedbench_trainers.base import Tokens
from seedbench_trainers.records import Floats, Sample


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Some samples as tensors: what the scorer takes, and the (B, L) layout of a loss (see `base.Tokens`)."""

    ids: Tensor
    """(B, T) int64, 0 in the padding."""
    rows: Tensor
    """(N,) sample of each response token; N is the sum of the samples' L."""
    positions: Tensor
    """(N,) its index in the sequence."""
    columns: Tensor
    """(N,) its index among the sample's response tokens."""
    allowed: Tensor | None
    """(N, K) int64, padded with -1; None where no sample was restricted."""
    restricted: Tensor | None
    """(N,) bool."""
    old: Tensor
    """(B, L) float32."""
    mask: Tensor
    """(B, L) float32."""
    signals: dict[str, Tensor]
    """(B, L) float32 each."""

    def spread(self, values: Tensor) -> Tensor:
        """(N,) -> (B, L), 0 in the padding; gradients pass."""
        return torch.zeros_like(self.mask).index_put((self.rows, self.columns), values)

    def tokens(self, logprobs: Tensor, entropy: Tensor | None) -> Tokens:
        """A scorer's results (N,) as a loss takes them."""
        spread = None if entropy is None else self.spread(entropy)
        return Tokens(self.spread(logprobs), self.old, self.mask, spread, self.signals)


def micro_batches(samples: Sequence[Sample], tokens: int) -> list[list[int]]:
    """Cut samples into passes of at most `tokens` padded tokens, longest first, so that memory is tried at once.

    Returns indices into `samples`; a sample longer than `tokens` goes alone. Deterministic: ties keep their order.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(samples)), key=lambda i: -len(samples[i].ids)):
        if batches and (len(batches[-1]) + 1) * len(samples[batches[-1][0]].ids) <= tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def collate(
    samples: Sequence[Sample], indices: Sequence[int], device: torch.device | str, *, signals: bool = True
) -> MicroBatch:
    """The samples at `indices` as tensors on `device`, with their signals unless told otherwise.

    Raises ValueError for a signal that not every one of them has, in the length of its response, and for a sampled
    token that was not allowed: either is a fault of a method or a policy.
    """
    chosen = [samples[index] for index in indices]
    lengths = [sample.length for sample in chosen]
    allowed, restricted = _allowed(chosen)
    names = sorted({name for sample in chosen for name in sample.signals if signals})

    def tensor(array: NDArray[Any] | None) -> Any:
        return None if array is None else torch.from_numpy(array).to(device)

    return MicroBatch(
        ids=tensor(_pad([sample.ids for sample in chosen], np.int64)),
        rows=tensor(np.repeat(np.arange(len(chosen)), lengths)),
        positions=tensor(np.concatenate([sample.positions for sample in chosen])),
        columns=tensor(np.concatenate([np.arange(length) for length in lengths])),
        allowed=tensor(allowed),
        restricted=tensor(restricted),
        old=tensor(_pad([sample.logprobs for sample in chosen], np.float32)),
        mask=tensor(_pad([np.ones(length) for length in lengths], np.float32)),
        signals={name: tensor(_pad([_signal(sample, name) for sample in chosen], np.float32)) for name in names},
    )


def _pad(arrays: Sequence[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    padded = np.zeros((len(arrays), max(map(len, arrays))), dtype=dtype)
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return padded


def _signal(sample: Sample, name: str) -> Floats:
    values = sample.signals.get(name)
    if values is None or len(values) != sample.length:
        found = "none" if values is None else f"{len(values)} values"
        raise ValueError(f"the signal '{name}' needs {sample.length} values on a sample that has {found}")
    return values


def _allowed(samples: Sequence[Sample]) -> tuple[NDArray[np.int64] | None, NDArray[np.bool_] | None]:
    """(N, K) allowed ids and (N,) whether there is a restriction; (None, None) without any."""
    if not any(sample.allowed for sample in samples):
        return None, None
    lists = [ids for sample in samples for ids in sample.allowed or ((),) * sample.length]
    sizes = np.asarray([len(ids) for ids in lists])
    table = np.full((len(lists), sizes.max()), -1, dtype=np.int64)
    table[np.arange(table.shape[1]) < sizes[:, None]] = [id_ for ids in lists for id_ in ids]
    targets = np.concatenate([sample.ids[sample.positions] for sample in samples])
    if not ((table == targets[:, None]).any(1) | (sizes == 0)).all():
        raise ValueError("a sampled token is not among the ids that were allowed at its position")
    return table, sizes > 0

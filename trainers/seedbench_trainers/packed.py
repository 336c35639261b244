"""Scores of responses whose contexts begin alike: what they share is computed once.

Samples are sorted so that common beginnings stand side by side, and cut into groups where that saves work. A group is
one row [prefix | rest 1 | rest 2 | ...]: positions go on from the prefix in every rest, and a token sees the prefix
and what stands before it in its own rest. Results are those of `scoring.score`, to rounding.

Only models with full attention through torch's kernel take such rows; any other is scored sample by sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seedbench_trainers.microbatch import collate
from seedbench_trainers.records import Floats, Ints, Sample
from seedbench_trainers.scoring import TokenScorer, pass_tokens, score

_ROW_TOKENS = 4096
_MASK_ELEMENTS = 1 << 26
"""Most elements of an attention mask (B, T, T): kernels on a CPU turn it into floats, 256 MiB."""


@dataclass(frozen=True, slots=True)
class _Row:
    members: list[int]
    """Samples, as indices."""
    shared: int
    """Tokens at the beginning that all of them have in common."""
    size: int
    """Tokens of the row: the prefix once, and every member's rest but for its last token, after which nothing is."""


@torch.no_grad()
def score_packed(
    scorer: TokenScorer, samples: Sequence[Sample], *, tokens: int, temperature: float, min_shared: int = 32
) -> list[Floats]:
    """As `scoring.score`, which says what comes back; samples that begin alike share one pass over their prefix.

    Args:
        scorer: the model, which is put into evaluation mode for the while.
        samples: what to score; their signals are not read.
        tokens: most tokens a pass, padding included; a longer sample goes alone.
        temperature: as at sampling time.
        min_shared: fewest tokens that a group has in common, >= 1.
    """
    if not takes_rows(scorer):
        return score(scorer, samples, tokens=tokens, temperature=temperature)
    rows = _plan([s.ids[:-1] for s in samples], _relative_width(scorer), min(tokens, _ROW_TOKENS), min_shared)
    packed = {index for row in rows for index in row.members}
    alone = [index for index in range(len(samples)) if index not in packed]
    values = score(scorer, [samples[index] for index in alone], tokens=tokens, temperature=temperature)
    scores = dict(zip(alone, values, strict=True))
    training = scorer.model.training
    scorer.model.eval()
    for some in _passes(rows, pass_tokens(tokens, next(scorer.parameters()).device)):
        scores |= _pass(scorer, samples, some, temperature)
    scorer.model.train(training)
    return [scores[index] for index in range(len(samples))]


def takes_rows(scorer: TokenScorer) -> bool:
    """Whether the model can be given rows of several rests: found out once, on a few tokens, and remembered.

    The trial cannot see a window that is longer than it, so that windows are looked up in the model's configuration.
    """
    if scorer.packs is None:
        config = scorer.base.config.get_text_config()
        kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
        windows = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
        plain = getattr(config, "_attn_implementation", "") == "sdpa" and not kinds and not any(windows)
        scorer.packs = plain and _same_states(scorer)
    return scorer.packs


@torch.no_grad()
def _same_states(scorer: TokenScorer) -> bool:
    """Whether a row's last rest has the hidden states that it has behind the prefix alone."""
    device, training = next(scorer.parameters()).device, scorer.model.training
    prefix, rests = [3, 1, 4, 1, 5], ([9, 2, 6, 5], [3, 5, 8, 9, 7])
    fed = [np.asarray([*prefix, *rest], dtype=np.int32) for rest in rests]
    scorer.model.eval()
    try:
        with torch.autocast(device.type, enabled=False):
            row = scorer.states(*_lay_out(fed, [_Row([0, 1], 5, 14)], device))[0, -5:]
            alone = scorer.states(torch.from_numpy(fed[1])[None].long().to(device))[0, -5:]
    except (TypeError, ValueError, RuntimeError):  # a model that takes no such mask or no positions says so in its way
        return False
    finally:
        scorer.model.train(training)
    return torch.allclose(row, alone, rtol=0, atol=2e-3 * float(alone.abs().max()))


def _relative_width(scorer: TokenScorer) -> float:
    """Length of a sequence at which a token's attention costs as much as everything else in the decoder's layers.

    Per layer and token, attention over n tokens takes 4 n d operations (d: all heads together) and n exponentials a
    head, each as long as some 20 dimensions of it (measured for heads of 32 and 64); a weight takes two operations.
    """
    base, config = scorer.base, scorer.base.config.get_text_config()
    embedded = base.get_input_embeddings().weight.numel()
    weights = sum(p.numel() for p in base.base_model.parameters()) - embedded
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return float(weights / config.num_hidden_layers / (2 * heads * (size + 20)))


def _plan(fed: Sequence[Ints], width: float, most: int, min_shared: int) -> list[_Row]:
    """The cheapest cut of the sorted sequences into groups; those of two and more come back.

    Cost in units of a token's attention to one other: n * width for a row of n tokens, and n^2 / 2 for a causal one,
    n^2 under a mask, whose blocks no kernel leaves out.
    """
    order = sorted(range(len(fed)), key=lambda index: fed[index].astype(">i4").tobytes())
    common = [_common(fed[a], fed[b]) for a, b in pairwise(order)]
    best, starts, rows = [0.0], [0], list[_Row | None]([None])
    for end, last in enumerate(order, start=1):
        shared = size = len(fed[last])
        cost, start, chosen = best[-1] + size * width + size**2 / 2, end - 1, None
        total = size
        for first in range(end - 2, -1, -1):
            shared = min(shared, common[first])
            total += len(fed[order[first]])
            size = total - (end - first - 1) * shared
            if shared < min_shared or size > most:
                break
            together = best[first] + size * width + size**2
            if together < cost:
                cost, start, chosen = together, first, _Row(order[first:end], shared, size)
        best.append(cost)
        starts.append(start)
        rows.append(chosen)
    found = []
    end = len(order)
    while end:
        if (row := rows[end]) is not None:
            found.append(row)
        end = starts[end]
    return found


def _common(one: Ints, other: Ints) -> int:
    """Length of the common prefix."""
    length = min(len(one), len(other))
    apart = np.flatnonzero(one[:length] != other[:length])
    return int(apart[0]) if len(apart) else length


def _passes(rows: Sequence[_Row], tokens: int) -> list[list[_Row]]:
    """Rows of similar size, longest first, as many a pass as the tokens and the mask allow."""
    passes: list[list[_Row]] = []
    for row in sorted(rows, key=lambda row: -row.size):
        longest = passes[-1][0].size if passes else row.size
        if passes and (len(passes[-1]) + 1) * longest <= min(tokens, _MASK_ELEMENTS // longest):
            passes[-1].append(row)
        else:
            passes.append([row])
    return passes


def _pass(scorer: TokenScorer, samples: Sequence[Sample], rows: list[_Row], temperature: float) -> dict[int, Floats]:
    device = next(scorer.parameters()).device
    members = [index for row in rows for index in row.members]
    batch = collate(samples, members, device, signals=False)
    ids, positions, mask = _lay_out([sample.ids[:-1] for sample in samples], rows, device)
    states = scorer.states(ids, positions, mask)  # (B, T, H)
    before = torch.from_numpy(_before(samples, rows, ids.shape[1])).to(device)
    logprobs, _ = scorer.pick(
        states.reshape(-1, states.shape[-1]).index_select(0, before), batch.ids[batch.rows, batch.positions],
        allowed=batch.allowed, restricted=batch.restricted, temperature=temperature,
    )  # fmt: skip
    values = batch.spread(logprobs).cpu().numpy()
    return {i: row[: samples[i].length].copy() for i, row in zip(members, values, strict=True)}


def _lay_out(fed: Sequence[Ints], rows: Sequence[_Row], device: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Ids (B, T), positions (B, T), and where the key of a query counts (B, 1, T, T)."""
    shape = (len(rows), max(row.size for row in rows))
    ids, positions = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    part = np.full(shape, -1)  # 0 in the prefix, 1 and on in the rests; the padding sees itself, or it would be NaN
    for at, row in enumerate(rows):
        pieces = [fed[row.members[0]][: row.shared], *(fed[index][row.shared :] for index in row.members)]
        starts = [0] + [row.shared] * len(row.members)
        ids[at, : row.size] = np.concatenate(pieces)
        positions[at, : row.size] = np.concatenate(
            [np.arange(start, start + len(piece)) for start, piece in zip(starts, pieces, strict=True)]
        )
        part[at, : row.size] = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
    parts = torch.from_numpy(part).to(device)
    seen = (parts == 0)[:, None, :] | (parts[:, None, :] == parts[:, :, None])  # (B, T, T)
    mask = seen.tril_()[:, None]
    return torch.from_numpy(ids).to(device), torch.from_numpy(positions).to(device), mask


def _before(samples: Sequence[Sample], rows: Sequence[_Row], width: int) -> NDArray[np.int64]:
    """(N,) index, in rows laid end to end, of the token before each response token."""
    found = []
    for at, row in enumerate(rows):
        offset = 0
        for index in row.members:
            before = samples[index].positions - 1
            found.append(at * width + before + np.where(before >= row.shared, offset, 0))
            offset += len(samples[index].ids) - 1 - row.shared
    return np.concatenate(found)

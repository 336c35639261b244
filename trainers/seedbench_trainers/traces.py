"""Traces: a few trajectories of an update, kept token by token for `seedbench view`.

The record and its reader are the harness's (`seedbench.traces`); here it is made from a batch and written.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from seedbench.errors import SeedBenchError
from seedbench.traces import Token, Trace, read_traces, trace_file
from seedbench_trainers.config import Track
from seedbench_trainers.records import Batch, Sample

__all__ = ["choose", "read_traces", "token_texts", "traces_due", "write_traces"]

_DIGITS = 6
"""Decimals of the numbers in a trace: below what float32 resolves near 1."""


def traces_due(track: Track, update: int, total: int) -> bool:
    """Whether update `update` of `total`, from 1, leaves traces: the first, every `traces_every`, and the last."""
    return track.traces > 0 and (update in (1, total) or update % track.traces_every == 0)


def write_traces(out: Path, update: int, batch: Batch, tokenizer: Any, beta: float | None, count: int) -> None:
    """Write `count` trajectories of a batch that was trained on, in place of what the update left before.

    Args:
        out: the run folder.
        update: number of the update, from 1.
        batch: with the signals `advantage`, `teacher` and `distil` where the method has them.
        tokenizer: the policy's.
        beta: sharpness of the gate sigmoid(beta * Delta); None for a method without one.
        count: how many; see `choose` for which.

    Raises:
        SeedBenchError: the disk is full, or the folder cannot be written.
    """
    traces = [_trace(batch, index, update, tokenizer, beta) for index in choose(batch, count)]
    content = "".join(json.dumps(trace.to_json(), allow_nan=False) + "\n" for trace in traces)
    path = trace_file(out, update)
    draft = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(exist_ok=True)
        draft.write_bytes(gzip.compress(content.encode(), mtime=0))  # no time inside: equal traces, equal files
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise SeedBenchError(
            f"cannot write the traces '{path}': {error.strerror}. Free space and run the same command again, which"
            " continues from the last checkpoint; with --set track.traces=0 no traces are kept."
        ) from error


def choose(batch: Batch, count: int) -> list[int]:
    """Indices of `count` trajectories, ascending: half of them solved where enough are, spread over the groups."""
    solved, unsolved = (
        [[i for i in group if batch.trajectories[i].episode.success is success] for group in batch.groups()]
        for success in (True, False)
    )
    failures = min(sum(map(len, unsolved)), max(count // 2, count - sum(map(len, solved))))
    return sorted(_spread(solved, count - failures) + _spread(unsolved, failures))


def _spread(groups: Sequence[Sequence[int]], count: int) -> list[int]:
    """`count` members: one of each of evenly spaced groups; where there are too few groups, their next ones too."""
    ranks = [[i for i in rank if i is not None] for rank in zip_longest(*groups)]
    if ranks and count < len(ranks[0]):
        return [ranks[0][k * len(ranks[0]) // count] for k in range(count)]
    return [i for rank in ranks for i in rank][:count]


def _trace(batch: Batch, index: int, update: int, tokenizer: Any, beta: float | None) -> Trace:
    trajectory = batch.trajectories[index]
    turns = len(trajectory.episode.turns)
    advantage: list[float | None] = [None] * turns
    tokens: list[tuple[Token, ...]] = [()] * turns
    for sample in batch.samples:
        if sample.trajectory == index:
            _add(sample, advantage, tokens, tokenizer, beta)
    return Trace(
        update=update,
        group=trajectory.group,
        reward=trajectory.reward,
        advantage=tuple(advantage),
        notes=trajectory.notes,
        episode=trajectory.episode,
        tokens=tuple(tokens),
    )


def _add(
    sample: Sample,
    advantage: list[float | None],
    tokens: list[tuple[Token, ...]],
    tokenizer: Any,
    beta: float | None,
) -> None:
    """Fill in the turns that a sample answers."""
    deltas = _deltas(sample)
    gates = [None if beta is None or delta is None else _sigmoid(beta * delta) for delta in deltas]
    at = 0
    for turn, (start, end) in zip(sample.turns, sample.spans, strict=True):
        here = slice(at, at := at + end - start)
        texts = token_texts(sample.ids[start:end].tolist(), tokenizer)
        logprobs = map(_plain, sample.logprobs[here])
        tokens[turn] = tuple(map(Token, texts, logprobs, map(_plain, deltas[here]), map(_plain, gates[here])))
        if "advantage" in sample.signals:
            advantage[turn] = _plain(float(sample.signals["advantage"][here].mean()))


def _deltas(sample: Sample) -> list[float | None]:
    if "teacher" not in sample.signals:
        return [None] * sample.length
    deltas = sample.signals["teacher"] - sample.logprobs
    return [float(delta) if m > 0 else None for delta, m in zip(deltas, sample.signals["distil"], strict=True)]


def _sigmoid(value: float) -> float:
    return 0.5 * (1 + math.tanh(value / 2))


def _plain(value: float | None) -> float | None:
    """The number as JSON can hold it."""
    return round(float(value), _DIGITS) if value is not None and math.isfinite(value) else None


def token_texts(ids: Sequence[int], tokenizer: Any) -> list[str]:
    """The text of every token; joined, they are the text of the whole response.

    A character of several tokens belongs to the last of them, and special tokens have no text. What cannot be told
    apart (a decoder whose texts do not add up) falls to the last token.
    """

    def decode(part: Sequence[int]) -> str:
        return str(tokenizer.decode(part, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    whole, texts = decode(ids), [""] * len(ids)
    first = at = 0
    for i in range(len(ids)):
        text = decode(ids[first : i + 1])
        # Decoders that mark words drop the space before the first one.
        space = 0 if whole.startswith(text, at) else whole.startswith(" ", at)
        if text.endswith("\ufffd") or not whole.startswith(text, at + space):
            continue
        end = at + space + len(text) if text else at
        texts[i], first, at = whole[at:end], i + 1, end
    if whole[at:]:
        texts[-1] += whole[at:]
    return texts

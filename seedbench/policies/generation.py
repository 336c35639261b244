"""Generation token by token: what is drawn is recorded, and what the model already knows is not computed again.

Three things are reused where the model allows it (`states.Network.plain`): the keys and values of an episode's earlier
turns, as far as its next prompt begins with the same tokens; one pass over a prompt that several rows share; and runs
of tokens that a choice tree forces, which are fed together. None of them changes a distribution beyond the rounding of
a matrix product. Rows that have ended leave the batch once they make up a quarter of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Event
from typing import TYPE_CHECKING, Any

from seedbench.policies.base import Sampling
from seedbench.policies.loading import Loaded
from seedbench.policies.rows import Generated, Line, Row
from seedbench.policies.sampling import ResponseEnds, RowSampler
from seedbench.policies.states import KeptStates, Layers, Network, States

if TYPE_CHECKING:
    from torch import Tensor


__all__ = ["Generated", "Generator", "Row", "is_out_of_memory"]


class Generator:
    """Generates with a loaded model.

    `record`: return log-probabilities. `cache_bytes`: most memory for keys and values kept between the turns of
    episodes. `cancelled`: once set, a running `generate` returns after its next token. `autocast_dtype`: the torch
    dtype that a float32 model on a GPU computes in; None: its own.
    """

    def __init__(
        self,
        loaded: Loaded,
        *,
        record: bool = False,
        cache_bytes: int = 0,
        cancelled: Event | None = None,
        autocast_dtype: Any = None,
    ) -> None:
        self._loaded = loaded
        self._network = Network(loaded)
        self._record = record
        self._kept = KeptStates(cache_bytes if self._network.plain else 0)
        self._cancelled = cancelled or Event()
        self._autocast_dtype = autocast_dtype

    def generate(self, rows: Sequence[Row], sampling: Sampling) -> list[Generated]:
        """Answer rows, in one batch. The model is in evaluation mode meanwhile; its mode is restored.

        Raises what the model raises; then nothing of these rows is kept.
        """
        import torch

        model = self._loaded.model
        training = model.training
        if training:
            model.eval()
        try:
            with torch.inference_mode(), self._autocast():
                return self._answers(rows, sampling)
        finally:
            if training:
                model.train()

    def forget(self, episode: Hashable) -> None:
        """Drop what is kept of an episode."""
        self._kept.forget(episode)

    def release(self) -> None:
        """Drop all that is kept, and give unused memory of a GPU back."""
        import torch

        self._kept.clear()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _autocast(self) -> AbstractContextManager[Any]:
        import torch

        model = self._loaded.model
        if self._autocast_dtype is None or model.device.type != "cuda" or model.dtype != torch.float32:
            return nullcontext()
        return torch.autocast("cuda", dtype=self._autocast_dtype)

    def _answers(self, rows: Sequence[Row], sampling: Sampling) -> list[Generated]:
        ends = ResponseEnds(eos=self._loaded.eos, stops=sampling.stop, decode=self._decode)
        lines = [Line(number, row, ends, sampling.max_new_tokens) for number, row in enumerate(rows)]
        waiting = [line for line in lines if not line.done]
        if waiting:
            self._run(waiting, RowSampler(sampling, [row.seed for row in rows]))
        return [Generated(line.ids, line.logprobs if self._record else [], line.ended) for line in lines]

    def _run(self, lines: list[Line], sampler: RowSampler) -> None:
        """Extend lines until all are done, or until cancelled."""
        states, logits = self._prefill(lines) if self._network.plain else self._prefill_once(lines)
        while not self._cancelled.is_set():
            self._draw(lines, logits, sampler)
            lines = self._drop(lines, states)
            if not lines:
                return
            # Columns without a token in the middle of a row are for plain models only.
            logits = _feed(states, lines, at_once=None if self._network.plain else 1)

    def _prefill_once(self, lines: Sequence[Line]) -> tuple[States, Tensor]:
        states = States.of(self._network, [None] * len(lines))
        logits = states.feed([line.row.prompt for line in lines])
        for line in lines:
            line.fed = len(line.row.prompt)
        return states, logits

    def _prefill(self, lines: Sequence[Line]) -> tuple[States, Tensor]:
        """Feed what is new of each line, equal ones once, in groups of like length; states and logits (B, V)."""
        import torch

        firsts: dict[tuple[int, ...], Line] = {}
        for line in lines:
            firsts.setdefault(tuple(line.known(line.hungry)), line)
        known: dict[int, Layers | None] = {}
        for ids, line in firsts.items():
            known[line.number] = None if line.row.episode is None else self._kept.take(line.row.episode, ids)
            line.fed = _tokens(known[line.number])
        groups = list(_alike(firsts.values()))
        batches, logits = [], []
        for group in groups:
            batches.append(States.of(self._network, [known.pop(line.number) for line in group]))
            logits.append(_feed(batches[-1], group))
        places = {line.number: place for place, line in enumerate(line for group in groups for line in group)}
        rows = []
        for line in lines:
            line.fed = len(line.row.prompt) + len(line.ids)
            rows.append(places[firsts[tuple(line.known(line.fed))].number])
        states = States.joined(batches) if len(batches) > 1 else batches[0]
        if rows != list(range(len(firsts))):
            states.select(rows)
        return states, torch.cat(logits)[rows]

    def _draw(self, lines: Sequence[Line], logits: Tensor, sampler: RowSampler) -> None:
        """Draw the next token of every line that has been fed all it has."""
        places = [place for place, line in enumerate(lines) if not line.done and not line.hungry]
        if not places:
            return
        scores = sampler.cut(_restricted(logits[places], [lines[place] for place in places]))
        tokens = sampler.draw(scores, [lines[place].number for place in places])
        logprobs = sampler.logprobs(scores, tokens).tolist() if self._record else [0.0] * len(places)
        for place, token, logprob in zip(places, tokens.tolist(), logprobs, strict=True):
            lines[place].accept(token, logprob)

    def _drop(self, lines: list[Line], states: States) -> list[Line]:
        """The lines that stay in the batch; the states of those that leave it are kept for their episodes."""
        done = [place for place, line in enumerate(lines) if line.done]
        if len(done) < len(lines) and (not self._network.plain or 4 * len(done) < len(lines)):
            return lines
        for place in done if self._kept.limit else ():
            line = lines[place]
            if line.row.episode is not None:
                self._kept.put(line.row.episode, line.known(line.fed), states.row(place))
        stay = [place for place, line in enumerate(lines) if not line.done]
        if stay and done:
            states.select(stay)
        return [lines[place] for place in stay]

    def _decode(self, ids: list[int]) -> str:
        decode = self._loaded.tokenizer.decode
        return str(decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def is_out_of_memory(error: Exception) -> bool:
    """Whether an exception says that memory ran out, on whatever device."""
    import torch

    # The CPU allocator has no exception class of its own.
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "allocate memory" in str(error)


def _feed(states: States, lines: Sequence[Line], at_once: int | None = None) -> Tensor:
    """Feed each line that is not done what it has, at most `at_once` tokens; the logits (B, V) behind it."""
    chunks = []
    for line in lines:
        tokens = [] if line.done else line.rest()[:at_once]
        chunks.append(tokens)
        line.fed += len(tokens)
    return states.feed(chunks)


def _tokens(layers: Layers | None) -> int:
    return layers[0][0].shape[1] if layers else 0


def _alike(lines: Iterable[Line]) -> Iterable[list[Line]]:
    """Groups of lines, none with more than twice as many tokens to feed as another: padding is work."""
    ordered = sorted(lines, key=lambda line: -line.hungry)
    group: list[Line] = []
    for line in ordered:
        if group and 2 * line.hungry < group[0].hungry:
            yield group
            group = []
        group.append(line)
    if group:
        yield group


def _restricted(logits: Tensor, lines: Sequence[Line]) -> Tensor:
    """Logits (B, V) with minus infinity for what the choice trees of the lines do not allow."""
    allowed = [
        (place, token)
        for place, line in enumerate(lines)
        if line.row.tree is not None
        for token in line.row.tree.allowed(line.ids)
    ]
    if not allowed:
        return logits
    rows, tokens = map(list, zip(*allowed, strict=True))
    bound = sorted(set(rows))
    kept = logits[rows, tokens]
    logits = logits.clone()
    logits[bound] = float("-inf")
    logits[rows, tokens] = kept
    return logits

"""How a token is drawn and where a response ends: row by row, so that a batch cannot change an answer.

Sampling uses the Gumbel-max identity: argmax(log p + g), with g independent standard Gumbel noise, is a
draw from p (Gumbel 1954; Maddison, Tarlow and Minka 2014, section 2). The noise of a row comes from that
request's own generator, one vector of vocabulary size a generated token, always on the CPU: the draw is the
same in every batch, order and on every device, up to the rounding of the logits themselves.

The two classes are what `transformers` calls a logits processor and a stopping criterion. They do not
inherit from its classes, so that importing this module loads neither it nor torch.
"""

from collections.abc import Callable, Collection, Sequence
from threading import Event
from typing import TYPE_CHECKING, cast

from seedbench.policies.base import Sampling

if TYPE_CHECKING:
    from torch import Tensor

# A token of byte-level vocabularies is at least one byte, so a stop string of n bytes lies in the last n
# tokens; the slack covers decoders that treat the first tokens of a text specially.
_WINDOW_SLACK = 8


def cut_at_stop(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """Cut `text` behind the stop string that is complete first; and whether there was one.

    >>> cut_at_stop("<action>look</action> and then", ("</action>",))
    ('<action>look</action>', True)
    """
    ends = [at + len(stop) for stop in stops if stop and (at := text.find(stop)) >= 0]
    return (text[: min(ends)], True) if ends else (text, False)


class RowSampler:
    """Logits processor after which argmax is a draw under `sampling`; greedy at temperature 0.

    Order of the cuts: temperature, top-k, top-p (the smallest set of most likely tokens whose probabilities
    reach top_p; its last member is kept). Tokens tied with the k-th stay.
    """

    def __init__(self, sampling: Sampling, seeds: Sequence[int]) -> None:
        import torch

        self._sampling = sampling
        self._generators = [torch.Generator(device="cpu").manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: "Tensor", scores: "Tensor") -> "Tensor":
        """`scores`: float32 logits (B, V). Returns (B, V)."""
        if self._sampling.temperature == 0.0:
            return scores
        scores = scores / self._sampling.temperature
        scores = _keep_top_k(scores, self._sampling.top_k)
        scores = _keep_top_p(scores, self._sampling.top_p)
        return scores + self._noise(scores.shape[-1]).to(scores.device)

    def _noise(self, size: int) -> "Tensor":
        """Standard Gumbel noise (B, size), float32, advancing each row's generator by `size` draws."""
        import torch

        uniform = torch.stack(
            [torch.rand(size, generator=generator, dtype=torch.float32) for generator in self._generators]
        )
        # rand can be exactly 0, whose double logarithm would turn a kept token into a removed one.
        return -torch.log(-torch.log(uniform.clamp_min(torch.finfo(torch.float32).tiny)))


def _keep_top_k(scores: "Tensor", k: int) -> "Tensor":
    if k <= 0 or k >= scores.shape[-1]:
        return scores
    threshold = scores.topk(k, dim=-1).values[:, -1:]  # (B, 1)
    return scores.masked_fill(scores < threshold, float("-inf"))


def _keep_top_p(scores: "Tensor", p: float) -> "Tensor":
    if p >= 1.0:
        return scores
    ordered, indices = scores.sort(dim=-1, descending=True, stable=True)  # (B, V)
    probabilities = ordered.softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities  # mass of the more likely tokens
    outside = before >= p
    outside[:, 0] = False
    return scores.masked_fill(outside.scatter(-1, indices, outside), float("-inf"))


class RowEnds:
    """Stopping criterion that remembers at which token each row ended.

    A row ends at its first end-of-sequence token or with the token that completes a stop string. Lengths are
    recorded here because they cannot be read off the output: padding may be the end-of-sequence token.
    `cancelled` ends every row at the next token.
    """

    def __init__(
        self,
        rows: int,
        prompt_length: int,
        *,
        eos: Collection[int],
        stops: Sequence[str],
        decode: Callable[[list[int]], str],
        cancelled: Event,
    ) -> None:
        self.lengths: list[int | None] = [None] * rows
        """Generated tokens of each row up to and including its end; None while it has none."""
        self._prompt_length = prompt_length
        self._eos = frozenset(eos)
        self._stops = tuple(stop for stop in stops if stop)
        self._window = max((len(stop.encode()) for stop in self._stops), default=0) + _WINDOW_SLACK
        self._decode = decode
        self._cancelled = cancelled

    def __call__(self, input_ids: "Tensor", scores: "Tensor") -> "Tensor":
        """`input_ids`: (B, prompt + generated). Returns (B,) bool: which rows have ended."""
        import torch

        step = input_ids.shape[1] - self._prompt_length
        recent = cast("list[list[int]]", input_ids[:, -min(step, self._window) :].tolist())
        for row, tokens in enumerate(recent):
            if self.lengths[row] is None and (tokens[-1] in self._eos or self._has_stop(tokens)):
                self.lengths[row] = step
        ended = [self._cancelled.is_set() or length is not None for length in self.lengths]
        return torch.tensor(ended, dtype=torch.bool, device=input_ids.device)

    def _has_stop(self, tokens: list[int]) -> bool:
        return bool(self._stops) and cut_at_stop(self._decode(tokens), self._stops)[1]

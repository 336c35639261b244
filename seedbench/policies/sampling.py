"""How a token is drawn and where a response ends: row by row, so that a batch cannot change an answer.

Sampling uses the Gumbel-max identity: argmax(log p + g), with g independent standard Gumbel noise, is a
draw from p (Gumbel 1954; Maddison, Tarlow and Minka 2014, section 2). The noise of a row comes from that
request's own generator, one vector of vocabulary size a drawn token, always on the CPU: the draw is the
same in every batch, order and on every device, up to the rounding of the logits themselves.
"""

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

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
    """Draws the next tokens of rows under `sampling`, each row from a generator of its own; greedy at temperature 0.

    Order of the cuts: temperature, top-k, top-p (the smallest set of most likely tokens whose probabilities
    reach top_p; its last member is kept). Tokens tied with the k-th stay.
    """

    def __init__(self, sampling: Sampling, seeds: Sequence[int]) -> None:
        import torch

        self._sampling = sampling
        self._generators = [torch.Generator(device="cpu").manual_seed(seed) for seed in seeds]

    def cut(self, scores: "Tensor") -> "Tensor":
        """Float32 logits (B, V) -> logits of the distribution that is drawn from; minus infinity stays so."""
        if self._sampling.temperature == 0.0:
            return scores
        scores = scores / self._sampling.temperature
        return _keep_top_p(_keep_top_k(scores, self._sampling.top_k), self._sampling.top_p)

    def draw(self, scores: "Tensor", rows: Sequence[int]) -> "Tensor":
        """The next token (B,) of each of `rows`, numbers into the seeds, from their `cut` logits (B, V)."""
        if self._sampling.temperature == 0.0:
            return scores.argmax(dim=-1)
        return (scores + self._noise(rows, scores)).argmax(dim=-1)

    def logprobs(self, scores: "Tensor", tokens: "Tensor") -> "Tensor":
        """Log-probability (B,) of `tokens` (B,) in the distribution of `cut` logits (B, V); 0 at temperature 0."""
        if self._sampling.temperature == 0.0:
            return scores.new_zeros(len(tokens))
        return scores.gather(1, tokens[:, None]).squeeze(1) - scores.logsumexp(dim=-1)

    def _noise(self, rows: Sequence[int], like: "Tensor") -> "Tensor":
        """Standard Gumbel noise (B, V), float32, advancing each row's generator by V draws."""
        import torch

        size = like.shape[-1]
        uniform = torch.stack([torch.rand(size, generator=self._generators[row], dtype=torch.float32) for row in rows])
        # rand can be exactly 0, whose double logarithm would turn a kept token into a removed one.
        return -torch.log(-torch.log(uniform.to(like.device).clamp_min(torch.finfo(torch.float32).tiny)))


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


class ResponseEnds:
    """Says where a response ends: at its first end-of-sequence token or the token that completes a stop string."""

    def __init__(self, *, eos: Collection[int], stops: Sequence[str], decode: Callable[[list[int]], str]) -> None:
        self._eos = frozenset(eos)
        self._stops = tuple(stop for stop in stops if stop)
        self._window = max((len(stop.encode()) for stop in self._stops), default=0) + _WINDOW_SLACK
        self._decode = decode

    def __call__(self, ids: Sequence[int]) -> bool:
        """Whether the response `ids`, which had not ended before its last token, ends with it."""
        if ids[-1] in self._eos:
            return True
        return bool(self._stops) and cut_at_stop(self._decode(list(ids[-self._window :])), self._stops)[1]

"""The formulas of the losses: pure functions on tensors (B, L), a row a sample, a column a response token.

Masks are float32, 0 in the padding. Nothing here knows of methods, models or files.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

Estimator = Literal["k1", "k2", "k3"]
Average = Literal["token", "sequence"]

_LOG_RATIO = 20.0
"""Log-ratios are cut to +-20 before exp: beyond it float32 overflows in products, and no update is to be trusted."""


class Surrogate(NamedTuple):
    """The clipped objective, token by token."""

    values: Tensor
    """(B, L), to be minimised, with gradient."""
    ratio: Tensor
    """(B, L) importance ratio exp(logp - old), detached."""
    clipped: Tensor
    """(B, L) 1 where a clip took the gradient away, else 0, float32."""


def clipped_ratio(
    logp: Tensor, old: Tensor, advantage: Tensor, low: float, high: float, dual: float = 0.0
) -> Surrogate:
    """PPO's clipped surrogate, as a loss: -min(r A, clip(r, 1 - low, 1 + high) A), with r = exp(logp - old).

    PPO, arXiv 1707.06347, equation 7; unequal ranges, arXiv 2503.14476; dual clip, arXiv 1912.09729: where
    A < 0 the objective is at least dual * A, so that a huge ratio cannot dominate a step.

    Args:
        logp: (B, L) log-probabilities under the policy, with gradient.
        old: (B, L) log-probabilities at sampling time.
        advantage: (B, L), no gradient.
        low: the ratio is cut below 1 - low, in (0, 1).
        high: the ratio is cut above 1 + high, > 0.
        dual: > 1; 0: no dual clip.
    """
    ratio = (logp - old).clamp(-_LOG_RATIO, _LOG_RATIO).exp()
    plain = -advantage * ratio
    cut = -advantage * ratio.clamp(1 - low, 1 + high)
    values, clipped = torch.maximum(plain, cut), cut > plain
    if dual:
        most = -advantage * dual
        over = (advantage < 0) & (values > most)
        values, clipped = torch.where(over, most, values), clipped | over
    return Surrogate(values, ratio.detach(), clipped.float())


def kl(logp: Tensor, ref: Tensor, estimator: Estimator, clamp: float = 0.0) -> Tensor:
    """Per-token estimate (B, L) of KL(policy || reference) at tokens that the policy sampled, in nats.

    Schulman's names (joschu.net/blog/kl-approx.html), with d = ref - logp: k1 = -d, unbiased, of any sign and of mean
    gradient zero; k2 = d^2 / 2; k3 = exp(d) - 1 - d, unbiased and >= 0 (GRPO, arXiv 2402.03300, equation 4).

    Args:
        logp: (B, L) log-probabilities under the policy.
        ref: (B, L) under the reference.
        estimator: k1, k2 or k3.
        clamp: values are cut to +-clamp (the releases of the verl family: 10); 0: they are not.
    """
    difference = ref - logp
    if estimator == "k1":
        values = -difference
    elif estimator == "k2":
        values = 0.5 * difference.square()
    else:
        bounded = difference.clamp(-_LOG_RATIO, _LOG_RATIO)
        values = bounded.exp() - 1 - bounded
    return values.clamp(-clamp, clamp) if clamp else values


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the tokens where `mask` (B, L) is 1; 0 where there are none."""
    total, count = reduce_term(values, mask, "token")
    return total / count.clamp_min(1)


def sequence_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the rows of each row's masked mean; rows without a token do not count."""
    total, count = reduce_term(values, mask, "sequence")
    return total / count.clamp_min(1)


def reduce_term(values: Tensor, mask: Tensor, average: Average) -> tuple[Tensor, Tensor]:
    """A micro-batch's share of a mini-batch's average: add up both results over micro-batches, then divide.

    Args:
        values: (B, L).
        mask: (B, L) >= 0; values are weighed with it, and tokens count where it is above 0.
        average: token: over tokens (arXiv 2503.14476); sequence: over each row, then over rows (arXiv
            2402.03300, equation 3).

    Returns:
        The sum, with gradient, and what it counts (tokens or rows), without; both 0-dimensional.
    """
    weighed = values * mask
    counts = (mask > 0).sum(1).to(weighed.dtype)  # (B,)
    if average == "token":
        return weighed.sum(), counts.sum()
    return (weighed.sum(1) / counts.clamp_min(1)).sum(), (counts > 0).sum().to(weighed.dtype)

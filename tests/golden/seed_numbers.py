"""SEED's stage 2 in float64, from the equations of arXiv 2607.14777 alone: nothing of the package is used here.

One token is one entry of flat arrays; a recorded batch is a dictionary of them:

    reward (K,), group (K,)          return and task draw of each trajectory
    trajectory (N,)                  trajectory of each response token
    theta, old, ref, skill (N,)      log-probabilities: current, at sampling, of the reference, behind the skill
    m (N,)                           1 where the trajectory has a skill
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

F = NDArray[np.float64]


def advantages(reward: F, group: NDArray[np.int64], eps: float = 1e-6) -> F:
    """A = (R - mean) / (std + eps) within each group, std unbiased; 0 where all returns are equal."""
    result = np.zeros(len(reward))
    for g in set(group.tolist()):
        members = [k for k in range(len(reward)) if group[k] == g]
        returns = [float(reward[k]) for k in members]
        mean = sum(returns) / len(returns)
        std = (sum((r - mean) ** 2 for r in returns) / (len(returns) - 1)) ** 0.5
        for k in members:
            result[k] = (float(reward[k]) - mean) / (std + eps)
    return result


def gates(theta: F, skill: F, beta: float = 5.0) -> tuple[F, F]:
    """Delta = l_skill - l_theta and g = 1 / (1 + exp(-beta Delta))."""
    delta = skill - theta
    return delta, 1 / (1 + np.exp(-beta * delta))


def policy_loss(theta: F, old: F, a: F, clip: float = 0.2, dual: float = 3.0) -> F:
    """-min(rho A, clip(rho) A) at each token; where A < 0, at most -dual A."""
    losses = []
    for rho, advantage in zip(np.exp(theta - old), a, strict=True):
        cut = min(max(rho, 1 - clip), 1 + clip)
        objective = min(rho * advantage, cut * advantage)
        if advantage < 0:
            objective = max(objective, dual * advantage)
        losses.append(-objective)
    return np.array(losses)


def divergence(theta: F, ref: F) -> F:
    """k3: r - 1 - log r with r = pi_ref / pi_theta."""
    r = np.exp(ref - theta)
    return r - 1 - np.log(r)


def stage2(batch: dict[str, Any], kl: float = 0.01, weight: float = 0.01, beta: float = 5.0) -> dict[str, Any]:
    """All numbers of one optimiser step: L = L_rl + lambda L_opd, and the slope of L at each token."""
    theta, old, ref, skill, m = (np.asarray(batch[k], dtype=np.float64) for k in ("theta", "old", "ref", "skill", "m"))
    a = advantages(np.asarray(batch["reward"], dtype=np.float64), batch["group"])[batch["trajectory"]]
    delta, g = gates(theta, skill, beta)
    l_rl = policy_loss(theta, old, a).mean() + kl * divergence(theta, ref).mean()
    masked = max(1.0, m.sum())
    l_opd = (m * g * delta).sum() / masked
    rho = np.exp(theta - old)
    inside = np.where(a >= 0, rho <= 1.2, (rho >= 0.8) & (rho <= 3.0))
    slope = (-a * rho * inside + kl * (1 - np.exp(ref - theta))) / len(theta) - weight * m * g / masked
    return {"advantage": a, "delta": delta, "gate": g, "l_rl": l_rl, "l_opd": l_opd,
            "loss": l_rl + weight * l_opd, "slope": slope}  # fmt: skip

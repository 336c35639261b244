"""How a method's own signals behave over training: the teacher's Delta and gate, the skills, the gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from seedbench.study.results import STEPS, Result, Series, cells_of
from seedbench.study.sheets import Sheet, Value

RATIO = "ratio"
"""gradient/distil : gradient/policy, both means over the same updates."""
_MARKS = ("teacher/delta/solved", "teacher/delta/unsolved", "teacher/open", "gradient/distil")
"""A cell has signals where its journals have one of them."""
_FIFTHS = {"first": 0, "middle": 2, "last": 4}
_COLUMNS = {
    "teacher/delta/solved": "Delta, solved",
    "teacher/delta/unsolved": "Delta, unsolved",
    "teacher/open": "Open",
    "teacher/gate": "Gate",
    "skill/parsed/solved": "Read, solved",
    "skill/parsed/unsolved": "Read, unsolved",
    "skill/words": "Words",
    "gradient/policy": "Gradient, policy",
    "gradient/distil": "Gradient, distil",
    RATIO: "Ratio",
    "policy/entropy": "Entropy",
    "rollout/success": "Success",
}
_CAPTION = (
    "Delta: log-probability of a sampled token behind the skill minus that without it, in nats, mean over the distilled"
    " tokens, by outcome of the trajectory; over a policy's own samples its expectation is minus a KL divergence, so"
    " that solved is to be compared with unsolved, not with 0. Open: share of these tokens with a gate over one half,"
    " which is Delta > 0. Gate: their mean gate. Read: share of the policy's own analyses that could be read; blank"
    " where it wrote none. Gradient: norms of the policy term's and of the distillation term's gradient, on eight"
    " samples, evenly taken from an update's, before its first step; the distillation term's has its weight (lambda) in"
    " it. Ratio: mean norm of distillation : mean norm of policy, over the updates that have both. The papers do not"
    " print theirs."
)


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a run's updates: `steps` is the mean of the environment steps, `means` that of each signal."""

    steps: float
    means: dict[str, float]
    """NaN where no update of the stretch has the signal."""


def watched(results: Iterable[Result]) -> dict[str, list[Result]]:
    """The cells, with all of the data, whose journals have signals."""
    cells = {label: [r for r in runs if _has(r)] for label, runs in cells_of(results).items()}
    return {label: runs for label, runs in cells.items() if runs}


def _has(run: Result) -> bool:
    return any(not np.isnan(run.signals[name]).all() for name in _MARKS if name in run.signals)


def parts(run: Result, count: int) -> list[Part]:
    """A run's updates in `count` stretches of equal length, in order; short runs have some updates in several."""
    signals, total = run.signals, len(run.signals[STEPS])
    found = []
    for number in range(count):
        start = number * total // count
        at = slice(start, max(start + 1, (number + 1) * total // count))
        means = {name: _mean(values[at]) for name, values in signals.items()}
        both = signals["gradient/policy"][at] + signals["gradient/distil"][at]  # NaN where one is missing
        policy, distil = (_mean(signals[f"gradient/{of}"][at][~np.isnan(both)]) for of in ("policy", "distil"))
        means[RATIO] = distil / policy if policy > 0 else math.nan
        if not run.own_skills:
            means |= {name: math.nan for name in means if name.startswith("skill/parsed")}
        found.append(Part(means[STEPS], means))
    return found


def _mean(values: Series) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def table(results: Iterable[Result]) -> Sheet | None:
    """The signals in the first, middle and last fifth of the updates; None where no journal has any."""
    rows: list[tuple[Value, ...]] = []
    for label, runs in watched(results).items():
        fifths = [parts(run, 5) for run in runs]
        for name, number in _FIFTHS.items():
            rows.append((label, name, len(runs), *(_over([of[number] for of in fifths], key) for key in _COLUMNS)))
    if not rows:
        return None
    return Sheet(
        "signals",
        "Signals over training",
        ("Method", "Fifth", "Seeds", *_COLUMNS.values()),
        tuple(rows),
        f"Means over the updates of a fifth of the training, then over seeds. {_CAPTION} Words: mean length of a skill."
        " Entropy: of the policy, in nats a token. Success: of the roll-outs. Shares are fractions of 1.",
    )


def _over(fifths: Sequence[Part], key: str) -> float | None:
    known = [part.means[key] for part in fifths if not math.isnan(part.means[key])]
    return math.fsum(known) / len(known) if known else None

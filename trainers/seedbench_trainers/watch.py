"""What the training views count, and how they word it: recent figures, speed, time left.

Only numbers are kept, never episodes or batches, so that watching a run does not slow it down.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from seedbench.statistics import wilson_limits
from seedbench.types import Episode, Outcome
from seedbench.ui.tally import UNKNOWN, format_number, format_seconds, one_line

WINDOW = 30
"""Updates that a sparkline shows."""
RECENT = 10
"""Updates that a moving mean, a speed and the time left are taken over."""

SUCCESS, VALIDATION = "rollout/success", "validation/success"

FIGURES = {
    "rollout/return": "return",
    "loss/total": "loss",
    "policy/entropy": "entropy",
    "policy/ref_kl": "KL to reference",
    "rollout/response_tokens": "response tokens",
    "policy/clipped": "clipped",
    "optim/grad_norm": "gradient norm",
    "optim/lr": "learning rate",
    "rollout/invalid": "invalid actions",
    "groups/zero_variance": "equal groups",
    "policy/old_kl": "KL to old",
    "policy/ratio_max": "largest ratio",
    "rollout/turns": "turns",
    "rollout/truncated": "truncated",
    "policy/parity": "parity",
}
"""Metric -> label, in the order shown; where room is short the last are left out."""
SHARES = {"policy/clipped", "rollout/invalid", "rollout/truncated", "groups/zero_variance"}
"""Those of them that are shares, shown in per cent."""
PHASES = ("rollout", "signals", "update", "validation", "checkpoint")

_BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(slots=True)
class Phase:
    """The phase under way; times are seconds of the clock that the caller reads."""

    name: str = ""
    began: float = 0.0
    total: int = 0
    """Episodes expected, 0 where that is unknown."""
    episodes: int = 0
    solved: int = 0
    broken: int = 0
    """Infrastructure errors among the episodes."""

    def words(self, now: float) -> list[str]:
        """The phase, its episodes and its seconds, each a phrase."""
        parts = [self.name or "starting"]
        if self.episodes or self.total:
            parts.append(f"{self.episodes:,}{f'/{self.total:,}' if self.total else ''} episodes")
            parts.append(f"{self.solved:,} solved")
        if self.broken:
            parts.append(f"{self.broken:,} infra error{'s' if self.broken > 1 else ''}")
        return [*parts, format_seconds(now - self.began)]


@dataclass(frozen=True, slots=True)
class Score:
    """A validation: the success rate at an update with its 95 % interval where n is known."""

    update: int
    rate: float
    n: int
    lo: float
    hi: float
    mean: float
    """Mean score, NaN where it is not known."""

    def words(self) -> str:
        """E.g. `38.5% of 200 (32.0 to 45.4%), score 0.41`; the score only where it says more than the rate."""
        counted = f" of {self.n:,} ({100 * self.lo:.1f} to {self.hi:.1%})" if self.n else ""
        says_more = math.isfinite(self.mean) and not math.isclose(self.mean, self.rate)
        return f"{self.rate:.1%}{counted}" + (f", score {format_number(self.mean)}" if says_more else "")


def score(update: int, metrics: Mapping[str, float]) -> Score | None:
    """The validation among an update's metrics; None where there was none.

    The interval is the one logged (`validation/lo`, `validation/hi`), else Wilson's for `validation/n` attempts.
    """
    rate, n = metrics.get(VALIDATION, math.nan), metrics.get("validation/n", math.nan)
    if not 0 <= rate <= 1:
        return None
    mean = metrics.get("validation/score", math.nan)
    if not n >= 1:
        return Score(update, rate, 0, rate, rate, mean)
    lo, hi = wilson_limits(rate, n)
    return Score(update, rate, round(n), metrics.get("validation/lo", lo), metrics.get("validation/hi", hi), mean)


@dataclass(slots=True)
class Watch:
    """Everything that the views show."""

    total: int
    """Updates planned."""
    families: Sequence[str]
    began: float
    done: int = 0
    """The last update told of."""
    history: dict[str, deque[float]] = field(default_factory=dict)
    """Metric -> its last values, one for every update since it first came; NaN where it was left out."""
    phase: Phase = field(default_factory=Phase)
    last: Score | None = None
    first: Score | None = None
    best: Score | None = None
    by_family: dict[str, float] = field(default_factory=dict)
    """Success of the last validation by family."""
    marks: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=RECENT + 1))
    """When an update of this session ended, and its number; the oldest may be the beginning."""

    def resume(self, past: Iterable[tuple[int, Mapping[str, float]]]) -> None:
        """Take over the updates of earlier sessions: done, but not for the time left."""
        for update, metrics in past:
            self._take(update, metrics)
        self.marks.append((self.began, self.done))

    def add(self, update: int, metrics: Mapping[str, float], now: float) -> None:
        """Take an update that ended at `now`."""
        self._take(update, metrics)
        if update > self.marks[-1][1]:
            self.marks.append((now, update))
        else:  # more of the same update; or update 0, whose time is no measure of the others
            self.marks[-1] = (now, update)

    def _take(self, update: int, metrics: Mapping[str, float]) -> None:
        self._note_validation(update, metrics)
        again = update == self.done  # a second record of an update, or what was measured before the first
        self.done = update
        for name in dict.fromkeys([*self.history, *metrics]):
            value = float(metrics.get(name, math.nan))
            values = self.history.setdefault(name, deque(maxlen=WINDOW))
            if not again or not values:
                values.append(value)
            elif name in metrics:
                values[-1] = value

    def _note_validation(self, update: int, metrics: Mapping[str, float]) -> None:
        now = score(update, metrics)
        if now is None:
            return
        self.first, self.last = self.first or now, now
        self.best = now if self.best is None or now.rate > self.best.rate else self.best
        start = f"{VALIDATION}/"
        self.by_family = {name.removeprefix(start): rate for name, rate in metrics.items() if name.startswith(start)}

    def count(self, episode: Episode) -> None:
        """Count an episode of the phase under way; keeps no reference to it."""
        self.phase.episodes += 1
        self.phase.solved += episode.success
        self.phase.broken += episode.outcome is Outcome.INFRA_ERROR

    def value(self, name: str) -> float:
        """The last value of a metric, NaN where there is none."""
        values = self.history.get(name)
        return values[-1] if values else math.nan

    def recent(self, name: str) -> float:
        """Mean of the finite values among the last `RECENT`; NaN where there is none."""
        values = [value for value in list(self.history.get(name, ()))[-RECENT:] if math.isfinite(value)]
        return math.fsum(values) / len(values) if values else math.nan

    def growth(self, name: str) -> float:
        """By how much a cumulative metric grew a record lately; NaN where it is not known."""
        values = [value for value in list(self.history.get(name, ()))[-RECENT - 1 :] if math.isfinite(value)]
        return (values[-1] - values[0]) / (len(values) - 1) if len(values) > 1 else math.nan

    def speeds(self) -> list[str]:
        """Tokens a second, generated in roll-outs and trained on in updates, as far as they are known."""
        pairs = (("generated", "time/rollout"), ("trained", "time/update"))
        speeds = {name: self.growth(f"tokens/{name}") / (self.recent(time) or math.nan) for name, time in pairs}
        known = {name: speed for name, speed in speeds.items() if math.isfinite(speed) and speed > 0}
        return [f"{format_number(speed)} tokens/s {name}" for name, speed in known.items()]

    def shares(self) -> dict[str, float]:
        """Share of each phase in the time of the recent updates, the known phases first; they add up to 1."""
        others = [name.removeprefix("time/") for name in self.history if name.startswith("time/")]
        # Sums, not means: a validation every tenth update takes a tenth of its time an update.
        sums = {name: self._recent_sum(f"time/{name}") for name in dict.fromkeys([*PHASES, *others])}
        whole = math.fsum(sums.values())
        return {name: part / whole for name, part in sums.items() if part > 0}

    def _recent_sum(self, name: str) -> float:
        return math.fsum(value for value in list(self.history.get(name, ()))[-RECENT:] if math.isfinite(value))

    def eta(self, now: float) -> float | None:
        """Seconds left at the recent pace; None before this session's first update."""
        (then, before), (mark, update) = self.marks[0], self.marks[-1]
        if update <= before:
            return None
        pace = (mark - then) / (update - before)
        return max(0.0, pace * (self.total - update) - (now - mark))

    def rows(self) -> list[tuple[str, str]]:
        """(label, metric) of the success rates to show: all, then the families; none for a run without roll-outs."""
        if self.done and SUCCESS not in self.history and VALIDATION not in self.history:
            return []
        start = f"{SUCCESS}/"
        seen = [name.removeprefix(start) for name in self.history if name.startswith(start)]
        families = dict.fromkeys([*self.families, *seen, *self.by_family])
        return [("success", SUCCESS), *((one_line(name, 40), f"{start}{name}") for name in families)]

    def figures(self) -> list[tuple[str, str]]:
        """(label, metric) of the other figures that this run has."""
        return [(label, name) for name, label in FIGURES.items() if name in self.history]


def figure(name: str, value: float) -> str:
    """A metric's value as a person reads it: shares in per cent, the rest with three digits, a dash for NaN."""
    if not math.isfinite(value):
        return UNKNOWN
    if name in SHARES or "/success" in name:
        return f"{value:.1%}"
    if value and abs(value) < 1e-3:
        return f"{value:.1e}"
    return format_number(value) if value >= 0 else f"-{format_number(-value)}"


def sparkline(values: Iterable[float], width: int, lo: float | None = None, hi: float | None = None) -> str:
    """The last `width` values as blocks between `lo` and `hi` (their own least and largest by default).

    Values that are not finite leave a blank; where all are equal, the line is flat at the bottom.
    """
    shown = list(values)[-width:] if width > 0 else []
    finite = [value for value in shown if math.isfinite(value)]
    if not finite:
        return ""
    low, high = min(finite) if lo is None else lo, max(finite) if hi is None else hi
    span = high - low if high > low else math.inf
    return "".join(_block((value - low) / span) for value in shown)


def _block(level: float) -> str:
    if not math.isfinite(level):
        return " "
    return _BLOCKS[min(max(int(level * len(_BLOCKS)), 0), len(_BLOCKS) - 1)]

"""What the live views count, and how they word it: counters by family, speed, time left.

Only counters are kept, never episodes, so that watching a run does not slow it down. Episodes of an earlier
session count as done, but not for speed.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from seedbench.types import Episode, Outcome
from seedbench.ui.text import inert

UNKNOWN = "–"
_MARK_SECONDS = 1.0
_MARKS = 120

Totals = Mapping[str, int]
"""Family -> number of attempts."""


@dataclass(slots=True)
class Row:
    """The counts of one family, or of the whole run."""

    total: int
    finished: int = 0
    outcomes: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))

    def add(self, outcome: Outcome) -> None:
        """Count one finished episode."""
        self.finished += 1
        self.outcomes[outcome] += 1

    @property
    def scored(self) -> int:
        """Finished episodes that say something of the agent: infrastructure errors are left out."""
        return self.finished - self.outcomes[Outcome.INFRA_ERROR]

    @property
    def rate(self) -> float | None:
        """Share of scored episodes that were solved, in [0, 1]; None while nothing is scored."""
        return self.outcomes[Outcome.SOLVED] / self.scored if self.scored else None


class Rates(NamedTuple):
    """Speed of this session, all per second; tokens count when their episode ends."""

    episodes: float
    generated_tokens: float
    prompt_tokens: float


class Tally:
    """Everything that the views show, as counters; times are seconds of the clock that the caller reads."""

    def __init__(self, total: int, families: Totals, now: float) -> None:
        self.overall = Row(total)
        self.families = {name: Row(count) for name, count in families.items()}
        self.resumed = 0
        self.last_error = ""
        self._session = (0, 0, 0)  # episodes, generated tokens, prompt tokens
        self._began = now
        # One mark a second at most: the window is the last two minutes of a fast run, the last 120 episodes
        # of a slow one. A ratio over the window is not thrown off by episodes that end in bursts.
        self._marks: deque[tuple[float, tuple[int, int, int]]] = deque([(now, self._session)], _MARKS)

    def resume(self, episodes: Iterable[Episode]) -> None:
        """Count episodes of an earlier session: done, but not for speed."""
        for episode in episodes:
            self._count(episode)
            self.resumed += 1

    def add(self, episode: Episode, now: float) -> None:
        """Count an episode that ended at `now`."""
        self._count(episode)
        count, generated, prompt = self._session
        usage = episode.usage
        self._session = (count + 1, generated + usage.generated_tokens, prompt + usage.prompt_tokens)
        if now - self._marks[-1][0] >= _MARK_SECONDS:
            self._marks.append((now, self._session))

    def _count(self, episode: Episode) -> None:
        self.overall.add(episode.outcome)
        if episode.family not in self.families:
            self.families[episode.family] = Row(0)
        self.families[episode.family].add(episode.outcome)
        if episode.outcome is Outcome.INFRA_ERROR:
            self.last_error = one_line(episode.error)

    def elapsed(self, now: float) -> float:
        """Seconds of this session."""
        return now - self._began

    def rates(self, now: float, average: bool = False) -> Rates | None:
        """Speed over the window, or the session's average.

        None while it would be a guess: before three episodes and half a second for the window, before the
        first episode for the average.
        """
        known = self._session[0] if average else self._session[0] >= 3 and self.elapsed(now) >= 0.5
        then, before = (self._began, (0, 0, 0)) if average else self._marks[0]
        if not known or now <= then:
            return None
        return Rates(*((b - a) / (now - then) for a, b in zip(before, self._session, strict=True)))

    def eta(self, now: float) -> float | None:
        """Seconds left at the recent speed; None until that is known."""
        left = max(0, self.overall.total - self.overall.finished)
        rates = self.rates(now)
        return left / rates.episodes if rates and rates.episodes > 0 else None


def one_line(text: str, limit: int = 300) -> str:
    """`text` made inert, on one line, and cut after `limit` characters."""
    return " ".join(inert(text, limit).split())


def format_number(value: float) -> str:
    """Three significant digits, and whole numbers with thousands separators from 100 on: 0.0123, 12,346."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def format_seconds(seconds: float | None) -> str:
    """Rounded up to whole seconds as m:ss or h:mm:ss; a dash for None."""
    if seconds is None:
        return UNKNOWN
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def outcome_label(outcome: Outcome) -> str:
    """The outcome in words, e.g. `step limit`."""
    return outcome.value.replace("_", " ")


def speed_parts(tally: Tally, now: float, ended: bool) -> list[str]:
    """Episodes done, rates, elapsed time and ETA, each a phrase; averages and no ETA once it has ended."""
    row, rates = tally.overall, tally.rates(now, average=ended)
    speeds = [format_number(rate) for rate in rates] if rates else [UNKNOWN] * 3
    units = ("episodes/s", "generated tokens/s", "prompt tokens/s")
    done = f"{row.finished:,}/{row.total:,} episodes"
    parts = [f"{done} ({tally.resumed:,} from before)" if tally.resumed else done]
    parts += [f"{speed} {unit}" for speed, unit in zip(speeds, units, strict=True)]
    parts.append(f"elapsed {format_seconds(tally.elapsed(now))}")
    return parts if ended else [*parts, f"ETA {format_seconds(tally.eta(now))}"]


def infra_phrase(tally: Tally) -> str:
    """How many infrastructure errors there were and the last one's reason; empty where there were none."""
    count = tally.overall.outcomes[Outcome.INFRA_ERROR]
    if not count:
        return ""
    reason = f"; last: {tally.last_error}" if tally.last_error else ""
    return f"{count:,} infra error{'s' if count > 1 else ''}, not in the rates{reason}"

"""The live view of a run: counts by family, speed, and the time that is left.

Names and notes come from outside: they are shown as inert text.
No intervals here: the short episodes end first, so the rates of a run that goes on are not its result.
"""

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Self

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from seedbench.types import Episode, Outcome
from seedbench.ui.tally import (
    UNKNOWN,
    Row,
    Tally,
    Totals,
    infra_phrase,
    one_line,
    outcome_label,
    speed_parts,
)

Clock = Callable[[], float]

_INTERRUPTED = "stopped; finished episodes are saved and the same command goes on from here"
_PLAIN_SECONDS = 1.0
_WIDEST = 120
_WIDE = 110  # from here on a column per outcome; below it one line for the whole run


class Progress:
    """Told of a run's start, of each episode and of its end. This base shows nothing; the views override it.

    As a context manager it always stops. `stop` may be called more than once: the first call counts.
    """

    def start(self, total: int, families: Totals, title: str, done: Iterable[Episode] = ()) -> None:
        """Begin. The totals count attempts, repeats included; `done` came earlier and is not tried again."""

    def update(self, episode: Episode) -> None:
        """Count one finished episode. Cheap, and keeps no reference to it."""

    def note(self, message: str) -> None:
        """Show one line now (a warning, a retry)."""

    def stop(self, interrupted: bool = False) -> None:
        """End; `interrupted` says that the same command can go on from here."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop(interrupted=error[0] is not None)


def pack(parts: Sequence[Text], width: int) -> Text:
    """Join phrases with dots, breaking lines between phrases only, at most `width` columns each."""
    packed, used = Text(), 0
    for part in parts:
        size = cell_len(part.plain)
        if used and used + 3 + size > width:
            packed.append("\n")
            used = 0
        elif used:
            packed.append(" · ", style="dim")
            used += 3
        packed.append_text(part)
        used += size
    return packed


class LivePanel(ABC):
    """A panel that redraws itself at most eight times a second, in its own thread; its last state stays.

    Subclasses change what they show under `_lock` and draw it in `_body`.
    """

    def __init__(self, console: Console, clock: Clock = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._lock = threading.Lock()
        self._title = ""
        self._live: Live | None = None
        self._shown = False
        self._ended: float | None = None
        self._interrupted = False

    def note(self, message: str) -> None:
        """Print a line above the panel."""
        self._console.print(Text(f"note: {one_line(message)}", style="yellow"))

    def stop(self, interrupted: bool = False) -> None:
        """Draw the last state, with averages instead of the ETA, and leave it on the screen."""
        if self._live is None:
            return
        live, self._live = self._live, None
        with self._lock:
            self._ended, self._interrupted = self._clock(), interrupted
        live.stop()

    def _show(self, title: str) -> None:
        self._title, self._shown, self._ended, self._interrupted = one_line(title), True, None, False
        self._live = Live(self, console=self._console, refresh_per_second=8)
        self._live.start()

    def _now(self) -> float:
        """The clock, which stands still once the panel has ended."""
        return self._clock() if self._ended is None else self._ended

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self._shown:
            return
        with self._lock:
            width = min(options.max_width, _WIDEST)
            body = self._body(console, options.update(width=width - 4, height=None))
        yield Panel(body, width=width, border_style="yellow" if self._interrupted else "cyan")

    @abstractmethod
    def _body(self, console: Console, options: ConsoleOptions) -> Group:
        """What the panel holds, in the width of `options`."""


class LiveProgress(LivePanel, Progress):
    """The progress of an evaluation as a panel."""

    _tally: Tally

    def start(self, total: int, families: Totals, title: str, done: Iterable[Episode] = ()) -> None:
        """Show the panel."""
        self._tally = Tally(total, families, self._clock())
        self._tally.resume(done)
        self._show(title)

    def update(self, episode: Episode) -> None:
        """Count one finished episode; the panel follows by itself."""
        with self._lock:
            if self._shown:
                self._tally.add(episode, self._clock())

    def _body(self, console: Console, options: ConsoleOptions) -> Group:
        tally, width, rows = self._tally, options.max_width, max(3, console.height - 14)
        ended, now = self._ended is not None, self._now()
        wide = width >= _WIDE
        parts: list[RenderableType] = [
            Text(self._title, style="bold", overflow="fold"),
            _family_table(tally, wide, len(tally.families) if ended else rows),
        ]
        if not wide:
            parts.append(pack([_outcome(tally.overall, outcome) for outcome in Outcome], width))
        # Red, rich's own colour of a bar, is kept for what broke.
        done = tally.overall.finished
        bar = ProgressBar(total=max(1, tally.overall.total), completed=done, complete_style="cyan")
        parts.append(Padding(bar, 0))  # a bar alone does not end its line
        parts.append(pack([Text(part) for part in speed_parts(tally, now, ended)], width))
        if phrase := infra_phrase(tally):
            parts.append(Text(phrase, style="bold red", overflow="fold"))
        if self._interrupted:
            parts.append(Text(_INTERRUPTED, style="yellow"))
        return Group(*parts)


def _outcome(row: Row, outcome: Outcome, label: bool = True) -> Text:
    count = row.outcomes[outcome]
    style = {Outcome.SOLVED: "green", Outcome.INFRA_ERROR: "bold red"}.get(outcome, "") if count else "dim"
    return Text(f"{outcome_label(outcome)} {count:,}" if label else f"{count:,}", style=style)


def _family_table(tally: Tally, wide: bool, rows: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("family", no_wrap=True, overflow="ellipsis")
    table.add_column("done", justify="right", no_wrap=True)
    table.add_column("success", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    for outcome in Outcome if wide else ():
        table.add_column(outcome_label(outcome), justify="right", no_wrap=True)
    families = list(tally.families.items())
    shown = families if len(families) <= rows else families[: rows - 1]
    for name, row in shown:
        table.add_row(Text(one_line(name, 40)), *_cells(row, wide))
    if len(shown) < len(families):
        table.add_row(Text(f"… {len(families) - len(shown)} more", style="dim"))
    if len(families) != 1:
        table.add_row(Text("all"), *_cells(tally.overall, wide), style="bold")
    return table


def _cells(row: Row, wide: bool) -> list[Text | ProgressBar]:
    rate = row.rate
    cells: list[Text | ProgressBar] = [
        Text(f"{row.finished:,}/{row.total:,}"),
        ProgressBar(total=1.0, completed=rate or 0.0, width=10, complete_style="green"),
        Text(UNKNOWN, style="dim") if rate is None else Text(f"{rate:.1%}"),
    ]
    return [*cells, *(_outcome(row, outcome, label=False) for outcome in Outcome if wide)]


class PlainProgress(Progress):
    """Lines for logs and pipes: a start, a final, and between them one every `every` seconds or tenth of the
    run, whichever comes first, but at most one a second. A line is only written when an episode ends.
    """

    def __init__(self, stream: IO[str], every: float = 10.0, clock: Clock = time.monotonic) -> None:
        self._stream = stream
        self._every = every
        self._clock = clock
        self._tally: Tally | None = None
        self._next_time = 0.0
        self._earliest = 0.0
        self._next_count = 0.0

    def start(self, total: int, families: Totals, title: str, done: Iterable[Episode] = ()) -> None:
        """Write what is about to run."""
        self._tally = tally = Tally(total, families, self._clock())
        tally.resume(done)
        counts = ", ".join(f"{one_line(name, 40)} {count:,}" for name, count in families.items())
        before = f", {tally.resumed:,} from before" if tally.resumed else ""
        self._write(f"{one_line(title)}: {total:,} episodes ({counts}){before}")
        self._set_marks(tally)

    def update(self, episode: Episode) -> None:
        """Count one finished episode and write a line where one is due."""
        tally = self._tally
        if tally is None:
            return
        now = self._clock()
        tally.add(episode, now)
        row = tally.overall
        due = now >= self._next_time or (now >= self._earliest and row.finished >= self._next_count)
        # The last episode is told by the final line.
        if due and row.finished < row.total:
            self._write(" · ".join([*speed_parts(tally, now, ended=False), *_success_parts(tally)]))
            self._set_marks(tally)

    def note(self, message: str) -> None:
        """Write one line."""
        self._write(f"note: {one_line(message)}")

    def stop(self, interrupted: bool = False) -> None:
        """Write the result so far."""
        if self._tally is None:
            return
        tally, self._tally = self._tally, None
        head = _INTERRUPTED if interrupted else "finished"
        speed = speed_parts(tally, self._clock(), ended=True)
        self._write(f"{head}: " + " · ".join([*speed, *_success_parts(tally)]))

    def _set_marks(self, tally: Tally) -> None:
        now = self._clock()
        self._earliest = now + _PLAIN_SECONDS
        self._next_time = now + self._every
        self._next_count = tally.overall.finished + tally.overall.total / 10

    def _write(self, line: str) -> None:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        self._stream.flush()


def _success_parts(tally: Tally) -> list[str]:
    row = tally.overall
    rate = UNKNOWN if row.rate is None else f"{row.rate:.1%}"
    parts = [f"solved {row.outcomes[Outcome.SOLVED]:,}/{row.scored:,} ({rate})", infra_phrase(tally)]
    return [part for part in parts if part]


def is_interactive(console: Console) -> bool:
    """Whether a person watches: a terminal that is not dumb."""
    # FORCE_COLOR asks for colours in a file or a log; rich takes that for a terminal.
    return console.is_interactive and ("FORCE_COLOR" not in os.environ or console.file.isatty())


def make_progress(console: Console, quiet: bool = False) -> Progress:
    """The view that suits the output: a panel on a terminal, lines elsewhere, nothing where `quiet`."""
    if quiet:
        return Progress()
    return LiveProgress(console) if is_interactive(console) else PlainProgress(console.file)

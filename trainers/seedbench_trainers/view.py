"""The views of a training run: a live panel on a terminal, a line an update elsewhere, nothing where quiet.

All take the same calls; names and notes come from outside and are shown as inert text. The figures are those of the
journal: a metric that a method does not log is not shown.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.text import Text

from seedbench.types import Episode
from seedbench.ui.live import Clock, LivePanel, Progress, is_interactive, pack
from seedbench.ui.tally import Totals, format_seconds, one_line
from seedbench_trainers.panel import figures, header, times, validations
from seedbench_trainers.watch import SUCCESS, Phase, Watch, figure

if TYPE_CHECKING:
    from seedbench_trainers.journal import Record

_INTERRUPTED = "stopped; the same command with --resume goes on from the last checkpoint"


class TrainView:
    """Told of everything that happens in a training run. This base shows nothing; the views override it.

    As a context manager it always stops. `stop` may be called more than once: the first call counts. `start` after
    `stop` begins anew, e.g. for the next stage of a run.
    """

    def start(self, total: int, title: str, families: Sequence[str] = (), past: Iterable[Record] = ()) -> None:
        """Begin a run of `total` updates; `past` holds the journal's records of those already made."""

    def phase(self, name: str, total: int = 0) -> None:
        """A phase of the update begins: rollout, signals, update, validation, checkpoint or a method's own.

        `total` is the number of episodes expected in it, 0 where there are none or it is not known.
        """

    def episode(self, episode: Episode) -> None:
        """Count one finished episode of the phase. Cheap, and keeps no reference to it."""

    def update(self, update: int, metrics: Mapping[str, float]) -> None:
        """Show the figures of an update (from 1); 0 holds what was measured before the first."""

    def note(self, message: str) -> None:
        """Show one line now (a warning, a retry)."""

    def stop(self, interrupted: bool = False) -> None:
        """End; `interrupted` says that the run can be resumed."""

    def progress(self, phase: str) -> Progress:
        """What shows an evaluation's progress as a phase of this view."""
        return _Within(self, phase)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop(interrupted=error[0] is not None)


class _Within(Progress):
    def __init__(self, view: TrainView, phase: str) -> None:
        self._view = view
        self._phase = phase

    def start(self, total: int, families: Totals, title: str, done: Iterable[Episode] = ()) -> None:
        self._view.phase(self._phase, total)
        for episode in done:
            self._view.episode(episode)

    def update(self, episode: Episode) -> None:
        self._view.episode(episode)

    def note(self, message: str) -> None:
        self._view.note(message)


class LiveView(LivePanel, TrainView):
    """A panel that redraws itself at most eight times a second, in its own thread."""

    _watch: Watch

    def start(self, total: int, title: str, families: Sequence[str] = (), past: Iterable[Record] = ()) -> None:
        """Show the panel; one that is still up is left as it stands."""
        self.stop()
        self._watch = _watch(total, families, past, self._clock())
        self._show(title)

    def phase(self, name: str, total: int = 0) -> None:
        """Show the phase and begin to count its episodes."""
        with self._lock:
            if self._shown:
                self._watch.phase = Phase(one_line(name, 40), self._clock(), total)

    def episode(self, episode: Episode) -> None:
        """Count one finished episode; the panel follows by itself."""
        with self._lock:
            if self._shown:
                self._watch.count(episode)

    def update(self, update: int, metrics: Mapping[str, float]) -> None:
        """Take an update's figures; the panel follows by itself."""
        with self._lock:
            if self._shown:
                self._watch.add(update, metrics, self._clock())

    def _body(self, console: Console, options: ConsoleOptions) -> Group:
        watch, width = self._watch, options.max_width
        ended, now = self._ended is not None, self._now()
        bar = ProgressBar(total=max(1, watch.total), completed=watch.done, complete_style="cyan")
        above: list[RenderableType] = [
            Text(self._title, style="bold", overflow="fold"),
            Padding(bar, 0),  # a bar alone does not end its line
            pack(header(watch, now, ended), width),
        ]
        below = [*validations(watch, width), *times(watch, width)]
        if self._interrupted:
            below.append(Text(_INTERRUPTED, style="yellow"))
        # While it is redrawn the panel must fit the screen, its border and the cursor's line included.
        rest = len(console.render_lines(Group(*above, *below), options))
        room = 1000 if ended else console.height - 3 - rest
        return Group(*above, *figures(watch, width, room), *below)


def _watch(total: int, families: Sequence[str], past: Iterable[Record], now: float) -> Watch:
    watch = Watch(total, families, now, phase=Phase(began=now))
    watch.resume((record.update, record.metrics) for record in past)
    return watch


_PAUSE = 2.0
"""Seconds between two lines of a plain view; the journal has every update."""


class PlainView(TrainView):
    """A line an update, for logs and pipes; of quick updates some, but the first, the last and every validation."""

    def __init__(self, stream: IO[str], clock: Clock = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._watch: Watch | None = None
        self._written = -math.inf

    def start(self, total: int, title: str, families: Sequence[str] = (), past: Iterable[Record] = ()) -> None:
        """Write what is about to run."""
        self.stop()
        self._watch = watch = _watch(total, families, past, self._clock())
        before = f", {watch.done:,} made before" if watch.done else ""
        self._write(f"{one_line(title)}: {total:,} updates{before}")

    def update(self, update: int, metrics: Mapping[str, float]) -> None:
        """Write the update's figures."""
        if (watch := self._watch) is None:
            return
        now = self._clock()
        watch.add(update, metrics, now)
        validated = watch.last is not None and watch.last.update == update
        if now - self._written < _PAUSE and 1 < update < watch.total and not validated:
            return
        self._written = now
        parts = [f"update {update:,}/{watch.total:,}"]
        if SUCCESS in metrics:
            now_and_mean = (figure(SUCCESS, value) for value in (metrics[SUCCESS], watch.recent(SUCCESS)))
            parts.append("success {} (mean {})".format(*now_and_mean))
        parts += [f"{label} {figure(name, metrics[name])}" for label, name in watch.figures() if name in metrics]
        if watch.last is not None and validated:
            parts.append(f"validation {watch.last.words()}")
        parts += [*watch.speeds(), f"elapsed {format_seconds(now - watch.began)}"]
        if update < watch.total:
            parts.append(f"ETA {format_seconds(watch.eta(now))}")
        self._write(" · ".join(parts))

    def note(self, message: str) -> None:
        """Write one line."""
        self._write(f"note: {one_line(message)}")

    def stop(self, interrupted: bool = False) -> None:
        """Write how it ended."""
        if self._watch is None:
            return
        watch, self._watch = self._watch, None
        head = _INTERRUPTED if interrupted else "finished"
        made = f"{watch.done:,}/{watch.total:,} updates in {format_seconds(self._clock() - watch.began)}"
        self._write(f"{head}: {made}")

    def _write(self, line: str) -> None:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        self._stream.flush()


def make_view(console: Console, quiet: bool = False) -> TrainView:
    """The view that suits the output: a panel on a terminal, lines elsewhere, nothing where `quiet`."""
    if quiet:
        return TrainView()
    # The panel is drawn with block characters.
    drawable = is_interactive(console) and not console.options.ascii_only
    return LiveView(console) if drawable else PlainView(console.file)

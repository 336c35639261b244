"""The episode viewer: pages through a run's log on a terminal, prints it elsewhere.

The log is one JSON object a line. It is read once, for the places of the selected lines; an episode is read
again when it is shown, so that a log of any length fits. Whatever a model, a server or a game wrote is shown
as inert text: no control characters, no markup, and cut where it is endless.
"""

import json
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Protocol

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from seedbench.errors import SeedBenchError, UsageError, unknown
from seedbench.logs import LONGEST_LINE, held, lines, packed
from seedbench.types import Episode, Outcome, Turn
from seedbench.ui.live import is_interactive
from seedbench.ui.tally import one_line, outcome_label
from seedbench.ui.text import inert

TEXT_LIMIT = 20_000
"""Characters shown of one prompt message, response or observation; a longer one ends with a note."""

ACTION_LIMIT = 500
"""Characters shown of the action taken."""

KEYS = "Enter or n: next, p: previous, a number: go there, q: quit, ?: this help"

_THINKING = re.compile(r"\A(?:(?!<think>).)*?</think>|<think>.*?(?:</think>|\Z)", re.DOTALL)
_ACTION = re.compile(r"<action>.*?(?:</action>|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which episodes to show; what is None or False does not restrict.

    Raises UsageError for an unknown outcome and for `failed` together with outcomes that are no failure.
    """

    family: str | None = None
    failed: bool = False
    """Without success; infrastructure errors are not the agent's failures and are asked for by outcome."""
    outcome: str | None = None
    task: str | None = None
    """Part of the task id, in any case."""

    def __post_init__(self) -> None:
        if self.outcome is not None and self.outcome not in set(Outcome):
            raise unknown("outcome", self.outcome, list(Outcome))
        if self.failed and self.outcome in (Outcome.SOLVED, Outcome.INFRA_ERROR):
            raise UsageError(f"--failed shows no '{self.outcome}' episode: give --failed or --outcome, not both.")

    def matches(self, episode: Episode) -> bool:
        """Whether `episode` is to be shown."""
        if self.failed and (episode.success or episode.outcome is Outcome.INFRA_ERROR):
            return False
        return (
            (self.family is None or episode.family == self.family)
            and (self.outcome is None or episode.outcome == self.outcome)
            and (self.task is None or self.task.casefold() in episode.task.casefold())
        )


def select(
    episodes: Iterable[Episode],
    family: str | None = None,
    failed: bool = False,
    outcome: str | None = None,
    task: str | None = None,
) -> Iterator[Episode]:
    """The episodes that match, in order; see `Selection` for what each restriction means and raises."""
    return filter(Selection(family, failed, outcome, task).matches, episodes)


def scan(path: Path) -> Iterator[tuple[int, Episode]]:
    """The byte offset and the episode of every line of a log.

    A torn last line (no newline, or no JSON) is left out. The log may be compressed; offsets are those of its content.
    Raises SeedBenchError for a log that cannot be read and for any other line that is no episode, with its number.
    """
    torn, offset = 0, 0
    try:
        for number, line in enumerate(lines(path), 1):
            if torn:
                raise _invalid(path, torn)
            try:
                episode = _parse(line)
            except (ValueError, TypeError, KeyError) as error:
                raise _invalid(path, number) from error
            if episode is None:
                torn = number
            else:
                yield offset, episode
            offset += len(line)
    except OSError as error:
        raise SeedBenchError(
            f"cannot read the episode log {path}: {error.strerror}; give the folder of a run."
        ) from error


def _parse(line: bytes) -> Episode | None:
    """The episode of a line; None where the line can be torn. Raises what `Episode.from_json` raises."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return Episode.from_json(record)


def _unpacked(path: Path) -> IO[bytes]:
    """A plain copy of a compressed log, gone when it is closed: in a compressed file no place is near."""
    copy = TemporaryFile()  # noqa: SIM115 (it lives as long as the index)
    copy.writelines(lines(path))
    return copy


def _invalid(path: Path, number: int) -> SeedBenchError:
    return SeedBenchError(
        f"{path}, line {number}: not an episode (expected one JSON object a line, as `seedbench eval` writes "
        "them); restore the file or evaluate again into another folder."
    )


class EpisodeIndex:
    """The selected episodes of a log by number, from 0; only their places in the file are kept.

    Where a resumed run made an attempt again, its last record counts, as in the summary. `outcomes` and
    `families` count all episodes, also those that are not selected. Raises what `scan` raises.
    """

    def __init__(self, path: Path, selection: Selection | None = None) -> None:
        selection = selection or Selection()
        latest: dict[tuple[str, int], tuple[int, Outcome, str, bool]] = {}
        for offset, episode in scan(path):
            latest.pop(episode.key, None)  # so that the order stays the log's
            latest[episode.key] = (offset, episode.outcome, episode.family, selection.matches(episode))
        self.outcomes = Counter(outcome for _, outcome, _, _ in latest.values())
        self.families = Counter(family for _, _, family, _ in latest.values())
        self._path, self._copy = path, _unpacked(path) if held(path) == packed(path) else None
        self._offsets = array("Q", (offset for offset, _, _, selected in latest.values() if selected))

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, number: int) -> Episode:
        offset = self._offsets[number]
        try:
            with nullcontext(self._copy) if self._copy else self._path.open("rb") as log:
                log.seek(offset)
                episode = _parse(log.readline(LONGEST_LINE))
        except (OSError, ValueError, TypeError, KeyError):
            episode = None
        if episode is None:
            raise SeedBenchError(f"{self._path} has changed while it was shown: start `seedbench view` again.")
        return episode

    def render(self, number: int, console: Console, position: str) -> RenderableType:
        """Episode `number`, from 0, for the console."""
        return render_episode(self[number], console.width, position)


class Pages(Protocol):
    """What can be paged through: selected episodes by number, from 0, and counts of all there are."""

    outcomes: Counter[Outcome]
    families: Counter[str]

    def __len__(self) -> int: ...

    def render(self, number: int, console: Console, position: str) -> RenderableType:
        """One of them, as the console can show it; `position` is e.g. `3/20`."""


def page(episodes: Pages, console: Console, limit: int | None = None, input_: Callable[[str], str] = input) -> None:
    """Show the episodes: one at a time with keys on a terminal, otherwise one after another.

    `limit` bounds how many. `input_` asks for a line, as the built-in does. Raises UsageError for a limit
    under 1.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"--limit {limit}: expected 1 or more.")
    total = len(episodes) if limit is None else min(limit, len(episodes))
    if not total:
        console.print(Text(_nothing_selected(episodes)))
    elif is_interactive(console):
        _browse(episodes, total, console, input_)
    else:
        for number in range(total):
            _show(episodes, number, total, console)
    if 0 < total < len(episodes):
        console.print(Text(f"{total:,} of {len(episodes):,} selected episodes (--limit)", style="dim"))


def _show(episodes: Pages, number: int, total: int, console: Console) -> None:
    console.print(episodes.render(number, console, f"{number + 1:,}/{total:,}"))
    console.print()


def _browse(episodes: Pages, total: int, console: Console, input_: Callable[[str], str]) -> None:
    at = 0
    _show(episodes, at, total, console)
    while True:
        try:
            key = input_(f"{at + 1:,}/{total:,}  (Enter next, p previous, q quit, ? help) ").strip()
        except (EOFError, KeyboardInterrupt):
            console.print()
            return
        target = _target(key, at, total)
        if target is None:
            return
        if isinstance(target, str):
            console.print(Text(target))
        else:
            at = target
            _show(episodes, at, total, console)


def _target(key: str, at: int, total: int) -> int | str | None:
    """Where a key leads from episode `at`: a number, a message that says why not, or None to quit."""
    if key == "q":
        return None
    if key in ("", "n"):
        return at + 1 if at + 1 < total else "this was the last episode (q: quit)"
    if key == "p":
        return at - 1 if at else "this is the first episode"
    # The length bounds the time that a pasted number takes.
    if key.isdecimal() and len(key) < 10:
        return int(key) - 1 if 1 <= int(key) <= total else f"no episode {int(key)}: expected 1 to {total:,}"
    return KEYS if key == "?" else f"unknown key '{one_line(key, 20)}': {KEYS}"


def _nothing_selected(episodes: Pages) -> str:
    if not episodes.outcomes:
        return "No episode to show: this run has not finished one yet."
    outcomes = ", ".join(f"{outcome_label(name)} {count:,}" for name, count in episodes.outcomes.most_common())
    families = ", ".join(f"{one_line(name, 40)} {count:,}" for name, count in episodes.families.most_common())
    total = episodes.outcomes.total()
    return f"No episode is selected. The run has {total:,}: by outcome {outcomes}; by family {families}."


@dataclass(frozen=True, slots=True)
class Shown:
    """What a turn shows beside what its episode says."""

    remark: str
    """Behind the turn's number."""
    figures: str
    """Behind the word `response`."""
    response: Text
    """In place of the response."""


def render_episode(
    episode: Episode,
    width: int,
    position: str = "",
    *,
    facts: Mapping[str, Text] | None = None,
    shown: Sequence[Shown | None] = (),
) -> Group:
    """The episode as text of at most `width` columns: a header, then every turn.

    `facts` are further lines of the header; `shown` says more of the turns: one entry a turn, or none at all.
    """
    header = _header(episode, position, facts or {})
    parts: list[RenderableType] = [header, _indented(_outside(episode.first_observation))]
    for number, (turn, more) in enumerate(zip(episode.turns, shown or [None] * len(episode.turns), strict=True), 1):
        parts.extend(_turn(turn, number, more))
    return Group(*(Constrain(part, width) for part in parts))


def _header(episode: Episode, position: str, more: Mapping[str, Text]) -> Panel:
    usage = episode.usage
    color = {Outcome.SOLVED: "green", Outcome.INFRA_ERROR: "bold red"}.get(episode.outcome, "yellow")
    tokens = f"{usage.prompt_tokens:,} prompt, {usage.generated_tokens:,} generated"
    facts = {
        "task": Text(one_line(episode.task)),
        "family": Text(one_line(episode.family)),
        "outcome": Text(f"{outcome_label(episode.outcome)}, score {episode.score:g}", style=color),
        **_parts(episode),
        "turns": Text(f"{len(episode.turns):,} in {episode.seconds:.1f} s"),
        "tokens": Text(tokens),
        "seed": Text(f"{episode.seed}, repeat {episode.repeat}"),
        "instruction": _outside(episode.instruction, "bold"),
    }
    if episode.error:
        facts["error"] = _outside(episode.error, "red")
    facts |= more
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    for label, fact in facts.items():
        grid.add_row(label, fact)
    return Panel(grid, title=Text(f"episode {position}") if position else None, title_align="left")


def _parts(episode: Episode) -> dict[str, Text]:
    parts = ", ".join(f"{one_line(name, 40)} {value:g}" for name, value in episode.metrics.items())
    return {"metrics": Text(parts)} if parts else {}


def _turn(turn: Turn, number: int, more: Shown | None) -> Iterator[RenderableType]:
    remark = f" · {more.remark}" if more and more.remark else ""
    yield Rule(Text(f"turn {number}{remark}"), align="left", style="dim")
    for message in turn.prompt:
        yield Text(f"prompt, {one_line(message.role, 20)}", style="italic magenta")
        yield _indented(_outside(message.content, "magenta"))
    if more:
        yield Text(f"response: {more.figures}", style="italic dim")
        yield _indented(more.response)
    # A scripted policy's response is its action.
    elif turn.response.strip() not in ("", turn.action):
        yield Text("response", style="italic dim")
        yield _indented(_response(turn.response))
    action = one_line(turn.action, ACTION_LIMIT) or "(no action)"
    yield Text.assemble(("> " + action, "bold cyan"), turn_markers(turn), overflow="fold")
    yield _indented(_outside(turn.observation))


def turn_markers(turn: Turn) -> Text:
    """What stands behind an action that was invalid, refused or cut."""
    markers = Text()
    if not turn.valid:
        markers.append("  [invalid: not in the protocol's form]", style="bold red")
    if turn.admissible is False:
        markers.append("  [inadmissible: not accepted by the environment]", style="bold yellow")
    if turn.finish_reason not in ("", "stop"):
        markers.append(f"  [finish reason: {one_line(turn.finish_reason, 20)}]", style="bold yellow")
    return markers


def _response(response: str) -> Text:
    text = _outside(response)
    for match in _THINKING.finditer(text.plain):
        text.stylize("dim italic", *match.span())
    for match in _ACTION.finditer(text.plain):
        text.stylize("bold", *match.span())
    return text


def _indented(text: Text) -> Padding:
    # The viewer's own lines alone begin in the first column: a response cannot pass for one of them.
    return Padding(text, (0, 0, 0, 2), expand=False)


def _outside(text: str, style: str = "") -> Text:
    return Text(inert(text, TEXT_LIMIT), style=style, overflow="fold")

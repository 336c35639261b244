"""A run's episodes as pages: lists of light rows, and the episodes themselves some a page.

The log is read once for which records count, and once while the pages are written, so that memory holds some of its
episodes at a time. Pages are bounded by episodes and by text: a browser opens each at once, and no script has to fetch
anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from seedbench.report.entries import entry
from seedbench.report.site import write
from seedbench.runs import read_episodes
from seedbench.types import Episode, Outcome

PAGE_EPISODES, PAGE_CHARACTERS = 100, 2_000_000
"""A page of episodes ends with whichever is reached first."""
LIST_ROWS = 10_000
"""Rows of a list; a longer run has several."""
WINDOW = 200
"""Rows of a list that a browser lays out at a time; filters and sorting go over all of it."""


@dataclass(frozen=True, slots=True)
class Row:
    """An episode in the list."""

    number: int
    href: str
    episode: Episode


@dataclass(slots=True)
class Counts:
    """What the pages of a run hold."""

    total: int = 0
    outcomes: Counter[tuple[str, Outcome]] = field(default_factory=Counter)
    """(family, outcome) -> episodes."""


def write_episodes(log: Path, folder: Path, **about: object) -> Counts:
    """Write `index.html`, further lists and the pages of episodes of the run in `log` into `folder`.

    `about` is what the templates `list` and `episodes` say of the run beside its episodes. Where an attempt was made
    again its last record counts. Raises what `read_episodes` raises, and SeedBenchError where a page cannot be written.
    """
    counting = {episode.key: place for place, episode in enumerate(read_episodes(log))}
    counts = Counts(total=len(counting))
    rows = _rows(_counted(log, counting, counts), folder, counts.total, about)
    for page in range(1, max(1, -(-counts.total // LIST_ROWS)) + 1):
        write(
            folder / _list_name(page),
            "list.html.jinja",
            window=WINDOW,
            rows=islice(rows, LIST_ROWS),
            first=(page - 1) * LIST_ROWS + 1,
            last=min(page * LIST_ROWS, counts.total),
            total=counts.total,
            before=_list_name(page - 1) if page > 1 else "",
            after=_list_name(page + 1) if page * LIST_ROWS < counts.total else "",
            **about,
        )
    return counts


def _list_name(page: int) -> str:
    return "index.html" if page == 1 else f"list-{page:04}.html"


def _page_name(page: int) -> str:
    return f"episodes-{page:04}.html"


def _counted(log: Path, counting: dict[tuple[str, int], int], counts: Counts) -> Iterator[Episode]:
    for place, episode in enumerate(read_episodes(log)):
        # A run that goes on while it is read may have logged more by now.
        if counting.get(episode.key) == place:
            counts.outcomes[episode.family, episode.outcome] += 1
            yield episode


def _rows(episodes: Iterator[Episode], folder: Path, total: int, about: dict[str, object]) -> Iterator[Row]:
    """The rows in order; a page of episodes is written before the first of its rows is handed out."""
    number = 1
    for page, chunk in enumerate(_chunks(episodes), 1):
        last = number + len(chunk) - 1
        write(
            folder / _page_name(page),
            "episodes.html.jinja",
            entries=[entry(at, episode) for at, episode in enumerate(chunk, number)],
            first=number,
            last=last,
            total=total,
            before=_page_name(page - 1) if page > 1 else "",
            after=_page_name(page + 1) if last < total else "",
            list=_list_name((number - 1) // LIST_ROWS + 1),
            **about,
        )
        for at, episode in enumerate(chunk, number):
            yield Row(at, f"{_page_name(page)}#e{at}", episode)
        number = last + 1


def _chunks(episodes: Iterator[Episode]) -> Iterator[list[Episode]]:
    chunk: list[Episode] = []
    size = 0
    for episode in episodes:
        chunk.append(episode)
        size += _size(episode)
        if len(chunk) == PAGE_EPISODES or size >= PAGE_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _size(episode: Episode) -> int:
    """Characters of its texts, as long as they are: what is cut on the page has been held in memory."""
    turns = sum(
        len(turn.response) + len(turn.observation) + sum(len(message.content) for message in turn.prompt)
        for turn in episode.turns
    )
    return turns + len(episode.instruction) + len(episode.first_observation) + len(episode.error)

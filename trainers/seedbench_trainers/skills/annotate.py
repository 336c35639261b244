"""Annotating a run: an analyzer's summary and skill for every finished episode, into one append-only file.

One line an episode, flushed as it comes, refused answers included, so that whatever stops the work (a server that
dies, Ctrl-C, a full disk) the same command goes on where it stopped and nothing is asked twice.
"""

from __future__ import annotations

import asyncio
import dataclasses
import fcntl
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.base import PolicyFault
from seedbench.runs import append_line, read_episodes
from seedbench.types import Episode, Outcome
from seedbench_trainers.skills.analysis import NO_OBJECT, Analysis, Style, review
from seedbench_trainers.skills.analyzers import RULES, Analyzer, Answer, RulesAnalyzer, make_analyzer, panel_of

FILE = "annotations.jsonl"
CUT_OFF = "cut off at the limit of tokens"
_MOST_FAULTS = 3
_RAW_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Annotation:
    """What an analyzer said of an episode; one line of the file."""

    task: str
    task_sha256: str
    repeat: int
    family: str
    success: bool
    outcome: str
    analyzer: dict[str, Any]
    """What the answer depends on beside the episode."""
    raw_sha256: str
    """Of the whole answer."""
    raw: str
    """The first 2,000 characters of an answer that was refused; else empty."""
    kept: bool
    reason: str
    """Why it was refused; empty where it was kept."""
    summary: str = ""
    skill: str = ""

    @property
    def key(self) -> tuple[str, int]:
        """As `Episode.key`."""
        return (self.task_sha256, self.repeat)


def annotate(
    folder: Path,
    analyzer: Analyzer | str,
    out: Path | None = None,
    *,
    style: Style = "full",
    concurrency: int = 16,
    told: Callable[[Annotation], None] = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
) -> list[Annotation]:
    """Annotate the finished episodes of a run that have no annotation yet, and return all annotations of the file.

    Args:
        folder: a run of `seedbench collect` or `seedbench eval`. Infrastructure errors are no finished episodes.
        analyzer: asked once an episode; it is opened and closed here. A name is read as by `make_analyzer`, for the
            run's own panel, which must be a shipped one, and with the default limits.
        out: the file; default: `annotations.jsonl` in the run folder.
        style: of the prompt, where the analyzer is given by name.
        concurrency: episodes asked about at once; the rules take them one by one, in the run's order.
        told: is told of every annotation that is new.
        note: is told the counts in the end, line by line.

    Raises:
        UsageError: no run, or a file that holds another analyzer's annotations.
        SeedBenchError: the analyzer failed for good, the file is damaged, in use, or cannot be written. What was
            annotated is kept. A model that is away is no error where nothing is left to ask it.
    """
    if isinstance(analyzer, str):
        analyzer = make_analyzer(analyzer, panel_of(folder), style=style)
    at_once = 1 if isinstance(analyzer, RulesAnalyzer) else concurrency
    notes = asyncio.run(_annotate(finished_episodes(folder), analyzer, out or folder / FILE, at_once, told, note))
    for line in counts(notes):
        note(line)
    if isinstance(analyzer, RulesAnalyzer) and analyzer.unplanned:
        note(f"{analyzer.unplanned} failed episodes have no known solution; their skills are made without one")
    return notes


def counts(notes: Sequence[Annotation]) -> list[str]:
    """How many were kept, and how many were refused for which reason, as lines."""
    kept = [note for note in notes if note.kept]
    solved = sum(note.success for note in kept)
    refused = Counter(note.reason for note in notes if not note.kept).most_common()
    first = (
        f"kept {len(kept)} of {len(notes)} annotations ({solved} of solved episodes, {len(kept) - solved} of failed)"
    )
    return [first, *(f"refused {count}: {reason}" for reason, count in refused)]


def finished_episodes(folder: Path) -> list[Episode]:
    """The episodes of a run that ended by themselves, the last record of each attempt. Raises as `read_episodes`."""
    latest = {episode.key: episode for episode in read_episodes(folder)}
    return [episode for episode in latest.values() if episode.outcome is not Outcome.INFRA_ERROR]


def read_annotations(path: Path) -> list[Annotation]:
    """The annotations in a file, or in a run folder's own file, in its order; a torn last line is left out.

    Raises UsageError where there is no such file, SeedBenchError at a damaged line.
    """
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise UsageError(f"there are no annotations in '{path}': write some with `seedbench annotate RUN`.")
    return list(_parsed(path.read_bytes(), path))


def annotated(folder: Path, path: Path | None = None) -> list[tuple[Episode, Analysis]]:
    """The pairs that stage 1 learns from: episodes of a run with the analyses that were kept. Raises as above."""
    kept = {note.key: note for note in read_annotations(path or folder) if note.kept}
    return [
        (episode, Analysis(kept[episode.key].summary, kept[episode.key].skill))
        for episode in finished_episodes(folder)
        if episode.key in kept
    ]


def _parsed(content: bytes, path: Path) -> Iterator[Annotation]:
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            return
        try:
            yield Annotation(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise SeedBenchError(
                f"'{path}' line {number} is damaged ({type(error).__name__}: {error}); delete that line and run the"
                " same `seedbench annotate` command again."
            ) from error


async def _annotate(
    episodes: Sequence[Episode],
    analyzer: Analyzer,
    path: Path,
    concurrency: int,
    told: Callable[[Annotation], None],
    note: Callable[[str], None],
) -> list[Annotation]:
    try:
        await analyzer.open()
    except SeedBenchError as error:
        if not (held := _complete(episodes, path)):
            raise
        note(f"nothing is left to ask the analyzer, which is away: {error}")
        return held
    try:
        with _opened(path) as file:
            done = list(_parsed(file.read(), path))
            _refuse_other(done, analyzer.identity(), path)
            has = {note.key for note in done}
            waiting = iter([episode for episode in episodes if episode.key not in has])
            await _ask_all(waiting, analyzer, file, concurrency, told, done)
    finally:
        await analyzer.close()
    return done


async def _ask_all(
    waiting: Iterator[Episode],
    analyzer: Analyzer,
    file: FileIO,
    concurrency: int,
    told: Callable[[Annotation], None],
    done: list[Annotation],
) -> None:
    """Ask about every episode and add the annotations to `done`; stop after a few that cannot be answered."""
    faults: list[str] = []
    before = len(done)

    async def worker() -> None:
        for episode in waiting:  # shared: each worker takes the next one
            if len(faults) > _MOST_FAULTS:
                return
            try:
                answer = await analyzer.answer(episode)
            except PolicyFault as fault:
                faults.append(f"{episode.task}: {fault}")
                continue
            note = _annotation(episode, analyzer.identity(), answer)
            _append(file, note)
            done.append(note)
            told(note)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(worker())
    except* SeedBenchError as errors:
        raise errors.exceptions[0] from None  # the first says what happened; the rest follow from it
    if faults:
        raise SeedBenchError(
            f"the analyzer gave no answer for {len(faults)} episodes (the last:"
            f" {faults[-1].rstrip('.')}). {len(done) - before} new annotations are kept: mend it and run the same"
            " `seedbench annotate` command again to go on."
        )


def _annotation(episode: Episode, analyzer: dict[str, Any], answer: Answer) -> Annotation:
    analysis, reason = (None, answer.refused) if answer.refused else review(answer.text)
    if reason == NO_OBJECT and answer.cut:
        reason = CUT_OFF
    raw = answer.text.encode("utf-8", "replace")
    return Annotation(
        task=episode.task,
        task_sha256=episode.task_sha256,
        repeat=episode.repeat,
        family=episode.family,
        success=episode.success,
        outcome=str(episode.outcome),
        analyzer=analyzer,
        raw_sha256=hashlib.sha256(raw).hexdigest(),
        raw="" if analysis else raw.decode()[:_RAW_CHARS],
        kept=analysis is not None,
        reason=reason,
        summary=analysis.summary if analysis else "",
        skill=analysis.skill if analysis else "",
    )


def _complete(episodes: Sequence[Episode], path: Path) -> list[Annotation]:
    """The annotations of a file in which a model has answered about every episode; else none."""
    held = read_annotations(path) if path.is_file() else []
    models = {note.key for note in held if note.analyzer.get("kind") != RULES}
    return held if all(episode.key in models for episode in episodes) else []


def _refuse_other(done: Sequence[Annotation], identity: dict[str, Any], path: Path) -> None:
    other = next((note.analyzer for note in done if note.analyzer != identity), None)
    if other is not None:
        changed = sorted(key for key in {**other, **identity} if other.get(key) != identity.get(key))
        raise UsageError(
            f"'{path}' holds annotations by another analyzer (differs in {', '.join(changed)}): choose another file"
            " with --out, or give the analyzer and settings of that file to go on with it."
        )


def _opened(path: Path) -> FileIO:
    """The file for reading and appending, for this process alone, cut back to its last whole line."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab+", buffering=0)
    except OSError as error:
        raise SeedBenchError(f"cannot write '{path}': {error.strerror}.") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise SeedBenchError(
            f"'{path}' is being written by another process; wait for it or choose another --out."
        ) from error
    file.seek(0)
    content = file.read() or b""
    file.truncate(content.rfind(b"\n") + 1)
    file.seek(0)
    return file


def _append(file: FileIO, note: Annotation) -> None:
    line = (json.dumps(dataclasses.asdict(note), ensure_ascii=False) + "\n").encode()
    try:
        append_line(file, line)
    except OSError as error:
        raise SeedBenchError(
            f"cannot write the annotations: {error.strerror}. Free space and run the same command again; what was"
            " annotated is kept."
        ) from error

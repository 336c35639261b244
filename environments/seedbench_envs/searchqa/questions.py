"""The stored questions: gzipped JSON lines, a file for each set and split, read when it is needed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from uuid import uuid4

from seedbench.errors import SeedBenchError
from seedbench_envs.searchqa.records import Question

_ENDING = ".jsonl.gz"


class Questions(Mapping[str, Question]):
    """Task id -> question, over a folder of the store. A set is read when one of its questions is asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sets(self) -> list[tuple[str, str]]:
        """(set, split) of everything that is there, sorted."""
        names = (file.name.removesuffix(_ENDING) for file in sorted(self._folder.glob(f"*--*{_ENDING}")))
        return [(name.partition("--")[0], name.partition("--")[2]) for name in names]

    def of_set(self, source: str, split: str) -> Mapping[str, Question]:
        """The questions of one set and split, in the order of their file; none where it is not there."""
        file = self._folder / f"{source}--{split}{_ENDING}"
        try:
            stamp = file.stat().st_mtime_ns
        except OSError:
            return {}
        return _read_set(file, stamp)

    def __getitem__(self, task: str) -> Question:
        parts = task.split("/")
        # No part may lead out of the folder.
        if len(parts) != 3 or not all(part.replace("_", "").replace("-", "").isalnum() for part in parts):
            raise KeyError(task)
        return self.of_set(parts[0], parts[1])[task]

    def __iter__(self) -> Iterator[str]:
        for source, split in self.sets():
            yield from self.of_set(source, split)

    def __len__(self) -> int:
        return sum(len(self.of_set(source, split)) for source, split in self.sets())


@lru_cache(maxsize=32)
def _read_set(file: Path, stamp: int) -> dict[str, Question]:
    """`stamp` is the file's time, so that a set that is imported again is read again."""
    source, _, split = file.name.removesuffix(_ENDING).partition("--")
    found = {}
    try:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                number, text, answers, supporting = json.loads(line)
                identifier = f"{source}/{split}/{number}"
                found[identifier] = Question(
                    identifier, text, tuple(answers), source, split, tuple(supporting)
                )  # fmt: skip
    except (OSError, EOFError, ValueError, TypeError) as error:
        raise SeedBenchError(
            f"the stored questions '{file}' are damaged ({error}): delete the file and import the set again."
        ) from error
    return found


def store_questions(folder: Path, found: Iterable[Question]) -> None:
    """Write questions into `folder`/questions, a file for each set and split, each whole or not at all.

    Raises SeedBenchError where the disk is full or the folder cannot be written.
    """
    parts: dict[tuple[str, str], list[str]] = {}
    for question in found:
        row = [question.id.rpartition("/")[2], question.question, question.answers, question.supporting]
        parts.setdefault((question.source, question.split), []).append(json.dumps(row) + "\n")
    target = folder / "questions"
    try:
        target.mkdir(parents=True, exist_ok=True)
        for (source, split), lines in parts.items():
            draft = target / f"{uuid4().hex}.tmp"
            draft.write_bytes(gzip.compress("".join(lines).encode(), compresslevel=6, mtime=0))
            draft.replace(target / f"{source}--{split}{_ENDING}")
    except OSError as error:
        raise cannot_write(folder, error) from error


def cannot_write(folder: Path, error: OSError) -> SeedBenchError:
    """The error for a store that takes no more."""
    return SeedBenchError(
        f"cannot write Search-QA's data to '{folder}': {error.strerror}. Free space, or let SEEDBENCH_DATA name another"
        " folder, and try again."
    )

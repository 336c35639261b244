"""Panels: named, versioned, ordered lists of tasks. A panel's hash stands in every result.

A panel file is JSON lines, plain or gzipped: a header (name, version, suite, split, official; dialect and partition
where there are several), then one line a task (id, family, sha256; group where the partition keeps groups apart).
Suites ship theirs; users may pass a file of their own.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources.abc import Traversable
from pathlib import Path

from seedbench.errors import SeedBenchError, UsageError, unknown
from seedbench.registry import get_suite, suite_names
from seedbench.types import Task


@dataclass(frozen=True)
class Panel:
    """An ordered list of tasks of one suite and split. Each task once; repeats belong to the run."""

    name: str
    """With version and subset, e.g. `alfworld/valid_unseen@1` or `...@1[limit=20]`."""
    suite: str
    split: str
    official: bool
    dialect: str
    """Data release whose wording the tasks have; empty where a suite has only one."""
    tasks: tuple[Task, ...]
    partition: str = ""
    """Panels of one suite, dialect and partition must not overlap; empty where a suite is divided in one way only."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Task id -> what else its split must not share with another (a product, a room); empty: tasks alone count."""

    @cached_property
    def hash(self) -> str:
        """SHA-256 over the ordered task ids and content hashes (64 hex digits); the name does not enter."""
        digest = hashlib.sha256()
        for task in self.tasks:
            digest.update(f"{task.id}\t{task.sha256}\n".encode())
        return digest.hexdigest()

    def families(self) -> dict[str, int]:
        """Family -> number of tasks, in the suite's order."""
        counts: dict[str, int] = dict.fromkeys(get_suite(self.suite).families, 0)
        for task in self.tasks:
            counts[task.family] = counts.get(task.family, 0) + 1
        return {family: n for family, n in counts.items() if n}

    def subset(self, families: Sequence[str] = (), limit: int | None = None) -> Panel:
        """Only some families, and at most `limit` tasks spread evenly over the families.

        Which tasks a limit keeps is decided by their content hashes, so it does not depend on names or order,
        and a larger limit keeps all tasks of a smaller one. Raises UsageError for an unknown family or a limit < 1.
        """
        present = self.families()
        for family in families:
            if family not in present:
                raise unknown("family", family, present)
        if limit is not None and limit < 1:
            raise UsageError(f"the limit must be at least 1, not {limit}.")
        tasks = [task for task in self.tasks if not families or task.family in families]
        marks = [f"families={','.join(f for f in present if f in families)}"] if families else []
        if limit is not None and limit < len(tasks):
            kept = _spread(tasks, limit)
            tasks = [task for task in tasks if task.id in kept]
            marks.append(f"limit={limit}")
        return replace(self, name=f"{self.name}[{';'.join(marks)}]", tasks=tuple(tasks)) if marks else self


def _spread(tasks: Sequence[Task], limit: int) -> set[str]:
    """Ids of `limit` tasks: the families take turns, each giving its tasks in order of content hash."""
    queues: dict[str, list[Task]] = defaultdict(list)
    for task in sorted(tasks, key=lambda task: task.sha256, reverse=True):
        queues[task.family].append(task)
    kept: set[str] = set()
    while len(kept) < limit:
        for family in sorted(queues):
            if queues[family] and len(kept) < limit:
                kept.add(queues[family].pop().id)
    return kept


def shipped() -> dict[str, Traversable]:
    """`suite/name@version` -> file, of every panel that the installed suites ship, sorted."""
    found: dict[str, Traversable] = {}
    for suite in suite_names():
        try:
            folder = get_suite(suite).resources / "panels"
        except SeedBenchError:  # a broken suite hides its own panels only; `load_panel` and `doctor` say why
            continue
        for file in folder.iterdir() if folder.is_dir() else ():
            if file.name.endswith(".jsonl.gz") and file.name.startswith(f"{suite}--"):
                name = file.name.removeprefix(f"{suite}--").removesuffix(".jsonl.gz")
                found[f"{suite}/{name}"] = file
    return dict(sorted(found.items()))


def load_panel(spec: str) -> Panel:
    """A shipped panel by name, with or without version (the newest then), or a panel file by path.

    Raises:
        UsageError: no such panel (the nearest name is offered).
        SeedBenchError: a file that is not a panel.
    """
    panels = shipped()
    if spec in panels:
        return read_panel(panels[spec])
    versions = [name for name in panels if name.rpartition("@")[0] == spec]
    if versions:
        return read_panel(panels[max(versions, key=lambda name: int(name.rpartition("@")[2]))])
    if spec.endswith((".jsonl", ".jsonl.gz")):
        path = Path(spec)
        if not path.is_file():
            raise UsageError(f"there is no panel file '{spec}'.")
        return read_panel(path)
    if (suite := spec.partition("/")[0]) in suite_names():
        get_suite(suite)  # raises the reason where it does not load
    raise unknown("panel", spec, {name.rpartition("@")[0] for name in panels})


def read_panel(file: Traversable | Path) -> Panel:
    """Read a panel file. Raises SeedBenchError if it is not one, or if a task stands in it twice."""
    try:
        raw = file.read_bytes()
        lines = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode().splitlines()
        header = json.loads(lines[0])
        rows = [json.loads(line) for line in lines[1:]]
        split = _text(header, "split")
        tasks = tuple(Task(_text(row, "id"), _text(row, "family"), split, _text(row, "sha256")) for row in rows)
        panel = Panel(
            f"{_text(header, 'name')}@{int(header['version'])}", _text(header, "suite"), split,
            bool(header["official"]), _text({"dialect": "", **header}, "dialect"), tasks,
            _text({"partition": "", **header}, "partition"),
            {row["id"]: _text(row, "group") for row in rows if "group" in row},
        )  # fmt: skip
    except (ValueError, KeyError, IndexError, TypeError, EOFError, zlib.error, RecursionError, OSError) as error:
        raise SeedBenchError(
            f"'{file.name}' is not a panel file ({type(error).__name__}: {error}); expected JSON lines: a header with"
            " name, version, suite, split and official, then id, family and sha256 of each task."
        ) from error
    # Attempts are told apart by content, so two names for one content would count as one task.
    if min(len({task.id for task in tasks}), len({task.sha256 for task in tasks})) < len(tasks):
        raise SeedBenchError(f"the panel '{panel.name}' lists a task twice.")
    if not tasks:
        raise SeedBenchError(f"the panel '{panel.name}' has no tasks.")
    if header.get("hash", panel.hash) != panel.hash:
        raise SeedBenchError(f"the panel file '{file.name}' was changed: its tasks do not have the hash in its header.")
    return panel


def _text(row: dict[str, object], key: str) -> str:
    value = row[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is no text")
    value.encode()  # a lone surrogate has no place in a hash
    return value


def write_panel(panel: Panel, path: Path) -> None:
    """Write a panel file; gzipped without a time stamp where the name ends in .gz, so that bytes are stable.

    Raises:
        UsageError: a name that is not `name@version`, or a file name that `load_panel` would not take.
        SeedBenchError: the file cannot be written.
    """
    name, _, version = panel.name.rpartition("@")
    if not re.fullmatch(r"[^\s@\[\]]+@[0-9]+", panel.name):
        raise UsageError(f"'{panel.name}' is no panel name; expected name@version, e.g. mine/heat-20@1.")
    if not path.name.endswith((".jsonl", ".jsonl.gz")):
        raise UsageError(f"a panel file's name ends in .jsonl or .jsonl.gz, not '{path.name}'.")
    header = {
        "name": name, "version": int(version), "suite": panel.suite, "split": panel.split,
        "official": panel.official, "dialect": panel.dialect,
        **({"partition": panel.partition} if panel.partition else {}),
        "n": len(panel.tasks), "hash": panel.hash,
    }  # fmt: skip
    rows: Iterator[dict[str, object]] = (
        {
            "id": task.id, "family": task.family, "sha256": task.sha256,
            **({"group": panel.groups[task.id]} if panel.groups else {}),
        }
        for task in panel.tasks
    )  # fmt: skip
    text = "".join(json.dumps(row) + "\n" for row in (header, *rows))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode())
    except OSError as error:
        raise SeedBenchError(f"cannot write '{path}': {error.strerror}.") from error


def data_problems(panel: Panel, held: dict[str, str]) -> list[str]:
    """Compare a panel with the store (task id -> sha256): sentences about missing and different tasks."""
    missing = [task.id for task in panel.tasks if task.id not in held]
    differ = [task.id for task in panel.tasks if held.get(task.id, task.sha256) != task.sha256]
    problems = []
    if missing:
        have = len(panel.tasks) - len(missing)
        problems.append(f"{panel.name}: {have} of {len(panel.tasks)} tasks are in the store; missing {_some(missing)}")
    if differ:
        problems.append(f"{panel.name}: the content of {len(differ)} tasks differs from the panel: {_some(differ)}")
    return problems


def must_not_overlap(first: Panel, second: Panel) -> bool:
    """Whether the two are different splits of one partition of one suite's tasks."""
    same = (first.suite, first.dialect, first.partition) == (second.suite, second.dialect, second.partition)
    return same and first.split != second.split


def overlaps(first: Panel, second: Panel) -> list[str]:
    """Task ids of `second` that `first` also holds: by id, by content, or by group where both have groups."""
    ids = {task.id for task in first.tasks}
    contents = {task.sha256 for task in first.tasks}
    groups = set(first.groups.values())
    return [
        task.id
        for task in second.tasks
        if task.id in ids or task.sha256 in contents or second.groups.get(task.id) in groups
    ]


def _some(items: Iterable[str], shown: int = 3) -> str:
    names = list(items)
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more

"""The run folder: manifest, append-only episode log, summary.

    manifest.json    what was run, on what, with which versions; its `settings` decide whether a run can be resumed
    episodes.jsonl   one line an episode, written and flushed as it ends
    summary.json     derived from the log alone; can be rebuilt at any time

A process killed at any moment loses at most the episodes that were still open: a torn last line is cut off
when the run is opened again.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seedbench.errors import SeedBenchError, UsageError
from seedbench.types import Episode, Outcome

MANIFEST, LOG, SUMMARY = "manifest.json", "episodes.jsonl", "summary.json"


class Run:
    """A run folder opened for writing by this process alone. Use as a context manager.

    Raises (when opened):
        UsageError: the folder holds a run with other settings (the differences are shown), or something else.
        SeedBenchError: another process is writing to it, or it cannot be written.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], manifest: dict[str, Any]) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / ".lock").open("w")
        except OSError as error:
            raise SeedBenchError(f"cannot write the run folder '{folder}': {error.strerror}.") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise SeedBenchError(
                f"another process is writing to '{folder}'; wait for it or choose another --out."
            ) from error
        try:
            self.manifest = self._matched(settings, manifest)
            self._log = self._opened_log()
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()
        self._lock.close()

    def _matched(self, settings: dict[str, Any], manifest: dict[str, Any]) -> dict[str, Any]:
        if not (self.folder / MANIFEST).exists():
            others = [path.name for path in self.folder.iterdir() if path.name not in {".lock", LOG, SUMMARY}]
            if others or (self.folder / LOG).exists():
                raise UsageError(
                    f"'{self.folder}' is not empty and holds no run manifest; choose another folder with --out."
                )
            fresh = {"schema": "seedbench.manifest/1", "settings": settings, **manifest, "sessions": []}
            write_json(self.folder / MANIFEST, fresh)
            return fresh
        refuse_other_settings(self.folder, settings)
        return read_manifest(self.folder)

    def _opened_log(self) -> io.FileIO:
        """Open the log for appending, cut back to its last complete line."""
        path = self.folder / LOG
        log = path.open("ab+", buffering=0)
        log.seek(0, os.SEEK_END)
        end = log.tell()
        keep = end
        while keep > 0:
            size = min(keep, 1 << 16)
            log.seek(keep - size)
            newline = (log.read(size) or b"").rfind(b"\n")
            if newline >= 0:
                keep = keep - size + newline + 1
                break
            keep -= size
        if keep < end:
            log.truncate(keep)
        log.seek(0, os.SEEK_END)
        return log

    def append(self, episode: Episode) -> None:
        """Write one episode through to the system. Raises SeedBenchError when the disk is full; the log stays whole."""
        log = self._log
        line = (json.dumps(episode.to_json(), ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")
        start = log.seek(0, os.SEEK_END)
        try:
            while line:
                line = line[log.write(line) :]
        except OSError as error:
            log.truncate(start)
            raise SeedBenchError(
                f"cannot write the episode log in '{self.folder}': {error.strerror}. Free space and run the same"
                " command again; every finished episode is kept."
            ) from error

    def add_session(self, session: dict[str, Any]) -> None:
        """Record a working session (start, seconds, episodes) in the manifest."""
        self.manifest["sessions"].append(session)
        write_json(self.folder / MANIFEST, self.manifest)


def refuse_other_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Raise UsageError if `folder` holds a run whose settings differ in any of the given keys; show how."""
    if not (folder / MANIFEST).exists():
        return
    held = read_manifest(folder)["settings"]
    if differences := _differences({key: held.get(key) for key in settings}, settings):
        raise UsageError(
            f"'{folder}' holds a run with other settings: {'; '.join(differences)}. Choose another --out, or give the"
            " settings of that run to continue it."
        )


def write_json(path: Path, value: object) -> None:
    """Write a JSON file in one step: readers see the old or the new one, never half. Raises SeedBenchError."""
    draft = path.with_name(f".{path.name}.tmp")
    try:
        draft.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise SeedBenchError(
            f"cannot write '{path}': {error.strerror}. Free space and run the same command again."
        ) from error


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a run folder. Raises UsageError where there is none, SeedBenchError where it is damaged."""
    path = folder / MANIFEST
    if not path.is_file():
        raise UsageError(f"'{folder}' is not a run folder (no {MANIFEST}); runs are made by `seedbench eval --out`.")
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        manifest["settings"], manifest["sessions"]
    except (ValueError, KeyError, TypeError) as error:
        raise SeedBenchError(f"'{path}' is damaged ({error}).") from error
    return manifest


def read_episodes(folder: Path) -> Iterator[Episode]:
    """The episodes of a run in the order they ended; a torn last line is left out.

    Raises:
        UsageError: the folder has no log.
        SeedBenchError: a line before the last is damaged (its number is named).
    """
    path = folder / LOG
    if not path.is_file():
        raise UsageError(f"'{folder}' holds no episode log ({LOG}).")
    with path.open("rb") as log:
        for number, line in enumerate(log, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield Episode.from_json(json.loads(line.decode("utf-8", "surrogatepass")))
            except (ValueError, TypeError, KeyError) as error:
                raise SeedBenchError(f"'{path}' line {number} is damaged ({type(error).__name__}: {error}).") from error


def finished(folder: Path) -> dict[tuple[str, int], Outcome]:
    """Outcome of every attempt in the log, by (task sha256, repeat); the last record of an attempt counts."""
    return {episode.key: episode.outcome for episode in read_episodes(folder)}


def _differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """`key: old, now new` for every leaf in which two settings differ."""
    found = []
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found += _differences(before, after, f"{prefix}{key}.")
        elif before != after:
            found.append(f"{prefix}{key} was {_short(before)}, now {_short(after)}")
    return found


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."

"""The run folder: manifest, append-only episode log, summary.

    manifest.json    what was run, on what, with which versions; its `settings` decide whether a run can be resumed
    episodes.jsonl   one line an episode, written and flushed as it ends
    summary.json     derived from the log alone; can be rebuilt at any time

A process killed at any moment loses at most the episodes that were still open: a torn last line is cut off
when the run is opened again. A bundle (seedbench/bundle.py) holds the log compressed, as `episodes.jsonl.xz`, and is
read like any run, but never written to.
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
from seedbench.logs import held, lines, packed, seal
from seedbench.types import Episode, Outcome

MANIFEST, LOG, SUMMARY = "manifest.json", "episodes.jsonl", "summary.json"
_LOCK = ".lock"


class Run:
    """A run folder opened for writing by this process alone. Use as a context manager.

    Raises (when opened):
        UsageError: the folder holds a run with other settings (the differences are shown), or something else.
        SeedBenchError: another process is writing to it, or it cannot be written.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], manifest: dict[str, Any]) -> None:
        self.folder = folder
        try:
            refuse_other_settings(folder, settings)  # before anything is written to a folder that is not ours
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / _LOCK).open("a")
        except OSError as error:
            raise SeedBenchError(f"cannot write the run folder '{folder}': {error.strerror}.") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            busy = f"another process is writing to '{folder}'; wait for it or choose another --out."
            mute = f"cannot lock '{folder}' ({error.strerror}); choose a folder on a local disk with --out."
            raise SeedBenchError(busy if isinstance(error, BlockingIOError) else mute) from error
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
        refuse_other_settings(self.folder, settings)  # again, now that nobody else can change it
        if not _is_begun(self.folder):
            fresh = {"schema": "seedbench.manifest/1", "settings": settings, **manifest, "sessions": []}
            write_json(self.folder / MANIFEST, fresh)
            return fresh
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
        try:
            append_line(self._log, _encoded(json.dumps(episode.to_json(), ensure_ascii=False)))
        except OSError as error:
            raise SeedBenchError(
                f"cannot write the episode log in '{self.folder}': {error.strerror}. Free space and run the same"
                " command again; every finished episode is kept."
            ) from error

    def add_session(self, session: dict[str, Any]) -> None:
        """Record a working session (start, seconds, episodes) in the manifest, with the log as it stands at its end."""
        self.manifest["sessions"].append({**session, "log": seal(self.folder / LOG)})
        write_json(self.folder / MANIFEST, self.manifest)


def append_line(log: io.FileIO, line: bytes) -> None:
    """Write a line at the end of an unbuffered file; where that fails (OSError), the file is left as it was."""
    start = log.seek(0, os.SEEK_END)
    try:
        while line:
            line = line[log.write(line) :]
    except OSError:
        log.truncate(start)
        raise


def refuse_other_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Raise UsageError if `folder` is no place for a run with these settings, and show why.

    It is none where it holds something else, or a run whose settings differ in any of the given keys. A run
    without a single logged episode binds nobody.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"'{folder}' is a file; choose a folder with --out.")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if packed(folder / LOG).name in names:
        raise UsageError(f"'{folder}' is a bundle, which is only read; choose another folder with --out.")
    # The manifest is looked for after the listing: a run that another process begins here writes it first.
    if names - {_LOCK, _draft(folder / MANIFEST).name} and not (folder / MANIFEST).exists():
        raise UsageError(f"'{folder}' is not empty and holds no run manifest; choose another folder with --out.")
    if not _is_begun(folder):
        return
    held = read_manifest(folder)["settings"]
    if changed := differences({key: held.get(key) for key in settings}, settings):
        raise UsageError(
            f"'{folder}' holds a run with other settings: {'; '.join(changed)}. Choose another --out, or give the"
            " settings of that run to continue it."
        )


def _is_begun(folder: Path) -> bool:
    log = folder / LOG
    return (folder / MANIFEST).exists() and log.exists() and log.stat().st_size > 0


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


def _encoded(text: str) -> bytes:
    """A JSON text as a UTF-8 line. A lone surrogate, which servers do send, becomes its JSON escape."""
    return (text + "\n").encode("utf-8", "backslashreplace")


def write_json(path: Path, value: object) -> None:
    """Write a JSON file in one step: readers see the old or the new one, never half. Raises SeedBenchError."""
    draft = _draft(path)
    try:
        draft.write_bytes(_encoded(json.dumps(value, indent=2, ensure_ascii=False)))
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
        shape = (manifest["settings"]["policy"], manifest["policy"]["name"], manifest["sessions"])
        if not all(map(isinstance, shape, (dict, str, list))):
            raise TypeError("a part has another type")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise SeedBenchError(
            f"'{path}' is damaged ({reason}); evaluate again into another folder with --out."
        ) from error
    return manifest


def read_episodes(folder: Path) -> Iterator[Episode]:
    """The episodes of a run in the order they ended; a torn last line is left out.

    Raises:
        UsageError: the folder has no log.
        SeedBenchError: a line before the last is damaged (its number is named), or as `seedbench.logs.lines`.
    """
    path = folder / LOG
    if held(path) is None:
        raise UsageError(f"'{folder}' holds no episode log ({LOG}).")
    for number, line in enumerate(lines(path), start=1):
        if not line.endswith(b"\n"):
            return
        try:
            yield Episode.from_json(json.loads(line))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise SeedBenchError(
                f"'{path}' line {number} is damaged ({type(error).__name__}: {error}); delete that line and run the"
                " same `seedbench eval` command again to play its episode once more."
            ) from error


def finished(folder: Path) -> dict[tuple[str, int], Outcome]:
    """Outcome of every attempt in the log, by (task sha256, repeat); the last record of an attempt counts."""
    return {episode.key: episode.outcome for episode in read_episodes(folder)}


def differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """`key: old, now new` for every leaf in which two settings differ."""
    found = []
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            found.append(f"{prefix}{key} was {_short(before)}, now {_short(after)}")
    return found


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."

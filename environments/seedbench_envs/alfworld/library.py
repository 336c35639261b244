"""The games of an edition and dialect: in the store, generated on first use, or read from a given place."""

from __future__ import annotations

import hashlib
import os
import zlib
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Protocol

from seedbench.errors import SeedBenchError, UsageError, unknown
from seedbench.store import store_root
from seedbench_envs.alfworld.dialect import DIALECTS
from seedbench_envs.alfworld.game import Game, parse_game
from seedbench_envs.alfworld.pack import GamePack, load_game, open_pack, write_pack
from seedbench_envs.alfworld.sources import read_games


class Library(Protocol):
    """What an environment needs of a set of games. `read` and `game` raise UsageError for an unknown task."""

    def hashes(self) -> dict[str, str]:
        """Task id -> sha256 of the game file, sorted by id."""
        ...

    def read(self, task_id: str) -> bytes:
        """The game file."""
        ...

    def game(self, task_id: str) -> Game:
        """The parsed game."""
        ...


class PackLibrary:
    """Games of the store."""

    def __init__(self, pack: GamePack) -> None:
        self.pack = pack

    def hashes(self) -> dict[str, str]:
        """Task id -> sha256, sorted."""
        return self.pack.hashes()

    def read(self, task_id: str) -> bytes:
        """The game file."""
        try:
            return self.pack.read(task_id)
        except KeyError:
            raise unknown_task(task_id, self.hashes()) from None

    def game(self, task_id: str) -> Game:
        """The parsed game, shared within the process."""
        try:
            return load_game(self.pack, task_id)
        except KeyError:
            raise unknown_task(task_id, self.hashes()) from None


class SourceLibrary:
    """Games read once from a folder or archive and kept deflated in memory (about 5 kB each)."""

    def __init__(self, source: Path) -> None:
        self._files: dict[str, bytes] = {}
        hashes: dict[str, str] = {}
        for task, content in read_games(source):
            self._files[task], hashes[task] = zlib.compress(content), hashlib.sha256(content).hexdigest()
        if not self._files:
            raise SeedBenchError(f"'{source}' holds no ALFWorld games (<split>/<folder>/<trial>/game.tw-pddl).")
        self._hashes = dict(sorted(hashes.items()))

    def hashes(self) -> dict[str, str]:
        """Task id -> sha256, sorted."""
        return dict(self._hashes)

    def read(self, task_id: str) -> bytes:
        """The game file."""
        if task_id not in self._files:
            raise unknown_task(task_id, self._files)
        return zlib.decompress(self._files[task_id])

    def game(self, task_id: str) -> Game:
        """The parsed game."""
        return parse_game(self.read(task_id), task_id)


def unknown_task(task_id: str, known: object) -> UsageError:
    """The error for a task that is not there: names the nearest id, never lists thousands."""
    ids = list(known)  # type: ignore[call-overload]
    split = task_id.partition("/")[0]
    near = [i for i in ids if i.startswith(f"{split}/")] or ids
    text = str(unknown("task", task_id, near)).partition(" Known:")[0]
    return UsageError(f"{text} {len(ids):,} games are at hand.")


def pack_path(edition: str, dialect: str) -> Path:
    """Where the store keeps the games of an edition and dialect."""
    if dialect not in DIALECTS:
        raise unknown("dialect", dialect, DIALECTS)
    folder = "alfworld" if edition == "official" else "mini-alfworld"
    return store_root() / folder / f"games-{dialect}.sqlite"


def library(edition: str, dialect: str, data: str | Path | None = None) -> Library:
    """The games of an edition and dialect, from the store or from `data`.

    Raises:
        SeedBenchError: official games that were not fetched, or an unreadable `data`.
        UsageError: an unknown edition or dialect.
    """
    if edition not in ("official", "mini"):
        raise unknown("edition", edition, ("official", "mini"))
    path = pack_path(edition, dialect)
    if data is not None:
        return _source(Path(data).resolve())
    if edition == "mini":
        if dialect != "2.1.2":
            raise UsageError("the generated games exist in dialect 2.1.2 only.")
        ensure_mini(path)
    if not path.is_file():
        raise SeedBenchError(
            f"the ALFWorld games (dialect {dialect}) are not in the store ({path}). Fetch them with `seedbench"
            " data fetch alfworld`, or import a copy with `seedbench data fetch alfworld --from FILE|FOLDER`."
        )
    return PackLibrary(open_pack(path, path.stat().st_mtime_ns))


def ensure_mini(path: Path, *, anew: bool = False) -> None:
    """Generate the mini games where they are missing or of another generator version (a few seconds, once).

    Args:
        path: the pack to write.
        anew: generate them in any case, so that damaged ones are replaced.

    Raises:
        SeedBenchError: the store cannot be written.
    """
    from seedbench_envs.mini.generate import GENERATOR_VERSION, generate
    from seedbench_envs.mini.sizes import SIZES

    marker = path.with_name("generator-version")
    if not anew and path.is_file() and marker.is_file() and marker.read_text() == str(GENERATOR_VERSION):
        return
    # Written aside and moved into place: several processes may come here at once.
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        draft.unlink(missing_ok=True)
        write_pack(draft, chain.from_iterable(generate(size=size) for size in SIZES))
        draft.replace(path)
        marker.write_text(str(GENERATOR_VERSION))
    except OSError as error:
        raise SeedBenchError(
            f"cannot write the generated games to '{path}': {error}. Let SEEDBENCH_DATA name a folder that can be"
            " written."
        ) from error


@lru_cache(maxsize=4)
def _source(source: Path) -> SourceLibrary:
    return SourceLibrary(source)

"""A store of game files in one SQLite file: small, fast to open, shared by processes, exact to the byte.

Game files of a release share their domain and grammar, so each is deflated against the first game as the
dictionary: 344 MB become about 20 MB, and reading one back takes well under a millisecond.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path

from seedbench.errors import SeedBenchError
from seedbench.types import Task
from seedbench_envs.alfworld.game import Game, parse_game
from seedbench_envs.alfworld.sources import family_of

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value BLOB);
CREATE TABLE IF NOT EXISTS games (
    task TEXT PRIMARY KEY, split TEXT NOT NULL, sha256 TEXT NOT NULL, data BLOB NOT NULL
) WITHOUT ROWID;
"""


class GamePack:
    """A pack opened for reading. Safe for concurrent readers in threads and processes.

    Raises:
        SeedBenchError: the file is missing or is no pack.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise SeedBenchError(f"no games at '{path}'.")
        self.path = path.resolve()
        with self._connect() as connection:
            row = connection.execute("SELECT value FROM meta WHERE key = 'dictionary'").fetchone()
            self._dictionary: bytes = row[0]

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
                yield connection
        except (sqlite3.DatabaseError, TypeError, zlib.error) as error:
            raise SeedBenchError(
                f"'{self.path}' is not a readable game store ({error}); delete it and run `seedbench data fetch` again."
            ) from error

    def hashes(self, split: str | None = None) -> dict[str, str]:
        """Task id -> sha256 of the game file, sorted by id, of one split or of all."""
        query = "SELECT task, sha256 FROM games WHERE ?1 IS NULL OR split = ?1 ORDER BY task"
        with self._connect() as connection:
            return dict(connection.execute(query, (split,)))

    def tasks(self, split: str | None = None) -> list[Task]:
        """The tasks of one split or of all, sorted by id."""
        return [
            Task(task, family_of(task), task.partition("/")[0], sha256) for task, sha256 in self.hashes(split).items()
        ]

    def read(self, task_id: str) -> bytes:
        """The game file, byte for byte. Raises KeyError for a task that the pack does not hold."""
        with self._connect() as connection:
            row = connection.execute("SELECT data FROM games WHERE task = ?", (task_id,)).fetchone()
            if row is None:
                raise KeyError(task_id)
            return zlib.decompressobj(zdict=self._dictionary).decompress(row[0])


def write_pack(path: Path, games: Iterable[tuple[str, bytes]]) -> int:
    """Add games to the pack at `path` (created if needed), all or none of them; returns how many.

    A game with the same id is replaced.

    Raises:
        SeedBenchError: the disk is full, the folder cannot be written or the file is no pack. The pack is then as
            it was before.
    """
    count = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path)) as connection, connection:
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            row = connection.execute("SELECT value FROM meta WHERE key = 'dictionary'").fetchone()
            dictionary = row[0] if row else None
            for task, content in games:
                if dictionary is None:
                    dictionary = _shared_text(content)
                    connection.execute("INSERT INTO meta VALUES ('dictionary', ?)", (dictionary,))
                deflate = zlib.compressobj(6, zdict=dictionary)
                data = deflate.compress(content) + deflate.flush()
                digest = hashlib.sha256(content).hexdigest()
                split = task.partition("/")[0]
                connection.execute("INSERT OR REPLACE INTO games VALUES (?, ?, ?, ?)", (task, split, digest, data))
                count += 1
    except (sqlite3.Error, OSError) as error:
        raise SeedBenchError(
            f"cannot write '{path}': {error}. Nothing was changed; free space, or let SEEDBENCH_DATA name another"
            " folder, and try again."
        ) from error
    if count == 0 and row is None:
        path.unlink(missing_ok=True)
    return count


def _shared_text(content: bytes) -> bytes:
    """The last 32 kB (deflate's window) of what games share: domain and grammar as they stand in the file."""
    try:
        game = json.loads(content)
        shared = json.dumps(game["pddl_domain"]) + json.dumps(game["grammar"])
    except (ValueError, KeyError, TypeError):
        return content[-32_000:]
    return shared.encode()[-32_000:]


@lru_cache(maxsize=8)
def open_pack(path: Path, modified_ns: int) -> GamePack:
    """`GamePack`, opened once for each state of the file."""
    return GamePack(path)


@lru_cache(maxsize=512)
def load_game(pack: GamePack, task_id: str) -> Game:
    """The parsed game, shared by all episodes of this process. Raises KeyError and GameError."""
    return parse_game(pack.read(task_id), task_id)

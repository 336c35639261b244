"""The run folder: what a log survives, and who may write where."""

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.runs import LOG, MANIFEST, SUMMARY, Run, finished, read_episodes, read_manifest, write_json
from seedbench.types import Episode, Outcome, Turn, Usage
from tests.eval.helpers import seedbench

SETTINGS = {"panel": {"name": "p@1", "hash": "aa"}, "seed": 0, "policy": {"kind": "test"}}
ABOUT = {"policy": {"name": "tester"}}
HOSTILE = "\ud800 \x1b[31m \u2028 \x85 \r\n \x00 \N{SNOWMAN} \\ud800 \\\udfff [red]"


def episode(number: int, response: str = "look", outcome: Outcome = Outcome.FAILED, repeat: int = 0) -> Episode:
    turn = Turn(response, "look", True, True, response, usage=Usage(3, 4))
    return Episode(
        f"task {number}", f"{number:064x}", "heat", repeat, 2**63 - 1 - number, outcome, False, 0.25,
        "do it", response, (turn,), Usage(3, 4), 0.125, error=response,
    )  # fmt: skip


def opened(folder: Path, settings: dict[str, Any] = SETTINGS) -> Run:
    return Run(folder, settings, ABOUT)


def begun(folder: Path, *episodes: Episode) -> Path:
    with opened(folder) as run:
        for one in episodes or (episode(1), episode(2)):
            run.append(one)
    return folder


# The log


def test_round_trip(tmp_path: Path) -> None:
    written = [episode(1), episode(2, HOSTILE), episode(3, "x" * 2_000_000), episode(4, "")]
    begun(tmp_path / "run", *written)
    assert list(read_episodes(tmp_path / "run")) == written
    lines = (tmp_path / "run" / LOG).read_bytes().decode("utf-8").split("\n")  # any reader's UTF-8
    assert [json.loads(line)["task"] for line in lines[:-1]] == [f"task {n}" for n in (1, 2, 3, 4)]


def test_last_record_of_an_attempt_counts(tmp_path: Path) -> None:
    folder = begun(
        tmp_path / "run",
        episode(1, outcome=Outcome.INFRA_ERROR),
        episode(1, outcome=Outcome.INFRA_ERROR, repeat=1),
        episode(1, outcome=Outcome.SOLVED),
    )
    key = f"{1:064x}"
    assert finished(folder) == {(key, 0): Outcome.SOLVED, (key, 1): Outcome.INFRA_ERROR}


@pytest.mark.parametrize("keep", [1, 50, 200, -2, -1])
def test_torn_last_line_is_left_out_and_cut(tmp_path: Path, keep: int) -> None:
    folder = begun(tmp_path / "run")
    whole = (folder / LOG).read_bytes()
    torn = (json.dumps(episode(3, HOSTILE).to_json()) + "\n").encode()[:keep]
    (folder / LOG).write_bytes(whole + torn)
    assert [e.task for e in read_episodes(folder)] == ["task 1", "task 2"]
    with opened(folder) as run:
        assert (folder / LOG).read_bytes() == whole
        run.append(episode(3))
    assert [e.task for e in read_episodes(folder)] == ["task 1", "task 2", "task 3"]


def test_torn_line_longer_than_a_block(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    whole = (folder / LOG).read_bytes()
    (folder / LOG).write_bytes(whole + b"{" + b"x" * 300_000)
    with opened(folder):
        assert (folder / LOG).read_bytes() == whole


def test_log_that_is_one_torn_line(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    (folder / LOG).write_bytes(b"{" + b"x" * 100_000)
    assert list(read_episodes(folder)) == []
    with opened(folder):
        assert (folder / LOG).read_bytes() == b""


@pytest.mark.parametrize(
    "damage", [b"\n", b"{}\n", b"[1]\n", b"7\n", b"null\n", b"\x00\x00\x00\n", b'{"task": "x"\n', b"\xff\xff\n"]
)
def test_damaged_line_is_named(tmp_path: Path, damage: bytes) -> None:
    folder = begun(tmp_path / "run", episode(1), episode(2), episode(3))
    lines = (folder / LOG).read_bytes().splitlines(keepends=True)
    (folder / LOG).write_bytes(lines[0] + damage + lines[2])
    with pytest.raises(SeedBenchError, match=r"line 2 is damaged .*delete that line and run the same"):
        list(read_episodes(folder))
    (folder / LOG).write_bytes(lines[0] + lines[2])
    assert [e.task for e in read_episodes(folder)] == ["task 1", "task 3"]


def test_folder_without_log(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no episode log"):
        list(read_episodes(tmp_path))


class FullDisk:
    """A log whose next write takes some bytes, and the one after it none."""

    def __init__(self, log: Any, room: int) -> None:
        self.log = log
        self.room = room

    def write(self, line: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self.log.write(line[: self.room])
        self.room = 0
        return int(written)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)


@pytest.mark.parametrize("room", [0, 1, 100])
def test_full_disk_leaves_a_whole_log(tmp_path: Path, room: int) -> None:
    folder = begun(tmp_path / "run")
    whole = (folder / LOG).read_bytes()
    with opened(folder) as run:
        run._log = FullDisk(run._log, room)  # type: ignore[assignment]
        with pytest.raises(SeedBenchError, match=r"cannot write the episode log .*No space left.*same command again"):
            run.append(episode(3))
    assert (folder / LOG).read_bytes() == whole


def test_short_writes_make_one_line(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as run:
        log = run._log

        class Slow(FullDisk):
            def write(self, line: bytes) -> int:
                return int(self.log.write(line[:7]))

        run._log = Slow(log, 0)  # type: ignore[assignment]
        run.append(episode(1, HOSTILE))
        run._log = log
    assert list(read_episodes(tmp_path / "run")) == [episode(1, HOSTILE)]


# Whose folder it is


def test_fresh_folder(tmp_path: Path) -> None:
    folder = begun(tmp_path / "a" / "b" / "run")
    assert sorted(path.name for path in folder.iterdir()) == [".lock", LOG, MANIFEST]
    assert read_manifest(folder)["settings"] == SETTINGS
    assert read_manifest(folder)["schema"] == "seedbench.manifest/1"


def test_other_settings_are_refused_and_shown(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    other = {"panel": {"name": "q@1", "hash": "aa"}, "seed": 1, "policy": {"kind": "test", "weights": "f" * 100}}
    with pytest.raises(UsageError) as caught:
        opened(folder, other)
    assert str(caught.value) == (
        f'\'{folder}\' holds a run with other settings: panel.name was "p@1", now "q@1"; seed was 0, now 1;'
        f' policy.weights was null, now "{"f" * 56}.... Choose another --out, or give the settings of that run to'
        " continue it."
    )
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    opened(folder).__exit__()  # the refused one left no lock behind


def test_run_without_an_episode_binds_nobody(tmp_path: Path) -> None:
    """A run that ended before its first episode (a wrong dialect, say) must not block the corrected command."""
    opened(tmp_path / "run").__exit__()
    with opened(tmp_path / "run", {**SETTINGS, "seed": 5}) as run:
        assert run.manifest["settings"]["seed"] == 5
        run.append(episode(1))
    assert read_manifest(tmp_path / "run")["settings"]["seed"] == 5
    with pytest.raises(UsageError, match="seed was 5, now 0"):
        opened(tmp_path / "run")


@pytest.mark.parametrize("name", ["notes.txt", LOG, SUMMARY, ".hidden"])
def test_foreign_folder_is_refused_and_untouched(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match=r"is not empty and holds no run manifest; choose another folder with --out"):
        opened(tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "mine")]


def test_foreign_lock_file_keeps_its_content(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("mine")
    opened(tmp_path).__exit__()
    assert (tmp_path / ".lock").read_text() == "mine"


def test_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(UsageError, match="is a file; choose a folder with --out"):
        opened(tmp_path / "run")
    with pytest.raises(SeedBenchError, match="cannot write the run folder"):
        opened(tmp_path / "run" / "deeper")


def test_killed_before_the_manifest_was_there(tmp_path: Path) -> None:
    """A kill within the very first write leaves a lock and a draft; the same command must go on from there."""
    (tmp_path / ".lock").touch()
    (tmp_path / f".{MANIFEST}.tmp").write_text('{"schema": ')
    begun(tmp_path)
    assert read_manifest(tmp_path)["settings"] == SETTINGS


def test_killed_between_manifest_and_log(tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / LOG).unlink()
    begun(tmp_path)
    assert len(finished(tmp_path)) == 2


def test_two_writers_are_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as first:
        with pytest.raises(SeedBenchError, match="another process is writing to"):
            opened(tmp_path / "run")
        first.append(episode(1))
    opened(tmp_path / "run").__exit__()
    assert len(finished(tmp_path / "run")) == 1


def test_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", unsupported)
    with pytest.raises(SeedBenchError, match=r"cannot lock .* \(No locks available\); choose a folder on a local disk"):
        opened(tmp_path / "run")


def test_another_process_is_refused(tmp_path: Path, mini_store: Path) -> None:
    panel = "mini-alfworld/valid_unseen"
    with opened(tmp_path / "run"):
        done = seedbench("eval", "random", "--panel", panel, "--limit", 1, "--out", tmp_path / "run", "--quiet")
    assert done.returncode == 1
    assert "another process is writing to" in done.stderr


# Manifest and other JSON files


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "7",
        "{}",
        '{"settings": {}, "sessions": []}',
        '{"settings": [], "sessions": [], "policy": {"name": "x"}}',
        '{"settings": {"policy": {}}, "sessions": 3, "policy": {"name": "x"}}',
        '{"settings": {"policy": {}}, "sessions": [], "policy": {"name": 7}}',
        '{"settings": {"policy": {}}, "sessions": [], "policy": "x"}',
        "[" * 100_000,
    ],
)
def test_damaged_manifest(tmp_path: Path, content: str) -> None:
    folder = begun(tmp_path / "run")
    (folder / MANIFEST).write_text(content)
    for attempt in (read_manifest, opened):
        with pytest.raises(SeedBenchError, match=rf"'{folder}/manifest.json' is damaged"):
            attempt(folder)


def test_folder_without_manifest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is not a run folder \(no manifest.json\); runs are made by `seedbench eval"):
        read_manifest(tmp_path)


def test_sessions_are_recorded(tmp_path: Path) -> None:
    for number in range(3):
        with opened(tmp_path) as run:
            run.append(episode(number))
            run.add_session({"number": number})
    log = (tmp_path / LOG).read_bytes()
    ends = [at + 1 for at, byte in enumerate(log) if byte == ord("\n")]
    assert read_manifest(tmp_path)["sessions"] == [
        {"number": number, "log": {"bytes": end, "sha256": hashlib.sha256(log[:end]).hexdigest()}}
        for number, end in enumerate(ends)
    ]


def test_write_json_takes_what_json_takes(tmp_path: Path) -> None:
    value = {"name": HOSTILE, "n": [1, None, 0.5]}
    write_json(tmp_path / "x.json", value)
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == value
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_write_json_keeps_the_old_file_where_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path / "x.json", 1)

    def full(path: Path, content: bytes) -> int:
        path.open("wb").close()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(SeedBenchError, match=r"cannot write .*x.json': No space left"):
        write_json(tmp_path / "x.json", 2)
    assert (tmp_path / "x.json").read_text() == "1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]

"""Where games come from and how they are kept: archives good, damaged and hostile; packs."""

import hashlib
import io
import json
import random
import sqlite3
import stat
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbench.errors import SeedBenchError
from seedbench.types import Task
from seedbench_envs.alfworld.library import library
from seedbench_envs.alfworld.pack import GamePack, write_pack
from seedbench_envs.alfworld.sources import SPLITS, family_of, read_games, task_id_of
from seedbench_envs.alfworld.suite import MINI, SUITE
from tests.envs.tiny_game import kitchen

GOAL = "(opened Fridge_bar_1)"
GAMES = {
    f"{split}/{kind}-Apple-None-Shelf-{n}/trial_{n}": kitchen().file(GOAL, f"task {n} of {split}")
    for split in ("train", "valid_seen", "valid_unseen")
    for n, kind in enumerate(("pick_and_place_simple", "look_at_obj_in_light", "pick_two_obj_and_place"))
}
NO_GAMES = "holds no ALFWorld games"


@pytest.fixture
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEEDBENCH_DATA", str(tmp_path / "own"))
    return tmp_path / "own"


def write_zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, f"w:{path.suffix[1:].replace('tar', '')}") as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def archived(prefix: str = "json_2.1.1/") -> dict[str, bytes]:
    return {f"{prefix}{task}/game.tw-pddl": content for task, content in GAMES.items()}


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# ---- reading ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["g.zip", "g.tar", "g.tar.gz", "g.tar.xz"])
@pytest.mark.parametrize("prefix", ["", "./", "json_2.1.1/", "a/b c/d/"])
def test_archives_are_read_byte_for_byte(tmp_path: Path, name: str, prefix: str) -> None:
    members = {"README": b"x", f"{prefix}train/other/game.json": b"{}", **archived(prefix)}
    path = (write_zip if name.endswith("zip") else write_tar)(tmp_path / name, members)
    assert dict(read_games(path)) == GAMES


def test_a_folder_may_hold_games_and_archives(tmp_path: Path) -> None:
    tasks = sorted(GAMES)
    write_zip(tmp_path / "one.zip", {f"{tasks[0]}/game.tw-pddl": GAMES[tasks[0]]})
    write_tar(tmp_path / "two.tar.xz", {f"{tasks[1]}/game.tw-pddl": GAMES[tasks[1]]})
    (tmp_path / "notes.txt").write_text("no game")
    for task in tasks[2:]:
        (tmp_path / "data" / task).mkdir(parents=True)
        (tmp_path / "data" / task / "game.tw-pddl").write_bytes(GAMES[task])
        (tmp_path / "data" / task / "traj_data.json").write_text("{}")
    assert dict(read_games(tmp_path)) == GAMES
    assert [task for task, _ in read_games(tmp_path / "data")] == tasks[2:]


@pytest.mark.parametrize(
    "path",
    [
        "game.tw-pddl",
        "pick_and_place_simple-A-None-B-1/t/game.tw-pddl",
        "test/pick_and_place_simple-A-None-B-1/t/game.tw-pddl",
        "train/throw_and_catch-A-None-B-1/t/game.tw-pddl",
        "train/pick_and_place_simple-A-None-B-1/game.tw-pddl",
        "train/pick_and_place_simple-A-None-B-1/t/initial_state.pddl",
        "train/pick_and_place_simple-A-None-B-1/t/x/game.tw-pddl",
        "",
    ],
)
def test_other_files_are_passed_over(path: str) -> None:
    assert task_id_of(path) is None


@given(st.lists(st.sampled_from(["..", ".", "", "a", *SPLITS, "pick_and_place_simple-A", "game.tw-pddl", "/"])))
@settings(max_examples=200, deadline=None)
def test_a_task_id_has_three_plain_parts_whatever_the_path(parts: list[str]) -> None:
    task = task_id_of("/".join(parts))
    if task is not None:
        assert family_of(task) == "pick"
        assert len(task.split("/")) == 3


# ---- hostile and damaged archives -------------------------------------------------------------------------

GAME = "pick_and_place_simple-A-None-B-1/t/game.tw-pddl"
HOSTILE = [
    f"../../../{GAME}", f"/etc/{GAME}", f"train/../../{GAME}", f"..\\..\\train\\{GAME}",
    f"train/pick_and_place_simple-A-None-B-1/../{GAME}", "train/../../../../tmp/evil/game.tw-pddl",
]  # fmt: skip


@pytest.mark.parametrize("writer", [write_zip, write_tar])
def test_hostile_member_names_write_nothing(
    own_store: Path, tmp_path: Path, writer: type, caplog: pytest.LogCaptureFixture
) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    members = {name: GAMES[min(GAMES)] for name in HOSTILE}
    path = writer(inner / ("x.zip" if writer is write_zip else "x.tar"), members)
    before = files_in(tmp_path)
    with pytest.raises(SeedBenchError, match=NO_GAMES):
        SUITE.fetch(path, print)
    assert files_in(tmp_path) == before
    # A good game behind a hostile prefix is one of the store's rows; its path is never used.
    good = f"../../../../{min(GAMES)}/game.tw-pddl"
    SUITE.fetch(writer(path, {**members, good: GAMES[min(GAMES)]}), print)
    changed = {name for name, content in files_in(tmp_path).items() if before.get(name) != content}
    assert changed == {"own/alfworld/games-2.1.2.sqlite", str(path.relative_to(tmp_path))}
    assert list(GamePack(own_store / "alfworld" / "games-2.1.2.sqlite").hashes()) == [min(GAMES)]


def test_links_in_a_tar_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password")
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as archive:
        for kind, n in ((tarfile.SYMTYPE, 1), (tarfile.LNKTYPE, 2), (tarfile.CHRTYPE, 3), (tarfile.FIFOTYPE, 4)):
            member = tarfile.TarInfo(f"train/pick_and_place_simple-A-None-B-{n}/t/game.tw-pddl")
            member.type, member.linkname, member.mode = kind, str(secret), 0o644 | stat.S_IFREG
            archive.addfile(member)
    assert list(read_games(path)) == []


@pytest.mark.parametrize("name", ["g.zip", "g.tar.gz", "g.tar.xz"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.999])
def test_a_truncated_archive_changes_nothing(own_store: Path, tmp_path: Path, name: str, share: float) -> None:
    SUITE.fetch(write_zip(tmp_path / "good.zip", {f"{min(GAMES)}/game.tw-pddl": GAMES[min(GAMES)]}), print)
    before = files_in(own_store)
    path = (write_zip if name.endswith("zip") else write_tar)(tmp_path / name, archived())
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(SeedBenchError, match=r"is damaged or incomplete|is neither a folder nor a zip or tar archive"):
        SUITE.fetch(path, print)
    assert files_in(own_store) == before


@pytest.mark.parametrize("name", ["g.zip", "g.tar.gz", "g.tar.xz"])
def test_flipped_bytes_are_noticed_or_harmless(own_store: Path, tmp_path: Path, name: str) -> None:
    path = (write_zip if name.endswith("zip") else write_tar)(tmp_path / name, archived())
    data = path.read_bytes()
    dice = random.Random(name)
    noticed = 0
    for _ in range(40):
        at = dice.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :])
        try:
            read = dict(read_games(path))
        except SeedBenchError:
            noticed += 1
            continue
        # What the archive's own checksums let pass is at most a game that is no longer found under its name.
        assert all(content in GAMES.values() for content in read.values())
    assert noticed > 20
    assert not own_store.exists()


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.zip", archived())
    data = bytearray(path.read_bytes())
    at = data.find(b"PK\x01\x02")
    while at >= 0:  # the flag bit of every entry of the central directory
        (flags,) = struct.unpack_from("<H", data, at + 8)
        struct.pack_into("<H", data, at + 8, flags | 1)
        at = data.find(b"PK\x01\x02", at + 4)
    path.write_bytes(data)
    with pytest.raises(SeedBenchError, match=r"is damaged or incomplete \(.*encrypted"):
        list(read_games(path))


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04", b"\x1f\x8b", b"\xfd7zXZ\x00"])
def test_a_file_that_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(content)
    with pytest.raises(SeedBenchError, match=r"x\.zip' is (damaged or incomplete|neither a folder nor a zip or tar)"):
        list(read_games(path))


def test_a_game_of_an_unknown_domain_stops_the_whole_import(own_store: Path, tmp_path: Path) -> None:
    bad = json.dumps({**json.loads(GAMES[min(GAMES)]), "pddl_domain": "(define (domain chess))"}).encode()
    digest = hashlib.sha256(b"(define (domain chess))").hexdigest()[:12]
    for content, problem in (
        (bad, f"has an unknown PDDL domain ({digest})"),
        (GAMES[min(GAMES)][:-50], "is damaged (no complete JSON with a PDDL domain)"),
    ):
        members = {**archived(), "zz/valid_train/pick_and_place_simple-A-None-B-1/t/game.tw-pddl": content}
        with pytest.raises(SeedBenchError) as caught:
            SUITE.fetch(write_zip(tmp_path / "x.zip", members), print)
        assert f"valid_train/pick_and_place_simple-A-None-B-1/t {problem}" in str(caught.value)
        assert "nothing was imported" in str(caught.value)
        assert not own_store.exists()


def test_sources_without_games_are_refused(own_store: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for source in (tmp_path / "empty", write_zip(tmp_path / "x.zip", {"a": b"b"}), write_tar(tmp_path / "x.tar", {})):
        with pytest.raises(SeedBenchError, match=NO_GAMES):
            SUITE.fetch(source, print)
    with pytest.raises(SeedBenchError, match="does not exist; give a folder, zip or tar archive"):
        SUITE.fetch(tmp_path / "nothing", print)
    assert not own_store.exists()


# ---- packs ------------------------------------------------------------------------------------------------


def test_a_pack_gives_back_every_byte(tmp_path: Path) -> None:
    odd = {"train/pick_and_place_simple-X-None-Y-1/t": b"not json \x00\xff", **GAMES}
    path = tmp_path / "my data #1, 100% ?.sqlite"
    assert write_pack(path, odd.items()) == len(odd)
    pack = GamePack(path)
    assert pack.hashes() == {task: hashlib.sha256(content).hexdigest() for task, content in sorted(odd.items())}
    assert all(pack.read(task) == content for task, content in odd.items())
    assert list(pack.hashes("valid_seen")) == sorted(t for t in GAMES if t.startswith("valid_seen/"))
    assert pack.tasks("valid_seen")[0] == Task(
        "valid_seen/look_at_obj_in_light-Apple-None-Shelf-1/trial_1", "look", "valid_seen",
        hashlib.sha256(odd["valid_seen/look_at_obj_in_light-Apple-None-Shelf-1/trial_1"]).hexdigest(),
    )  # fmt: skip
    with pytest.raises(KeyError):
        pack.read("train/x/y")
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_importing_again_replaces_and_adds(tmp_path: Path) -> None:
    path, task = tmp_path / "p.sqlite", min(GAMES)
    write_pack(path, GAMES.items())
    changed = kitchen().file(GOAL, "a new sentence")
    assert write_pack(path, [(task, changed), ("train/pick_and_place_simple-N-None-O-1/t", changed)]) == 2
    pack = GamePack(path)
    assert len(pack.hashes()) == len(GAMES) + 1
    assert pack.read(task) == changed
    assert all(pack.read(other) == content for other, content in GAMES.items() if other != task)


def test_a_failing_import_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "p.sqlite"
    write_pack(path, GAMES.items())
    before = path.read_bytes()

    def breaking() -> "list[tuple[str, bytes]]":
        raise SeedBenchError("the source broke")

    def games() -> "object":
        yield min(GAMES), b"changed"
        yield from breaking()

    with pytest.raises(SeedBenchError, match="the source broke"):
        write_pack(path, games())  # type: ignore[arg-type]
    assert path.read_bytes() == before
    assert GamePack(path).read(min(GAMES)) == GAMES[min(GAMES)]


def test_nothing_to_write_makes_no_file(tmp_path: Path) -> None:
    assert write_pack(tmp_path / "p.sqlite", []) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"hello", b"SQLite format 3\x00 and then something else" * 100])
def test_a_file_that_is_no_pack_is_named_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "p.sqlite"
    path.write_bytes(content)
    with pytest.raises(SeedBenchError) as caught:
        GamePack(path)
    assert f"'{path}' is not a readable game store" in str(caught.value)
    assert "delete it and run `seedbench data fetch` again" in str(caught.value)
    if content:
        with pytest.raises(SeedBenchError, match="Nothing was changed"):
            write_pack(path, GAMES.items())
        assert path.read_bytes() == content
    with pytest.raises(SeedBenchError, match="no games at"):
        GamePack(tmp_path / "missing.sqlite")


def test_a_damaged_pack_is_named_wherever_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "p.sqlite"
    write_pack(path, GAMES.items())
    whole = path.read_bytes()
    pack = GamePack(path)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SeedBenchError, match="is not a readable game store"):
        pack.hashes()
    path.write_bytes(whole)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE games SET data = x'00112233'")
    with pytest.raises(SeedBenchError, match="is not a readable game store"):
        GamePack(path).read(min(GAMES))


def test_a_store_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SEEDBENCH_DATA", str(tmp_path / "file"))
    with pytest.raises(SeedBenchError, match=r"cannot write .*SEEDBENCH_DATA"):
        SUITE.fetch(write_zip(tmp_path / "x.zip", archived()), print)
    for ask in (lambda: MINI.fetch(None, print), lambda: library("mini", "2.1.2")):
        with pytest.raises(SeedBenchError, match=r"cannot write the generated games to .*SEEDBENCH_DATA"):
            ask()


@pytest.mark.real_data
def test_the_official_archive_comes_back_byte_for_byte(own_store: Path, official_files: Path) -> None:
    source = official_files / "json_2.1.1_put_wording_valid.tar.xz"
    lines: list[str] = []
    SUITE.fetch(source, lines.append)
    assert lines == ["imported 474 games of dialect 2.1.1"]
    pack = GamePack(own_store / "alfworld" / "games-2.1.1.sqlite")
    games = dict(read_games(source))
    assert len(games) == 474
    assert all(pack.read(task) == content for task, content in games.items())
    assert pack.path.stat().st_size < sum(map(len, games.values())) / 8

"""The leaderboard: what comes in, what is found wrong later, which ranks are claimed, and that no text in it acts."""

import csv
import errno
import hashlib
import io
import json
import lzma
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seedbench.bundle import PACKED_LOG, pack
from seedbench.errors import SeedBenchError, UsageError
from seedbench.evaluate import evaluate
from seedbench.leaderboard import add, build, check, load
from seedbench.leaderboard import submissions as submissions_module
from seedbench.leaderboard.submissions import record_of, submissions
from seedbench.panels import write_panel
from seedbench.policies.base import Policy, PolicyFault, Response
from seedbench.reported import reported_rows
from seedbench.runs import LOG, SUMMARY, read_episodes
from seedbench.subject import SUBMISSION
from seedbench.types import Usage
from seedbench.ui.live import Progress
from seedbench.verify import Report, verify
from tests.eval.helpers import REPOSITORY, Babbler, Command, CountingSuite, Script, command_line, installed, job, panel
from tests.eval.helpers import said as sentence

COUNT = 20
"""Tasks of each of the three families."""
RIGHT, LEFT = (f"<think>so</think><action>{word}</action>" for word in ("right", "left"))
HOSTILE = "<script>alert(1)</script> \\input{x} $x$ [red]b[/red] \x1b[31m \u202e=1+1 | a\\|b ![](http://a.b)"


class Coin(Policy):
    """Says right in so many of a hundred tasks, which ones being decided by the tasks and a salt."""

    def __init__(self, share: int, salt: int = 0, name: str = "coin", kind: str = "coin") -> None:
        self.name, self._share, self._salt, self._kind = name, share, salt, kind

    def identity(self) -> dict[str, object]:
        return {"kind": self._kind, "salt": self._salt}

    async def act(self, request: object) -> Response:
        drawn = (int(request.task.sha256[:8], 16) * 2654435761 + self._salt * 97) % 2**32 % 100  # type: ignore[attr-defined]
        return Response(text=RIGHT if drawn < self._share else LEFT, usage=Usage(7, 3), finish_reason="stop")


@pytest.fixture(autouse=True)
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountingSuite]:
    """A suite that ships its panel, so that a submission on it can be verified by anybody."""
    counting = CountingSuite()
    counting.resources = tmp_path_factory.mktemp("resources")
    write_panel(panel(COUNT), counting.resources / "panels" / "counting--train@1.jsonl.gz")
    with installed("counting", counting):
        yield counting


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_line(monkeypatch, capsys)


def played(folder: Path, policy: Policy, **settings: object) -> Path:
    evaluate(job(folder, policy, panel=settings.pop("panel", panel(COUNT)), **settings), Progress())
    return folder


def added(board: Path, folder: Path, policy: Policy, **texts: str) -> Path:
    return add(pack(played(folder, policy), folder.with_suffix(".tar.gz"), **texts), board)


def names(board: Path) -> list[str]:
    return sorted(str(path.relative_to(board)) for path in board.rglob("*"))


# What comes in


def test_a_verified_run_comes_in_once(tmp_path: Path) -> None:
    board, run = tmp_path / "board", played(tmp_path / "run", Babbler(jitter=False))
    place = add(run, board)
    assert re.fullmatch(r"babbler-counting-train-1-[0-9a-f]{12}", place.name)
    assert place.parent == board / "submissions" / "counting"
    assert sorted(path.name for path in place.iterdir()) == sorted([PACKED_LOG, "manifest.json", SUBMISSION, SUMMARY])
    record = json.loads(record_of(place).read_text())
    assert (record["episodes"], record["notes"]) == (3 * COUNT, [])
    before = names(board)
    again = played(tmp_path / "again", Babbler(jitter=True))  # in another order, at other times
    for source in (run, place, pack(again, tmp_path / "b.tar.gz", model="Mine", method="best")):
        with pytest.raises(SeedBenchError, match=f"is here already: '{place}' has the same settings and responses"):
            add(source, board)
    assert names(board) == before
    assert check(board) == []


def test_a_run_of_another_seed_is_another_content(tmp_path: Path) -> None:
    for seed in range(2):
        add(played(tmp_path / str(seed), Babbler(jitter=False), seed=seed), tmp_path / "board")
    assert len(list(submissions(tmp_path / "board"))) == 2


def test_what_is_not_what_it_claims_does_not_come_in(tmp_path: Path) -> None:
    run = played(tmp_path / "run", Babbler(jitter=False))
    summary = (run / SUMMARY).read_text()
    (run / SUMMARY).write_text(summary.replace('"solved": ', '"solved": 1'))
    with pytest.raises(SeedBenchError, match=r"is not what it claims to be: summary.json: outcomes.solved: stored 1"):
        add(run, tmp_path / "board")
    (run / SUMMARY).write_text(summary)
    bundle = pack(run, tmp_path / "bundle")
    (bundle / "more").write_text("")
    with pytest.raises(SeedBenchError, match="is not what it claims to be: 'more' is no file of a bundle"):
        add(bundle, tmp_path / "board")
    part = played(tmp_path / "part", Babbler(), panel=panel(COUNT).subset(limit=6))
    with pytest.raises(UsageError, match="was made on a part of a panel"):
        add(part, tmp_path / "board")
    answers = (RIGHT, PolicyFault("down"))
    broken = played(tmp_path / "broken", Script(*answers), max_infra=1.0)
    with pytest.raises(UsageError, match="has 40 attempts that infrastructure errors ended: the same"):
        add(broken, tmp_path / "board")
    odd = shutil.copytree(run, tmp_path / "odd")
    (odd / SUMMARY).write_text(re.sub(r'"wall": [0-9.]+', '"wall": "long"', summary))
    with pytest.raises(SeedBenchError, match=r"seconds\.wall"):
        add(odd, tmp_path / "board")
    with pytest.raises(UsageError, match="is neither a folder nor an archive"):
        add(tmp_path / "absent", tmp_path / "board")
    with pytest.raises(UsageError, match="is not a run folder"):
        add(tmp_path, tmp_path / "board")
    assert not (tmp_path / "board").exists()


def test_what_is_verified_is_what_comes_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody replaces a file of the bundle after it was verified; and a disk that fails leaves nothing behind."""
    bundle = pack(played(tmp_path / "run", Babbler(jitter=False)), tmp_path / "bundle")
    kept = {path.name: path.read_bytes() for path in bundle.iterdir()}
    real = verify

    def replaced(folder: Path, **settings: Any) -> Report:
        report = real(folder, **settings)
        (bundle / SUMMARY).write_text("{}")
        return report

    monkeypatch.setattr(submissions_module, "verify", replaced)
    place = add(bundle, tmp_path / "board")
    assert {path.name: path.read_bytes() for path in place.iterdir()} == kept
    (bundle / SUMMARY).write_bytes(kept[SUMMARY])
    monkeypatch.setattr(submissions_module, "verify", real)
    monkeypatch.setattr(Path, "rename", failing_rename(Path.rename))
    with pytest.raises(SeedBenchError, match=r"cannot write '.*': No space left on device\."):
        add(bundle, tmp_path / "other")
    assert names(tmp_path / "other") == ["submissions", "submissions/counting"]


def failing_rename(real: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
    """Renames files, not folders into the leaderboard."""

    def rename(self: Path, target: Path) -> Path:
        if self.is_dir() and target.parent.name == "counting":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(self, target)

    return rename


# What is found later


def test_check_names_what_is_wrong(cli: Command, tmp_path: Path) -> None:
    board = tmp_path / "board"
    first = added(board, tmp_path / "a", Coin(50), model="M")
    second = added(board, tmp_path / "b", Coin(50, salt=1), model="M")
    assert cli("leaderboard", "check", "--folder", board).out == f"{board}: every submission is what it claims to be\n"
    log = lzma.decompress((first / PACKED_LOG).read_bytes())
    (first / PACKED_LOG).write_bytes(lzma.compress(log.replace(b'"success": true', b'"success": false', 1)))
    record_of(second).unlink()
    third = shutil.copytree(second, second.with_name(f"other-{second.name[-12:]}"))
    shutil.copytree(second, second.with_name("none"))
    (board / "submissions" / "counting" / "link").symlink_to(tmp_path)
    (board / "submissions" / "notes.txt").write_text("")
    told = cli("leaderboard", "check", "--folder", board)
    assert told.code == 1
    shown = told.out.splitlines()
    assert shown[0] == f"'{board / 'submissions/counting/link'}' is no submission and no record of one."
    assert shown[1] == f"'{board / 'submissions/notes.txt'}' is no submission and no record of one."
    assert any(line.startswith(f"counting/{first.name}: {PACKED_LOG} ") for line in shown)
    assert any(line.startswith(f"counting/{second.name}: '{second.name}' was not verified") for line in shown)
    assert any(line.startswith(f"counting/{third.name}: '{third.name}' was not verified") for line in shown)
    assert any(line.startswith("counting/none: 'none' was not verified") for line in shown)
    shutil.copyfile(record_of(first), record_of(third))
    assert any("is of another submission than" in problem for problem in check(board))
    shutil.copyfile(first / SUBMISSION, third / SUBMISSION)
    assert any(problem.startswith(f"counting/{third.name}: ") for problem in check(board))
    assert "no submissions/" in sentence(cli("leaderboard", "check", "--folder", tmp_path), 2)


def test_check_finds_what_add_would_not_have_taken(tmp_path: Path) -> None:
    """Files that were put there by hand."""
    board = tmp_path / "board" / "submissions" / "counting"
    place = added(tmp_path / "board", tmp_path / "a", Coin(50))
    record = json.loads(record_of(place).read_text())
    record_of(place).write_text(json.dumps({**record, "turns": record["turns"] + 1}))
    part = played(tmp_path / "part", Coin(50), panel=panel(COUNT).subset(limit=6))
    forged = pack(part, board / "part")
    forged = forged.rename(board / submissions_module.identity(forged))
    told = {"episodes": 6, "turns": sum(len(e.turns) for e in read_episodes(forged))}
    seal = hashlib.sha256((forged / SUBMISSION).read_bytes()).hexdigest()
    record_of(forged).write_text(json.dumps({**record, **told, "submission": seal}))
    assert sorted(check(tmp_path / "board")) == sorted([
        f"counting/{place.name}: {place.name}.json is not what its verification says.",
        f"counting/{forged.name}: it was made on a part of a panel (counting/train@1[limit=6]): a leaderboard compares"
        " whole ones.",
    ])  # fmt: skip


def test_check_finds_a_wrong_place_and_a_twin(tmp_path: Path) -> None:
    place = added(tmp_path / "board", tmp_path / "a", Coin(50))
    twin = place.with_name(f"better-{place.name[-12:]}")
    shutil.copytree(place, twin)
    shutil.copyfile(record_of(place), record_of(twin))
    assert check(tmp_path / "board") == [
        f"counting/{twin.name}: its place is counting/{place.name}.",
        f"counting/{place.name}: its content is that of counting/{twin.name}.",
    ]


def test_what_was_changed_is_not_shown(tmp_path: Path) -> None:
    place = added(tmp_path / "board", tmp_path / "a", Coin(50))
    summary = (place / SUMMARY).read_text()
    (place / SUMMARY).write_text(summary.replace('"solved": ', '"solved": 9'))
    with pytest.raises(SeedBenchError, match=r"was changed: summary\.json has .* bytes"):
        build(tmp_path / "board", tmp_path / "site")
    assert not (tmp_path / "site").exists()


# Ranks


def test_ranks_claim_no_more_than_the_tests_show(tmp_path: Path) -> None:
    board = tmp_path / "board"
    shares = {"high": 96, "even": 50, "level": 47, "low": 4}
    for salt, (name, share) in enumerate(shares.items()):
        added(board, tmp_path / name, Coin(share, salt, name), method=name)
    added(board, tmp_path / "oracle", Coin(100, name="oracle", kind="oracle"))
    (table,) = load(board).unofficial
    assert [(row.method, row.rank) for row in table.rows] == [
        ("oracle", "-"), ("high", "1"), ("even", "2-3"), ("level", "2-3"), ("low", "4"),
    ]  # fmt: skip
    assert [row.rate("micro").n for row in table.rows] == [60] * 5
    rates = [row.rate("micro").rate or 0 for row in table.rows]
    assert rates == sorted(rates, reverse=True)
    assert load(board).official == ()


def test_other_protocols_have_tables_of_their_own(tmp_path: Path) -> None:
    from tests.eval.helpers import protocol

    board = tmp_path / "board"
    added(board, tmp_path / "a", Coin(50))
    add(played(tmp_path / "b", Coin(50), protocol=protocol(steps=3)), board)
    add(played(tmp_path / "c", Coin(50), repeats=2), board)
    tables = load(board).unofficial
    assert [(len(table.rows), table.repeats) for table in tables] in (
        [(1, 1), (1, 2), (1, 1)],
        [(1, 1), (1, 1), (1, 2)],
    )
    assert len({table.protocol["hash"] for table in tables}) == 2


# What is written


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """Two rows, one of them hostile, and the reported rows that ship."""
    folder = tmp_path / "board"
    texts = {"model": HOSTILE, "method": f"=cmd() {HOSTILE}", "submitter": HOSTILE, "note": HOSTILE}
    added(folder, tmp_path / "a", Coin(90, name=HOSTILE), **texts)
    added(folder, tmp_path / "b", Coin(10), method="plain", model="M")
    shutil.copytree(REPOSITORY / "leaderboards" / "reported", folder / "reported")
    return folder


def test_the_same_folder_makes_the_same_bytes(board: Path, tmp_path: Path) -> None:
    (board / "README.md").write_text("# Mine\n\nBefore.\n")
    first = {path.name: path.read_bytes() for path in build(board, tmp_path / "one")}
    copied = shutil.copytree(board, tmp_path / "elsewhere")
    second = {path.name: path.read_bytes() for path in build(copied, tmp_path / "two")}
    assert first == second
    assert sorted(first) == ["README.md", "index.html", "leaderboard.csv", "leaderboard.json"]
    assert first["README.md"].startswith(b"# Mine\n\nBefore.\n\n<!-- tables: ")
    (board / "README.md").write_bytes(first["README.md"] + b"\nAfter.\n")
    build(board, tmp_path / "one")
    assert (board / "README.md").read_bytes() == first["README.md"] + b"\nAfter.\n"


def test_hostile_names_are_inert(board: Path, tmp_path: Path) -> None:
    build(board, tmp_path / "site")
    for path in (board / "README.md", *(tmp_path / "site").iterdir()):
        text = path.read_text(encoding="utf-8")
        assert not set("\x1b\u202e") & set(text), path
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 4
    assert page.count("<script") == 1  # the site's own
    assert not re.search(r"(src|href)=\"?(?!#)[a-z]", page)
    readme = (board / "README.md").read_text(encoding="utf-8")
    assert "<script" not in readme
    (row,) = (line for line in readme.splitlines() if line.startswith("| 1 |"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 12  # eleven cells
    assert "!\\[\\](http\\://a.b)" in row
    assert "\\\\input\\{x\\} \\$x\\$ \\[red\\]b" in row
    place = next(path for path in submissions(board) if path.name.startswith("cmd"))
    assert re.fullmatch(r"[a-z0-9_.-]+", place.name)


def test_csv_is_safe_for_spreadsheets(board: Path, tmp_path: Path) -> None:
    build(board, tmp_path / "site")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "site" / "leaderboard.csv").read_text(encoding="utf-8"))))
    measured = [row for row in rows if row["kind"] == "measured"]
    assert measured[0]["method"].startswith("'=cmd() <script>alert(1)</script>")
    assert [row["rank_best"] for row in measured] == ["1", "2"]
    assert not [cell for row in rows for cell in row.values() if cell and re.match(r"[=+@\t\r]|-\D", cell)]
    assert len(rows) - len(measured) == len(reported_rows())
    assert {row["rank_best"] for row in rows if row["kind"] == "reported"} == {""}


def test_measured_and_reported_stand_apart(board: Path, tmp_path: Path) -> None:
    build(board, tmp_path / "site")
    data = json.loads((tmp_path / "site" / "leaderboard.json").read_text(encoding="utf-8"))
    assert [row["kind"] for row in data["measured"]] == ["measured"] * 2
    assert len(data["reported"]) == len(reported_rows())
    seed = next(r for r in data["reported"] if (r["paper"], r["method"], r["suite"]) == ("SEED", "GRPO", "alfworld"))
    assert (seed["figures"]["Avg"], round(seed["derived"]["macro"], 1)) == (75.0, 70.7)
    readme = (board / "README.md").read_text(encoding="utf-8")
    measured, reported = readme.split("## Reported by papers, not measured")
    assert "70.7" not in measured
    assert "| SEED | Table 1 | Qwen2.5-3B-Instruct | GRPO | seen |" in reported
    assert "not official" in measured
    row = data["measured"][0]
    assert (row["n"], row["environment_steps"], row["generated_tokens"]) == (
        60,
        row["verified_turns"],
        3 * row["verified_turns"],
    )


def test_nothing_to_build(cli: Command, tmp_path: Path) -> None:
    assert "is no leaderboard" in sentence(cli("leaderboard", "build", "--folder", tmp_path), 2)


def test_commands(cli: Command, tmp_path: Path) -> None:
    run = played(tmp_path / "run", Script(RIGHT))
    bundle, board = tmp_path / "x.tar.gz", tmp_path / "board"
    assert cli("leaderboard", "pack", run, bundle, "--model", "M", "--submitter", "me").out.startswith(f"{bundle}: ")
    assert cli("leaderboard", "add", bundle, "--folder", board).out.startswith(
        f"verified and added: {board}/submissions"
    )
    assert "is here already" in sentence(cli("leaderboard", "add", run, "--folder", board), 1)
    assert cli("leaderboard", "check", "--folder", board).code == 0
    told = cli("leaderboard", "build", "--folder", board, "--out", tmp_path / "site")
    assert told.out.splitlines() == [str(board / "README.md")] + [
        str(tmp_path / "site" / name) for name in ("leaderboard.csv", "leaderboard.json", "index.html")
    ]
    assert "| 1 | script | M | 100.0" in (board / "README.md").read_text()
    assert LOG not in names(board)


# The leaderboard of this repository


def test_readme_of_the_repository_is_what_build_writes(tmp_path: Path) -> None:
    board = shutil.copytree(REPOSITORY / "leaderboards", tmp_path / "leaderboards")
    build(board, tmp_path / "site")
    assert (board / "README.md").read_text() == (REPOSITORY / "leaderboards" / "README.md").read_text()

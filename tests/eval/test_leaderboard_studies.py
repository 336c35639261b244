"""Studies in a leaderboard: only whole verified ones come in, and what is shown of them is what was replayed."""

import csv
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.leaderboard import add, build, check
from seedbench.leaderboard import studies as studies_module
from seedbench.leaderboard.studies import record_of
from seedbench.store import file_sha256
from seedbench.study.archive import write_archive
from seedbench.study.pack import pack_study
from tests.eval.helpers import command_line, said
from tests.eval.published import edit, finished
from tests.train.helpers import echo

PAGE = "../docs/studies/small.md"


@pytest.fixture(autouse=True, scope="module")
def _echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with echo(tmp_path_factory.mktemp("echo")):
        yield


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, _echo: None) -> Path:
    """A study, packed; beside it the folder `packed/small` that the archive is of."""
    study, out = finished(tmp_path_factory.mktemp("made"))
    pack_study(study, out.parent / "s.toml", out, out.parent / "any.tar.xz")
    shutil.unpack_archive(out.parent / "any.tar.xz", out.parent / "packed", "xztar", filter="data")
    return out.parent / "any.tar.xz"


@pytest.fixture
def board(tmp_path: Path, archive: Path) -> Path:
    add(archive, tmp_path / "board", page=PAGE)
    return tmp_path / "board"


@pytest.fixture
def changed(tmp_path: Path, archive: Path) -> Path:
    """The unpacked study, to be changed."""
    return shutil.copytree(archive.parent / "packed" / "small", tmp_path / "small")


def packed(folder: Path) -> Path:
    write_archive(folder, target := folder.with_name("changed.tar.xz"))
    return target


def test_a_verified_study_comes_in_once(board: Path, archive: Path, changed: Path) -> None:
    place = board / "submissions" / "echo" / "small.tar.xz"
    assert place.read_bytes() == archive.read_bytes()
    record = json.loads(record_of(place).read_text())
    assert {key: record[key] for key in ("schema", "study", "suite", "protocol", "panels", "page")} == {
        "schema": "seedbench.verified-study/1", "study": "small", "suite": "echo", "protocol": "echo/choose@1",
        "panels": {"unseen": "echo/test@1"}, "page": PAGE,
    }  # fmt: skip
    assert (record["evaluations"], record["episodes"], record["turns"]) == (4, 32, 32)
    assert [(cell["label"], cell["seeds"], cell["shares"]) for cell in record["cells"]] == [
        ("grpo", 2, [1.0]), ("gigpo", 2, [1.0]),
    ]  # fmt: skip
    assert check(board) == []
    for again in (archive, place):
        with pytest.raises(SeedBenchError, match=f"is here already, as '{place}'"):
            add(again, board)
    (changed / "study.toml").write_text((changed / "study.toml").read_text() + "# more\n")
    with pytest.raises(SeedBenchError, match=r"small.tar.xz' is here: remove it with its record first"):
        add(packed(changed), board)


def test_what_is_not_what_it_claims_does_not_come_in(changed: Path, archive: Path, tmp_path: Path) -> None:
    summary = changed / "runs/gigpo-s1/evaluation/unseen/summary.json"
    honest = summary.read_text()
    edit(summary, lambda held: held["success"]["micro"].update(rate=0.5))
    sentence = r"changed.tar.xz' is not what it claims to be: runs/gigpo-s1/evaluation/unseen: summary.json: success"
    with pytest.raises(SeedBenchError, match=sentence):
        add(packed(changed), tmp_path / "board")
    summary.write_text(honest)
    text = (changed / "study.toml").read_text()
    (changed / "study.toml").write_text(text.replace('"echo/test" }', '"echo/test" }\nlimit = 4'))
    with pytest.raises(SeedBenchError, match=r"runs/grpo-s0/evaluation/unseen: manifest.json: panel is echo/test@1 \("):
        add(packed(changed), tmp_path / "board")
    for source, page, reason in (
        (archive, "javascript:alert(1)", "is neither http"),
        (archive, "a](x) [b", "is neither http"),
        (archive.parent / "packed", PAGE, "is no study"),
        (tmp_path / "absent.tar.xz", "", "cannot read"),
    ):
        with pytest.raises(UsageError, match=reason):
            add(source, tmp_path / "board", page=page)
    assert not (tmp_path / "board").exists()


def test_a_part_of_a_panel_is_no_row(changed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies_module, "no_row", lambda run: "was made on a part of a panel")
    with pytest.raises(UsageError, match=r"was made on a part of a panel \(runs/grpo-s0/evaluation/unseen\)"):
        add(packed(changed), tmp_path / "board")


def test_check_names_what_is_wrong(board: Path, changed: Path) -> None:
    place = board / "submissions" / "echo" / "small.tar.xz"
    record, content = record_of(place).read_text(), place.read_bytes()
    edit(record_of(place), lambda held: held.update(turns=33))
    assert check(board) == ["echo/small.tar.xz: small.json is not what its verification says."]
    record_of(place).write_text(record)
    place.rename(place.with_name("other.tar.xz"))
    assert check(board)[-1].startswith("echo/other.tar.xz: 'other.tar.xz' was not verified (no other.json)")
    place.with_name("other.tar.xz").rename(place)
    (changed / "runs/grpo-s0/metrics.jsonl").unlink()
    place.write_bytes(packed(changed).read_bytes())
    edit(record_of(place), lambda held: held.update(archive=file_sha256(place)))
    assert ["runs/grpo-s0: metrics.jsonl is missing" in problem for problem in check(board)] == [True]
    place.write_bytes(content[:-100])
    assert [problem for problem in check(board) if "small.json' is of another archive than 'small.tar.xz'" in problem]
    with pytest.raises(SeedBenchError, match="is of another archive"):
        build(board, board.parent / "site")
    place.unlink()
    assert ["is no submission and no record of one" in problem for problem in check(board)] == [True]


def test_what_is_shown(board: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies_module, "opened_study", None)  # nothing is unpacked
    edit(board / "submissions/echo/small.json", lambda held: held.update(notes=["<b>not checked</b>"]))
    cell = {"shares": [0.2, 1.0], "seeds": 1, "label": "<i>=1"}
    edit(board / "submissions/echo/small.json", lambda held: held["cells"][1].update(cell))
    build(board, tmp_path / "site")
    readme = (board / "README.md").read_text()
    (row,) = (line for line in readme.splitlines() if line.startswith("| [small]"))
    assert row.startswith(
        f"| [small]({PAGE}) | echo | echo/choose@1 | echo/test@1 | grpo: 2 seeds; &lt;i&gt;=1: 1 seed (20, 100 % of the"
        " data) | 4 | 32 | 32 turns | ["
    )
    assert row.endswith("(submissions/echo/small.tar.xz) |")
    assert "- small: &lt;b&gt;not checked&lt;/b&gt;" in readme
    page = (tmp_path / "site" / "index.html").read_text()
    assert "&lt;i&gt;=1: 1 seed (20, 100 % of the data)" in page
    assert not re.search(r"(src|href)=\"?(?!#)[a-z.]", page)
    (line,) = csv.DictReader((tmp_path / "site" / "leaderboard.csv").read_text().splitlines())
    assert (line["kind"], line["study"], line["evaluations"], line["verified_turns"]) == ("study", "small", "4", "32")
    (held,) = json.loads((tmp_path / "site" / "leaderboard.json").read_text())["studies"]
    assert (held["panels"], held["cells"][0]["start"], held["page"]) == ({"unseen": "echo/test@1"}, "warm", PAGE)


def test_commands(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = command_line(monkeypatch, capsys)
    board = tmp_path / "board"
    told = cli("leaderboard", "add", archive, "--folder", board, "--page", "https://example.org/small")
    assert told.out == f"verified and added: {board}/submissions/echo/small.tar.xz\n"
    assert cli("leaderboard", "check", "--folder", board).code == 0
    assert "a bundle is packed with --url" in said(cli("leaderboard", "add", tmp_path, "--page", "x"), 2)

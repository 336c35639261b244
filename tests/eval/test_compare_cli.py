"""`seedbench compare` by the real entry point, on runs that were really played."""

import csv
import io
import json
from pathlib import Path

import pytest

from seedbench.bundle import pack
from seedbench.evaluate import evaluate
from seedbench.ui.live import Progress
from tests.eval.helpers import Babbler, Command, CountingSuite, Script, command_line, installed, job, said
from tests.unit.test_compare import before_and_after, write_run


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_line(monkeypatch, capsys)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    with installed("counting", CountingSuite()):
        evaluate(job(folder / "right", Script("<think>so</think><action>right</action>")), Progress())
        evaluate(job(folder / "lost", Script("<think>so</think><action>lose</action>")), Progress())
        evaluate(job(folder / "babble", Babbler(), repeats=2), Progress())
    before, after = before_and_after()
    write_run(folder / "before", before)
    write_run(folder / "after", after)
    return folder


def test_terminal(cli: Command, runs: Path) -> None:
    told = cli("compare", runs / "lost", runs / "right")
    assert (told.code, told.err) == (0, "")
    lines = told.out.splitlines()
    assert lines[0].startswith("Success: counting/train@1 (")
    assert lines[2] == "A: lost    B: right"
    body = [line.split() for line in lines if line.startswith(("one", "two", "three", "all"))]
    # Wilson's upper limit of 0 in 4 is .48990 and in 12 .24250: Newcombe's lower limits are 1 - sqrt(2) times those. B
    # alone wins 4 (p = 2 / 2^4, Holm: times 3) and 12 (p = 2 / 2^12).
    of_family = ["4", "0.0", "100.0", "+100.0", "30.7", "to", "100.0", "0", "4", ".125", ".375"]
    assert [line[:12] for line in body] == [
        *([family, *of_family] for family in ("one", "two", "three")),
        ["all", "12", "0.0", "100.0", "+100.0", "65.7", "to", "100.0", "0", "12", "4.9e-04", "4.9e-04"],
    ]
    assert all(line[-1] == "McNemar" for line in body)
    # Families of 4 get a third of a task on both sides (k = 3): means 4 / (14/3) = 6/7, variances (1 - 36/49) / (14/3)
    # = .056851 each, so that the limit is .85714 - 1.95996 * sqrt(.056851 / 3).
    macro = next(line.split() for line in lines if line.startswith("macro"))
    assert macro == [
        "macro", "12", "0.0", "100.0", "+100.0", "58.7", "to", "100.0", "-", "-", "4.9e-04", "4.9e-04",
        macro[12], "permutation",
    ]  # fmt: skip
    assert "right solves 100.0 points more than lost [66 to 100] (McNemar p = 4.9e-04, n = 12)." in lines
    assert "Power 80" in told.out


def test_known_answer_in_every_format(cli: Command, runs: Path) -> None:
    words = ("compare", runs / "before", runs / "after", "--format")
    sentence = "after solves 19.2 points more than before [12 to 26] (McNemar p = 1.5e-07, n = 240)."
    assert sentence in cli(*words, "terminal").out
    markdown = cli(*words, "markdown").out
    assert "| all | 240 | 40.0 | 59.2 | +19.2 | 12.2 to 25.8 | 16 | 62 | 1.5e-07 | 1.5e-07 |" in markdown
    assert "after solves 19.2 points more than before" in markdown
    report = json.loads(cli(*words, "json").out)
    assert (report["schema"], report["metric"]) == ("seedbench.compare/2", "success")
    pair = report["comparisons"][0]
    assert (pair["conclusion"], pair["overall"]["only_a"], pair["overall"]["only_b"]) == (sentence, 16, 62)
    (row,) = csv.DictReader(io.StringIO(cli(*words, "csv").out))
    assert (row["label_a"], row["label_b"], row["name"], row["test"]) == ("before", "after", "all", "McNemar")
    assert (float(row["difference"]), float(row["p"])) == (pair["overall"]["difference"], pair["overall"]["p"])


def test_three_runs_labels_and_score(cli: Command, runs: Path, tmp_path: Path) -> None:
    with installed("counting", CountingSuite()):
        evaluate(job(tmp_path / "once", Babbler()), Progress())
    sides = (runs / "lost", tmp_path / "once", runs / "right")
    told = cli("compare", *sides, "--metric", "score", "--labels", "=L, M, R")
    assert told.code == 0, told.err
    assert [line for line in told.out.splitlines() if line.startswith("A: ")] == [
        "A: =L    B: M", "A: =L    B: R", "A: M    B: R",
    ]  # fmt: skip
    assert "R scores 100.0 points more than =L" in told.out
    rows = list(csv.DictReader(io.StringIO(cli("compare", *sides, "--labels", "=L,M,R", "--format", "csv").out)))
    assert [row["name"] for row in rows] == ["one", "two", "three", "all", "macro"] * 3
    assert rows[0]["label_a"] == "'=L"  # no formula for a spreadsheet


def test_archives_of_bundles(cli: Command, runs: Path, tmp_path: Path) -> None:
    archive = pack(runs / "right", tmp_path / "theirs.tar.gz", model="tiny", method="right")
    told = cli("compare", runs / "lost", archive)
    assert (told.code, told.err) == (0, "")
    assert "theirs solves 100.0 points more than lost [66 to 100] (McNemar p = 4.9e-04, n = 12)." in told.out


def test_seeds_joined_by_commas(cli: Command, runs: Path, tmp_path: Path) -> None:
    with installed("counting", CountingSuite()):
        for seed in (0, 1):
            evaluate(job(tmp_path / f"b-{seed}", Babbler(), seed=seed), Progress())
    told = cli("compare", f"{tmp_path / 'b-0'},{tmp_path / 'b-1'}", f"{runs / 'lost'},{runs / 'right'}")
    assert told.code == 0, told.err
    assert "seeds and tasks" in told.out
    assert "Interquartile mean over seeds and families: A " in told.out
    assert "not paired by seed" in told.out


def test_refusals(cli: Command, runs: Path) -> None:
    assert "a comparison needs two sides or more" in said(cli("compare", runs / "right"), 2)
    assert "repeats was 1, now 2" in said(cli("compare", runs / "right", runs / "babble"), 2)
    assert "cannot be compared" in said(cli("compare", runs / "right", runs / "after"), 2)
    assert "unknown format 'jsn': did you mean 'json'" in said(
        cli("compare", runs / "lost", runs / "right", "--format", "jsn"), 2
    )
    assert "neither a folder nor an archive" in said(cli("compare", runs / "right", runs / "nowhere"), 2)
    (runs / "empty").mkdir()
    assert "is not a run folder" in said(cli("compare", runs / "right", runs / "empty"), 2)


def test_help(cli: Command) -> None:
    told = cli("compare", "--help")
    assert (told.code, told.err) == (0, "")
    assert "paired tests on the same tasks" in " ".join(told.out.split())

"""The page of a study, and shares of the data against all of it, on a study that has run."""

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from seedbench.compare import compare
from seedbench.study.page import write_page
from seedbench.study.plan import plan
from seedbench.study.plots import draw
from seedbench.study.results import load_results
from seedbench.study.sheets import Estimate, Lines, Samples, Section, Sheet
from tests.eval.studies import STUDY, command, installed, journal, played, read_study, sheet
from tests.train.helpers import echo

SHARES = {"grpo-f50-s0": 1, "grpo-f50-s1": 3, "gigpo-f50-s0": 5, "gigpo-f50-s1": 7}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A study of two cells, two seeds, half and all of the data."""
    folder = tmp_path_factory.mktemp("shares")
    with echo(folder / "echo"), pytest.MonkeyPatch.context() as patch:
        script = installed(folder / "script", patch)
        for name, solved in SHARES.items():
            played(script / "evaluations" / name, solved)
        for cell in ("grpo", "gigpo"):
            for seed in (0, 1):
                journal(script, f"{cell}-s{seed}")
        read_study(folder, STUDY.replace('start = "warm"', 'start = "warm"\nfractions = [1.0, 0.5]'))
        command(folder / "s.toml", folder / "out")
        yield folder / "out"


def test_shares_are_compared_with_all_of_the_data(out: Path) -> None:
    rows = sheet(out / "report" / "shares-unseen.csv")
    # Solved of 8 tasks, over the seeds: grpo 1, 3 and 2, 4; gigpo 5, 7 and 6, 8.
    assert [(row["A -> B"], float(row["B - A"])) for row in rows] == [
        ("grpo 50 % -> grpo 100 %", 0.125),
        ("gigpo 50 % -> grpo 100 %", -0.375),
        ("grpo 50 % -> gigpo 100 %", 0.625),
        ("gigpo 50 % -> gigpo 100 %", 0.125),
    ]
    names = [("grpo-f50", "grpo"), ("gigpo-f50", "grpo"), ("grpo-f50", "gigpo"), ("gigpo-f50", "gigpo")]
    ps = []
    for row, pair in zip(rows, names, strict=True):
        groups = [[out / "runs" / f"{name}-s{seed}" / "evaluation" / "unseen" for seed in (0, 1)] for name in pair]
        (alone,) = compare(groups).comparisons
        assert (float(row["B - A lo"]), float(row["B - A hi"])) == (alone.overall.lo, alone.overall.hi)
        ps.append(alone.overall.p)
    # Holm over the four: the smallest p times four.
    smallest = min(range(4), key=ps.__getitem__)
    assert float(rows[smallest]["Holm"]) == pytest.approx(min(1, 4 * ps[smallest]), abs=1e-3)
    text = (out / "report" / "report.md").read_text()
    assert "between grpo 50 % and grpo 100 %: +12.5 points" in text
    assert "the two are not shown to be equal" in text


def test_the_page_says_what_the_text_says(out: Path) -> None:
    page, text = (out / "report" / "report.html").read_text(), (out / "report" / "report.md").read_text()
    for title in re.findall(r"^### (.*)$", text, re.M):
        assert re.search(rf"<h3 id=\"[^\"]+\">{re.escape(title)}</h3>", page)
    anchors = re.findall(r' id="([^"]+)"', page)
    assert len(set(anchors)) == len(anchors)
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(anchors)
    shown = re.search(r'data-value="0\.125">(.*?)</td>', page)
    assert shown is not None
    assert f"| {shown[1]} |".replace("[", r"\[").replace("]", r"\]") in text


def test_the_page_holds_its_figures_and_loads_nothing(out: Path) -> None:
    page = (out / "report" / "report.html").read_text()
    pictures = re.findall(r'<img src="data:image/svg\+xml;base64,([^"]+)" alt="', page)
    names = ["headline", "curve-environment-steps", "curve-generated-tokens", "curve-seconds", "fractions-unseen"]
    assert [base64.b64decode(picture) for picture in pictures] == [
        (out / "report" / f"{name}.svg").read_bytes() for name in names
    ]
    assert re.search(r'Content-Security-Policy" content="default-src \'none\';[^"]*; img-src data:"', page)
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)


def test_a_cell_has_one_colour_in_all_figures(out: Path, tmp_path: Path) -> None:
    """Also where the cells before it have not finished."""
    study = read_study(out.parent, (out.parent / "s.toml").read_text())
    results = [result for result in load_results(study, plan(study, out), out)[0] if result.job.cell != "grpo"]
    names = [figure.name for figure in draw(study, results, tmp_path)]
    assert len(names) == 5
    for name in names:
        drawn = (tmp_path / f"{name}.svg").read_text().lower()
        assert "#d55e00" in drawn
        assert "#0072b2" not in drawn


def test_texts_of_others_are_inert_on_the_page(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\x1b[31m"
    table = Sheet("t", hostile, (hostile, "B"), ((hostile, Estimate(0.5, 0.25, 0.75)), ("x", None)), hostile)
    samples = Samples("s", hostile, ((hostile, ((hostile, hostile),)),), hostile)
    sections = [Section("a", hostile, (hostile, table, Lines((hostile,) * 7), samples))]
    page = write_page(tmp_path / "page.html", hostile, sections).read_text()
    assert "<script>alert" not in page
    assert "\x1b" not in page
    # Title and heading, contents 3, section 2, table 5 (label, head, cell, caption), sentences 7, samples 5.
    assert page.count("&lt;script&gt;alert(1)") == 24
    assert '<td class="num" data-value="0.5">50.0 [25 to 75]</td>' in page
    assert '<td class="num" data-value="">-</td>' in page
    assert "<details><summary>" in page  # many sentences are folded

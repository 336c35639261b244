"""The report of a study: figures worked out by hand, and what a published study keeps."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from seedbench.bundle import PACKED_LOG, pack
from seedbench.errors import SeedBenchError, UsageError
from seedbench.study.pack import pack_study
from seedbench.study.plan import evaluation, plan
from seedbench.study.report import write_report
from seedbench.study.results import load_results, mean_over, over_seeds
from seedbench.study.run import state
from seedbench.study.sheets import Estimate, to_csv, to_markdown
from seedbench.study.spec import Study
from seedbench.study.tables import families
from tests.eval.studies import STUDY, command, installed, journal, played, read_study, sheet
from tests.train.helpers import echo

Made = tuple[Study, Path]


@pytest.fixture(autouse=True, scope="module")
def _echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with echo(tmp_path_factory.mktemp("echo")):
        yield


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return installed(tmp_path / "script", monkeypatch)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, _echo: None) -> Made:
    """A study that has run, and its folder; gigpo-s1 made half the environment steps of the others."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        script = installed(folder / "script", patch)
        for name, stretch in {"grpo-s0": 1.0, "grpo-s1": 1.0, "gigpo-s0": 1.0, "gigpo-s1": 0.5}.items():
            journal(script, name, stretch)
        study = read_study(folder)
        command(folder / "s.toml", folder / "out")
    return study, folder / "out"


def copied(made: Made, to: Path) -> Made:
    """The same, to be changed."""
    shutil.copytree(made[1], to)
    return made[0], to


def test_final_table(made: Made) -> None:
    rows = sheet(made[1] / "report" / "final-unseen.csv")
    assert [(row["Method"], row["Seeds"], row["n"]) for row in rows] == [("grpo", "2", "8"), ("gigpo", "2", "8")]
    grpo, gigpo = ({key: float(row[key]) for key in row if key not in ("Method",)} for row in rows)
    assert (gigpo["Micro lo"], gigpo["Micro hi"]) == (0.0, 1.0)
    # 2 and 4 of 8: mean 0.375, s = 0.1768, t(1) = 12.706: half-width 12.706 * 0.125, cut to [0, 1].
    assert (grpo["Micro"], grpo["Micro lo"], grpo["Micro hi"]) == (0.375, 0.0, 1.0)
    assert (gigpo["Micro"], gigpo["Macro"]) == (0.875, 0.875)
    # Rates by seed and family: .25 .25 .5 .5; a quarter is cut at each end, .25 and .5 are left.
    assert grpo["IQM"] == 0.375
    assert 0.25 <= grpo["IQM lo"] <= 0.375 <= grpo["IQM hi"] <= 0.5
    by_family = sheet(made[1] / "report" / "families-unseen.csv")
    assert [float(by_family[0][f"{family} (n=4)"]) for family in ("pick", "look")] == [0.375, 0.375]


def test_cost_table(made: Made) -> None:
    grpo, gigpo, start = sheet(made[1] / "report" / "cost.csv")
    assert [float(gigpo[name]) for name in ("Environment steps", "Generated tokens", "Prompt tokens", "Seconds")] == [
        150, 450, 1000, 20,
    ]  # fmt: skip
    # All reached 100 steps: grpo is half way from 0 to 0.4 there; gigpo-s1 was at its end.
    assert float(grpo["Success at 100 steps"]) == pytest.approx(0.2)
    assert float(gigpo["Success at 100 steps"]) == pytest.approx(0.3)
    assert (start["Method"], start["Success at 100 steps"], start["GPU seconds"]) == ("start: warm", "", "0.0")
    assert 0 < float(grpo["CPU-hours"]) < 0.01


def test_comparison_names_the_pair_and_is_that_of_compare(made: Made) -> None:
    from seedbench.compare import compare

    out = made[1]
    (row,) = sheet(out / "report" / "compare-unseen.csv")
    groups = [
        [out / "runs" / f"{cell}-s{seed}" / "evaluation" / "unseen" for seed in (0, 1)] for cell in ("grpo", "gigpo")
    ]
    (pair,) = compare(groups, labels=["grpo", "gigpo"]).comparisons
    assert (row["A -> B"], float(row["B - A"])) == ("grpo -> gigpo", 0.5)
    assert [float(row[f"B - A {side}"]) for side in ("lo", "hi")] == [pair.overall.lo, pair.overall.hi]
    assert pair.conclusion.split("[")[0] in (out / "report" / "report.md").read_text()


def test_figures_and_order_of_the_report(made: Made) -> None:
    folder = made[1] / "report"
    text = (folder / "report.md").read_text()
    heads = re.findall(r"^#+ (.*)$", text, re.M)
    assert heads == [
        "small", "Design", "Cells", "Figures", "unseen", "Final success, unseen (echo/test)",
        "By family, unseen (echo/test)", "Comparisons, unseen (echo/test)", "Cost", "Cost of a run",
    ]  # fmt: skip
    figures = re.findall(r"\]\((.*)\)", text)
    curves = [f"curve-{name}.svg" for name in ("environment-steps", "generated-tokens", "seconds")]
    assert figures == ["headline.svg", *curves]
    for name in figures:
        assert (folder / name).with_suffix(".png").read_bytes()[:4] == b"\x89PNG"
        drawn = (folder / name).read_text()
        assert "#0072b2" in drawn.lower()  # the first colour of the palette


def test_the_report_is_rebuilt_from_a_packed_study_to_the_byte(made: Made, tmp_path: Path) -> None:
    out, packed, file = made[1], tmp_path / "packed", made[1].parent / "s.toml"
    command(file, out, packed=packed)
    held = {str(path.relative_to(packed)) for path in packed.rglob("*") if path.is_file()}
    bundle = {f"runs/grpo-s0/evaluation/unseen/{name}" for name in ("submission.json", PACKED_LOG)}
    assert {
        "study.toml",
        "study.json",
        "usage.jsonl",
        "starts/warm/metrics.jsonl",
        "runs/gigpo-s1/training.json",
    } < held
    assert bundle < held
    assert not any("final/" in name or name.endswith("episodes.jsonl") for name in held)
    assert json.loads((packed / "runs/grpo-s0/evaluation/unseen/submission.json").read_text())["method"] == "grpo"
    command(packed / "study.toml", tmp_path / "again", report=True, source=packed)
    first, second = ({p.name: p.read_bytes() for p in (f / "report").iterdir()} for f in (out, tmp_path / "again"))
    assert first == second
    with pytest.raises(UsageError, match="is not an empty folder"):
        command(file, out, packed=packed)


def test_a_bundle_in_place_of_an_evaluation_counts_as_done(made: Made, tmp_path: Path) -> None:
    study, out = copied(made, tmp_path / "out")
    job = plan(study, out)[1]
    place = evaluation(job, "unseen")
    pack(place, tmp_path / "bundle")
    shutil.rmtree(place)
    assert state(study, job) == "trained"
    (tmp_path / "bundle").rename(place)
    assert state(study, job) == "finished"
    before = (out / "report" / "report.md").read_bytes()
    command(made[1].parent / "s.toml", out, report=True)
    assert (out / "report" / "report.md").read_bytes() == before


def test_an_evaluation_that_was_broken_off_is_not_finished(made: Made, tmp_path: Path) -> None:
    study, out = copied(made, tmp_path / "out")
    summary = out / "runs" / "grpo-s1" / "evaluation" / "unseen" / "summary.json"
    summary.write_text(summary.read_text().replace('"episodes": 8', '"episodes": 7'))
    report = write_report(study, out, tmp_path / "report").read_text()
    assert "3 finished runs. Not finished: grpo-s1." in report
    with pytest.raises(SeedBenchError, match=r"1 runs of the study are not finished \(grpo-s1\)"):
        pack_study(study, tmp_path / "s.toml", out, tmp_path / "packed")


def test_sample_efficiency(script: Path, tmp_path: Path) -> None:
    text = STUDY.replace("[0, 1]", "[0]").replace('start = "warm"', 'start = "warm"\nfractions = [0.5, 1.0]')
    played(script / "evaluations" / "grpo-f50-s0", 1)
    played(script / "evaluations" / "gigpo-f50-s0", 3)
    read_study(tmp_path, text)
    command(tmp_path / "s.toml", tmp_path / "out")
    rows = sheet(tmp_path / "out" / "report" / "efficiency-unseen.csv")
    assert [(row["Share of"], float(row["50 %"]), float(row["100 %"])) for row in rows] == [
        ("games", 0.125, 0.25), ("games", 0.375, 0.75),
    ]  # fmt: skip
    # One seed: Wilson's interval for 1 of 8, 0.022 to 0.471.
    assert [round(float(rows[0][f"50 % {side}"]), 3) for side in ("lo", "hi")] == [0.022, 0.471]
    text = (tmp_path / "out" / "report" / "report.md").read_text()
    assert "](fractions-unseen.svg)" in text
    assert "Comparisons" not in text  # of one seed nothing is said


def test_intervals_over_seeds() -> None:
    rates = [{"rate": rate, "ci": [0.1, 0.6]} for rate in (0.30, 0.32, 0.34)]
    found = over_seeds(rates)
    assert found is not None
    # s = 0.02, standard error 0.02 / sqrt(3), t(2) = 4.3027.
    assert (found.mean, found.lo, found.hi) == pytest.approx((0.32, 0.32 - 0.049683, 0.32 + 0.049683), abs=1e-6)
    assert over_seeds(rates[:1]) == Estimate(0.30, 0.1, 0.6)
    assert over_seeds([rates[0]] * 3) == Estimate(0.30, 0.1, 0.6)  # no spread: what tasks leave open remains
    assert over_seeds([*rates, {"rate": None, "ci": [0, 1]}]) is None
    assert mean_over([0.5, 0.5]) == Estimate(0.5, 0.5, 0.5)
    assert mean_over([0.0, 0.1]).lo == 0.0


def test_nothing_finished_is_said(tmp_path: Path) -> None:
    read_study(tmp_path)
    with pytest.raises(SeedBenchError, match="holds no finished run of the study 'small'"):
        command(tmp_path / "s.toml", tmp_path / "out", report=True)
    with pytest.raises(UsageError, match="--from names what --report is rebuilt from"):
        command(tmp_path / "s.toml", tmp_path / "out", source=tmp_path)


def test_hostile_names_in_a_packed_study_stay_inert(made: Made, tmp_path: Path) -> None:
    """Families come from other people's files."""
    study, out = copied(made, tmp_path / "out")
    for path in out.glob("runs/*/evaluation/unseen/summary.json"):
        text = path.read_text().replace('"pick"', '"=cmd|<script>\\u001b[31m"')
        path.write_text(text)
    table = families(load_results(study, plan(study, out), out)[0], "unseen", "x")
    shown = to_markdown(table)
    assert "<script>" not in shown
    assert "\x1b" not in shown
    assert to_csv(table).splitlines()[0].split(",")[1].startswith("'=cmd")

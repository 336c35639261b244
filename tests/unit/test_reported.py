import csv
import math
from collections import Counter
from pathlib import Path

import pytest

from seedbench.errors import SeedBenchError
from seedbench.reported import COLUMNS, FAMILIES, QUESTION_SETS, ReportedRow, caveats, derived, reported_rows, shipped

ROOT = Path(__file__).parents[2]
SOURCE = ROOT.parent / "shared" / "data" / "paper" / "reported_rows.csv"
needs_source = pytest.mark.skipif(not SOURCE.is_file(), reason="needs ../shared/data/paper/reported_rows.csv")
ROWS = reported_rows()
# One decimal's rounding of a mean of values with one decimal, in floats.
TENTH = 0.05 + 1e-9
QWEN3B, QWEN7B, QWEN17B = "Qwen2.5-3B-Instruct", "Qwen2.5-7B-Instruct", "Qwen3-1.7B"


def one(paper: str, model: str, method: str, suite: str, table: str = "Table 1") -> ReportedRow:
    (row,) = [r for r in ROWS if (r.paper, r.model, r.method, r.suite, r.table) == (paper, model, method, suite, table)]
    return row


def row(suite: str, aggregation: str, **values: float) -> ReportedRow:
    labels = dict.fromkeys((name for name in COLUMNS if name != "caveats"), "x")
    return ReportedRow(**{**labels, "suite": suite, "aggregation": aggregation}, caveats=(), values=values)


def questions(bamboogle: float, aggregation: str = "batch-mean") -> ReportedRow:
    return row("searchqa", aggregation, **dict.fromkeys(QUESTION_SETS, 10.0) | {"Bamboogle": bamboogle})


def test_numbers_of_rows_and_figures() -> None:
    assert Counter(r.suite for r in ROWS) == {"alfworld": 136 + 15 + 3, "searchqa": 108, "webshop": 106, "visual": 4}
    assert Counter(r.paper for r in ROWS if r.table == "Table 1" and r.suite == "alfworld") == {
        "SEED": 33,
        "SDAR": 30,
        "SkillRL": 16,
    }
    assert sum(len(r.values) for r in ROWS) == 1967
    assert Counter(r.split for r in ROWS if r.suite == "alfworld") == {"seen": 147, "unseen": 5, "unknown": 2}


@pytest.mark.parametrize(
    ("model", "method", "macro"),
    [(QWEN3B, "GRPO", 70.7), (QWEN3B, "SDAR", 80.1), (QWEN3B, "SEED", 91.8)],
)
def test_macro_means_of_the_paper(model: str, method: str, macro: float) -> None:
    assert derived(one("SEED", model, method, "alfworld")) == {"macro": pytest.approx(macro, abs=TENTH)}


@pytest.mark.parametrize(
    ("model", "averages"),
    [(QWEN3B, (36.4, 38.6, 41.3)), (QWEN7B, (42.0, 45.2, 44.4)), (QWEN17B, (36.0, 37.0, 37.3))],
)
def test_search_averages_of_the_paper(model: str, averages: tuple[float, ...]) -> None:
    for method, average in zip(("GRPO", "SDAR", "SEED"), averages, strict=True):
        found = derived(one("SEED", model, method, "searchqa"))
        assert found["search_average"] == pytest.approx(average, abs=TENTH)


def test_bamboogle_by_hand() -> None:
    # 44 of 124 and the last one right: (44/124 + 1)/2 = 67.74 % printed, 45/125 = 36 % per question; other sets 10 %.
    found = derived(questions(67.7))
    assert found == {"bamboogle_per_question": pytest.approx(36.0), "search_average": pytest.approx((60 + 36) / 7)}
    # 31 of 124 and the last one wrong: 12.5 printed, 31/125.
    assert derived(questions(12.5))["bamboogle_per_question"] == pytest.approx(24.8)


@pytest.mark.parametrize(("k", "b"), [(0, 0), (1, 0), (62, 1), (123, 0), (124, 1)])
def test_bamboogle_is_undone_from_one_decimal(k: int, b: int) -> None:
    printed = round((k / 124 + b) / 2 * 100, 1)
    assert derived(questions(printed))["bamboogle_per_question"] == pytest.approx((k + b) / 1.25)


def test_bamboogle_without_exactly_one_reading_is_absent() -> None:
    assert derived(questions(26.4)) == {}  # between 65/248 = 26.2 and 66/248 = 26.6
    assert derived(questions(50.0)) == {}  # all of 124, or the single one alone
    assert derived(questions(67.7, "unknown")) == {}
    assert derived(questions(67.7, "macro"))["bamboogle_per_question"] == 67.7


def test_nothing_is_derived_from_incomplete_rows() -> None:
    assert derived(row("alfworld", "micro", Pick=50.0, Avg=50.0)) == {}
    assert derived(row("searchqa", "batch-mean", Bamboogle=67.7, Avg=40.0)) == {}
    assert derived(row("webshop", "unknown", Score=67.7, Succ=40.0)) == {}


def test_only_evaluations_known_to_average_batches_are_corrected() -> None:
    corrected = {r.paper for r in ROWS if "bamboogle_per_question" in derived(r)}
    assert corrected == {"SEED", "SDAR", "OPID"}
    assert all(derived(r) for r in ROWS if r.aggregation == "batch-mean")


def test_every_baseline_of_seed_is_sdars_row() -> None:
    baselines = [r for r in ROWS if r.paper == "SEED" and r.table == "Table 1" and r.method != "SEED"]
    assert len(baselines) == 90
    for r in baselines:
        assert r.values == one("SDAR", r.model, r.method, r.suite).values
        assert "reused-baseline" in r.caveats
        assert "re-used from SDAR" in r.protocol


def test_the_ablation_without_on_policy_skill_is_sdars_row() -> None:
    ablation = one("SEED", QWEN3B, "SEED w/o On-Policy Skill", "alfworld", "Table 2")
    assert ablation.values == one("SDAR", QWEN3B, "SDAR", "alfworld").values


def test_rows_marked_as_same_figures_equal_a_row_of_the_paper_named() -> None:
    marked = [r for r in ROWS if "same-figures" in r.caveats]
    assert len(marked) == 12
    for r in marked:
        other = r.protocol.rpartition("same figures as ")[2].split()[0]
        figures = [v for column, v in r.values.items() if column != "Avg"]
        same = [
            s
            for s in ROWS
            if (s.paper, s.suite) == (other, r.suite)
            and s.method.rstrip("*") == r.method
            and [v for column, v in s.values.items() if column != "Avg"] == figures
        ]
        assert len(same) == 1, r


def test_labels_of_averages_hold() -> None:
    for r in ROWS:
        if "average-micro" in r.caveats:
            for value in (v for column, v in r.values.items() if column not in FAMILIES):
                assert min(abs(k / 1.28 - value) for k in range(129)) <= TENTH, r
        if "average-macro" in r.caveats:
            assert derived(r)["macro"] == pytest.approx(r.values["Avg"], abs=2 * TENTH)
        if r.suite == "searchqa" and "Bamboogle" in r.values:
            mean = math.fsum(r.values[name] for name in QUESTION_SETS) / 7
            assert (abs(mean - r.values["Avg"]) > 0.1) == ("average-off" in r.caveats), r


def test_every_caveat_is_used_and_described() -> None:
    assert {key for r in ROWS for key in r.caveats} == set(caveats())
    page = (ROOT / "docs" / "reported.md").read_text(encoding="utf-8")
    assert all(f"`{key}`" in page for key in caveats())


# --- every cell against the source that the files were made from ---------------------------------------------------

AVERAGES = {"All": "Avg", "All(SR)": "Avg", "category-macro": "Avg", "peak SR": "Peak", "max": "Peak"}
AVERAGES |= {"final SR": "Final", "final": "Final", "seen": "Avg", "unseen": "Avg"}
SUITES = {"ALFWorld": "alfworld", "Search-QA": "searchqa", "WebShop": "webshop"}


def source() -> list[dict[str, str]]:
    with SOURCE.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def cell(line: dict[str, str]) -> tuple[str, str, str, str, str, str, float]:
    """A line of the source as (paper, arxiv, model, method, suite, column or step limit, value)."""
    paper, _, arxiv = line["paper"].rpartition(" ") if line["paper"][-1].isdigit() else (line["paper"], "", "")
    if paper == "issue":
        paper, arxiv = arxiv, ""
    benchmark, column = line["benchmark"], line["column"]
    suite = next((s for prefix, s in SUITES.items() if benchmark.startswith(prefix)), "visual")
    if "@" in column:
        column = column.split("@")[1].removesuffix("data").removesuffix("games")
    elif column == "Success":
        column = {"webshop": "Succ", "alfworld": "Avg", "visual": benchmark}[suite]
    column = column.replace("max_steps=", "") if column.startswith("max_steps=") else AVERAGES.get(column, column)
    return (paper, arxiv, line["model"], line["method"], suite, column, float(line["value"]))


def place(r: ReportedRow, column: str) -> str:
    return r.protocol.split(" steps")[0] if r.table == "README, step limits" else column


@needs_source
def test_every_cell_of_the_source_is_here_and_no_other() -> None:
    theirs = Counter(cell(line) for line in source() if not line["paper"].startswith("DERIVED"))
    ours = Counter(
        (r.paper, r.arxiv, r.model, r.method, r.suite, place(r, c), v) for r in ROWS for c, v in r.values.items()
    )
    # The source has two of GRSD's figures twice: they stand in its picture and in its text.
    twice = Counter(
        {
            ("GRSD", "2607.28076", QWEN17B, "GRSD", "alfworld", "Avg", 92.2): 1,
            ("GRSD", "2607.28076", QWEN3B, "GRSD", "alfworld", "Avg", 86.7): 1,
        }
    )
    assert ours == theirs - twice


@needs_source
def test_splits_are_those_of_the_source() -> None:
    unseen = [cell(line)[2:] for line in source() if "unseen" in line["benchmark"] or line["column"] == "unseen"]
    ours = [(r.model, r.method, r.suite, c, v) for r in ROWS if r.split == "unseen" for c, v in r.values.items()]
    assert sorted(unseen) == sorted(ours)


@needs_source
def test_every_derived_row_of_the_source_is_what_we_derive() -> None:
    names = {
        "macro6": "macro",
        "Bamboogle_true125": "bamboogle_per_question",
        "Avg_with_true_Bamboogle": "search_average",
    }
    lines = [line for line in source() if line["paper"].startswith("DERIVED")]
    assert len(lines) == 108
    for line in lines:
        suite = SUITES[line["benchmark"].split("(")[0]]
        for r in ROWS:
            if (r.model, r.method, r.suite) == (line["model"], line["method"], suite) and (
                r.paper == "OPID" or (r.paper in ("SEED", "SDAR") and r.table == "Table 1")
            ):
                assert derived(r)[names[line["column"]]] == pytest.approx(float(line["value"]), abs=TENTH), line


# --- damaged files -------------------------------------------------------------------------------------------------

HEADER = ",".join(COLUMNS) + ",Avg"
GOOD = "P,2607.14777,T1,M,m,alfworld,seen,micro,,where,note,50.0"


def folder(tmp_path: Path, *lines: str, notes: str = 'note = "A note."') -> Path:
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "caveats.toml").write_text(notes, encoding="utf-8")
    return tmp_path


def test_a_good_file(tmp_path: Path) -> None:
    (found,) = reported_rows(folder(tmp_path, HEADER, GOOD))
    assert (found.paper, found.caveats, found.values, found.protocol) == ("P", ("note",), {"Avg": 50.0}, "")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([HEADER.replace("split,", ""), GOOD], r"a\.csv', line 1 lacks the column 'split'"),
        ([HEADER + ",Avg", GOOD + ",1"], r"line 1 has a column twice"),
        ([], r"line 1 lacks the column 'paper'"),
        ([HEADER, GOOD, GOOD.replace("50.0", "fifty")], r"a\.csv', line 3: Avg is 'fifty'"),
        ([HEADER, GOOD.replace("50.0", "nan")], r"line 2: Avg is 'nan'"),
        ([HEADER, GOOD.replace("50.0", "1_0")], r"line 2: Avg is '1_0'"),
        ([HEADER, GOOD.replace("50.0", "-0.1")], r"line 2: Avg is '-0.1'"),
        ([HEADER, GOOD.replace("50.0", "100.1")], r"line 2: Avg is '100.1'"),
        ([HEADER, GOOD.replace("50.0", "٥٠")], r"line 2: Avg"),
        ([HEADER, GOOD.replace("50.0", "")], r"line 2 has no figures"),
        ([HEADER, GOOD + ",7"], r"line 2 has 13 cells where the header has 12"),
        ([HEADER, GOOD.replace("note", "nothing")], r"line 2: no caveat 'nothing'"),
        ([HEADER, GOOD.replace("seen", "test")], r"line 2: split is 'test'"),
        ([HEADER, GOOD.replace("micro", "mean")], r"line 2: aggregation is 'mean'"),
        ([HEADER, GOOD.replace("2607.14777", "../x")], r"line 2: arxiv is"),
        ([HEADER, GOOD.replace(",where,", ", ,")], r"line 2: provenance is empty"),
        ([HEADER, GOOD, GOOD.replace("50.0", "60.0")], r"line 3 repeats the row of .*line 2"),
        ([HEADER, GOOD.replace(",m,", ',"m,')], r"a\.csv' cannot be read as CSV"),
        ([HEADER, GOOD.replace(",m,", "," + "m" * 1_000_000 + ",")], r"a\.csv' cannot be read as CSV"),
    ],
)
def test_damage_is_named_with_file_and_line(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(SeedBenchError, match=message) as caught:
        reported_rows(folder(tmp_path, *lines))
    assert len(str(caught.value)) < 600 + len(str(tmp_path))


def test_a_row_twice_in_two_files(tmp_path: Path) -> None:
    folder(tmp_path, HEADER, GOOD)
    (tmp_path / "b.csv").write_text(f"{HEADER}\n{GOOD}\n", encoding="utf-8")
    with pytest.raises(SeedBenchError, match=r"b\.csv', line 2 repeats the row of .*a\.csv', line 2"):
        reported_rows(tmp_path)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "a.csv").write_bytes(HEADER.encode() + b"\n\xff\xfe\n")
    with pytest.raises(SeedBenchError, match=r"a\.csv' cannot be read as CSV in UTF-8"):
        reported_rows(tmp_path)


@pytest.mark.parametrize("notes", ['note = "', "note = 3", 'note = " "', 'a = "1"\na = "2"'])
def test_damaged_caveats(tmp_path: Path, notes: str) -> None:
    with pytest.raises(SeedBenchError, match=r"caveats\.toml'"):
        reported_rows(folder(tmp_path, HEADER, GOOD, notes=notes))


def test_a_folder_without_rows(tmp_path: Path) -> None:
    with pytest.raises(SeedBenchError, match=r"caveats\.toml' cannot be read"):
        reported_rows(tmp_path)
    (tmp_path / "caveats.toml").write_text("", encoding="utf-8")
    with pytest.raises(SeedBenchError, match="holds no CSV files"):
        reported_rows(tmp_path)


def test_the_shipped_folder_is_the_repositorys() -> None:
    assert shipped() == ROOT / "leaderboards" / "reported"
    listed = (shipped() / "README.md").read_text(encoding="utf-8")
    for path in shipped().glob("*.csv"):
        with path.open(encoding="utf-8") as stream:
            assert f"| {path.name} | {sum(1 for _ in stream) - 1} |" in listed

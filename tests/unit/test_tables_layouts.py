"""Layouts with scores and parts of scores: what stands in which column of every format, and which runs fit."""

import csv
import io
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from seedbench.errors import UsageError
from seedbench.metrics import summarise
from seedbench.statistics import Rate, mean_score, wilson
from seedbench.tables import LAYOUTS, Column, build, render
from seedbench.tables.terminal import to_terminal
from seedbench.types import Episode, Outcome, Usage

PARTS = ("attribute", "option", "type", "price")
CATEGORIES = ("beauty", "electronics", "garden", "fashion", "grocery")
# Score and parts of a purchase; the last is of an agent that bought nothing.
BOUGHT = [
    (1.0, (1.0, 1.0, 1.0, 1.0)),
    (0.75, (1.0, 0.5, 1.0, 1.0)),
    (0.1, (0.5, 0.0, 0.1, 1.0)),
    (1.0, (1.0, 1.0, 1.0, 1.0)),
    (0.0, (0.0, 0.0, 0.0, 0.0)),
]


def episode(number: int, score: float, metrics: Mapping[str, float]) -> Episode:
    outcome = Outcome.SOLVED if score == 1 else Outcome.FAILED
    return Episode(
        f"goal/{number}", f"{number:064x}", CATEGORIES[number % 5], 0, 1, outcome, score == 1, score,
        "buy it", "a page", (), Usage(), 0.5, metrics=dict(metrics),
    )  # fmt: skip


EPISODES = [episode(n, score, dict(zip(PARTS, parts, strict=True))) for n, (score, parts) in enumerate(BOUGHT)]


def summary(episodes: list[Episode], name: str = "rule", families: tuple[str, ...] = CATEGORIES) -> dict[str, Any]:
    return summarise(
        episodes,
        panel={
            "name": "webshop/test@1", "hash": "ab" * 32, "n": 5, "suite": "webshop", "split": "test", "official": True,
        },
        protocol={"name": "webshop/seed@1", "hash": "11" * 32},
        policy={"name": name, "identity": {}},
        repeats=1,
        seed=0,
        families=families,
    )  # fmt: skip


TABLE = build([("rule", summary(EPISODES))], "webshop")


def markdown_cells(layout: str, *runs: tuple[str, dict[str, Any]]) -> list[list[str]]:
    text = render(build(runs, layout), "markdown")
    lines = [line for line in text.splitlines() if line.startswith("|") and ":--" not in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


# What stands where


def test_score_success_and_parts_worked_by_hand() -> None:
    header, row = markdown_cells("webshop", ("rule", summary(EPISODES)))
    assert header == ["Run", "Score", "Succ", "Attr", "Opt", "Type", "Price", "Steps"]
    # 2.85 / 5, 2 of 5, 3.5 / 5, 2.5 / 5, 3.1 / 5; the price is right 4 times of 5, so its interval is Wilson's.
    assert [cell.split()[0] for cell in row] == ["rule", "57.0", "40.0", "70.0", "50.0", "62.0", "80.0", "0.0"]
    assert row[1].endswith("[0-100] n=5")  # 0.57 +- 2.776445 * 0.484768 / sqrt(5) = 0.602
    assert row[2].endswith("[12-77] n=5")
    assert row[6].endswith("[38-96] n=5")


def test_numbers_are_those_of_the_summary() -> None:
    source = summary(EPISODES)
    (row,) = TABLE.blocks[0].rows
    got = {
        column.key: rate.to_json()
        for column, rate in zip(TABLE.columns, row.rates, strict=True)
        if isinstance(rate, Rate)
    }
    means = {"score": source["score"], **source["metrics"]}
    assert got == {
        "micro": wilson(2, 5).to_json(),
        **{key: {"rate": cell["mean"], "n": cell["n"], "ci": cell["ci"]} for key, cell in means.items()},
    }
    assert means["option"]["ci"] == mean_score([[1.0], [0.5], [0.0], [1.0], [0.0]]).to_json()["ci"]


def test_csv_holds_means_under_rate() -> None:
    lines = list(csv.DictReader(io.StringIO(render(TABLE, "csv"))))
    assert [line["column"] for line in lines] == ["score", "micro", *PARTS]
    assert [float(line["rate"]) for line in lines] == pytest.approx([0.57, 0.4, 0.7, 0.5, 0.62, 0.8], abs=1e-12)
    assert {line["n"] for line in lines} == {"5"}
    assert [float(lines[1]["lo"]), float(lines[1]["hi"])] == [wilson(2, 5).lo, wilson(2, 5).hi]


def test_json_says_which_columns_are_means() -> None:
    data = json.loads(render(TABLE, "json"))
    assert [(column["kind"], column["key"], column["title"]) for column in data["columns"]] == [
        ("score", "score", "Score"),
        ("micro", "micro", "Succ"),
        ("metric", "attribute", "Attr"),
        ("metric", "option", "Opt"),
        ("metric", "type", "Type"),
        ("metric", "price", "Price"),
    ]
    rates = data["blocks"][0]["rows"][0]["rates"]
    assert rates["price"] == wilson(4, 5).to_json()
    assert rates["score"]["rate"] == pytest.approx(0.57, abs=1e-12)


def test_latex_has_a_cell_for_each_column() -> None:
    latex = render(TABLE, "latex")
    assert "\\begin{tabular}{lrrrrrrr}" in latex
    assert "Run & Score & Succ & Attr & Opt & Type & Price & Steps \\\\" in latex
    assert "rule & 57.0 & 40.0 & 70.0 & 50.0 & 62.0 & 80.0 & 0.0 \\\\" in latex
    assert "{\\scriptsize 12--77}" in latex
    assert "U+" not in latex  # nothing in the caption is beyond pdfLaTeX


@pytest.mark.parametrize("width", [80, 120])
def test_terminal(width: int) -> None:
    text = to_terminal(TABLE, width)
    assert text.startswith("WebShop score and success\n")
    assert max(map(len, text.splitlines())) <= width
    positions = [
        text.index(part) for part in ("Score", "Succ", "Attr", "Opt", "Type", "Price", "Steps", "57.0", "62.0")
    ]
    assert positions == sorted(positions)


def test_categories() -> None:
    header, row = markdown_cells("webshop-categories", ("rule", summary(EPISODES)))
    assert header == ["Run", "Beauty", "Electronics", "Garden", "Fashion", "Grocery", "Micro", "Macro", "Steps"]
    assert [cell.split()[0] for cell in row[1:]] == ["100.0", "0.0", "0.0", "100.0", "0.0", "40.0", "40.0", "0.0"]


def test_lines_of_a_narrow_terminal_are_aligned_under_long_titles() -> None:
    text = to_terminal(build([("rule", summary(EPISODES))], "webshop-categories"), 40)
    places = [match.end() for match in re.finditer(r"^  [A-Z][a-z]+ +[\d.]+", text, re.MULTILINE)]
    starts = [text.rindex("\n", 0, place) for place in places]
    assert len(places) == 8
    assert {place - start for place, start in zip(places, starts, strict=True)} == {1 + 2 + len("Electronics") + 1 + 5}


@pytest.mark.parametrize("format", ["terminal", "markdown", "latex"])
def test_captions_say_what_the_numbers_are(format: str) -> None:
    text = " ".join(render(TABLE, format).split()).replace("\\", "")
    for words in (
        "Score: mean of the environment's score x 100",
        "Succ: episodes with the full score in percent",
        "over all episodes, 0 where nothing was bought",
        "Student's t over tasks for means",
        "Wilson for success",
        "Steps: mean turns an episode",
    ):
        assert words in text
    categories = build([("rule", summary(EPISODES))], "webshop-categories").caption
    assert "Macro: unweighted mean of the categories" in categories
    assert "{" not in categories


# Which runs fit


def test_runs_without_the_parts_are_refused() -> None:
    for missing, known in ((PARTS, "(none)"), (("option",), "attribute, price, type")):
        held = [
            episode(n, e.score, {k: v for k, v in e.metrics.items() if k not in missing})
            for n, e in enumerate(EPISODES)
        ]
        with pytest.raises(UsageError) as error:
            build([("rule", summary(EPISODES)), ("other", summary(held))], "webshop")
        assert str(error.value) == (
            f"layout 'webshop' does not fit run 'other': its metrics are {known}, the layout needs attribute, option, "
            "type, price; choose another layout (cost fits every run) or leave the run out."
        )


def test_runs_of_other_families_are_refused() -> None:
    household = summary([], families=("heat", "look"))
    with pytest.raises(
        UsageError, match="does not fit run 'house': its families are heat, look, the layout's are beauty"
    ):
        build([("house", household)], "webshop-categories")
    with pytest.raises(UsageError, match=r"its families are beauty, electronics, .*, the layout's are pick, look"):
        build([("shop", summary(EPISODES))], "alfworld")


def test_more_metrics_than_columns_do_no_harm() -> None:
    more = [episode(n, e.score, {**e.metrics, "clicks": 0.5}) for n, e in enumerate(EPISODES)]
    assert markdown_cells("webshop", ("rule", summary(more))) == markdown_cells("webshop", ("rule", summary(EPISODES)))


def test_run_that_has_just_begun_is_a_row_of_dashes() -> None:
    _, row = markdown_cells("webshop", ("rule", summary([])))
    assert row == ["rule \\*", *["- n=0"] * 6, "-"]


def test_n_says_how_many_episodes_have_the_part() -> None:
    some = [*EPISODES[:4], episode(4, 0.0, {})]
    _, row = markdown_cells("webshop", ("rule", summary(some)))
    assert row[1].endswith("n=5")
    assert [cell.rpartition(" ")[2] for cell in row[3:7]] == ["n=4"] * 4


# The layouts themselves


@pytest.mark.parametrize("name", list(LAYOUTS))
def test_columns_are_told_apart(name: str) -> None:
    columns = LAYOUTS[name].columns
    assert len({column.key for column in columns}) == len({column.title for column in columns}) == len(columns)
    assert all(column.key == column.kind for column in columns if column.kind not in ("family", "metric", "amount"))


def test_webshop_layouts_are_data() -> None:
    assert [key for key, _ in LAYOUTS["webshop"].metrics] == list(PARTS)
    assert LAYOUTS["webshop"].families == ()
    assert [key for key, _ in LAYOUTS["webshop-categories"].families] == list(CATEGORIES)
    assert LAYOUTS["webshop-categories"].columns[-2:] == (
        Column("micro", "micro", "Micro"),
        Column("macro", "macro", "Macro"),
    )

"""The layout `cost`: what was spent on an episode and for a solved one, by hand, in every format."""

import csv
import io
import json
import re
from typing import Any

import pytest

from seedbench.metrics import summarise
from seedbench.statistics import wilson
from seedbench.tables import LAYOUTS, build, render
from seedbench.tables.build import SPENT
from seedbench.tables.terminal import to_terminal
from seedbench.tables.text import amount
from seedbench.types import Episode, Outcome, Turn, Usage

KEYS = [column.key for column in LAYOUTS["cost"].columns]


def episode(number: int, outcome: Outcome, turns: int, prompt: int, generated: int) -> Episode:
    turn = Turn(response="r", action="look", valid=True, admissible=True, observation="o")
    success = outcome is Outcome.SOLVED
    return Episode(
        f"task/{number}", f"{number:064x}", "heat", 0, 1, outcome, success, float(success),
        "", "", (turn,) * turns, Usage(prompt, generated), 2.0,
    )  # fmt: skip


def summary(episodes: list[Episode], **seconds: Any) -> dict[str, Any]:
    return summarise(
        episodes,
        panel={"name": "any/test@1", "hash": "ab" * 32, "n": 4, "suite": "any", "split": "test", "official": True},
        protocol={"name": "q@1", "hash": "11" * 32},
        policy={"name": "p", "identity": {}},
        repeats=1,
        seed=0,
        families=["heat"],
        **seconds,
    )


# 3 + 10 + 6 + 1 = 20 steps, 4,000 prompt and 50 generated tokens, in four episodes: two solved, one broke.
SPENDING = [
    episode(0, Outcome.SOLVED, 3, 600, 9),
    episode(1, Outcome.STEP_LIMIT, 10, 2000, 30),
    episode(2, Outcome.SOLVED, 6, 1300, 10),
    episode(3, Outcome.INFRA_ERROR, 1, 100, 1),
]
KNOWN = summary(SPENDING, wall_seconds=0.5, gpu_seconds=3.0)
UNSOLVED = summary(SPENDING[1:2], wall_seconds=7.0)
TABLE = build([("known", KNOWN), ("unsolved", UNSOLVED), ("begun", summary([], gpu_seconds=0.0))], "cost")


def test_amounts_worked_by_hand() -> None:
    known, unsolved, begun = (dict(zip(KEYS, row.rates, strict=True)) for row in TABLE.blocks[0].rows)
    assert known == {
        "micro": wilson(2, 3),
        "steps_per_episode": 5.0,
        "prompt_tokens_per_episode": 1000.0,
        "generated_tokens_per_episode": 12.5,
        "wall_seconds_per_episode": 0.125,
        "gpu_seconds_per_episode": 0.75,
        "steps_per_solved": 10.0,
        "generated_tokens_per_solved": 25.0,
    }
    assert unsolved["gpu_seconds_per_episode"] is unsolved["steps_per_solved"] is None
    assert unsolved["generated_tokens_per_solved"] is None
    assert (unsolved["steps_per_episode"], unsolved["wall_seconds_per_episode"]) == (10.0, 7.0)
    assert {value for key, value in begun.items() if key != "micro"} == {None}


def test_every_amount_is_of_something_that_a_summary_has() -> None:
    for key in KEYS[1:]:
        spent, _, unit = key.partition("_per_")
        section, name = SPENT[spent]
        assert name in KNOWN[section]
        assert unit in ("episode", "solved")


def test_markdown_has_plain_numbers_and_one_steps_column() -> None:
    header, _, known, unsolved, begun = [line for line in render(TABLE, "markdown").splitlines() if line[0:1] == "|"]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (header, known, unsolved, begun)]
    assert cells[0][2:] == ["Success", "Steps", "Prompt", "Generated", "Wall s", "GPU s", "Steps/solved",
                            "Generated/solved"]  # fmt: skip
    assert cells[1][2:] == ["66.7 [21-94] n=3", "5.00", "1,000", "12.5", "0.125", "0.750", "10.0", "25.0"]
    assert cells[2][2:] == ["0.0 [0-79] n=1", "10.0", "2,000", "30.0", "7.00", "-", "-", "-"]
    assert cells[3][2:] == ["- n=0", *["-"] * 7]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_terminal_shows_every_number_at_every_width(width: int) -> None:
    text = to_terminal(TABLE, width)
    assert max(map(len, text.splitlines())) <= width
    places = [text.index(f" {part}") for part in ("66.7", "5.00", "1,000", "12.5", "0.125", "0.750", "10.0", "25.0")]
    assert places == sorted(places)


def test_latex_leaves_the_lines_of_intervals_empty_there() -> None:
    latex = render(TABLE, "latex")
    assert "\\begin{tabular}{llrrrrrrrr}" in latex
    assert "known & p & 66.7 & 5.00 & 1,000 & 12.5 & 0.125 & 0.750 & 10.0 & 25.0 \\\\\n" in latex
    assert "&  & {\\scriptsize 21--94} &  &  &  &  &  &  & \\\\\n" in latex


def test_html_has_a_cell_for_each_number() -> None:
    html = render(TABLE, "html")
    row = html[html.index('<th scope="row">known</th>') :].partition("</tr>")[0]
    assert re.findall("<td[^>]*>(.*?)</td>", row) == [
        "p", "66.7<small>21–94</small><small>n=3</small>", "5.00", "1,000", "12.5", "0.125", "0.750", "10.0", "25.0",
    ]  # fmt: skip
    assert html.count('<th scope="col" class="num">') == len(KEYS)


def test_csv_and_json_hold_amounts_in_full() -> None:
    lines = list(csv.DictReader(io.StringIO(render(TABLE, "csv"))))
    known = {line["column"]: line for line in lines if line["label"] == "known"}
    assert list(known) == KEYS
    assert float(known["wall_seconds_per_episode"]["rate"]) == 0.125
    assert [known["wall_seconds_per_episode"][key] for key in ("n", "lo", "hi")] == ["", "", ""]
    assert known["micro"]["n"] == "3"
    data = json.loads(render(TABLE, "json"))
    assert [column["kind"] for column in data["columns"]] == ["micro", *["amount"] * 7]
    rates = [row["rates"] for row in data["blocks"][0]["rows"]]
    assert rates[0]["gpu_seconds_per_episode"] == 0.75
    assert rates[1]["gpu_seconds_per_episode"] is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (0, "0"), (5, "5.00"), (0.00004, "0.0000"), (0.000123, "0.0001"), (0.0123, "0.0123"),
        (0.5, "0.500"), (1, "1.00"), (67.84, "67.8"), (99.96, "100.0"), (678.4, "678"), (1234.5, "1,234"),
        (2e6, "2,000,000"),
    ],
)  # fmt: skip
def test_amounts_have_three_digits(value: float, text: str) -> None:
    assert amount(value) == text

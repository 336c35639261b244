"""Tables: what they say, that panels stay apart, which requests are refused, that data reads back."""

import csv
import io
import json
import re
from typing import Any

import pytest

from seedbench.errors import UsageError
from seedbench.statistics import Rate, wilson
from seedbench.tables import LAYOUTS, build, render
from seedbench.tables.terminal import to_terminal

UNSEEN = {"pick": 24, "look": 18, "clean": 31, "heat": 23, "cool": 21, "pick2": 17}
COLUMNS = [*UNSEEN, "micro", "macro"]


def summary(wins: dict[str, int] | None = None, n: dict[str, int] | None = None, **changes: Any) -> dict[str, Any]:
    """A summary of `wins` out of `n` by family; `changes` are keyed `section__key` or `section`."""
    n = UNSEEN if n is None else n
    wins = n if wins is None else wins
    total, won = sum(n.values()), sum(wins.values())
    families = {family: wilson(wins.get(family, 0), n[family]).to_json() for family in n}
    rates = [wins.get(family, 0) / n[family] for family in n if n[family]]
    macro = sum(rates) / len(rates) if len(rates) == len(n) else None
    result: dict[str, Any] = {
        "schema": "seedbench.summary/2",
        "panel": {
            "name": "alfworld/valid_unseen@1",
            "hash": "0123456789abcdef" * 4,
            "n": 134,
            "suite": "alfworld",
            "split": "valid_unseen",
            "official": True,
        },
        "protocol": {"name": "alfworld/seed@1", "hash": "11" * 32},
        "policy": {"name": "oracle", "identity": {"kind": "oracle"}},
        "repeats": 1,
        "seed": 0,
        "episodes": total,
        "success": {
            "micro": wilson(won, total).to_json(),
            "macro": {"rate": macro, "n": total, "ci": [0.0, 1.0]},
            "families": families,
        },
        "score": {"mean": won / total, "n": total, "ci": wilson(won, total).to_json()["ci"]},
        "metrics": {},
        "turns": {"total": 1654, "mean": 12.345, "invalid_rate": 0.0, "inadmissible_rate": None},
        "outcomes": {
            "solved": won,
            "failed": 0,
            "step_limit": total - won,
            "context_overflow": 0,
            "infra_error": 0,
        },
        "tokens": {"prompt": 0, "generated": 0},
        "seconds": {"episodes": 1.5, "wall": None, "gpu": None},
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            result[section][name] = value
        else:
            result[section] = value
    return result


SEEN: dict[str, Any] = {
    "panel__name": "alfworld/valid_seen@1",
    "panel__hash": "fe" * 32,
    "panel__split": "valid_seen",
}
OTHER_PROTOCOL: dict[str, Any] = {"protocol__name": "alfworld/verl-agent@1", "protocol__hash": "22" * 32}
HEAT_19 = {**UNSEEN, "heat": 19}


# What a table says


@pytest.mark.parametrize("width", [80, 100, 120])
def test_terminal_shows_every_number_at_every_width(width: int) -> None:
    table = build([("SmolLM2-135M-Instruct", summary(HEAT_19, **OTHER_PROTOCOL)), ("oracle", summary())], "alfworld")
    text = to_terminal(table, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    # Heat: 19 of 23 = 82.6 %, Wilson 62.9 to 93.0.
    for part in ("82.6", "63-93", "n=23", "100.0", "86-100", "n=24", "n=134", "12.3"):
        assert part in text
    positions = [text.index(title) for title in ("Pick", "Look", "Clean", "Heat", "Cool", "Pick2", "Micro", "Macro")]
    assert positions == sorted(positions)


def test_a_very_narrow_terminal_gets_a_line_for_each_number() -> None:
    text = to_terminal(build([("SmolLM2-135M-Instruct", summary(HEAT_19))], "alfworld"), 40)
    assert re.search(r"^ +Heat +82\.6 \[63-93\] n=23$", text, re.MULTILINE)
    assert max(len(line) for line in text.splitlines()) <= 40


def test_markdown_cells() -> None:
    text = render(build([("mine", summary(HEAT_19))], "alfworld"), "markdown")
    header, rule, row = [line for line in text.splitlines() if line.startswith("|")]
    assert header == "| Run | Policy | Pick | Look | Clean | Heat | Cool | Pick2 | Micro | Macro | Steps |"
    assert rule.count(":--") == 2
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:2] == ["mine", "oracle"]
    assert cells[5] == "82.6 [63-93] n=23"
    assert cells[8] == "97.0 [93-99] n=134"
    assert cells[9] == "97.1 [0-100] n=134"
    assert cells[10] == "12.3"


def test_titles_say_panel_split_size_hash_protocol() -> None:
    (block,) = build([("a", summary())], "alfworld").blocks
    assert block.title == (
        "alfworld/valid_unseen@1, split valid_unseen, 134 tasks, hash 0123456789ab, protocol alfworld/seed@1"
    )


def test_generated_panels_are_labelled() -> None:
    mini: dict[str, Any] = {"panel__suite": "mini-alfworld", "panel__official": False}
    table = build([("a", summary(**mini)), ("b", summary(**SEEN, panel__official=False))], "alfworld")
    assert table.blocks[0].title.endswith(", not official (generated)")
    assert table.blocks[1].title.endswith(", not official")
    for format in ("terminal", "markdown", "latex"):
        assert "not official" in " ".join(render(table, format).split())


def test_numbers_that_do_not_exist_are_dashes() -> None:
    partial = {"heat": 0, "look": 18}
    table = build([("a", summary(partial, partial, turns__mean=None))], "alfworld")
    rates = dict(zip([column.key for column in table.columns], table.blocks[0].rows[0].rates, strict=True))
    assert rates["pick"] is None
    assert isinstance(rates["heat"], Rate)
    assert rates["heat"].rate is None
    (row,) = [line for line in render(table, "markdown").splitlines() if line.startswith("| a ")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2:] == ["-", "100.0 [82-100] n=18", "-", "- n=0", "-", "-", "100.0 [82-100] n=18", "-", "-"]


@pytest.mark.parametrize("format", ["terminal", "markdown", "latex"])
def test_the_caption_says_what_the_numbers_are(format: str) -> None:
    text = " ".join(render(build([("a", summary())], "alfworld"), format).split())
    for words in (
        "won episodes",
        "Wilson",
        "Micro: over all episodes",
        "Macro: unweighted mean of the families",
    ):
        assert words in text.replace("\\:", ":")


# Blocks and notes


def test_panels_never_share_a_body() -> None:
    runs = [
        ("u1", summary()),
        ("s1", summary(**SEEN)),
        ("u2", summary()),
        ("v2", summary(panel__hash="99" * 32)),
    ]
    table = build(runs, "alfworld")
    assert [[row.label for row in block.rows] for block in table.blocks] == [["u1", "u2"], ["s1"], ["v2"]]
    latex = render(table, "latex")
    bodies = re.findall(r"\\begin\{tabular\}.*?\\end\{tabular\}", latex, re.DOTALL)
    assert [("u1" in b, "s1" in b, "u2" in b, "v2" in b) for b in bodies] == [
        (True, False, True, False),
        (False, True, False, False),
        (False, False, False, True),
    ]
    labels = re.findall(r"\\label\{(.*?)\}", latex)
    assert len(set(labels)) == 3
    markdown = render(table, "markdown")
    assert markdown.count("| :-- |") == 3
    assert markdown.count("#### ") == 3


@pytest.mark.parametrize("format", ["terminal", "markdown", "latex"])
def test_different_protocols_are_shown_and_noted(format: str) -> None:
    same = render(build([("a", summary()), ("b", summary())], "alfworld"), format)
    mixed = render(build([("a", summary()), ("b", summary(**OTHER_PROTOCOL))], "alfworld"), format)
    assert "not comparable" not in same
    assert "under different protocols are not comparable" in mixed
    assert "Protocol" in mixed
    assert "Protocol" not in same
    assert "verl-agent@1" in mixed


def test_protocols_of_one_name_are_told_apart_by_hash() -> None:
    (block,) = build([("a", summary()), ("b", summary(protocol__hash="22" * 32))], "alfworld").blocks
    assert [block.protocol(row) for row in block.rows] == [
        "alfworld/seed@1 (111111111111)",
        "alfworld/seed@1 (222222222222)",
    ]


def test_unfinished_runs_are_marked_and_noted() -> None:
    table = build([("done", summary()), ("half", summary(episodes=60, repeats=2)), ("over", summary())], "alfworld")
    block = table.blocks[0]
    assert [row.unfinished for row in block.rows] == [False, True, False]
    assert "* unfinished: 'half', 60 of 268 episodes" in block.notes
    assert "half *" in render(table, "terminal")
    assert "| half \\* |" in render(table, "markdown")
    assert "half {*} &" in render(table, "latex")
    assert not any("done" in note for note in block.notes)


def test_infrastructure_errors_and_repeats_are_noted() -> None:
    runs = [
        ("one", summary(outcomes__infra_error=1)),
        ("two", summary(outcomes__infra_error=2)),
        ("three", summary(repeats=3, episodes=402)),
    ]
    assert build(runs, "alfworld").blocks[0].notes == (
        "'one': 1 infrastructure error, not counted",
        "'two': 2 infrastructure errors, not counted",
        "'three': 3 attempts a task, intervals clustered by task",
    )


def test_what_stands_behind_an_environment_is_noted() -> None:
    corpus = {"retriever": {"engine": "bm25", "corpus": "ab" * 32}, "topk": 3}
    searched = [("a", summary(environment=corpus)), ("b", summary(environment=corpus))]
    assert build(searched, "alfworld").blocks[0].notes == ("environment: engine bm25, corpus abababababab, topk 3",)
    parts = {"engine": "http", "shards": [{"passages": 2}, {"passages": 3}]}
    notes = build([("a", summary(environment=parts))], "alfworld").blocks[0].notes
    assert notes == ("environment: engine http, passages 2, passages 3",)
    other = build([*searched, ("c", summary(environment={"topk": 5}))], "alfworld").blocks[0].notes
    assert other[0] == "rows under different environments are not comparable"
    assert other[3] == "'c': environment topk 5"
    assert build([("a", summary())], "alfworld").blocks[0].notes == ()


# Data formats


def test_csv_reads_back_to_the_same_numbers() -> None:
    runs = {
        "a": summary(HEAT_19),
        "b": summary({}, **SEEN),
        "c": summary({"heat": 0}, {"heat": 0, "look": 18}),
    }
    lines = list(csv.DictReader(io.StringIO(render(build(list(runs.items()), "alfworld"), "csv"))))
    assert len(lines) == 8 + 8 + 4
    for line in lines:
        source = runs[line["label"]]
        success = source["success"]
        cell = {**success["families"], "micro": success["micro"], "macro": success["macro"]}[line["column"]]
        assert (float(line["rate"]) if line["rate"] else None) == cell["rate"]
        assert int(line["n"]) == cell["n"]
        assert [float(line["lo"]), float(line["hi"])] == cell["ci"]
        assert float(line["steps"]) == 12.345
        assert line["panel"] == source["panel"]["name"]
        assert line["official"] == "true"
    assert [line["column"] for line in lines[:8]] == COLUMNS


def test_json_round_trip() -> None:
    source = summary(HEAT_19, outcomes__infra_error=2)
    data = json.loads(render(build([("a", source), ("b", summary(**SEEN))], "alfworld"), "json"))
    assert data["schema"] == "seedbench.table/1"
    assert [column["key"] for column in data["columns"]] == COLUMNS
    assert [block["panel"] for block in data["blocks"]] == [source["panel"], summary(**SEEN)["panel"]]
    row = data["blocks"][0]["rows"][0]
    assert row["rates"]["heat"] == source["success"]["families"]["heat"]
    assert row["rates"]["micro"] == source["success"]["micro"]
    assert row["rates"]["macro"] == source["success"]["macro"]
    assert (row["episodes"], row["expected"], row["infra_errors"], row["steps"]) == (134, 134, 2, 12.345)
    assert data["blocks"][0]["notes"] == ["'a': 2 infrastructure errors, not counted"]


# Requests that cannot be right


def test_unknown_names_offer_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown table layout 'alfword': did you mean 'alfworld'"):
        build([("a", summary())], "alfword")
    with pytest.raises(UsageError, match="unknown table format 'latx': did you mean 'latex'"):
        render(build([("a", summary())], "alfworld"), "latx")


def test_no_runs_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="at least one run"):
        build([], "alfworld")


@pytest.mark.parametrize("n", [{"books": 3}, {"heat": 3, "books\x1b": 3}])
def test_families_without_a_column_are_refused(n: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="layout 'alfworld' does not fit run 'shop': its families are") as error:
        build([("a", summary()), ("shop", summary(n=n))], "alfworld")
    assert "pick, look, clean, heat, cool, pick2" in str(error.value)
    assert "\x1b" not in str(error.value)


def test_layouts_are_data() -> None:
    assert list(LAYOUTS["alfworld"].families) == [(key, key.capitalize()) for key in UNSEEN]

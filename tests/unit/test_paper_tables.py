"""The papers' tables: which runs make a row, what is bold, which mixtures are refused, reported rows apart."""

import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.runs import write_json
from seedbench.statistics import wilson, wilson_limits
from seedbench.statistics.seeds import crossed
from seedbench.tables.paper import paper_table
from seedbench.tables.paper.cells import mean_interval
from seedbench.tables.paper.layouts import method_title
from seedbench.tables.paper.model import Cell, PaperRow, PaperTable
from seedbench.tables.paper.render import render_paper
from tests.unit.test_compare import write_run

PANELS = {
    "alfworld": ("pick", "look"),
    "mini-alfworld": ("pick", "look"),
    "webshop": ("garden", "fashion"),
    "searchqa": ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle"),
}


def panel(suite: str = "alfworld", split: str = "valid_seen", n: int = 80) -> dict[str, Any]:
    """A panel's description, with a hash of its own."""
    name = f"{suite}/{split}@1"
    digest = hashlib.sha256(name.encode()).hexdigest()
    return {"name": name, "hash": digest, "n": n, "suite": suite, "split": split, "official": "mini" not in suite}


SHOP: dict[str, Any] = {
    "panel": panel("webshop", "test"),
    "protocol": {"name": "webshop/seed@1", "hash": "dd" * 32},
}


def outcomes(solved: Mapping[str, int], n: int = 40) -> dict[str, list[float | None]]:
    """The first `solved[family]` of `n` tasks of each family are solved."""
    return {f"{family}/{i}": [float(i < wins)] for family, wins in solved.items() for i in range(n)}


def run(
    folder: Path,
    results: Mapping[str, Sequence[float | None]],
    method: str = "grpo",
    *,
    model: str = "Qwen/Qwen2.5-3B-Instruct",
    seed: int | None = 0,
    data: Mapping[str, Any] | None = None,
    **changed: Any,
) -> Path:
    """The run folder of a trained checkpoint, by default on an ALFWorld panel."""
    described = changed.pop("panel", panel())
    protocol = changed.pop("protocol", {"name": "alfworld/seed@1", "hash": "cc" * 32})
    about = {**described, "n": changed.pop("n", len(results))}
    write_run(folder, results, name=folder.name, panel=about, protocol=protocol, **changed)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    trained = {"method": method, "model": model, "seed": seed, "update": 100, "data": dict(data or {})}
    manifest["policy"]["trained"] = trained
    write_json(folder / "manifest.json", manifest)
    return folder


def row(table: PaperTable, label: str, block: int = 0) -> PaperRow:
    """The measured row of that name; under 'reported', the reported one."""
    kind, _, name = label.rpartition(":")
    rows = table.blocks[block].reported if kind else table.blocks[block].measured
    return next(found for found in rows if found.label == name)


def cell(table: PaperTable, label: str, title: str, block: int = 0) -> Cell | None:
    """The cell of a row under a column's title; `Search-QA/Avg` where titles repeat."""
    group, _, name = title.rpartition("/")
    titles = [(of.title, column.title) for of in table.groups for column in of.columns]
    place = next(i for i, (of, column) in enumerate(titles) if column == name and of.startswith(group))
    return row(table, label, block).cells[place]


def bold(table: PaperTable) -> set[tuple[str, str]]:
    """(label, column title) of all bold cells."""
    return {
        (found.label, column.title)
        for block in table.blocks
        for found in (*block.measured, *block.reported)
        for column, number in zip(table.columns, found.cells, strict=True)
        if number is not None and number.bold
    }


# Rows


def test_suites_of_one_method_make_one_row_and_models_make_blocks(tmp_path: Path) -> None:
    table = paper_table(
        [
            run(tmp_path / "a", outcomes({"pick": 30, "look": 20})),
            run(tmp_path / "b", outcomes({"garden": 10, "fashion": 40}), **SHOP),
            run(tmp_path / "c", outcomes({"pick": 10, "look": 20}), method="seed"),
            run(tmp_path / "d", outcomes({"pick": 0, "look": 1}), method="seed", model="Qwen3-1.7B"),
        ]
    )
    assert [(block.model, [of.label for of in block.measured]) for block in table.blocks] == [
        ("Qwen2.5-3B-Instruct", ["GRPO", "SEED"]),
        ("Qwen3-1.7B", ["SEED"]),
    ]
    assert [group.title for group in table.groups] == ["ALFWorld", "WebShop"]
    pick = wilson(30, 40)
    assert cell(table, "GRPO", "Pick") == Cell(0.75, 40, pick.lo, pick.hi, bold=True)
    assert cell(table, "GRPO", "Micro") == Cell(50 / 80, 80, *wilson_limits(50 / 80, 80), bold=True)
    assert cell(table, "GRPO", "Heat") is None
    assert cell(table, "GRPO", "Succ") == Cell(50 / 80, 80, *wilson_limits(50 / 80, 80))
    assert cell(table, "SEED", "Succ") is None
    assert table.blocks[0].sources[0].text == (
        f"ALFWorld: panel alfworld/valid_seen@1 (hash {panel()['hash'][:12]}), split valid_seen, 80 tasks, protocol"
        " alfworld/seed@1 (hash cccccccccccc), one attempt a task, n of a run: Look 40, Pick 40, all 80."
    )


def test_rows_stand_in_the_papers_order_and_unknown_ones_after(tmp_path: Path) -> None:
    methods = ["seed", "mine", "sdar", "grpo_opsd", "opid", "grpo", "skill_grpo"]
    runs = [run(tmp_path / method, outcomes({"pick": 3, "look": 3}), method=method) for method in methods]
    order = ["Skill-GRPO", "GRPO", "GRPO+OPSD", "SDAR", "OPID", "SEED", "mine"]
    assert [of.label for of in paper_table(runs).blocks[0].measured] == order


def test_the_average_of_search_sets_needs_all_seven_from_one_panel_or_several(tmp_path: Path) -> None:
    protocol = {"name": "searchqa/seed@1", "hash": "ee" * 32}
    wins = dict(zip(PANELS["searchqa"], (4, 8, 12, 16, 20, 24, 28), strict=True))
    runs = [run(tmp_path / f, outcomes({f: w}), panel=panel("searchqa", f), protocol=protocol) for f, w in wins.items()]
    table = paper_table(runs)
    found = cell(table, "GRPO", "Avg")
    assert found is not None
    # (4 + 8 + ... + 28) / 7 / 40 = 16 / 40
    assert found.value == pytest.approx(0.4)
    assert found.n == 280
    whole = paper_table([run(tmp_path / "all", outcomes(wins), panel=panel("searchqa"), protocol=protocol)])
    assert cell(whole, "GRPO", "Avg") == found
    assert cell(paper_table(runs[:6]), "GRPO", "Avg") is None


# Seeds


def test_several_runs_are_seeds_with_an_interval_over_seeds_and_tasks(tmp_path: Path) -> None:
    wins = [(30, 10), (34, 20), (20, 12)]
    runs = [run(tmp_path / f"{i}", outcomes({"pick": p, "look": k}), seed=i) for i, (p, k) in enumerate(wins)]
    table = paper_table(runs)
    pick = np.array([[float(i < p) for i in range(40)] for p, _ in wins])
    look = np.array([[float(i < k) for i in range(40)] for _, k in wins])
    expected = crossed(np.zeros((1, 40)), pick, paired=False)
    found = cell(table, "GRPO", "Pick")
    assert found is not None
    assert found.value == pytest.approx(84 / 120)
    assert (found.n, found.seeds) == (120, 3)
    assert (found.lo, found.hi) == pytest.approx((expected.lo, expected.hi))
    both = crossed(np.zeros((1, 80)), np.hstack((pick, look)), paired=False)
    micro, macro = cell(table, "GRPO", "Micro"), cell(table, "GRPO", "Macro")
    assert micro is not None
    assert (micro.lo, micro.hi) == pytest.approx((both.lo, both.hi))
    assert macro is not None
    # Equal families: the same mean, but tasks vary within families only.
    assert macro.value == pytest.approx(micro.value)
    assert row(table, "GRPO").seeds == {"alfworld": 3}
    assert "GRPO (3 seeds)" in render_paper(table, "terminal")


def test_the_interval_over_seeds_by_hand() -> None:
    # Two families of 8 tasks, half of them solved by both seeds: V = 2 x (2/7)/8/4 = 1/56 on 14 degrees of freedom,
    # where t = 2.1448.
    half = [[1.0] * 4 + [0.0] * 4] * 2
    assert mean_interval([half, half]) == pytest.approx((0.5 - 2.1448 / 56**0.5, 0.5 + 2.1448 / 56**0.5), abs=1e-4)
    assert mean_interval([[[1.0] * 24] * 3]) == wilson_limits(1.0, 24)
    with pytest.raises(SeedBenchError, match=r"outside \[0, 1\]"):
        mean_interval([[[2.0, 0.0], [1.0, 0.0]]])


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"seed": 0}, "of the same training seed 0: give one of them"),
        ({"seed": None}, "training seeds are not known: name the rows with --labels"),
    ],
)
def test_runs_that_are_not_known_to_be_seeds_are_refused(tmp_path: Path, second: dict[str, Any], words: str) -> None:
    runs = [run(tmp_path / "a", outcomes({"pick": 3})), run(tmp_path / "b", outcomes({"pick": 9}), **second)]
    with pytest.raises(UsageError, match=re.escape(words)):
        paper_table(runs)
    assert len(paper_table(runs, labels=["one", "two"]).blocks[0].measured) == 2


def test_other_shares_of_the_data_are_rows_of_their_own(tmp_path: Path) -> None:
    runs = [
        run(tmp_path / str(seed), outcomes({"pick": wins}), seed=seed, data={"fraction": share, "reading": "games"})
        for seed, (share, wins) in enumerate([(1.0, 30), (0.2, 10)])
    ]
    (block,) = paper_table([*runs, run(tmp_path / "seed", outcomes({"pick": 5}), "seed")]).blocks
    assert [of.label for of in block.measured] == ["GRPO", "GRPO (20 % of the games)", "SEED"]
    assert [of.cells[0].value for of in block.measured if of.cells[0]] == [30 / 40, 10 / 40, 5 / 40]
    with pytest.raises(UsageError, match="trained on different shares of the data"):
        paper_table(runs, labels=["GRPO", "GRPO"])


@pytest.mark.parametrize(
    ("method", "skills", "title"),
    [
        ("seed", False, "SEED"), ("seed*", True, "SEED*"), ("SEED", True, "SEED*"), ("mine*", False, "mine*"),
        ("skill_grpo*", True, "Skill-GRPO*"), ("Skill-Prompt*", True, "Skill-Prompt*"),
        ("Vanilla", True, "Skill-Prompt*"),
    ],
)  # fmt: skip
def test_a_star_means_skills_in_the_prompts(method: str, skills: bool, title: str) -> None:
    assert method_title(method, "paper", skills=skills) == title


# Bold


def test_bold_is_the_best_where_it_beats_every_other_row(tmp_path: Path) -> None:
    runs = [
        run(tmp_path / "g", outcomes({"pick": 10, "look": 20})),
        run(tmp_path / "r", outcomes({"pick": 11, "look": 20}), method="rlsd"),
        run(tmp_path / "s", outcomes({"pick": 39, "look": 22}), method="seed"),
    ]
    table = paper_table(runs)
    # 28 and 29 more of 40 on Pick; 2 more of 40 on Look, which is nothing.
    assert bold(table) == {("SEED", "Pick"), ("SEED", "Micro"), ("SEED", "Macro")}
    assert "97.5·" in render_paper(table, "terminal")
    assert "**97.5**" in render_paper(table, "markdown")
    assert "\\textbf{97.5}" in render_paper(table, "latex")
    assert "<b>97.5</b>" in render_paper(table, "html")


def test_the_best_is_not_bold_where_the_second_is_as_good(tmp_path: Path) -> None:
    runs = [
        run(tmp_path / "g", outcomes({"pick": 2, "look": 2})),
        run(tmp_path / "r", outcomes({"pick": 37, "look": 37}), method="rlsd"),
        run(tmp_path / "s", outcomes({"pick": 39, "look": 39}), method="seed"),
    ]
    assert bold(paper_table(runs)) == set()
    assert len(bold(paper_table([runs[0], runs[2]]))) == 4
    assert bold(paper_table(runs[:1])) == set()


def test_rows_without_a_log_or_unfinished_cannot_be_tested(tmp_path: Path) -> None:
    full = [
        run(tmp_path / "g", outcomes({"pick": 2, "look": 2})),
        run(tmp_path / "s", outcomes({"pick": 39, "look": 39}), method="seed"),
    ]
    unlogged = shutil.copytree(full[0], tmp_path / "no-log")
    (unlogged / "episodes.jsonl").unlink()
    table = paper_table([unlogged, full[1]])
    assert bold(table) == set()
    assert "'GRPO' on alfworld/valid_seen@1 has no episode log: not tested, so nothing is bold there" in (
        table.blocks[0].notes
    )
    short = run(tmp_path / "short", outcomes({"pick": 2, "look": 2}), n=200)
    assert bold(table := paper_table([short, full[1]], labels=["a", "b"])) == set()
    assert "* unfinished: 'a' on alfworld/valid_seen@1, 80 of 200 episodes" in table.blocks[0].notes


def test_scores_are_tested_as_scores(tmp_path: Path) -> None:
    low, high = ({f"garden/{i}": [score + i % 5 / 100] for i in range(60)} for score in (0.2, 0.5))
    runs = [run(tmp_path / "g", low, **SHOP), run(tmp_path / "s", high, method="seed", **SHOP)]
    assert bold(paper_table(runs)) == {("SEED", "Score")}  # neither solves anything


# Refused


def test_other_panels_and_protocols_are_refused_with_the_difference(tmp_path: Path) -> None:
    first = run(tmp_path / "a", outcomes({"pick": 3}))
    other = run(tmp_path / "b", outcomes({"pick": 3}), method="seed", panel=panel(split="valid_unseen"))
    with pytest.raises(UsageError, match=r"panel\.name was \"alfworld/valid_seen@1\", now \"alfworld/valid_unseen@1\""):
        paper_table([first, other])
    asked = run(tmp_path / "c", outcomes({"pick": 3}), method="seed", protocol={"name": "p@1", "hash": "ff" * 32})
    with pytest.raises(UsageError, match=r"protocol\.name was \"alfworld/seed@1\", now \"p@1\".*two tables"):
        paper_table([first, asked])
    generated = run(tmp_path / "d", outcomes({"pick": 3}), method="seed", panel=panel("mini-alfworld"))
    with pytest.raises(UsageError, match=r"panel\.name was"):
        paper_table([first, generated])
    # Of another model they stand in another block.
    elsewhere = run(tmp_path / "e", outcomes({"pick": 3}), model="m", panel=panel(split="valid_unseen"))
    assert len(paper_table([first, elsewhere]).blocks) == 2


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ("paper-unseen", "its split is valid_seen"),
        ("paper-efficiency", "nothing says which share of the data"),
        ("papr", "unknown paper layout 'papr': did you mean 'paper'"),
    ],
)
def test_layouts_refuse_what_they_cannot_show(tmp_path: Path, layout: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        paper_table([run(tmp_path / "a", outcomes({"pick": 3}))], layout)


def test_odd_requests_are_refused(tmp_path: Path) -> None:
    first = run(tmp_path / "a", outcomes({"pick": 3}))
    for arguments, words in (
        (([],), "at least one run"),
        (([first, first],), "given twice"),
    ):
        with pytest.raises(UsageError, match=words):
            paper_table(*arguments)
    with pytest.raises(UsageError, match="--labels names 2 rows for 1 runs"):
        paper_table([first], labels=["a", "b"])
    with pytest.raises(UsageError, match=r"unknown paper '2607\.1477'"):
        paper_table([], reported=True, papers=["2607.1477"])
    with pytest.raises(UsageError, match="its suite is tiny"):
        paper_table([write_run(tmp_path / "t", outcomes({"pick": 3}))])

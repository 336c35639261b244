"""Ablation, efficiency and unseen tables, reported rows beside measured ones, and the command that prints them."""

import csv
import io
import re
import sys
from pathlib import Path

import pytest

from seedbench.compare import compare
from seedbench.errors import SeedBenchError, UsageError
from seedbench.tables.paper import paper_table
from seedbench.tables.paper.model import Cell
from seedbench.tables.paper.plot import plot_efficiency
from seedbench.tables.paper.render import render_paper
from tests.eval.helpers import command_line, said
from tests.unit.test_paper_tables import bold, cell, outcomes, row, run

# Ablation and efficiency


def test_ablation_gives_differences_to_the_full_row_as_compare_does(tmp_path: Path) -> None:
    full = run(tmp_path / "f", outcomes({"pick": 36, "look": 30}), method="seed")
    less = run(tmp_path / "l", outcomes({"pick": 20, "look": 28}), method="seed")
    table = paper_table([less, full], "paper-ablation", labels=["w/o SFT", "full"])
    assert [of.label for of in table.blocks[0].measured] == ["full", "w/o SFT", "difference to full"]
    pair = compare([[full], [less]]).comparisons[0]
    pick, micro, macro = (cell(table, "difference to full", name) for name in ("Pick", "Micro", "Macro"))
    effect = next(effect for effect in pair.families if effect.name == "pick")
    assert pick == Cell(-16 / 40, 0, effect.lo, effect.hi)
    assert micro == Cell(pytest.approx(-18 / 80), 0, pair.overall.lo, pair.overall.hi)  # type: ignore[arg-type]
    assert macro is not None
    assert macro.value == pytest.approx(-18 / 80)
    assert re.search(r"-40\.0 +", render_paper(table, "terminal"))


def efficiency(tmp_path: Path) -> list[Path]:
    """GRPO on 20 % of the games, 20 % of the draws, and all of the data."""
    shares = [(0.2, "games", 4), (0.2, "draws", 10), (1.0, "games", 30)]
    return [
        run(tmp_path / f"{share}{reading}", outcomes({"pick": wins}), data={"fraction": share, "reading": reading})
        for share, reading, wins in shares
    ]


def test_readings_of_a_data_fraction_stay_apart(tmp_path: Path) -> None:
    table = paper_table(efficiency(tmp_path), "paper-efficiency")
    assert [(group.title, [column.title for column in group.columns]) for group in table.groups] == [
        ("ALFWorld, share of the draws", ["20 %", "100 %"]),
        ("ALFWorld, share of the games", ["20 %", "100 %"]),
    ]
    numbers = [number.value for number in row(table, "GRPO").cells if number is not None]
    assert numbers == [10 / 40, 30 / 40, 4 / 40, 30 / 40]  # all of the data ends both
    with_paper = paper_table(efficiency(tmp_path / "again"), "paper-efficiency", reported=True)
    assert with_paper.groups[0].title == "ALFWorld, share of data not specified"
    assert row(with_paper, "GRPO").cells[:5] == (None,) * 5  # a reading that is not told is not any reading
    assert [number.value for number in row(with_paper, "reported:GRPO").cells[:5] if number] == [
        0.273, 0.422, 0.563, 0.586, 0.75,
    ]  # fmt: skip


def test_the_plot_is_drawn_and_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    table = paper_table(efficiency(tmp_path), "paper-efficiency", reported=True)
    for name in ("plot.png", "plot.svg", "again.svg"):
        plot_efficiency(table, tmp_path / name)
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    drawn = (tmp_path / "plot.svg").read_bytes()
    assert b"<svg" in drawn
    assert drawn == (tmp_path / "again.svg").read_bytes()
    with pytest.raises(UsageError, match=r"plot\.pdf': the name of a plot ends in \.png or \.svg"):
        plot_efficiency(table, tmp_path / "plot.pdf")
    with pytest.raises(UsageError, match="draws the layout paper-efficiency"):
        plot_efficiency(paper_table([], reported=True), tmp_path / "plot.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SeedBenchError, match="pip install matplotlib"):
        plot_efficiency(table, tmp_path / "plot.png")


# Reported rows

MACRO = {"Qwen2.5-3B-Instruct": {"GRPO": 70.7, "SDAR": 80.1}}
SEARCH = {
    "Qwen2.5-3B-Instruct": (36.4, 38.6, 41.3),
    "Qwen2.5-7B-Instruct": (42.0, 45.2, 44.4),
    "Qwen3-1.7B": (36.0, 37.0, 37.3),
}


def test_the_main_table_is_rebuilt_from_the_reported_rows() -> None:
    table = paper_table([], reported=True)
    assert [block.model for block in table.blocks] == list(SEARCH)
    order = "Vanilla Skill-Prompt* OPSD Skill-GRPO Skill-GRPO* GRPO GRPO+OPSD Skill-SD RLSD SDAR OPID SEED"
    for index, block in enumerate(table.blocks):
        assert [of.label for of in block.reported] == order.split()
        for label, value in MACRO.get(block.model, {}).items():
            found = cell(table, f"reported:{label}", "Macro‡", index)
            assert found is not None
            assert found.value == pytest.approx(value / 100)
        for label, value in zip(("GRPO", "SDAR", "SEED"), SEARCH[block.model], strict=True):
            found = cell(table, f"reported:{label}", "Avg‡", index)
            assert found is not None
            assert found.value == pytest.approx(value / 100)
    assert bold(table) == set()
    assert cell(table, "reported:GRPO", "Avg†") == Cell(0.75, mark="micro")
    assert cell(table, "reported:SEED", "Avg†") == Cell(0.918, mark="macro")
    assert cell(table, "reported:SDAR", "Search-QA/Avg") == Cell(0.434, mark="batch")
    assert cell(table, "reported:SEED", "Score") == Cell(0.885)
    assert cell(table, "reported:SEED", "Succ") == Cell(0.789)


def test_every_reported_row_has_its_footnotes(tmp_path: Path) -> None:
    measured = run(tmp_path / "a", outcomes({"pick": 30, "look": 20}))
    table = paper_table([measured], reported=True)
    (block,) = table.blocks  # only the measured model's
    text = render_paper(table, "terminal")
    assert text.index("GRPO ") < text.index("Reported in papers, not comparable") < text.index("† Vanilla")
    for of in block.reported:
        numbers = of.footnotes()
        assert numbers
        assert any(table.footnotes[number - 1].startswith("Source of ") for number in numbers)
        assert f"† {of.label} [{','.join(map(str, of.footnotes('alfworld')))}]" in text
    assert "cannot be compared with measured ones" in " ".join(text.split())
    reused = next(i for i, note in enumerate(table.footnotes, start=1) if "the one that SDAR prints" in note)
    assert reused in row(table, "reported:Vanilla").footnotes()
    assert reused not in row(table, "reported:SEED").footnotes()


def test_the_other_paper_layouts_and_papers() -> None:
    unseen = paper_table([], "paper-unseen", reported=True)
    macros = {of.label: cell(unseen, f"reported:{of.label}", "Macro‡") for of in unseen.blocks[0].reported}
    assert {label: found.value for label, found in macros.items() if found} == {
        "ReAct": 0.082, "GRPO": 0.709, "SEED": 0.861,
    }  # fmt: skip
    ablation = paper_table([], "paper-ablation", reported=True)
    assert [(of.label, of.cells[6].value) for of in ablation.blocks[0].reported if of.cells[6]] == [
        ("full", 0.918), ("w/o SFT", 0.86), ("w/o self-evolving OPD", 0.87), ("w/o on-policy skill", 0.844),
    ]  # fmt: skip
    assert [block.model for block in ablation.blocks] == ["Qwen2.5-3B-Instruct"]
    sdar = paper_table([], reported=True, papers=["SDAR", "2607.14777"])
    labels = [of.label for of in sdar.blocks[0].reported]
    assert labels.index("GRPO (SEED)") + 1 == labels.index("GRPO (SDAR)")
    assert "Vanilla (SDAR)" in labels


# The command


def test_the_command_prints_real_runs_of_generated_suites(
    tmp_path: Path, mini_store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seedbench = command_line(monkeypatch, capsys)
    jobs = [("oracle", "mini-alfworld/valid_seen", 12), ("random", "mini-alfworld/valid_seen", 12)]
    jobs += [(policy, "mini-webshop/test", 20) for policy in ("oracle", "rule")]
    jobs += [(policy, "mini-searchqa/test", 10) for policy in ("oracle", "rule")]
    folders = []
    for number, (policy, name, limit) in enumerate(jobs):
        folders.append(tmp_path / f"{number}")
        told = seedbench("eval", policy, "--panel", name, "--limit", limit, "--out", folders[-1], "-q")
        assert told.code == 0, told
    told = seedbench("table", *folders, "--layout", "paper", "--format", "csv")
    assert told.code == 0, told
    lines = list(csv.DictReader(io.StringIO(told.out)))
    assert {line["kind"] for line in lines} == {"measured"}
    assert {line["official"] for line in lines} == {"false"}
    assert {line["model"] for line in lines} == {"(no model)"}
    values = {(line["label"], line["suite"], line["column"]): line["value"] for line in lines}
    assert values["oracle", "alfworld", "macro"] == values["oracle", "webshop", "score"] == "1.0"
    assert values["random", "alfworld", "micro"] == "0.0"
    assert values["oracle", "searchqa", "macro"] == "1.0"
    shown = " ".join(seedbench("table", *folders, "--layout", "paper").out.split())
    assert "not official (generated)" in shown
    assert "Avg is the mean of one_hop, two_hop, which have no columns" in shown


def test_the_command_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    seedbench = command_line(monkeypatch, capsys)
    assert "SEED" in seedbench("table", "--reported").out
    assert "need one of the layouts paper" in said(seedbench("table", "--reported", "--layout", "alfworld"), 2)
    assert "at least one run" in said(seedbench("table"), 2)
    assert "at least one run" in said(seedbench("table", "--layout", "paper"), 2)
    assert "did you mean 'paper-unseen'" in said(seedbench("table", "--layout", "paper-unsen"), 2)
    assert "add --reported" in said(seedbench("table", "--layout", "paper", "--papers", "all"), 2)
    assert "unknown table format 'pdf'" in said(seedbench("table", "--reported", "--format", "pdf"), 2)

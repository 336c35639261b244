"""Paper tables in every format: what reads back, that LaTeX compiles, and that hostile names stay text."""

import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from seedbench.errors import UsageError
from seedbench.reported import ReportedRow
from seedbench.tables.paper import paper_table
from seedbench.tables.paper.data import CSV_COLUMNS
from seedbench.tables.paper.layouts import PAPER_LAYOUTS
from seedbench.tables.paper.model import Cell, PaperTable, interval, printed
from seedbench.tables.paper.render import PAPER_FORMATS, render_paper
from seedbench.tables.paper.text import PaperTerminal
from seedbench.tables.text import one_line
from tests.unit.test_paper_tables import outcomes, panel, run
from tests.unit.test_tables_hostile import HOSTILE

NAMES = [text for text in HOSTILE if text != "\ud800"]  # which no run's file can hold
CONTROLS = "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"


def hostile_table(folder: Path, text: str) -> PaperTable:
    """Two measured rows and a reported one, with `text` in every place that takes one."""
    described = {**panel(), "name": text, "split": text}
    about: dict[str, Any] = {"panel": described, "environment": {"engine": text}}
    about["protocol"] = {"name": text, "hash": "cc" * 32}
    model = f"m{text.replace('/', '')}"  # what stands before a slash is not shown
    runs = [
        run(folder / name, outcomes({"pick": wins, "look": 20}), method, model=model, **about)
        for name, wins, method in (("a", 30, text), ("b", 10, "grpo"))
    ]
    row = ReportedRow(
        text, "2607.14777", text, model, text, "alfworld", "seen", "micro", text, text, (text,), {"Avg": 75.0}
    )
    return paper_table(runs, reported=True, rows=[row])


@pytest.mark.parametrize("text", NAMES)
def test_hostile_names_are_inert_in_every_format(tmp_path: Path, text: str) -> None:
    table = hostile_table(tmp_path, text)
    for format in PAPER_FORMATS:
        shown = render_paper(table, format)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]", shown), (
            format
        )
        shown.encode("utf-8")
    seen = Elements()
    seen.feed(render_paper(table, "html"))
    assert not seen.names & {"script", "img", "a", "iframe", "link"}
    assert not {name for name in seen.attributes if name.startswith("on")} | (seen.attributes & {"href", "src"})
    assert one_line(text) in seen.text
    lines = list(csv.reader(io.StringIO(render_paper(table, "csv"))))
    assert {len(line) for line in lines} == {len(CSV_COLUMNS)}
    assert not [value for line in lines for value in line if value[:1] in "=+@" and value]
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(render_paper(table, "markdown"))
    children = [child.type for token in tokens for child in token.children or []]
    assert not {"link_open", "image", "html_inline", "code_inline"} & set(children)
    assert [token.type for token in tokens].count("tr_open") == 5  # head, two measured rows, the divider, one reported
    out = io.StringIO()
    Console(file=out, width=300, force_terminal=True, color_system="truecolor").print(PaperTerminal(table))
    plain = re.sub("\x1b\\[[0-9;]*m", "", out.getvalue())
    assert "\x1b" not in plain
    assert one_line(text) in plain


class Elements(HTMLParser):
    """The elements, attributes and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def log_of(folder: Path, tables: Sequence[PaperTable]) -> str:
    """The log of pdflatex over a document with these tables."""
    bodies = [re.sub(r"\\label\{.*?\}", "", render_paper(table, "latex")) for table in tables]
    source = "\\documentclass{article}\n\\usepackage{booktabs,graphicx}\n\\begin{document}\n"
    source += "\n\\clearpage\n".join(bodies) + "\n\\end{document}\n"
    (folder / "t.tex").write_text(source, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "t.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False)
    log = (folder / "t.log").read_text(encoding="utf-8", errors="replace")
    assert done.returncode == 0, log[-3000:]
    return log


needs_latex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex with booktabs and graphicx")


@needs_latex
def test_latex_compiles_whatever_the_names(tmp_path: Path) -> None:
    log = log_of(tmp_path, [hostile_table(tmp_path / f"{i}", text) for i, text in enumerate(NAMES)])
    assert not re.findall("Missing character.*|Undefined.*", log)


@needs_latex
def test_latex_of_every_layout_fits_the_page(tmp_path: Path) -> None:
    runs = [
        run(tmp_path / "a", outcomes({"pick": 38, "look": 20}), "seed"),
        run(tmp_path / "b", outcomes({"pick": 1, "look": 20})),
    ]
    tables = [paper_table([], layout, reported=True) for layout in PAPER_LAYOUTS]
    log = log_of(tmp_path, [*tables, paper_table(runs, reported=True)])
    assert not re.findall("Overfull.*|.*Float too large.*|Missing character.*|Undefined.*", log)


def test_latex_sets_bold_italics_intervals_and_footnotes(tmp_path: Path) -> None:
    runs = [
        run(tmp_path / "a", outcomes({"pick": 38, "look": 20}), method="seed"),
        run(tmp_path / "b", outcomes({"pick": 1, "look": 20})),
    ]
    shown = render_paper(paper_table(runs, reported=True), "latex")
    assert "\\textbf{95.0}" in shown
    assert "{\\scriptsize 83--99}" in shown  # Wilson of 38 in 40: 83.50 to 98.62
    assert "\\textit{$^\\dagger$ SEED {[}" in shown
    assert "\\textit{91.8}" in shown
    assert shown.count("\\begin{tabular}") == 3  # a table for each suite
    assert "\\textit{75.0} {\\scriptsize micro}" in shown
    assert "Avg$^\\dagger$ & Macro$^\\ddagger$" in shown
    assert shown.rstrip().endswith("\\par}")


def test_csv_and_json_tell_measured_reported_and_derived_apart(tmp_path: Path) -> None:
    table = paper_table([run(tmp_path / "a", outcomes({"pick": 30, "look": 20}))], reported=True)
    lines = list(csv.DictReader(io.StringIO(render_paper(table, "csv"))))
    assert {line["kind"] for line in lines} == {"measured", "reported", "derived"}
    by = {(line["label"], line["kind"], line["suite"], line["title"]): line for line in lines}
    pick = by["GRPO", "measured", "alfworld", "Pick"]
    assert (pick["value"], pick["n"], pick["seeds"], pick["official"]) == ("0.75", "40", "1", "true")
    assert pick["panel_hash"] == panel()["hash"]
    printed = by["GRPO", "reported", "alfworld", "Avg†"]
    assert (printed["value"], printed["n"], printed["lo"], printed["panel"]) == ("0.75", "", "", "")
    assert printed["aggregation"] == "micro"
    assert printed["footnotes"]
    assert by["GRPO", "derived", "alfworld", "Macro‡"]["value"] == "0.707"
    data = json.loads(render_paper(table, "json"))
    assert data["schema"] == "seedbench.paper-table/1"
    numbers = data["blocks"][0]["numbers"]
    assert len(numbers) == len(lines)
    assert len(data["footnotes"]) == len(table.footnotes)
    with pytest.raises(UsageError, match="unknown table format 'pdf'"):
        render_paper(table, "pdf")


def test_narrow_terminals_get_a_line_for_each_number(tmp_path: Path) -> None:
    table = paper_table([run(tmp_path / "a", outcomes({"pick": 30, "look": 20}))])
    for width, words in ((40, r"ALFWorld Pick 75\.0 \[60-86\]"), (90, r"^GRPO +75\.0 +50\.0")):
        out = io.StringIO()
        Console(file=out, width=width, color_system=None).print(PaperTerminal(table))
        assert re.search(words, out.getvalue(), re.MULTILINE)
        assert max(map(len, out.getvalue().splitlines())) <= width


@pytest.mark.parametrize(
    ("cell", "number", "limits"),
    [
        (Cell(-0.0004, 0, -0.0049, 0.012), "+0.0", "[0 to 1]"),
        (Cell(-0.0314, 0, -0.12, -0.0001), "-3.1", "[-12 to 0]"),
        (Cell(0.5, 0, 0.4, 0.6), "+50.0", "[40 to 60]"),
    ],
)
def test_nothing_is_negative_nothing(cell: Cell, number: str, limits: str) -> None:
    assert (printed(cell, "difference"), interval(cell, " to ")) == (number, limits)

"""LaTeX of every layout goes through pdflatex, whatever the runs are called."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from seedbench.metrics import summarise
from seedbench.tables import LAYOUTS, build, render
from seedbench.types import Episode, Outcome, Usage
from tests.unit.test_tables_hostile import HOSTILE

pytestmark = pytest.mark.skipif(
    shutil.which("pdflatex") is None,
    reason="needs pdflatex with booktabs (TeX Live's latex-base and latex-recommended)",
)


def summary(text: str, layout: str, protocol_hash: str) -> dict[str, Any]:
    """An unfinished run of one solved and one failed episode, named `text` wherever a run is named."""
    families = [key for key, _ in LAYOUTS[layout].families] or ["any"]
    metrics = {key: 0.5 for key, _ in LAYOUTS[layout].metrics}
    episodes = [
        Episode(f"t/{n}", f"{n:064x}", families[0], 0, 0, outcome, n == 1, float(n), "", "", (), Usage(), 1.0,
                metrics=metrics)
        for n, outcome in enumerate((Outcome.FAILED, Outcome.SOLVED, Outcome.INFRA_ERROR))
    ]  # fmt: skip
    return summarise(
        episodes,
        panel={"name": text, "hash": "ab" * 32, "n": 5, "suite": "s", "split": text, "official": True},
        protocol={"name": text, "hash": protocol_hash},
        policy={"name": text, "identity": {}},
        repeats=1,
        seed=0,
        families=families,
        environment={"engine": text},
    )


def log_of(folder: Path, names: list[str], preamble: str = "") -> str:
    """The log of one document with a table of each layout and, in each, two runs of every name."""
    tables = [
        render(build([(name, summary(name, layout, digit * 64)) for digit in "12" for name in names], layout), "latex")
        for layout in LAYOUTS
    ]
    # Nothing is left to the placement of floats; labels repeat between tables.
    body = "\n\\clearpage\n".join(re.sub(r"\\label\{.*?\}", "", table) for table in tables)
    head = f"\\documentclass{{article}}\n{preamble}\\usepackage{{booktabs,graphicx}}\n"
    source = f"{head}\\begin{{document}}\n{body}\n\\end{{document}}\n"
    (folder / "t.tex").write_text(source, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "t.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False)
    log = (folder / "t.log").read_text(encoding="utf-8", errors="replace")
    assert done.returncode == 0, log[-3000:]
    return log


@pytest.mark.parametrize("preamble", ["", "\\usepackage[T1]{fontenc}\n"], ids=["OT1", "T1"])
def test_every_layout_compiles_with_every_name(tmp_path: Path, preamble: str) -> None:
    assert not re.findall("Missing character.*|Undefined.*", log_of(tmp_path, HOSTILE, preamble))


def test_every_layout_fits_the_page(tmp_path: Path) -> None:
    log = log_of(tmp_path, ["Qwen2.5-3B, SEED after 150 updates"])
    assert f"({len(LAYOUTS)} pages" in log
    assert not re.findall("Overfull.*|.*Float too large.*", log)

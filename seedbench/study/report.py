"""The report of a study, rebuilt from what its runs left: report.md and report.html, a CSV a table, figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from seedbench.errors import SeedBenchError
from seedbench.study import comparisons, signals, skills, tables
from seedbench.study.page import write_page
from seedbench.study.plan import plan
from seedbench.study.plots import OVER_TRAINING, draw
from seedbench.study.results import Result, load_results
from seedbench.study.sheets import Block, Figure, Section, Sheet, sheets, to_csv, to_markdown
from seedbench.study.spec import Study
from seedbench.tables.markdown import escape


def write_report(study: Study, root: Path, folder: Path) -> Path:
    """Write the report of the runs under `root` into `folder` and return report.md's path.

    `root` is a study's folder or what `pack` made of one; runs that are not finished are named and left out.

    Raises:
        UsageError: runs that cannot be compared; SeedBenchError: none is finished, a file is damaged, matplotlib is
            missing or a file cannot be written.
    """
    results, missing = load_results(study, plan(study, root), root)
    if not any(not result.job.is_start for result in results):
        raise SeedBenchError(
            f"'{root}' holds no finished run of the study '{study.study.name}': run it without --report first, or name"
            " its folder with --out or --from."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        figures = draw(study, results, folder)
        sections = [section for section in _sections(study, results, missing, figures) if section.blocks]
        for sheet in sheets(sections):
            (folder / f"{sheet.name}.csv").write_text(to_csv(sheet), encoding="utf-8")
        write_page(folder / "report.html", study.study.name, sections)
        path = folder / "report.md"
        path.write_text("\n\n".join(_markdown(study.study.name, sections)) + "\n", encoding="utf-8")
    except OSError as error:
        raise SeedBenchError(
            f"cannot write the report in '{folder}': {error.strerror}. Free space and try again."
        ) from error
    return path


def _markdown(name: str, sections: Sequence[Section]) -> Iterator[str]:
    yield f"# {escape(name)}"
    for section in sections:
        yield f"## {escape(section.title)}"
        yield from map(to_markdown, section.blocks)


def _sections(
    study: Study, results: Sequence[Result], missing: Sequence[str], figures: Sequence[Figure]
) -> Iterator[Section]:
    panels = study.evaluation.panels
    yield Section("design", "Design", _design(study, results, missing))
    yield Section("figures", "Figures", tuple(figure for figure in figures if figure.name != OVER_TRAINING))
    for panel, name in panels.items():
        yield Section(f"panel-{panel}", panel, tuple(_panel(results, panel, name)))
    moved = tables.generalisation(results, panels)
    yield Section("panels", "From panel to panel", (moved,) if moved else ())
    watched = signals.table(results)
    shown = [figure for figure in figures if figure.name == OVER_TRAINING]
    yield Section("over-training", "Over training", (*shown, watched) if watched else ())
    traced = skills.written(results)
    found = (skills.table(study, traced), skills.samples(traced))
    yield Section("skills-written", "Skills", tuple(block for block in found if block))
    yield Section("costs", "Cost", (tables.costs(results),))


def _panel(results: Sequence[Result], panel: str, name: str) -> Iterator[Block]:
    yield tables.final(results, panel, name)
    yield tables.families(results, panel, name)
    if efficiency := tables.efficiency(results, panel, name):
        yield efficiency
    yield from comparisons.cells(results, panel, name) or ()
    yield from comparisons.shares(results, panel, name) or ()


def _design(study: Study, results: Sequence[Result], missing: Sequence[str]) -> tuple[Block, ...]:
    head, asked = study.study, study.evaluation
    panels = ", ".join(f"{label}: {name}" for label, name in asked.panels.items())
    lines = [
        f"Suite {head.suite}, model {head.model}; trained under the protocol {study.protocol}.",
        f"Evaluated on {panels}; protocol {study.asked.name}; attempts a task: {asked.repeats}; seed {asked.seed}"
        + (f"; {asked.limit} tasks of each panel" if asked.limit else "")
        + ".",
    ]
    made = sum(not result.job.is_start for result in results)
    lines.append(
        f"{made} finished run{'s' if made > 1 else ''}." + (f" Not finished: {', '.join(missing)}." if missing else "")
    )
    sheet = Sheet(
        "cells",
        "Cells",
        ("Cell", "Method", "Start", "Seeds", "Shares of the data", "Settings"),
        tuple(
            (
                cell.label, cell.method, cell.start, ", ".join(map(str, cell.seeds)),
                ", ".join(f"{100 * f:g} %" for f in cell.fractions),
                ", ".join(f"{key} = {value}" for key, value in cell.settings.items()),
            )
            for cell in study.resolved()
        ),
        "Settings are over the recipe's"
        + (f" ({head.recipe})" if head.recipe else "")
        + "; the runs' training.json has all of them.",
    )  # fmt: skip
    return " ".join(lines), sheet

"""The report of a study, rebuilt from what its runs left: report.md with tables (CSV beside it) and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seedbench.errors import SeedBenchError
from seedbench.study import tables
from seedbench.study.plan import plan
from seedbench.study.plots import draw
from seedbench.study.results import Result, load_results
from seedbench.study.spec import Study
from seedbench.tables.markdown import escape
from seedbench.ui.tally import one_line

_FIGURES = {
    "curve-environment-steps": "Validation success against environment steps",
    "curve-generated-tokens": "Validation success against generated tokens",
    "curve-seconds": "Validation success against seconds of training",
}


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
        figures = draw(results, list(study.evaluation.panels), folder)
        parts = [*_design(study, results, missing), *_pictures(figures)]
        parts += _tables(study, results, folder)
        path = folder / "report.md"
        path.write_text("\n\n".join(part.strip("\n") for part in parts) + "\n", encoding="utf-8")
    except OSError as error:
        raise SeedBenchError(
            f"cannot write the report in '{folder}': {error.strerror}. Free space and try again."
        ) from error
    return path


def _tables(study: Study, results: Sequence[Result], folder: Path) -> list[str]:
    parts = []
    for panel, name in study.evaluation.panels.items():
        sheets = [tables.final(results, panel, name), tables.families(results, panel, name)]
        sheets += [sheet] if (sheet := tables.efficiency(results, panel, name)) else []
        compared = tables.comparisons(study, results, panel, name)
        sheets += [compared[0]] if compared else []
        parts += [f"## {escape(panel)}", *(_written(sheet, folder) for sheet in sheets)]
        parts += ["\n".join(f"- {escape(one_line(text, 600))}" for text in compared[1])] if compared else []
    return [*parts, "## Cost", _written(tables.costs(results), folder)]


def _written(sheet: tables.Sheet, folder: Path) -> str:
    (folder / f"{sheet.name}.csv").write_text(tables.to_csv(sheet), encoding="utf-8")
    return tables.to_markdown(sheet)


def _pictures(names: Sequence[str]) -> list[str]:
    shown = [
        f"![{_FIGURES.get(name, 'Final success by share of the data')}]({name}.svg)" for name in names
    ]  # fmt: skip
    return ["## Figures", *shown] if shown else []


def _design(study: Study, results: Sequence[Result], missing: Sequence[str]) -> list[str]:
    head, asked = study.study, study.evaluation
    panels = ", ".join(f"{label}: {name}" for label, name in asked.panels.items())
    lines = [
        f"Suite {head.suite}, model {head.model}, protocol {study.protocol}.",
        f"Evaluated on {panels}; attempts a task: {asked.repeats}; seed {asked.seed}"
        + (f"; {asked.limit} tasks of each panel" if asked.limit else "")
        + ".",
    ]
    made = sum(not result.job.is_start for result in results)
    lines.append(
        f"{made} finished run{'s' if made > 1 else ''}." + (f" Not finished: {', '.join(missing)}." if missing else "")
    )
    sheet = tables.Sheet(
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
    return [f"# {escape(head.name)}", escape(" ".join(lines)), tables.to_markdown(sheet)]

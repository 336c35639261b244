"""`seedbench compare`: paired tests of runs on the same tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from seedbench.compare import Comparison, Effect, Report


def compare_command(
    runs: list[str] = typer.Argument(
        help="Run folders, bundles or training runs. Those joined by commas are training seeds of one method."
    ),
    metric: str = typer.Option("success", help="success or score."),
    format: str = typer.Option("terminal", help="terminal, markdown, json or csv."),
    labels: str = typer.Option("", help="Names of the sides in their order, separated by commas."),
) -> None:
    """Say which run is better, by how much, and how sure that is: paired tests on the same tasks.

    Runs on different panels, under different protocols or with different repeats are refused. Of a training run the
    last validation is taken.
    """
    from seedbench.compare import compare
    from seedbench.errors import unknown

    writers = {"terminal": _terminal, "markdown": _markdown, "json": _json, "csv": _csv}
    if format not in writers:
        raise unknown("format", format, writers)
    groups = [[Path(name.strip()) for name in side.split(",") if name.strip()] for side in runs]
    names = [label.strip() for label in labels.split(",")] if labels else []
    typer.echo(writers[format](compare(groups, metric=metric, labels=names)), nl=False)


_CAPTION = (
    "In percent; B - A with its 95 % interval. All: every task weighs the same; macro: every family does. McNemar:"
    " exact, with Newcombe's interval. Permutation: of signs, with a bootstrap of tasks (macro: adjusted Wald). Seeds"
    " and tasks: both are a sample (t). Holm: p corrected over the pairs of this report (all, macro, families apart)."
    " Power 80: the smallest difference that would be found in 8 studies of 10; none: so few tasks or seeds find none."
)


def _head(report: Report) -> str:
    from seedbench.tables.text import one_line

    repeats = f", {report.repeats} attempts a task" if report.repeats > 1 else ""
    return one_line(
        f"{report.panel} ({report.panel_hash[:12]}), {report.protocol} ({report.protocol_hash[:12]}){repeats}"
    )


def _cells(pair: Comparison) -> list[list[str]]:
    """A head and a line for each effect."""
    titles = ["Tasks", "n", "A", "B", "B - A", "95 %", "Only A", "Only B", "p", "Holm", "Power 80", "Test"]
    return [titles, *(_line(effect) for effect in pair.effects)]


def _line(effect: Effect) -> list[str]:
    from seedbench.compare import p_text
    from seedbench.tables.text import one_line

    return [
        one_line(effect.name),
        str(effect.n),
        *(f"{100 * rate:.1f}" for rate in (effect.a, effect.b)),
        f"{100 * effect.difference:+z.1f}",
        f"{100 * effect.lo:z.1f} to {100 * effect.hi:z.1f}",
        *("-" if only is None else str(only) for only in (effect.only_a, effect.only_b)),
        p_text(effect.p),
        p_text(effect.p_holm),
        f"{100 * effect.detectable:.1f}" if effect.detectable < 1 else "none",
        effect.test,
    ]


def _seed_line(pair: Comparison) -> str:
    if pair.seeds is None:
        return ""
    triples = (pair.seeds.a, pair.seeds.b, pair.seeds.difference)
    a, b, both = (f"{100 * mean:z.1f} [{100 * lo:z.1f} to {100 * hi:z.1f}]" for mean, lo, hi in triples)
    how = "paired by seed" if pair.seeds.paired else "not paired by seed"
    return f"Interquartile mean over seeds and families: A {a}, B {b}, B - A {both} (stratified bootstrap, {how})."


def _terminal(report: Report) -> str:
    from textwrap import fill

    parts = [f"{report.metric.capitalize()}: {_head(report)}"]
    for pair in report.comparisons:
        cells = _cells(pair)
        widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
        table = [_aligned(line, widths) for line in cells]
        lines = [f"A: {pair.a}    B: {pair.b}", "", *table]
        parts += ["\n".join(lines), *filter(None, [_seed_line(pair)]), pair.conclusion]
    parts += ["\n".join(report.notes)] if report.notes else []
    return "\n\n".join([*parts, fill(_CAPTION, 110)]) + "\n"


def _aligned(line: list[str], widths: list[int]) -> str:
    """The first and the last cell to the left, numbers to the right."""
    first, *numbers, last = (
        cell.rjust(width) if 0 < place < len(line) - 1 else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(line, widths, strict=True))
    )
    return "  ".join((first, *numbers, last)).rstrip()


def _markdown(report: Report) -> str:
    from seedbench.tables.markdown import escape

    parts = [f"### {escape(f'{report.metric.capitalize()}: {_head(report)}')}"]
    for pair in report.comparisons:
        titles, *lines = ([escape(cell) for cell in line] for line in _cells(pair))
        rule = [":--", *["--:"] * (len(titles) - 2), ":--"]
        table = "\n".join(f"| {' | '.join(line)} |" for line in (titles, rule, *lines))
        texts = filter(None, [_seed_line(pair), pair.conclusion])
        parts += [f"#### A: {escape(pair.a)}, B: {escape(pair.b)}", table, *map(escape, texts)]
    parts += ["\n".join(f"- {escape(note)}" for note in report.notes)] if report.notes else []
    return "\n\n".join([*parts, escape(_CAPTION)]) + "\n"


def _json(report: Report) -> str:
    import json
    from dataclasses import asdict

    return json.dumps({"schema": "seedbench.compare/2", **asdict(report)}, indent=2, ensure_ascii=False) + "\n"


def _csv(report: Report) -> str:
    """A line for each effect, rates as fractions; texts that a spreadsheet would run get an apostrophe in front."""
    import csv
    import io
    from dataclasses import asdict

    from seedbench.tables.text import no_formula

    out = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for pair in report.comparisons:
        for effect in pair.effects:
            about = {"panel": report.panel, "protocol": report.protocol, "metric": report.metric}
            row = {**about, "label_a": pair.a, "label_b": pair.b, **asdict(effect)}
            if writer is None:
                writer = csv.DictWriter(out, list(row), lineterminator="\n")
                writer.writeheader()
            writer.writerow({key: no_formula(value) for key, value in row.items()})
    return out.getvalue()

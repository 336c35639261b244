"""The sentences under a paper table: what the numbers are, whence they come, why reported rows do not compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seedbench.tables.build import spelled, unofficial
from seedbench.tables.paper.layouts import SUITES, ColumnGroup, PaperColumn, families
from seedbench.tables.paper.model import Source
from seedbench.tables.paper.runs import MeasuredRow, MeasuredRun
from seedbench.tables.text import one_line

_MEASURED = (
    "In percent, with the 95 % interval: Wilson for one attempt a task, clustered by task for several, Price-Bonett for"
    " the mean of families, Student's t for scores; over several training seeds the mean, with an interval from seeds"
    " and tasks.",
    "Bold: the best measured row of the block and, after Holm, significantly better (p < .05, `seedbench compare`) than"
    " each other measured row on that panel; where nothing is bold, nothing was.",
)
_REPORTED = (
    "Reported rows (†) are copied from papers and cannot be compared with measured ones, nor by themselves be ranked:"
    " their tasks were drawn at random, other step limits and histories were used, averages differ in definition, and"
    " no seeds or intervals are given. Numbers in brackets are the footnotes of each row."
)
_AVERAGES = {
    "alfworld": "ALFWorld: Micro is the share of won episodes, Macro the unweighted mean of the six families.",
    "searchqa": "Search-QA: exact match; Avg is the plain mean over the seven sets.",
    "webshop": "WebShop: Score is the mean score x 100, Succ the share of episodes with the full score.",
}
_DERIVED = {
    "alfworld": (
        "ALFWorld: Avg† is printed as it stands, with its definition behind it; Macro‡ is derived, the mean of the six"
        " printed families."
    ),
    "searchqa": (
        "Search-QA: the printed Avg has its definition behind it (batch: a mean of batches); Bamb.‡ is Bamboogle per"
        " question, derived from the printed mean of batches, and Avg‡ the mean of the seven sets with it."
    ),
}
_FRACTION = (
    "Columns are shares of the training data: of the games, where all updates are made, or of the draws, where training"
    " ends sooner; the two are different experiments."
)


def caption(
    layout: str, groups: Sequence[ColumnGroup], *, measured: bool, reported: bool
) -> tuple[tuple[str, str], ...]:
    """The sentences under the whole table, each behind the suite that it is about or nothing."""
    suites = list(dict.fromkeys(group.suite for group in groups))
    found = [("", text) for text in _MEASURED] if measured else []
    if layout == "paper-efficiency":
        found.append(("", _FRACTION))
        found += [("", "Measured: the share of solved episodes (micro).")] if measured else []
        found += [("", "Reported: the papers' averages, however they were formed.")] if reported else []
    else:
        found += [(suite, _AVERAGES[suite]) for suite in suites if measured or suite != "alfworld"]
    if reported:
        found += [("", _REPORTED)]
        found += [(suite, _DERIVED[suite]) for suite in suites if suite in _DERIVED and layout != "paper-efficiency"]
    if layout == "paper-ablation" and measured:
        found.append(("", "Differences are to the first row of the block, with the interval of `seedbench compare`."))
    return tuple(found)


def sources(rows: Sequence[MeasuredRow], columns: Sequence[PaperColumn]) -> tuple[Source, ...]:
    """What the block was measured on, once for each panel."""
    panels: dict[str, list[MeasuredRun]] = {}
    for row in rows:
        for run in row.runs:
            panels.setdefault(run.panel, []).append(run)
    order = list(SUITES)
    found = [_source(runs, columns) for runs in panels.values()]
    return tuple(sorted(found, key=lambda source: order.index(source.suite)))


def _source(runs: Sequence[MeasuredRun], columns: Sequence[PaperColumn]) -> Source:
    first = runs[0].summary
    panel, protocol = first["panel"], first["protocol"]
    parts = [
        f"{SUITES[runs[0].suite]}: panel {one_line(panel['name'])} (hash {one_line(panel['hash'])[:12]})",
        f"split {one_line(panel['split'])}",
        f"{panel['n']} tasks",
        f"protocol {one_line(protocol['name'])} (hash {one_line(protocol['hash'])[:12]})",
        f"{first['repeats']} attempts a task" if first["repeats"] > 1 else "one attempt a task",
        f"n of a run: {', '.join(_counts(runs, columns))}",
    ]
    if runs[0].suite == "searchqa" and not set(runs[0].families) & set(families("searchqa")):
        parts.append(f"Avg is the mean of {one_line(', '.join(runs[0].families))}, which have no columns")
    if first.get("environment"):
        parts.append(f"environment {one_line(', '.join(spelled(first['environment'])))}")
    parts += unofficial(panel["suite"], panel["official"])
    return Source(
        suite=runs[0].suite,
        panel=one_line(panel["name"]),
        panel_hash=one_line(panel["hash"]),
        protocol=one_line(protocol["name"]),
        protocol_hash=one_line(protocol["hash"]),
        split=one_line(panel["split"]),
        official=panel["official"],
        text=", ".join(parts) + ".",
    )


def _counts(runs: Sequence[MeasuredRun], columns: Sequence[PaperColumn]) -> Iterator[str]:
    """`Pick 24` for each family that has a column, then `all 134`; `133-134` where infrastructure errors differ."""
    titles = {column.key: column.title for column in columns if column.kind == "family"}
    for family in runs[0].families:
        if family in families(runs[0].suite) and family in titles:
            yield f"{titles[family]} {_span([run.summary['success']['families'][family]['n'] for run in runs])}"
    yield f"all {_span([run.summary['success']['micro']['n'] for run in runs])}"


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low}-{high}"


def block_notes(rows: Sequence[MeasuredRow]) -> Iterator[str]:
    """What a reader must know about single rows."""
    for row in rows:
        for run in row.runs:
            where = f"'{row.label}' on {one_line(run.summary['panel']['name'])}"
            if run.unfinished:
                expected = run.summary["panel"]["n"] * run.summary["repeats"]
                yield f"* unfinished: {where}, {run.summary['episodes']} of {expected} episodes"
            if errors := run.summary["outcomes"]["infra_error"]:
                yield f"{where}: {errors} infrastructure {'error' if errors == 1 else 'errors'}, not counted"

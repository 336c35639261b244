"""Runs as rows of paper tables: who was measured, which runs are seeds of one method, which may stand together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

from seedbench.errors import UsageError
from seedbench.runs import MANIFEST, differences, read_episodes
from seedbench.subject import Subject, subject
from seedbench.tables.paper.layouts import PAPER_LAYOUTS, SUITES, PaperColumn, families, method_title, official, rank
from seedbench.tables.source import load_summary
from seedbench.tables.text import one_line
from seedbench.types import Outcome

NO_MODEL = "(no model)"
"""Title of the block of oracle, random, rule."""

Values = dict[str, dict[str, list[float]]]
"""Family -> task hash -> the value of each counted attempt."""


@dataclass(frozen=True)  # no slots: the log is read once, where it is needed
class MeasuredRun:
    """One run of a row."""

    path: Path
    summary: dict[str, Any]
    subject: Subject
    label: str
    """The row it belongs to."""
    named: bool
    """Whether the user gave the label."""

    @property
    def suite(self) -> str:
        """The suite whose columns it fills."""
        return official(self.summary["panel"]["suite"])

    @property
    def panel(self) -> str:
        """The panel's hash."""
        return str(self.summary["panel"]["hash"])

    @property
    def model(self) -> str:
        """The model's name without the folder or owner before it."""
        return one_line(self.subject.model.rstrip("/").rpartition("/")[2]) if self.subject.model else NO_MODEL

    @property
    def families(self) -> list[str]:
        """The families of its panel."""
        return list(self.summary["success"]["families"])

    @property
    def unfinished(self) -> bool:
        """Whether attempts are still to come."""
        return bool(self.summary["episodes"] < self.summary["panel"]["n"] * self.summary["repeats"])

    @property
    def share(self) -> tuple[float, str]:
        """Which share of the data it was trained on, and of what; all of the data is the same in either reading."""
        share = self.subject.fraction
        return (1.0, "") if share in (None, 1.0) else (share, self.subject.reading)

    @property
    def has_log(self) -> bool:
        """Whether its episodes can be read."""
        return (self.path / MANIFEST).is_file() and any(self.path.glob("episodes.jsonl*"))

    def fits(self, column: PaperColumn) -> bool:
        """Whether its numbers belong in that column: the suite, and the data fraction where columns have one."""
        share, reading = self.subject.fraction, self.subject.reading
        if column.suite != self.suite or column.fraction is None:
            return column.suite == self.suite
        # All of the data is all of it in either reading.
        return share == column.fraction and (reading == column.reading or (share == 1 and column.reading != ""))

    @cached_property
    def values(self) -> dict[str, Values]:
        """`success` and `score` of every counted attempt, by family and task."""
        attempts = {episode.key: _condensed(episode) for episode in read_episodes(self.path)}
        found: dict[str, Values] = {"success": defaultdict(dict), "score": defaultdict(dict)}
        for (task, _), (family, outcome, success, score) in sorted(attempts.items()):
            if outcome is not Outcome.INFRA_ERROR:
                found["success"][family].setdefault(task, []).append(float(success))
                found["score"][family].setdefault(task, []).append(score)
        return found


def _condensed(episode: Any) -> tuple[str, Outcome, bool, float]:
    return episode.family, episode.outcome, episode.success, episode.score


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """The runs of one method: seeds on a panel, or runs on several suites, or both."""

    label: str
    runs: tuple[MeasuredRun, ...]

    def panels(self, column: PaperColumn) -> dict[str, tuple[MeasuredRun, ...]]:
        """The runs that belong in the column, by panel hash."""
        found: dict[str, list[MeasuredRun]] = {}
        for run in self.runs:
            if run.fits(column):
                found.setdefault(run.panel, []).append(run)
        return {panel: tuple(runs) for panel, runs in found.items()}


def read_runs(paths: Sequence[Path], layout: str, labels: Sequence[str] = ()) -> list[MeasuredRun]:
    """Read the runs of a table: run folders, bundle folders, or summary.json files without a log.

    Raises UsageError for a wrong number of labels, a path given twice, a suite or split that the layout does not show,
    or a run without the data fraction that it needs; SeedBenchError for what cannot be read.
    """
    if labels and len(labels) != len(paths):
        raise UsageError(f"--labels names {len(labels)} rows for {len(paths)} runs.")
    places = [path.resolve() for path in paths]
    if twice := [place for place in places if places.count(place) > 1]:
        raise UsageError(f"'{twice[0]}' is given twice: give every run once.")
    runs = [_read(path, layout, labels[index] if labels else "") for index, path in enumerate(paths)]
    for run in runs:
        if problem := _problem(run, layout):
            raise UsageError(f"layout '{layout}' does not fit run '{one_line(str(run.path))}': {problem}.")
    return runs


def _read(path: Path, layout: str, label: str) -> MeasuredRun:
    folder = path.parent if path.name == "summary.json" and (path.parent / MANIFEST).is_file() else path
    summary = load_summary(folder)
    who = subject(folder) if (folder / MANIFEST).is_file() else Subject("", summary["policy"]["name"])
    skills = "skills_sha256" in summary["policy"]["identity"]
    title = method_title(who.method, layout, skills=skills)
    if layout != "paper-efficiency" and who.fraction not in (None, 1.0):
        title = f"{title} ({100 * who.fraction:g} % of the {who.reading})"
    return MeasuredRun(folder, summary, who, one_line(label or title), bool(label))


def _problem(run: MeasuredRun, layout: str) -> str:
    """Why the layout cannot show the run; empty where it can."""
    suite, split = run.summary["panel"]["suite"], run.summary["panel"]["split"]
    shown = PAPER_LAYOUTS[layout].suites
    if run.suite not in shown:
        return f"its suite is {one_line(suite)}, the layout shows {', '.join(SUITES[name] for name in shown)}"
    if layout == "paper-unseen" and "unseen" not in split:
        return f"its split is {one_line(split)}; evaluate it on an unseen panel, or choose layout 'paper'"
    if layout == "paper-efficiency" and run.subject.fraction is None:
        return "nothing says which share of the data it was trained on; evaluate a checkpoint of `seedbench train`"
    known = families(run.suite)
    if run.suite == "alfworld" and not set(run.families) <= set(known):
        return f"its families are {one_line(', '.join(run.families))}, the layout's are {', '.join(known)}"
    return ""


def blocks_of(runs: Sequence[MeasuredRun], layout: str) -> dict[str, tuple[MeasuredRow, ...]]:
    """Model -> its rows in the layout's order. Models in the order given, runs without one last.

    Raises UsageError where runs of a suite in one block differ in panel, protocol, repeats or environment, and where
    two runs of a row are not known to be different training seeds.
    """
    models: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        name = next((name for name in models if name.casefold() == run.model.casefold()), run.model)
        models.setdefault(name, []).append(run)
    found = {}
    for model in sorted(models, key=lambda name: name == NO_MODEL):
        refuse_mixtures(models[model])
        found[model] = _rows(models[model], layout)
    return found


def _rows(runs: Sequence[MeasuredRun], layout: str) -> tuple[MeasuredRow, ...]:
    labels: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        labels.setdefault(run.label, []).append(run)
    for members in labels.values():
        _refuse_unknown_seeds(members, layout)
    return tuple(MeasuredRow(label, tuple(labels[label])) for label in sorted(labels, key=lambda x: rank(x, layout)))


def _refuse_unknown_seeds(runs: Sequence[MeasuredRun], layout: str) -> None:
    """Several runs of a method on a panel must be several trainings, or the interval would be a wrong one."""
    for a, b in combinations(runs, 2):
        if a.panel != b.panel or (layout == "paper-efficiency" and a.share != b.share):
            continue
        both = f"'{one_line(str(a.path))}' and '{one_line(str(b.path))}' are both '{a.label}' on one panel"
        if a.share != b.share:
            raise UsageError(f"{both}, trained on different shares of the data: give them different --labels.")
        if a.subject.seed is not None and a.subject.seed == b.subject.seed:
            raise UsageError(
                f"{both}, of the same training seed {a.subject.seed}: give one of them, or other --labels."
            )
        if a.summary["policy"]["identity"] == b.summary["policy"]["identity"]:
            raise UsageError(f"{both}, and the same policy: give one of them, or other --labels.")
        if None in (a.subject.seed, b.subject.seed) and not (a.named and b.named):
            raise UsageError(
                f"{both}, and their training seeds are not known: name the rows with --labels (the same name for the"
                " seeds of one method)."
            )


def refuse_mixtures(runs: Sequence[MeasuredRun]) -> None:
    """Raise UsageError, showing the difference, where runs of a suite would not share panel and protocol.

    Several panels may share a suite's columns where none fills another's: Search-QA has a panel for each set.
    """
    for a, b in combinations(_distinct(runs), 2):
        if a.suite != b.suite:
            continue
        held, now = _identity(a), _identity(b)
        same_suite = a.summary["panel"]["suite"] == b.summary["panel"]["suite"]
        if same_suite and a.suite == "searchqa" and not set(a.families) & set(b.families):
            held.pop("panel"), now.pop("panel")
        if listed := differences(held, now):
            raise UsageError(
                f"'{one_line(str(a.path))}' and '{one_line(str(b.path))}' cannot stand in one block. From the former to"
                f" the latter: {'; '.join(map(one_line, listed[:6]))}. They belong in two tables."
            )


def _distinct(runs: Iterable[MeasuredRun]) -> list[MeasuredRun]:
    found: list[MeasuredRun] = []
    for run in runs:
        if all(_identity(run) != _identity(other) for other in found):
            found.append(run)
    return found


def _identity(run: MeasuredRun) -> dict[str, Any]:
    """What runs of a block must share."""
    summary = run.summary
    panel, protocol = ({"name": of["name"], "hash": of["hash"][:12]} for of in (summary["panel"], summary["protocol"]))
    return {
        "panel": panel,
        "protocol": protocol,
        "repeats": summary["repeats"],
        "environment": summary.get("environment") or {},
    }

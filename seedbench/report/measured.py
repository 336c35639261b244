"""The runs of a report: evaluations, bundles and training runs, read once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seedbench.report.journal import Course, course
from seedbench.runs import read_manifest
from seedbench.statistics import Rate
from seedbench.subject import TRAINING, Subject, subject, validations
from seedbench.tables import load_summary
from seedbench.tables.build import SPENT
from seedbench.tables.text import limits, percent
from seedbench.ui.tally import UNKNOWN


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of the report."""

    number: int
    """From 1."""
    label: str
    folder: Path
    """As it was named: a run folder or that of a training run."""
    evaluation: Path | None
    """The run folder with the episodes, the last validation of a training run; None where there is none yet."""
    summary: dict[str, Any]
    """Of the evaluation; empty without one."""
    manifest: dict[str, Any]
    """Of the evaluation; empty without one."""
    subject: Subject | None
    course: Course | None
    """Of a training run."""
    note: str = ""
    """What was chosen of a training run."""

    @property
    def place(self) -> str:
        """Name of its folder in the report, of harmless characters."""
        slug = re.sub("[^a-z0-9]+", "-", self.label.lower())[:40].strip("-")
        return f"{self.number:02}-{slug or 'run'}"

    @property
    def method(self) -> str:
        """How it was trained, or what it is; empty without an evaluation."""
        return self.subject.method if self.subject else ""

    def spent(self, amount: str) -> float | None:
        """What the evaluation spent, one of `SPENT`; None where that is not known."""
        section, name = SPENT[amount]
        value: float | None = self.summary.get(section, {}).get(name)
        return value

    def training(self, amount: str) -> float | None:
        """What the training spent, a key of `Subject.cost`; None where that is not known."""
        return (self.subject.cost or {}).get(amount) if self.subject else None

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What the head of its page says, by name."""
        facts = {"note": self.note}
        if self.evaluation and self.subject:
            facts |= _evaluated(self.summary, self.manifest, self.subject)
        return [(name, fact) for name, fact in facts.items() if fact]


def _evaluated(summary: Mapping[str, Any], manifest: Mapping[str, Any], who: Subject) -> dict[str, str]:
    micro, panel, protocol = summary["success"]["micro"], summary["panel"], summary["protocol"]
    rate = Rate(micro["rate"], micro["n"], *micro["ci"])
    success = UNKNOWN if rate.rate is None else f"{percent(rate)} % [{limits(rate, ' to ')}]"
    repeats = summary["repeats"]
    return {
        "policy": summary["policy"]["name"],
        "model": who.model,
        "method": who.method if who.model else "",
        "training seed": "" if who.seed is None else str(who.seed),
        "updates": "" if who.updates is None else f"{who.updates:,}",
        "share of data": "" if who.fraction in (None, 1.0) else f"{who.fraction:g} of the {who.reading}",
        "panel": f"{panel['name']}, {panel['n']:,} tasks, hash {panel['hash'][:12]}",
        "protocol": f"{protocol['name']}, hash {protocol['hash'][:12]}",
        "episodes": f"{summary['episodes']:,} of {panel['n'] * repeats:,}, run seed {summary['seed']}",
        "success": f"{success}, n = {rate.n:,}",
        "source": _source(manifest.get("source")),
    }


def _source(source: object) -> str:
    if not isinstance(source, dict) or not source.get("revision"):
        return ""
    return f"{source['revision']}{', with uncommitted changes' if source.get('dirty') else ''}"


def read_runs(folders: Sequence[Path], labels: Sequence[str]) -> list[Measured]:
    """Read what a report says of each folder, labels in the same order.

    Raises UsageError for a folder that holds no run, SeedBenchError where one is damaged or of another version.
    """
    return [_read(number, *named) for number, named in enumerate(zip(folders, labels, strict=True), 1)]


def _read(number: int, folder: Path, label: str) -> Measured:
    if not (folder / TRAINING).is_file():
        return _measured(number, label, folder, folder, None, "")
    course_, measured = course(folder), validations(folder)
    if not measured:
        return Measured(number, label, folder, None, {}, {}, None, course_, "A training run without a validation yet.")
    update, last = measured[-1]
    return _measured(number, label, folder, last, course_, f"A training run: its validation after update {update}.")


def _measured(number: int, label: str, folder: Path, run: Path, course_: Course | None, note: str) -> Measured:
    manifest = read_manifest(run)
    return Measured(number, label, folder, run, load_summary(run), manifest, subject(run), course_, note)

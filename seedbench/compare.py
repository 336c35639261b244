"""Runs compared on the same tasks: paired tests, intervals, and a sentence that says what they show.

Numbers come from the episode logs; the summaries say what was run. Which test is used: `seedbench.statistics.effects`.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbench.bundle import opened
from seedbench.errors import SeedBenchError, UsageError, unknown
from seedbench.runs import MANIFEST, differences, read_episodes, read_manifest
from seedbench.statistics.effects import CROSSED, Comparison, Effect, Seeds, compared, corrected
from seedbench.statistics.seeds import PAIRED_FROM
from seedbench.subject import TRAINING, run_names, subject, validations
from seedbench.tables import load_summary
from seedbench.tables.text import one_line
from seedbench.types import Episode, Outcome

METRICS = ("success", "score")
LEVEL = 0.05
"""A difference is claimed where the p-value, corrected by Holm, is below."""

__all__ = ["LEVEL", "METRICS", "Comparison", "Effect", "Report", "Seeds", "compare", "p_text"]


@dataclass(frozen=True, slots=True)
class Report:
    """Pairs of the sides, in their order."""

    metric: str
    panel: str
    panel_hash: str
    protocol: str
    protocol_hash: str
    repeats: int
    sides: tuple[tuple[str, tuple[str, ...]], ...]
    """Label and folders."""
    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...]
    """What a reader must know about the runs."""


@dataclass(frozen=True, slots=True)
class _Run:
    folder: str
    summary: dict[str, Any]
    protocol: dict[str, Any]
    seed: int | None
    """Of the training; None where nothing says."""
    values: dict[str, float]
    """Task hash -> mean over its counted attempts."""
    families: dict[str, str]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Side:
    label: str
    runs: tuple[_Run, ...]

    def matrix(self, tasks: Sequence[str]) -> NDArray[np.float64]:
        """(runs, tasks)"""
        return np.array([[run.values[task] for task in tasks] for run in self.runs])


def compare(
    groups: Sequence[Sequence[Path]],
    *,
    metric: str = "success",
    labels: Sequence[str] = (),
    pairs: Sequence[tuple[int, int]] = (),
) -> Report:
    """Compare pairs of sides; a side is a run folder, or several that are seeds of one method.

    Args:
        groups: the folders of each side, of evaluations, bundles (or their archives) or training runs (whose last
            validation is taken).
        metric: success or score (in [0, 1]).
        labels: names of the sides; default: what their folders are called.
        pairs: which sides to compare, A and B by their places in `groups`; default: every pair. Holm's correction is
            over these.

    Raises:
        UsageError: fewer than two sides, a folder given twice, or runs that differ in panel, protocol, repeats or
            environment (the differences are shown), an unknown metric, a wrong number of labels.
        SeedBenchError: a run is unfinished or damaged, its scores leave [0, 1], or no task is counted in all runs.
    """
    if metric not in METRICS:
        raise unknown("metric", metric, METRICS)
    _refuse_odd(groups, labels)
    sides = [
        _Side(label, tuple(_read(folder, metric) for folder in group))
        for label, group in zip([one_line(label) for label in labels] or _labels(groups), groups, strict=True)
    ]
    runs = [run for side in sides for run in side.runs]
    for run in runs[1:]:
        _refuse_other(runs[0], run)
    families = {task: family for run in runs for task, family in run.families.items()}
    tasks = sorted(task for task in families if all(task in run.values for run in runs))
    if not tasks:
        raise SeedBenchError("no task is counted in all of the runs: each ended in an infrastructure error in some.")
    by_family = {f: [t for t in tasks if families[t] == f] for f in runs[0].summary["success"]["families"]}
    asked = [(sides[a], sides[b]) for a, b in pairs or combinations(range(len(sides)), 2)]
    found = [_compared(a, b, tasks, by_family, metric) for a, b in asked]
    first, missing = runs[0].summary, runs[0].summary["panel"]["n"] - len(tasks)
    left_out = [f"{missing} of {first['panel']['n']} tasks are left out: infrastructure errors."] if missing else []
    return Report(
        metric=metric,
        panel=first["panel"]["name"],
        panel_hash=first["panel"]["hash"],
        protocol=first["protocol"]["name"],
        protocol_hash=first["protocol"]["hash"],
        repeats=first["repeats"],
        sides=tuple((side.label, tuple(run.folder for run in side.runs)) for side in sides),
        comparisons=tuple(_concluded(corrected(found), metric)),
        notes=(*dict.fromkeys(note for run in runs for note in run.notes), *left_out, *_seed_notes(sides, asked)),
    )


def _refuse_odd(groups: Sequence[Sequence[Path]], labels: Sequence[str]) -> None:
    if len(groups) < 2 or not all(groups):
        raise UsageError(
            "a comparison needs two sides or more: `seedbench compare RUN_A RUN_B`, where a side is a run folder or"
            " several, separated by commas."
        )
    places = [folder.resolve() for group in groups for folder in group]
    if twice := [place for place in places if places.count(place) > 1]:
        raise UsageError(f"'{twice[0]}' is given twice: give every run once.")
    if labels and (len(labels) != len(groups) or len(set(labels)) < len(labels)):
        raise UsageError(f"--labels must name {len(groups)} sides, each differently, not {', '.join(labels)}.")


def _labels(groups: Sequence[Sequence[Path]]) -> list[str]:
    """The folders' names, of a group what they begin with; the paths where that does not tell the sides apart."""
    names = []
    for group in groups:
        of_group = run_names(group)
        common = os.path.commonprefix(of_group)  # noqa: RUF071 (characters are meant)
        names.append(one_line(common if len(group) == 1 else common.rstrip("-_.0123456789") or of_group[0]))
    if len(set(names)) == len(names):
        return names
    return [one_line(",".join(map(str, group))) for group in groups]


def _read(given: Path, metric: str) -> _Run:
    with opened(given) as place:
        folder, seed, notes = _evaluation(place)
        return _measured(given, folder, metric, seed, notes)


def _measured(given: Path, folder: Path, metric: str, seed: int | None, notes: tuple[str, ...]) -> _Run:
    summary, manifest = load_summary(folder), read_manifest(folder)
    attempts: dict[str, dict[int, float]] = defaultdict(dict)
    families = {}
    last = {episode.key: _condensed(episode, metric) for episode in read_episodes(folder)}
    for (task, repeat), (family, value) in last.items():
        families[task] = family
        if value is not None:
            attempts[task][repeat] = value
    expected = summary["panel"]["n"] * summary["repeats"]
    if len(last) != expected:
        raise SeedBenchError(
            f"'{given}' is unfinished: {len(last):,} of {expected:,} episodes. Run the same command again to"
            " finish it; a comparison on what was played so far would favour quick tasks."
        )
    values = {task: float(np.mean([of[r] for r in sorted(of)])) for task, of in attempts.items()}
    if any(not 0 <= value <= 1 for value in values.values()):
        raise SeedBenchError(f"'{given}' has scores outside [0, 1]: compare it with --metric success.")
    return _Run(one_line(str(given)), summary, manifest.get("protocol", {}), seed, values, families, notes)


def _condensed(episode: Episode, metric: str) -> tuple[str, float | None]:
    """Family, and the value; None for an infrastructure error."""
    value = float(episode.success if metric == "success" else episode.score)
    return episode.family, None if episode.outcome is Outcome.INFRA_ERROR else value


def _evaluation(given: Path) -> tuple[Path, int | None, tuple[str, ...]]:
    """The folder of the evaluation, the training seed where it is known, and what was chosen."""
    record = given / TRAINING
    if (given / MANIFEST).is_file() or not record.is_file():
        read_manifest(given)  # says what a folder lacks
        return given, subject(given).seed, ()
    try:
        settings = json.loads(record.read_text(encoding="utf-8"))["settings"]
        seed, updates = int(settings["seed"]), int(settings["updates"])
    except (ValueError, KeyError, TypeError) as error:
        raise SeedBenchError(f"'{record}' is damaged ({type(error).__name__}: {error}); train it again.") from error
    found = validations(given)
    if not found:
        raise UsageError(
            f"'{given}' is a training run without a validation: evaluate '{given / 'final'}' with `seedbench eval` and"
            " give the folder of that."
        )
    update, folder = found[-1]
    note = f"{one_line(str(given))} is a training run: its last validation, after update {update} of {updates}."
    ended = (given / "final" / "seedbench.json").is_file()  # a budget may end it before its last update
    return folder, seed, (note if ended else f"{note} Training has not ended.",)


def _refuse_other(first: _Run, other: _Run) -> None:
    if _bound(first.summary) == _bound(other.summary):
        return
    listed = differences(_identity(first), _identity(other))
    more = f"; and {len(listed) - 6} more" if len(listed) > 6 else ""
    raise UsageError(
        f"'{other.folder}' cannot be compared with '{first.folder}'. From the latter to the former:"
        f" {'; '.join(map(one_line, listed[:6]))}{more}. Evaluate both on one panel, under one protocol, with as many"
        " repeats."
    )


def _bound(summary: dict[str, Any]) -> tuple[Any, ...]:
    return summary["panel"]["hash"], summary["protocol"]["hash"], summary["repeats"], summary.get("environment", {})


def _identity(run: _Run) -> dict[str, Any]:
    """What is told of runs that differ: hashes as short as in tables."""
    panel, protocol = ({**run.summary[key], "hash": run.summary[key]["hash"][:12]} for key in ("panel", "protocol"))
    same = {"repeats": run.summary["repeats"], "environment": run.summary.get("environment", {})}
    return {"panel": panel, **same, "protocol": {**protocol, **run.protocol}}


def _seeds_paired(a: _Side, b: _Side) -> bool:
    """Whether both sides know their training seeds, and they are the same, each once, and enough of them."""
    first, second = (sorted((run.seed for run in side.runs), key=str) for side in (a, b))
    return None not in first and first == second and len(set(first)) == len(first) >= PAIRED_FROM


def _seed_notes(sides: Sequence[_Side], pairs: Sequence[tuple[_Side, _Side]]) -> list[str]:
    notes = []
    apart = [pair for pair in pairs if all(len(side.runs) > 1 for side in pair) and not _seeds_paired(*pair)]
    if apart:
        who = (
            " and ".join(side.label for side in apart[0]) if len(apart) == 1 else f"{len(apart)} of {len(pairs)} pairs"
        )
        notes.append(f"{who} are not paired by training seed: that takes {PAIRED_FROM} known, equal seeds.")
    alone = [side.label for side in sides if len(side.runs) == 1]
    if alone and len(alone) < len(sides):
        notes.append(f"Of one run nothing is known of its variation between training seeds: {', '.join(alone)}.")
    return notes


def _compared(a: _Side, b: _Side, tasks: list[str], families: dict[str, list[str]], metric: str) -> Comparison:
    if paired := _seeds_paired(a, b):
        order = {run.seed: run for run in b.runs}
        b = replace(b, runs=tuple(order[run.seed] for run in a.runs))
    places = {task: place for place, task in enumerate(tasks)}
    return compared(
        (a.label, b.label),
        a.matrix(tasks),
        b.matrix(tasks),
        {family: [places[task] for task in some] for family, some in families.items() if some},
        paired=paired,
        binary=metric == "success" and a.runs[0].summary["repeats"] == 1,
    )


def _concluded(pairs: Sequence[Comparison], metric: str) -> list[Comparison]:
    return [replace(pair, conclusion=_sentence(pair, metric, len(pairs) > 1)) for pair in pairs]


def _sentence(pair: Comparison, metric: str, several: bool) -> str:
    effect = pair.overall
    test = effect.test if effect.test == "McNemar" else f"{effect.test},"
    how = f"({test} p = {p_text(effect.p_holm)}{' after Holm' if several else ''}, n = {effect.n})"
    if effect.p_holm < LEVEL:
        better, worse = (pair.b, pair.a) if effect.difference > 0 else (pair.a, pair.b)
        limits = (effect.lo, effect.hi) if effect.difference > 0 else (-effect.hi, -effect.lo)
        verb = "solves" if metric == "success" else "scores"
        points = f"{100 * abs(effect.difference):.1f} points more than {worse} {_limits(*limits)}"
        return f"{better} {verb} {points} {how}.{_otherwise(pair)}"
    found = f"{100 * effect.detectable:.0f} points" if effect.detectable < 1 else "none, whatever its size"
    text = (
        f"No difference detected between {pair.a} and {pair.b}: {_points(effect)} {how}. This panel"
        f"{' with these seeds' if effect.test == CROSSED else ''} could detect {found}."
    )
    if effect.test == CROSSED and pair.checkpoints_p < LEVEL:
        text += (
            f" These very checkpoints do differ (permutation p = {p_text(pair.checkpoints_p)} over tasks), but not by"
            " more than other training seeds might: that takes more seeds."
        )
    return text


def _otherwise(pair: Comparison) -> str:
    """A doubt, never a claim: a second test that may claim something would err in more than 5 % of reports."""
    if pair.macro is None or pair.macro.p_holm < LEVEL:
        return ""
    found = f"{_points(pair.macro)} (p = {p_text(pair.macro.p_holm)})"
    return f" Where every family weighs the same, no difference is detected: {found}."


def _points(effect: Effect) -> str:
    return f"{100 * effect.difference:+z.1f} points {_limits(effect.lo, effect.hi)}"


def _limits(lo: float, hi: float) -> str:
    return f"[{100 * lo:z.0f} to {100 * hi:z.0f}]"


def p_text(p: float) -> str:
    """.012 for 0.0123, 1.5e-07 for smaller ones; at most 1."""
    if p < 0.001:
        return f"{p:.1e}"
    return "1" if p > 0.9995 else f"{p:.3f}"[1:]

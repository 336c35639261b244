"""What `seedbench compare` concludes of a report's runs on one panel."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from seedbench.errors import SeedBenchError
from seedbench.report.measured import Measured


def conclude(runs: Sequence[Measured]) -> tuple[list[str], list[str]]:
    """A sentence for every pair of sides that can be compared, and what must be known of the runs.

    Training seeds of one method make one side: two of them say nothing of the method's worth.
    """
    from seedbench.compare import compare

    conclusions: list[str] = []
    notes: list[str] = []
    for group in _comparable(runs):
        sides = list(_sides(group))
        if len(sides) < 2:
            if len(group) > 1:
                notes.append(f"Not compared: {', '.join(run.label for run in group)} are training seeds of one method.")
            continue
        try:
            report = compare(
                [[run.evaluation for run in side if run.evaluation] for side in sides], labels=_labels(sides)
            )
        except SeedBenchError as error:  # an unfinished run, for one, is still worth a report
            notes.append(f"No comparison: {_named(str(error), group)}")
            continue
        conclusions += [pair.conclusion for pair in report.comparisons]
        notes += report.notes
    return conclusions, notes


def _named(text: str, runs: Sequence[Measured]) -> str:
    """The text with labels in place of folders: pages are shown to others, who have none of them."""
    for run in runs:
        text = text.replace(str(run.evaluation), run.label)
    return text


def _comparable(runs: Sequence[Measured]) -> Iterable[list[Measured]]:
    groups: defaultdict[str, list[Measured]] = defaultdict(list)
    for run in runs:
        same = {key: run.summary[key] for key in ("protocol", "repeats", "environment")}
        groups[json.dumps(same, sort_keys=True)].append(run)
    return groups.values()


def _sides(runs: Sequence[Measured]) -> Iterator[list[Measured]]:
    groups: defaultdict[object, list[Measured]] = defaultdict(list)
    for run in runs:
        who = run.subject
        trained = who and who.seed is not None and (who.model, who.method, who.updates, who.fraction, who.reading)
        groups[trained or run.number].append(run)
    for group in groups.values():
        seeds = {run.subject.seed for run in group if run.subject}
        # One training evaluated twice is no second seed.
        yield from [group] if len(seeds) == len(group) else ([run] for run in group)


def _labels(sides: Sequence[Sequence[Measured]]) -> list[str]:
    named = [side[0].label if len(side) == 1 else f"{side[0].method} ({len(side)} seeds)" for side in sides]
    whole = [" + ".join(run.label for run in side) for side in sides]
    return named if len(set(named)) == len(named) else whole

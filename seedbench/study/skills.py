"""The skills that policies wrote about their own trajectories, as training's traces hold them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from seedbench.registry import get_suite
from seedbench.statistics import wilson
from seedbench.study.results import Result, cells_of
from seedbench.study.sheets import Estimate, Samples, Sheet, Value
from seedbench.study.spec import Study
from seedbench.traces import Trace, read_traces, traced_updates

_THIRDS = ("first", "middle", "last")
_OUTCOMES = ("solved", "unsolved")
_ACTIONS = 300
"""Characters of actions that a sample shows."""


@dataclass(frozen=True, slots=True)
class Written:
    """A traced trajectory that the policy was asked to analyse."""

    cell: str
    seed: int
    third: str
    outcome: str
    trace: Trace

    @property
    def skill(self) -> str:
        """Empty where the analysis held none."""
        return str(self.trace.notes.get("skill") or "")


def written(results: Iterable[Result]) -> list[Written]:
    """The traced trajectories with an analysis of the policy's own, of cells with all of the data, in order.

    Raises SeedBenchError for a damaged file of traces.
    """
    return [found for label, runs in cells_of(results).items() for run in runs for found in _of_run(label, run)]


def _of_run(cell: str, run: Result) -> Iterator[Written]:
    updates = [update for update in traced_updates(run.job.folder) if update]  # they count from 1
    for update in updates if run.own_skills else ():
        third = _THIRDS[min(2, 3 * (update - 1) // max(updates))]
        for trace in sorted(read_traces(run.job.folder, update), key=lambda trace: trace.group):
            if "analysis" in trace.notes:
                bare = replace(trace, tokens=())  # they are most of it, and all traces are kept at once
                yield Written(cell, run.job.seed, third, _OUTCOMES[not trace.episode.success], bare)


def table(study: Study, traced: Sequence[Written]) -> Sheet | None:
    """By cell, third of the training and outcome: how many have a skill, and what the skills get right.

    None where nothing was traced. What a skill can get right is the suite's to say.
    """
    if not traced:
        return None
    suite = get_suite(study.study.suite)
    groups = [
        (key, [(one.skill, suite.advice_checks(one.trace.episode.task, one.skill)) for one in group])
        for key, group in _grouped(traced, _THIRDS)
    ]
    titles = list(next((checks for _, group in groups for skill, checks in group if skill and checks), ()))
    rows: list[tuple[Value, ...]] = []
    for key, group in groups:
        judged = [checks for skill, checks in group if skill and checks]
        shares = (_share([checks[title] for checks in judged]) for title in titles)
        rows.append((*key, len(group), _share([bool(skill) for skill, _ in group]), *shares))
    return Sheet(
        "skills",
        "Skills that the policy wrote",
        ("Method", "Third", "Outcome", "n", "With a skill", *titles),
        tuple(rows),
        "Of the trajectories that training traced (a few of an update, solved and unsolved ones alike, of some"
        " updates): n, the share whose analysis held a skill, and of these skills the share that does what the column"
        " says; in percent with Wilson's 95 % intervals, as if trajectories were independent. A small sample: those of"
        " one run come from one policy, several from one task.",
    )


def _grouped(traced: Sequence[Written], thirds: Sequence[str]) -> Iterator[tuple[tuple[str, str, str], list[Written]]]:
    """Cell, third and outcome, in this order, and what there is of it; none that is empty."""
    for key in product(dict.fromkeys(one.cell for one in traced), thirds, _OUTCOMES):
        if group := [one for one in traced if (one.cell, one.third, one.outcome) == key]:
            yield key, group


def _share(values: Sequence[bool]) -> Estimate | None:
    found = wilson(sum(values), len(values))
    return None if found.rate is None else Estimate(found.rate, found.lo, found.hi)


def samples(traced: Sequence[Written]) -> Samples | None:
    """Of each cell, in the first and the last third, the first solved and the first unsolved one with a skill.

    None where there are none.
    """
    chosen = [group[0] for _, group in _grouped([one for one in traced if one.skill], ("first", "last"))]
    if not chosen:
        return None
    return Samples(
        "samples",
        "Samples of skills",
        tuple((_head(one), tuple(_parts(one).items())) for one in chosen),
        "Of the first and the last third of the training, solved and unsolved: the first by seed, update and group.",
    )


def _head(one: Written) -> str:
    return f"{one.cell}, seed {one.seed}, update {one.trace.update}, {one.outcome}"


def _parts(one: Written) -> Mapping[str, str]:
    episode = one.trace.episode
    done = ", ".join(turn.action for turn in episode.turns)
    cut = done if len(done) <= _ACTIONS else f"{done[:_ACTIONS].rpartition(', ')[0]}, ..."
    return {"Task": episode.instruction, "Done": cut, "Skill": one.skill}

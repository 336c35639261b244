"""What a report tells of a training itself: signals and skills, worked out by hand from small journals and traces."""

import gzip
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbench.errors import SeedBenchError
from seedbench.study import signals, skills
from seedbench.study.plan import plan
from seedbench.study.results import SIGNALS, STEPS, Curve, Result, load_results
from seedbench.study.sheets import Estimate, to_csv, to_markdown
from seedbench.study.spec import Study
from seedbench.study.tables import generalisation
from seedbench.traces import Trace, trace_file
from seedbench.types import Episode, Outcome, Turn
from tests.eval.studies import STUDY, read_study
from tests.train.helpers import EchoSuite, echo


@pytest.fixture
def suite(tmp_path: Path) -> Iterator[EchoSuite]:
    with echo(tmp_path / "echo") as made:
        yield made


@pytest.fixture
def study(suite: EchoSuite, tmp_path: Path) -> Study:
    return read_study(tmp_path / "study", STUDY)


def results(study: Study, root: Path, **changed: Any) -> list[Result]:
    """The four runs (grpo and gigpo, seeds 0 and 1) with nothing in them but what is given."""
    jobs = [job for job in plan(study, root) if not job.is_start]
    empty = Result(jobs[0], Curve(np.array([]), {}), {}, None, {}, _signals({}))
    return [replace(empty, job=job, **changed) for job in jobs]


def _signals(given: Mapping[str, list[float]], updates: int = 10) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    blank = [math.nan] * updates
    return {name: np.array(given.get(name, blank)) for name in (STEPS, *SIGNALS)}


NAN = math.nan
FIRST = {
    STEPS: [100.0 * update for update in range(1, 11)],
    "teacher/delta/solved": [-0.1, NAN, 9, 9, 0.2, 0.4, 9, 9, 1.0, 3.0],
    "gradient/distil": [0.01, 0.03, 9, 9, 0.5, 0.5, 9, 9, NAN, NAN],
    "gradient/policy": [1.0, 3.0, 9, 9, 1.0, NAN, 9, 9, 4.0, 6.0],
    "skill/parsed/solved": [0.5] * 10,
}


def test_signals_are_means_over_fifths_and_then_over_seeds(study: Study, tmp_path: Path) -> None:
    runs = results(study, tmp_path)
    runs[2] = replace(runs[2], signals=_signals(FIRST), own_skills=True)
    second = {**FIRST, "teacher/delta/solved": [0.5] * 10}
    runs[3] = replace(runs[3], signals=_signals(second), own_skills=True)
    table = signals.table(runs)
    assert table is not None
    rows = [dict(zip(table.head, row, strict=True)) for row in table.rows]
    assert [(row["Method"], row["Fifth"], row["Seeds"]) for row in rows] == [
        ("gigpo", fifth, 2) for fifth in ("first", "middle", "last")
    ]  # grpo has none
    # Seed 0: -0.1 (its second update has none), 0.3, 2.0; seed 1: 0.5.
    assert [row["Delta, solved"] for row in rows] == pytest.approx([0.2, 0.4, 1.25])
    # (0.01 + 0.03) / (1 + 3); of the middle fifth only the update that has both; in the last none has.
    assert [row["Ratio"] for row in rows] == [pytest.approx(0.01), pytest.approx(0.5), None]
    assert [row["Gradient, policy"] for row in rows] == [2.0, 1.0, 5.0]
    assert [row["Read, solved"] for row in rows] == [0.5, 0.5, 0.5]
    assert rows[0]["Gate"] is None
    assert "on eight samples, evenly taken from an update's" in table.caption  # as Updater.term_norms does
    assert "| gigpo | first | 2 | 0.2 | - |" in to_markdown(table)


def test_analyses_of_others_are_not_read_and_short_runs_have_all_fifths(study: Study, tmp_path: Path) -> None:
    run = replace(results(study, tmp_path)[0], signals=_signals(FIRST))
    assert math.isnan(signals.parts(run, 5)[0].means["skill/parsed/solved"])
    short = replace(run, signals={name: values[:2] for name, values in run.signals.items()}, own_skills=True)
    assert [part.steps for part in signals.parts(short, 5)] == [100, 100, 100, 200, 200]
    assert signals.table(results(study, tmp_path)) is None


class Advised(EchoSuite):
    """Whether a skill says the word of its task."""

    def advice_checks(self, task: str, advice: str) -> Mapping[str, bool]:
        return {"Says it": task.split("-")[1] in advice}


def traced(folder: Path, update: int, *told: tuple[int, str, bool, str | None]) -> None:
    """Traces of an update: group, task, solved, and the skill (None: the analysis could not be read)."""
    lines = []
    for group, task, solved, skill in told:
        end = Outcome.SOLVED if solved else Outcome.STEP_LIMIT
        turn = Turn(response="go", action="go", valid=True, admissible=True, observation="")
        notes = {"analysis": "{}", **({} if skill is None else {"skill": skill})}
        episode = Episode(
            task=task, task_sha256=task, family="pick", repeat=0, seed=0, outcome=end, success=solved, score=0.0,
            instruction=f"say {task}", first_observation="", turns=(turn,) * 120, usage=turn.usage, seconds=0.0,
        )  # fmt: skip
        trace = Trace(update, group, 0.0, (None,) * 120, notes, episode, ((),) * 120)
        lines.append(json.dumps(trace.to_json()) + "\n")
    path = trace_file(folder, update)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(lines).encode()))


@pytest.fixture
def written(suite: EchoSuite, study: Study, tmp_path: Path) -> list[skills.Written]:
    suite.__class__ = Advised
    runs = results(study, tmp_path / "out", own_skills=True)
    traced(runs[2].job.folder, 1, (1, "train-left-0", True, "say right"), (0, "train-right-0", True, "say right"))
    traced(runs[2].job.folder, 9, (0, "train-left-1", False, None), (3, "train-left-1", False, "say <b>left</b>"))
    traced(runs[3].job.folder, 1, (0, "train-left-2", True, "say left"))
    return skills.written([*runs[:2], runs[2], runs[3]])


def test_skills_by_third_and_outcome(study: Study, written: list[skills.Written]) -> None:
    table = skills.table(study, written)
    assert table is not None
    assert table.head == ("Method", "Third", "Outcome", "n", "With a skill", "Says it")
    first, last = table.rows
    assert first[:4] == ("gigpo", "first", "solved", 3)
    assert last[:4] == ("gigpo", "last", "unsolved", 2)
    # Wilson for 2 of 3, 1 of 2 and 1 of 1.
    expected = [(2 / 3, 0.2077, 0.9385), (0.5, 0.0945, 0.9055), (1.0, 0.2065, 1.0)]
    found = [first[5], last[4], last[5]]
    for estimate, values in zip(found, expected, strict=True):
        assert isinstance(estimate, Estimate)
        assert (estimate.mean, estimate.lo, estimate.hi) == pytest.approx(values, abs=1e-4)
    assert to_csv(table).splitlines()[0].endswith("Says it,Says it lo,Says it hi")


def test_samples_are_the_first_of_each_kind(written: list[skills.Written]) -> None:
    found = skills.samples(written)
    assert found is not None
    heads, parts = zip(*found.items, strict=True)
    assert heads == ("gigpo, seed 0, update 1, solved", "gigpo, seed 0, update 9, unsolved")
    assert dict(parts[0])["Task"] == "say train-right-0"  # group 0 before group 1
    assert dict(parts[1])["Skill"] == "say <b>left</b>"  # the one before it had none
    assert len(dict(parts[0])["Done"]) <= 305
    assert dict(parts[0])["Done"].endswith("go, ...")
    assert "  - Skill: say &lt;b&gt;left&lt;/b&gt;" in to_markdown(found)


def test_no_skills_no_sheet_and_a_damaged_trace_is_named(study: Study, tmp_path: Path) -> None:
    runs = results(study, tmp_path / "out")
    traced(runs[0].job.folder, 1, (0, "train-left-0", True, "say left"))
    assert skills.written(runs) == []  # the policy did not write it
    traced(runs[1].job.folder, 0, (0, "train-left-0", True, "say left"))
    assert skills.written([replace(runs[1], own_skills=True)]) == []  # updates count from 1
    assert (skills.table(study, []), skills.samples([])) == (None, None)
    trace_file(runs[0].job.folder, 1).write_bytes(b"x")
    with pytest.raises(SeedBenchError, match=r"update-000001\.jsonl\.gz' cannot be read"):
        skills.written([replace(run, own_skills=True) for run in runs])


def test_a_damaged_record_is_named(study: Study, tmp_path: Path) -> None:
    job = next(job for job in plan(study, tmp_path) if job.is_start)
    job.folder.mkdir(parents=True)
    (job.folder / "metrics.jsonl").write_text('{"update": 1, "metrics": {"steps/environment": 5}}\n')
    (job.folder / "training.json").write_text('{"settings": {"options": {"skill": "own"}}}')
    (found,), _ = load_results(study, [job], tmp_path)
    assert (found.own_skills, found.signals[STEPS].tolist()) == (True, [5.0])
    assert np.isnan(found.signals["teacher/gate"]).all()
    (job.folder / "training.json").write_text("{}")
    with pytest.raises(SeedBenchError, match=r"training\.json' is damaged \(KeyError\)"):
        load_results(study, [job], tmp_path)


def test_from_panel_to_panel(study: Study, tmp_path: Path) -> None:
    def summary(micro: float, pick: float | None) -> dict[str, Any]:
        families = {"pick": {"rate": pick}, "look": {"rate": 0.5}}
        return {"success": {"micro": {"rate": micro}, "families": families}}

    runs = results(study, tmp_path)
    for at, (seen, unseen, pick) in enumerate([(0.4, 0.3, 0.1), (0.4, 0.5, None), (0.3, 0.4, 0.2), (0.2, 0.5, 0.6)]):
        runs[at] = replace(runs[at], summaries={"seen": summary(seen, 0.1), "unseen": summary(unseen, pick)})
    table = generalisation(runs, {"seen": "a", "unseen": "b"})
    assert table is not None
    assert table.head == ("Method", "Panels", "Seeds", "Micro", "pick", "look")
    grpo, gigpo = table.rows
    assert grpo[:3] == ("grpo", "unseen - seen", 2)
    # -0.1 and 0.1: mean 0, standard error 0.1, t(1) = 12.706, cut to [-1, 1].
    assert [getattr(grpo[3], side) for side in ("mean", "lo", "hi")] == pytest.approx([0.0, -1.0, 1.0])
    assert grpo[4] is None  # a seed without a rate
    assert isinstance(gigpo[3], Estimate)
    assert gigpo[3].mean == pytest.approx(0.2)
    assert gigpo[5] == Estimate(0.0, 0.0, 0.0)
    assert "| 0.0 |" in to_markdown(table)  # no spread, no interval
    assert generalisation(runs, {"seen": "a"}) is None
    assert generalisation(runs[:1], {"seen": "a", "unseen": "b"}) is None

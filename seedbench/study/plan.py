"""The runs of a study: what each is called, where it lies, and the commands that make it.

OUT/starts/NAME                      a training run whose final weights others begin from
OUT/runs/LABEL[-f20]-s0              a training run of a cell: method, share of the data in percent, seed
OUT/runs/.../evaluation/PANEL        its final checkpoint on a panel
OUT/study.json                       the matrix, resolved
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seedbench import __version__
from seedbench.errors import SeedBenchError, UsageError, unknown
from seedbench.panels import load_panel, overlaps
from seedbench.runs import differences, write_json
from seedbench.study.spec import Study, flat
from seedbench.subject import TRAINING

COMMAND = (sys.executable, "-m", "seedbench")
RECORD, EVALUATION = "study.json", "evaluation"
_UNBOUND = ("suites", "device", "track", "distributed")
"""Of what a training prints, what its record does not hold or may change."""


@dataclass(frozen=True, slots=True)
class Job:
    """A training run of the study, with its evaluations unless it is a start."""

    name: str
    folder: Path
    cell: str
    """Label of the cell, or name of the start."""
    method: str
    model: str
    """What training begins from: the study's model, or a start's final weights."""
    start: str
    seed: int
    fraction: float
    reading: str
    settings: dict[str, Any]
    is_start: bool = False


def plan(study: Study, out: Path) -> list[Job]:
    """Every run of the study, starts first. Raises UsageError where two would share a folder."""
    model = study.study.model

    def begun(start: str) -> str:
        return str(out / "starts" / start / "final") if start else model

    jobs = [
        Job(
            s.name, out / "starts" / s.name, s.name, s.method, begun(s.start), s.start,
            s.seed, 1.0, "games", flat(s.settings), is_start=True,
        )
        for s in study.starts
    ]  # fmt: skip
    for cell in study.resolved():
        for fraction in cell.fractions:
            share = f"-f{100 * fraction:g}" if fraction < 1 else ""
            for seed in cell.seeds:
                name = f"{cell.label}{share}-s{seed}"
                jobs.append(
                    Job(
                        name, out / "runs" / name, cell.label, cell.method, begun(cell.start), cell.start,
                        seed, fraction, cell.reading, cell.settings,
                    )
                )  # fmt: skip
    names = [job.name for job in jobs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two runs of the study would be called '{twice[0]}': name each seed and fraction once.")
    return jobs


def chosen(jobs: Sequence[Job], only: Sequence[str]) -> list[Job]:
    """The runs of some cells (by label, or a run by name) and the starts they need; all where none is named.

    Raises UsageError for a name that is neither.
    """
    for name in only:
        if not any(name in (job.cell, job.name) for job in jobs):
            raise unknown("cell", name, {job.cell for job in jobs})
    kept = [job for job in jobs if not only or {job.cell, job.name} & set(only)]
    needed = {job.start for job in kept}
    for job in reversed([job for job in jobs if job.is_start]):  # a start may need an earlier one
        if job.name in needed and job not in kept:
            kept.append(job)
            needed.add(job.start)
    return [job for job in jobs if job in kept]


def train_command(study: Study, job: Job) -> list[str]:
    """The words of `seedbench train` for a run."""
    head = study.study
    words = ["train", "--method", job.method, "--suite", head.suite, "--model", job.model]
    words += ["--recipe", head.recipe] if head.recipe else []
    settings = {"protocol.name": study.protocol, **job.settings}
    if job.fraction < 1:
        settings |= {"data.fraction": job.fraction, "data.reading": job.reading}
    for key, value in settings.items():
        words += ["--set", f"{key}={_toml(value)}"]
    return [*words, "--seed", str(job.seed), "--out", str(job.folder), "--quiet"]


def _toml(value: Any) -> str:
    return f"[{', '.join(map(_toml, value))}]" if isinstance(value, list) else json.dumps(value, ensure_ascii=False)


def eval_command(study: Study, job: Job, panel: str) -> list[str]:
    """The words of `seedbench eval` for a run's final checkpoint on the panel of that name in the report."""
    asked = study.evaluation
    words = ["eval", str(job.folder / "final"), "--panel", asked.panels[panel], "--protocol", study.protocol]
    words += ["--limit", str(asked.limit)] if asked.limit else []
    words += ["--temperature", str(asked.temperature)] if asked.temperature is not None else []
    words += ["--repeats", str(asked.repeats), "--seed", str(asked.seed)]
    words += ["--batch-size", "64", "--concurrency", "64"]  # changes speed alone
    return [*words, "--out", str(evaluation(job, panel)), "--quiet"]


def evaluation(job: Job, panel: str) -> Path:
    """Where a run's evaluation lies: a run folder, or a bundle in its place."""
    return job.folder / EVALUATION / panel


def check(study: Study, jobs: Sequence[Job], out: Path, workers: int) -> dict[str, dict[str, Any]]:
    """Ask the training what each cell's settings come to, and write them to study.json; cell -> settings.

    What was asked before is not asked again.

    Raises:
        UsageError: what the training refuses, an evaluation panel that shares tasks with the training's, or a folder
            that holds a run with other settings (they are shown).
    """
    held = _record(out).get("cells", {})
    cells = dict[str, Job]()
    for job in jobs:
        cells.setdefault(job.cell, job)  # the first run of each stands for it
    asked = {cell: _asked(study, job) for cell, job in cells.items()}
    known = {cell: held[cell]["settings"] for cell in cells if held.get(cell, {}).get("asked") == asked[cell]}
    with ThreadPoolExecutor(workers) as pool:
        new = [cell for cell in cells if cell not in known]
        known |= zip(new, pool.map(lambda cell: _resolved(study, cells[cell]), new), strict=True)
    for job in jobs:
        _refuse_other(job, known[job.cell])
    for panel in {settings["data"]["panel"] for cell, settings in known.items() if not cells[cell].is_start}:
        _refuse_shared(study, panel)
    record = {
        "schema": "seedbench.study/1",
        "study": study.model_dump(mode="json"),
        "cells": {**held, **{cell: {"asked": asked[cell], "settings": known[cell]} for cell in cells}},
        "runs": [job.name for job in jobs],
    }
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / RECORD, record)
    return known


def _record(out: Path) -> dict[str, Any]:
    path = out / RECORD
    if not path.is_file():
        return {}
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not all(isinstance(cell["settings"], dict) for cell in record["cells"].values()):
            raise TypeError("settings are no object")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SeedBenchError(
            f"'{path}' is damaged ({type(error).__name__}); delete it, and it is made again."
        ) from error
    return record


def _asked(study: Study, job: Job) -> str:
    """Hash of what decides a cell's settings: the command but for seed and share, its recipe file, the version."""
    words = train_command(study, job)
    words = words[: words.index("--seed")]
    recipe = Path(study.study.recipe)
    content = recipe.read_bytes() if recipe.suffix == ".toml" and recipe.is_file() else b""
    return hashlib.sha256(json.dumps([__version__, words]).encode() + content).hexdigest()


def _resolved(study: Study, job: Job) -> dict[str, Any]:
    """The settings that `seedbench train --dry-run` prints, as a training's record holds them."""
    # A start may not be there yet. What is made for the study's model holds for it too (`--model` of a checkpoint).
    words = [*COMMAND, *train_command(study, replace(job, model=study.study.model)), "--dry-run"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1].removeprefix("error: ")
        raise UsageError(f"cell '{job.cell}' cannot be trained: {said}")
    table = tomllib.loads(done.stdout)
    own = table.pop("methods", {}).get(job.method, {}).get("method", {})
    settings = {key: value for key, value in table.items() if key not in _UNBOUND}
    return {**settings, "model": job.model, "method": job.method, "suite": study.study.suite, "options": own}


def _refuse_other(job: Job, settings: dict[str, Any]) -> None:
    """Refuse a folder whose run was trained with other settings than its cell now has."""
    path = job.folder / TRAINING
    if not path.is_file():
        return
    try:
        held = json.loads(path.read_text(encoding="utf-8"))["settings"]
        held = {key: value for key, value in _without_none(held).items() if key != "recipe"}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SeedBenchError(f"'{path}' is damaged; remove '{job.folder}', and the study trains it again.") from error
    data = {**settings["data"], "fraction": job.fraction, "reading": job.reading if job.fraction < 1 else "games"}
    if changed := differences(held, {**settings, "seed": job.seed, "data": data}):
        raise UsageError(
            f"'{job.folder}' was trained with other settings than '{job.cell}' has now: {'; '.join(changed)}. Give the"
            " changed cell a label of its own, restore its settings, or choose another --out."
        )


def _without_none(value: Any) -> Any:
    """As TOML holds it: without keys that have no value."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value


def _refuse_shared(study: Study, panel: str) -> None:
    trained = load_panel(panel)
    for label, name in study.evaluation.panels.items():
        if shared := overlaps(trained, load_panel(name)):
            raise UsageError(
                f"evaluation.panels.{label} '{name}' shares {len(shared)} tasks with the training panel '{panel}',"
                f" {shared[0]} for one; evaluate on tasks that are not trained on."
            )

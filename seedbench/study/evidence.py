"""The verification of a study: every run of its matrix is there, and every evaluation is what it claims to be.

Beside what `seedbench.verify` finds in an evaluation, it must be the one that the study asks for, and of the training
run that it lies in: of its method, seed, share of the data and start, after as many steps and tokens as the run's
journal ends with, with one set of weights on all panels. Evaluations are read one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from seedbench.errors import SeedBenchError, UsageError
from seedbench.journal import METRICS, read_metrics
from seedbench.runs import MANIFEST, read_manifest
from seedbench.study.archive import FILE, study_of
from seedbench.study.plan import EVALUATION, Job, evaluation, plan
from seedbench.study.run import asked_panel
from seedbench.study.spec import Study
from seedbench.subject import TRAINING
from seedbench.verify import Report, verify
from seedbench.verify_log import SHOWN

Told = Callable[[str], None]
_COST = {
    "environment_steps": "steps/environment",
    "prompt_tokens": "tokens/prompt",
    "generated_tokens": "tokens/generated",
    "trained_tokens": "tokens/trained",
}
"""What a checkpoint says that its training spent, as the journal calls it."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What every evaluation of the study must be; panels by their names in the report."""

    panels: Mapping[str, tuple[str, str]]
    """Name and hash."""
    protocol: tuple[str, str]
    repeats: int
    seed: int


def verify_study(folder: Path, *, engine: str = "", told: Told = lambda line: None) -> Iterator[Report]:
    """Verify a study's folder: a report for each evaluation, missing ones too, and for each run with other findings.

    In a published study (one with its TOML file) nothing may lie that is not of its matrix.

    Args:
        folder: a study's own, or a packed one; it is only read.
        engine, told: as `seedbench.verify.verify` takes them.

    Raises what `study_of` raises, before anything is verified, and what `verify` raises for a wrong `engine`.
    """
    study = study_of(folder)
    jobs, asked = plan(study, folder), study.evaluation
    panels = {label: asked_panel(study, label) for label in asked.panels}
    wanted = _Asked(
        {label: (panel.name, panel.hash) for label, panel in panels.items()}, (study.asked.name, study.asked.hash),
        asked.repeats, asked.seed,
    )  # fmt: skip
    starts = {job.name: job for job in jobs if job.is_start}
    if strays := _strays(folder, study, jobs):
        yield _report(folder, strays)
    for job in jobs:
        journal, found = _training(study, job)
        if found:
            yield _report(job.folder, found)
        yield from () if job.is_start else _evaluations(job, wanted, starts.get(job.start), journal, engine, told)


def is_evaluation(report: Report) -> bool:
    """Whether a report of `verify_study` is of an evaluation, not of a run or of the whole study."""
    return report.folder.parent.name == EVALUATION


def _report(folder: Path, found: list[str]) -> Report:
    return Report(folder, 0, 0, len(found), tuple(found[:SHOWN]), ())


def _strays(folder: Path, study: Study, jobs: list[Job]) -> list[str]:
    if not (folder / FILE).is_file():
        return []
    ours = {job.folder for job in jobs}
    ours |= {evaluation(job, panel) for job in jobs if not job.is_start for panel in study.evaluation.panels}
    held = (path for pattern in ("starts/*", "runs/*", f"runs/*/{EVALUATION}/*") for path in folder.glob(pattern))
    return [f"'{path.relative_to(folder)}' is not in the study's matrix." for path in sorted(held) if path not in ours]


def _training(study: Study, job: Job) -> tuple[dict[str, float], list[str]]:
    """The last line of a run's journal, and what is wrong with its training."""
    rows: dict[str, float] = {}
    try:
        settings = json.loads((job.folder / TRAINING).read_text(encoding="utf-8"))["settings"]
        for _, rows in read_metrics(job.folder / METRICS):  # noqa: B007  the last one counts
            pass
        data = settings["data"]
        model = "/".join(PurePosixPath(settings["model"]).parts[-3:]) if job.start else settings["model"]
        found = [
            ("method", settings["method"], job.method), ("seed", settings["seed"], job.seed),
            ("protocol", settings["protocol"]["name"], study.protocol),
            ("start", model, f"starts/{job.start}/final" if job.start else job.model),
            ("share of the data", data["fraction"], job.fraction),
            ("reading", data["reading"] if job.fraction < 1 else "", job.reading if job.fraction < 1 else ""),
            *((key, _setting(settings, key), value) for key, value in job.settings.items()),
        ]  # fmt: skip
    except FileNotFoundError as error:
        return rows, [f"{Path(error.filename).name} is missing: the run is not finished, or not all of it is here."]
    except SeedBenchError as error:
        return rows, [str(error)]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return rows, [f"{TRAINING} is damaged ({type(error).__name__}: {error})."]
    return rows, [_other(f"{TRAINING}: {what}", held, asked) for what, held, asked in found if held != asked]


def _setting(settings: Mapping[str, Any], key: str) -> Any:
    """What a training's record holds of a setting as `--set` names it; those of the method are its options."""
    found: Any = {**settings, "method": settings.get("options")}
    for part in key.split("."):
        found = _table(found).get(part)
    return found


def _evaluations(
    job: Job, asked: _Asked, start: Job | None, journal: Mapping[str, float], engine: str, told: Told
) -> Iterator[Report]:
    policies: dict[str, Any] = {}
    for label in asked.panels:
        folder = evaluation(job, label)
        try:
            report = verify(folder, engine=engine, told=told)
        except UsageError as error:
            if engine and (folder / MANIFEST).is_file():
                raise
            yield _report(folder, [str(error) if (folder / TRAINING).is_file() else "the evaluation is missing."])
            continue
        found = []
        if not report.findings:  # then the manifest has the shape that is read here
            manifest = read_manifest(folder)
            policies[label] = manifest["settings"]["policy"]
            found = [*_of_study(manifest["settings"], label, asked), *_of_run(manifest["policy"], job, start, journal)]
            if other := next((name for name, policy in policies.items() if policy != policies[label]), None):
                found.append(
                    f"{MANIFEST}: its policy is not that of '{other}'; one checkpoint is evaluated on all panels."
                )
        first = tuple([*report.first, *found][:SHOWN])
        yield replace(report, findings=report.findings + len(found), first=first)


def _of_study(settings: Mapping[str, Any], label: str, asked: _Asked) -> Iterator[str]:
    pairs = [
        ("panel", settings["panel"], asked.panels[label]), ("protocol", settings["protocol"], asked.protocol),
    ]  # fmt: skip
    for what, held, (name, digest) in pairs:
        if held["hash"] != digest:
            yield _other(f"{MANIFEST}: {what}", f"{held['name']} ({held['hash'][:12]})", f"{name} ({digest[:12]})")
    for what, number in (("repeats", asked.repeats), ("seed", asked.seed)):
        if settings[what] != number:
            yield _other(f"{MANIFEST}: {what}", settings[what], number)


def _of_run(policy: Mapping[str, Any], job: Job, start: Job | None, journal: Mapping[str, float]) -> Iterator[str]:
    """In what a checkpoint is said to be of another training run than the one it lies in."""
    trained = _table(policy.get("trained"))
    if not trained:
        yield f"{MANIFEST} does not say which training the policy is of."
        return
    data, cost, begun = _table(trained.get("data")), _table(trained.get("cost")), _table(trained.get("start"))
    pairs = [
        ("method", trained.get("method"), job.method), ("seed", trained.get("seed"), job.seed),
        ("share of the data", data.get("fraction"), job.fraction),
        *((f"{name} of the start", begun.get(name), getattr(start, name)) for name in ("method", "seed") if start),
        *((name.replace("_", " "), cost.get(name), journal.get(key, 0.0)) for name, key in _COST.items()),
    ]  # fmt: skip
    for what, held, wanted in pairs:
        if held != wanted:
            yield _other(f"{MANIFEST}: the policy's {what}", held, wanted)


def _other(what: str, held: object, asked: object) -> str:
    return f"{what} is {str(held)[:200]}; the study has {str(asked)[:200]} there."


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}

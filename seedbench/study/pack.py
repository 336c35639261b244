"""What a published study keeps: journals, records and evaluations as bundles; the report is rebuilt from them.

FOLDER/study.toml  study.json  usage.jsonl
FOLDER/starts/NAME/{training.json, metrics.jsonl}
FOLDER/runs/NAME/{training.json, metrics.jsonl, evaluation/PANEL/}        each evaluation a bundle
"""

from __future__ import annotations

import shutil
from pathlib import Path

from seedbench.bundle import is_bundle, pack
from seedbench.errors import SeedBenchError, UsageError
from seedbench.journal import METRICS
from seedbench.study.plan import EVALUATION, RECORD, Job, evaluation, plan
from seedbench.study.results import load_results
from seedbench.study.run import USAGE
from seedbench.study.spec import Study
from seedbench.subject import TRAINING


def pack_study(study: Study, file: Path, out: Path, target: Path) -> int:
    """Pack the finished runs of the study in `out` into `target`, a new folder; how many evaluations there are.

    `file` is the study's TOML file. A bundle's method is the cell's label, so that ablations can be told apart.

    Raises:
        UsageError: `target` is not empty. SeedBenchError: nothing is finished, a run is damaged, or the disk is full.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"'{target}' is not an empty folder; pack the study into a new one.")
    results, missing = load_results(study, plan(study, out), out)
    if missing:
        raise SeedBenchError(
            f"{len(missing)} runs of the study are not finished ({', '.join(missing[:5])}): run it to the end first."
        )
    try:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target / "study.toml")
        for name in (RECORD, USAGE):
            if (out / name).is_file():
                shutil.copyfile(out / name, target / name)
        return sum(_run(study, result.job, target / result.job.folder.relative_to(out)) for result in results)
    except OSError as error:
        raise SeedBenchError(
            f"cannot pack the study into '{target}': {error.strerror}. Free space and try again."
        ) from error


def _run(study: Study, job: Job, target: Path) -> int:
    target.mkdir(parents=True)
    for name in (TRAINING, METRICS):
        shutil.copyfile(job.folder / name, target / name)
    panels = () if job.is_start else study.evaluation.panels
    for panel in panels:
        source = evaluation(job, panel)
        if is_bundle(source):
            shutil.copytree(source, target / EVALUATION / panel)
        else:
            pack(source, target / EVALUATION / panel, method=job.cell, note=f"{study.study.name}: {job.name}")
    return len(panels)

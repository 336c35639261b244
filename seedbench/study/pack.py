"""What a published study keeps: journals, records, traces with skills, evaluations; the report is rebuilt from them.

    study.toml  study.json  usage.jsonl
    starts/NAME/{training.json, metrics.jsonl}
    runs/NAME/{training.json, metrics.jsonl, traces/, evaluation/PANEL/}

An archive holds evaluations as run folders with their logs as they are (seedbench/study/archive.py), a folder holds
bundles. Paths of the machine stay behind: what lies in the study is named from its folder, of other paths the folders
are cut.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from seedbench.bundle import is_bundle, pack, published, without_folders
from seedbench.errors import SeedBenchError, UsageError
from seedbench.journal import METRICS
from seedbench.logs import lines
from seedbench.runs import LOG, MANIFEST, SUMMARY, read_manifest, write_json
from seedbench.study.archive import FILE, SUFFIX, write_archive
from seedbench.study.plan import EVALUATION, RECORD, Job, evaluation, plan
from seedbench.study.results import load_results
from seedbench.study.run import USAGE
from seedbench.study.spec import Study
from seedbench.subject import TRAINING
from seedbench.traces import read_traces, trace_file, traced_updates


def pack_study(study: Study, file: Path, out: Path, target: Path) -> int:
    """Pack the finished runs of the study in `out`; how many evaluations there are.

    `file` is the study's TOML file, `target` a new folder, or an archive where it ends in .tar.xz. A bundle's method is
    the cell's label, so that ablations can be told apart.

    Raises:
        UsageError: `target` is not empty. SeedBenchError: a run is not finished or damaged, or the disk is full.
    """
    archived = target.name.endswith(SUFFIX)
    if archived and target.exists():
        raise UsageError(f"'{target}' is there already: give the archive another name, or remove that one first.")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"'{target}' is not an empty folder; pack the study into a new one.")
    jobs = plan(study, out)
    missing = load_results(study, jobs, out)[1]
    if missing:
        raise SeedBenchError(
            f"{len(missing)} runs of the study are not finished ({', '.join(missing[:5])}): run it to the end first."
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not archived:
            return _fill(study, file, out, jobs, target, _as_bundle)
        with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as draft:
            made = Path(draft) / study.study.name
            count = _fill(study, file, out, jobs, made, _as_run)
            write_archive(made, archive := Path(draft) / f"study{SUFFIX}")
            archive.rename(target)
        return count
    except OSError as error:
        raise SeedBenchError(
            f"cannot pack the study into '{target}': {error.strerror}. Free space and try again."
        ) from error


_Keep = Callable[[Study, Job, Path, Path], object]


def _fill(study: Study, file: Path, out: Path, jobs: Sequence[Job], target: Path, keep: _Keep) -> int:
    target.mkdir(parents=True, exist_ok=True)
    (target / FILE).write_text(without_folders(file.read_text(encoding="utf-8")), encoding="utf-8")
    if (out / USAGE).is_file():
        shutil.copyfile(out / USAGE, target / USAGE)
    portable = _portable(jobs)
    if (out / RECORD).is_file():
        # The last command may have been given some of the cells, or another study of these runs.
        whole = {"study": study.model_dump(mode="json"), "runs": [job.name for job in jobs]}
        _write(out / RECORD, target / RECORD, portable, whole)
    count = 0
    for job in jobs:
        place = target / job.folder.relative_to(out)
        place.mkdir(parents=True)
        _write(job.folder / TRAINING, place / TRAINING, portable)
        shutil.copyfile(job.folder / METRICS, place / METRICS)
        if job.is_start:
            continue
        _traces(job, place)
        for panel in study.evaluation.panels:
            keep(study, job, evaluation(job, panel), place / EVALUATION / panel)
            count += 1
    return count


def _as_bundle(study: Study, job: Job, source: Path, target: Path) -> None:
    """Keep an evaluation as a bundle; a bundle as it is."""
    if is_bundle(source):
        shutil.copytree(source, target)
    else:
        pack(source, target, method=job.cell, note=f"{study.study.name}: {job.name}")


def _as_run(study: Study, job: Job, source: Path, target: Path) -> None:
    """Keep an evaluation, or a bundle of one, as a run folder with a plain log."""
    target.mkdir(parents=True)
    write_json(target / MANIFEST, published(read_manifest(source)))
    shutil.copyfile(source / SUMMARY, target / SUMMARY)
    with (target / LOG).open("wb") as log:
        log.writelines(lines(source / LOG))


def _traces(job: Job, target: Path) -> None:
    """Keep the traces of a run with all of the data whose policy wrote skills: the report shows them."""
    updates = traced_updates(job.folder) if job.fraction == 1 else []
    if any("analysis" in trace.notes for update in updates for trace in read_traces(job.folder, update)):
        for update in updates:
            place = trace_file(target, update)
            place.parent.mkdir(exist_ok=True)
            shutil.copyfile(trace_file(job.folder, update), place)


def _write(source: Path, target: Path, portable: Callable[[str], str], right: dict[str, Any] | None = None) -> None:
    """Copy a JSON object with all of its texts made portable, and what is `right` in place of what it says of that."""
    try:
        write_json(target, _mapped({**json.loads(source.read_text(encoding="utf-8")), **(right or {})}, portable))
    except (ValueError, TypeError, RecursionError) as error:
        raise SeedBenchError(f"'{source}' is damaged ({type(error).__name__}: {error}); restore it.") from error


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def _portable(jobs: Sequence[Job]) -> Callable[[str], str]:
    """What names files of the study's runs from its folder, wherever it lay when they ran, and cuts other folders."""
    runs = "|".join(re.escape(f"{'starts' if job.is_start else 'runs'}/{job.name}") for job in jobs)
    before = re.compile(rf"""(?:^|(?<=[=,"']))[^=,"'\n]*/(?=(?:{runs})(?:/|$|[,"']))""")
    return lambda text: without_folders(before.sub("", text))

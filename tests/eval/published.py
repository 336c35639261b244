"""A study for tests of what is published: its records and manifests say, as real ones do, what belongs together."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seedbench.runs import read_episodes
from seedbench.study.plan import plan
from seedbench.study.spec import Study
from seedbench.traces import Trace, trace_file
from tests.eval.studies import STUDY, installed, journal, read_study, run

Record = dict[str, Any]
NAMES = ("grpo-s0", "grpo-s1", "gigpo-s0", "gigpo-s1")
WRITES = "grpo-s0"
"""The run whose policy wrote skills."""


def finished(folder: Path, text: str = STUDY) -> tuple[Study, Path]:
    """A study that has run, and its folder: `folder`/out, its file `folder`/s.toml."""
    with pytest.MonkeyPatch.context() as patch:
        script = installed(folder / "script", patch)
        for place, name in enumerate(NAMES):
            journal(script, name, 1.0 + place)
        study = read_study(folder, text)
        assert run(study, folder / "out")[0] == {}
    for job in plan(study, folder / "out"):
        words = [
            "seedbench",
            "train",
            "--model",
            job.model,
            "--out",
            str(job.folder),
            '--set=data.panel="/home/me/p.x"',
        ]
        edit(job.folder / "training.json", _trained(words))
        if not job.is_start:
            says = {"method": job.method, "seed": job.seed, "data": {"fraction": job.fraction, "reading": "games"}}
            says |= {"start": {"method": "sft", "seed": 0}, "cost": _cost(1.0 + NAMES.index(job.name))}
            edit(job.folder / "evaluation" / "unseen" / "manifest.json", _says(says))
            _trace(job.folder, {"analysis": "a", "skill": "s"} if job.name == WRITES else {})
    return study, folder / "out"


def _trained(words: list[str]) -> Callable[[Record], None]:
    def change(held: Record) -> None:
        held["settings"]["protocol"] = {"name": "echo/choose"}
        held["sessions"] = [{"command": words}]

    return change


def _says(trained: Record) -> Callable[[Record], None]:
    return lambda held: held["policy"].update(trained=trained)


def _cost(stretch: float) -> Record:
    spent = {"environment_steps": 200 * stretch, "generated_tokens": 600 * stretch}
    return {**spent, "prompt_tokens": 1000.0, "trained_tokens": 50.0}


def _trace(run: Path, notes: Record) -> None:
    episode = next(read_episodes(run / "evaluation" / "unseen"))
    trace = Trace(2, 0, 1.0, (None,) * len(episode.turns), notes, episode, ((),) * len(episode.turns))
    place = trace_file(run, 2)
    place.parent.mkdir()
    place.write_bytes(gzip.compress(json.dumps(trace.to_json()).encode() + b"\n", mtime=0))


def edit(path: Path, change: Callable[[Record], object]) -> None:
    """Change a JSON file in place."""
    held = json.loads(path.read_text())
    change(held)
    path.write_text(json.dumps(held))

"""Before the first update: the run folder, the training panel, the protocol, the method, the model to start from."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from seedbench.errors import SeedBenchError, UsageError
from seedbench.manifest import describe_machine, describe_source, package_versions
from seedbench.models import resolve
from seedbench.panels import Panel, data_problems, load_panel
from seedbench.protocol import Protocol
from seedbench.registry import get_suite
from seedbench.runs import SUMMARY, differences, write_json
from seedbench.store import store_root
from seedbench.subject import TRAINING
from seedbench_trainers.base import Method, Trainer
from seedbench_trainers.checkpoint import LABEL
from seedbench_trainers.checks import agent_protocol, make_method, panel_of
from seedbench_trainers.config import TrainConfig
from seedbench_trainers.distributed import World

RECORD = TRAINING
VALIDATION = "validation"
_UNBOUND = ("device", "track", "distributed")
"""What may differ between the sittings of one run: it changes no number."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that can begin."""

    method: Method
    panel: Panel
    protocol: Protocol
    model: str
    """Folder or hub name of the weights that training begins from."""


class TrainingRun:
    """The run folder's record: configuration, code, packages, machine, sittings."""

    def __init__(self, out: Path, record: dict[str, Any], label: str) -> None:
        self.out = out
        self._label = label
        self._record = record
        self._clock = time.perf_counter()
        self._sitting: dict[str, Any] = {
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": ["seedbench", *sys.argv[1:]],
            "machine": describe_machine(),
        }

    def note_panel(self, panel: Panel) -> None:
        """Write down which tasks are trained on, after families, limit and the data fraction."""
        self._record["panel"] = {"name": panel.name, "hash": panel.hash, "n": len(panel.tasks)}
        write_json(self.out / RECORD, self._record)

    def end(self, totals: dict[str, float]) -> None:
        """Write down this sitting and what the run has used so far."""
        seconds = round(time.perf_counter() - self._clock, 3)
        self._record["sessions"].append({**self._sitting, "wall_seconds": seconds})
        self._record["totals"] = totals
        write_json(self.out / RECORD, self._record)

    def tables(self, last: int) -> list[tuple[str, dict[str, Any]]]:
        """Label and summary of the validations before the first and after the last update, where there are any."""
        found = []
        for update, label in ((0, "before"), (last, self._label)):
            path = validation_folder(self.out, update) / SUMMARY
            if path.is_file():
                found.append((label, json.loads(path.read_text(encoding="utf-8"))))
        return found


def bound_settings(config: TrainConfig) -> dict[str, Any]:
    """The configuration as plain values, less what changes no number. Of an engine its kind counts, not where it is."""
    settings = config.model_dump(mode="json", exclude=set(_UNBOUND))
    if engine := config.rollout.engine:
        settings["rollout"]["engine"] = engine.partition(":")[0]
        del settings["rollout"]["engine_memory"]
    return settings


def validation_folder(out: Path, update: int) -> Path:
    """Where the evaluation run of a validation lies."""
    return out / VALIDATION / f"update-{update:06d}"


def drop_validations(out: Path, after: int) -> None:
    """Remove validations of updates later than `after`, which are made again.

    Where rounding is not reproducible the weights of those updates come out otherwise, and what was played with the
    old ones must not count for the new.
    """
    for folder in (out / VALIDATION).glob("update-*"):
        if int(folder.name.removeprefix("update-")) > after:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def open_run(config: TrainConfig, out: Path) -> Iterator[TrainingRun]:
    """Open a run folder for this process alone.

    Raises UsageError where it holds a run with other settings (they are shown) or something else, SeedBenchError where
    another process trains in it or it cannot be written.
    """
    settings = bound_settings(config)
    record = _record(out, settings)
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / ".lock").open("a")
    except OSError as error:
        raise SeedBenchError(f"cannot write the run folder '{out}': {error.strerror}; choose another --out.") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SeedBenchError(
                f"another process is training in '{out}'; wait for it or choose another --out."
            ) from error
        write_json(out / RECORD, record)
        yield TrainingRun(out, record, f"{config.method}{fraction_mark(config)}")


def refuse_apart(out: Path) -> None:
    """Raises SeedBenchError where this process does not see the run folder that the first one has opened."""
    if not (out / RECORD).is_file():
        raise SeedBenchError(
            f"'{out}' is not there for process {os.environ.get('RANK')}: with several machines the run folder must lie"
            " on a file system that all of them share; choose another --out."
        )


def _record(out: Path, settings: dict[str, Any]) -> dict[str, Any]:
    path = out / RECORD
    if path.is_file():
        try:
            record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            held = record["settings"]
        except (ValueError, KeyError, TypeError) as error:
            raise SeedBenchError(f"'{path}' is damaged; train into another folder with --out.") from error
        if changed := differences(held, settings):
            raise UsageError(
                f"'{out}' holds a run with other settings: {'; '.join(changed)}. Choose another --out, or give the"
                " settings of that run to continue it."
            )
        return record
    if out.exists() and (not out.is_dir() or any(path.name != ".lock" for path in out.iterdir())):
        raise UsageError(f"'{out}' is not an empty folder and holds no training run; choose another with --out.")
    return {
        "schema": "seedbench.training/1",
        "settings": settings,
        "source": describe_source(),
        "packages": package_versions(),
        "sessions": [],
        "totals": {},
    }


def prepare(config: TrainConfig, out: Path, train: Trainer, world: World | None = None) -> Prepared:
    """Resolve everything that a run needs, running its earlier stages (warm start, SFT) where they are not done.

    `world`: the processes that train it, all of which call this.
    """
    panel = training_panel(config)
    protocol = agent_protocol(config)
    method = make_method(config)
    model = (world or World()).first(lambda: _start(config, protocol, out))
    if config.warmstart.updates and not is_trained(Path(model)):
        from seedbench_trainers.warmstart import warm_start

        model = warm_start(config.model_copy(update={"model": model}), train) or model
    return Prepared(method, panel, protocol, method.prepare(model, train))


def is_trained(model: Path) -> bool:
    """Whether a folder holds the weights of a training run, which need no warm start."""
    return (model / LABEL).is_file()


def fraction_mark(config: TrainConfig) -> str:
    """What a result says of the share of the data behind it, e.g. ` [40% of games]`; empty for all of it."""
    data = config.data
    return f" [{100 * data.fraction:g}% of {data.reading}]" if data.fraction < 1 else ""


def training_panel(config: TrainConfig) -> Panel:
    """The panel that is trained on, after families, limit and the data fraction (reading "games").

    Raises SeedBenchError where the store does not hold it.
    """
    data = config.data
    panel = panel_of(data)
    if data.reading == "games" and data.fraction < 1:
        panel = panel.subset(limit=max(1, round(data.fraction * len(panel.tasks))))
    problems = data_problems(panel, dict(get_suite(panel.suite).content_hashes(panel)))
    if problems:
        raise SeedBenchError(f"{'; '.join(problems)}. Fetch the data again: `seedbench data fetch {panel.suite}`.")
    return panel


def rollout_protocol(config: TrainConfig, protocol: Protocol) -> Protocol:
    """The protocol as training roll-outs use it: the same but for the sampling."""
    return protocol.with_settings(temperature=config.rollout.temperature, top_p=1.0, top_k=0)


def _start(config: TrainConfig, protocol: Protocol, out: Path) -> str:
    from safetensors import SafetensorError

    from seedbench_trainers.tiny import build_tiny, is_tiny

    if not is_tiny(config.model):
        return resolve(config.model, store_root())
    folder = out / "start"
    if not (folder / "config.json").is_file():
        draft = out / ".start.tmp"
        shutil.rmtree(draft, ignore_errors=True)
        try:  # moved when whole: a run that is killed here builds it again
            build_tiny(config.model, load_panel(config.data.panel), protocol, draft, config.seed)
            shutil.rmtree(folder, ignore_errors=True)
            draft.rename(folder)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise SeedBenchError(
                f"cannot write the tiny model '{folder}' ({str(error)[:200]}). Free space and run the same command"
                " again."
            ) from error
    return str(folder)

"""Trackers beside the journal: TensorBoard files in the run folder, and a Weights & Biases project.

Asking for one that is not installed is an error before the training begins. After that a tracker never stops it:
one that fails is noted once and left out from then on; `metrics.jsonl` has everything.
"""

from __future__ import annotations

import importlib
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from seedbench.errors import SeedBenchError
from seedbench.ui.tally import one_line

Note = Callable[[str], None]


class Tracker(Protocol):
    """Takes the finite numbers of an update; may raise anything."""

    name: str

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        """Take one update's figures."""
        ...

    def close(self) -> None:
        """Write what is left and end."""
        ...


class Trackers:
    """Several trackers as one that does not fail; `note` is told of one that did."""

    def __init__(self, trackers: Sequence[Tracker] = (), note: Note = lambda message: None) -> None:
        self._trackers = list(trackers)
        self._note = note

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        """Pass on the finite numbers of an update."""
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        for tracker in list(self._trackers):
            self._try(tracker, partial(tracker.log, update, finite))

    def close(self) -> None:
        """End all of them; more than one call is one."""
        while self._trackers:
            tracker = self._trackers.pop()
            self._try(tracker, tracker.close)

    def _try(self, tracker: Tracker, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # whatever a tracker's own code or server comes up with
            self._note(f"{tracker.name} is left out from now on ({_reason(error)}); metrics.jsonl has everything")
            if tracker in self._trackers:
                self._trackers.remove(tracker)


def open_trackers(
    folder: Path,
    *,
    tensorboard: bool = False,
    wandb: str = "",
    after: int = -1,
    config: Mapping[str, Any] | None = None,
    note: Note = lambda message: None,
) -> Trackers:
    """The trackers that a run asks for (`track.tensorboard`, `track.wandb`).

    Args:
        folder: the run folder; TensorBoard's files go to its sub-folder `tensorboard`.
        tensorboard: whether to write them.
        wandb: project to log to; empty: none.
        after: the update that the run goes on after; what TensorBoard was told of later ones is struck out.
        config: the run's resolved configuration, shown with the run on wandb.
        note: is told, in one line, of a tracker that cannot be had or fails.

    Raises: SeedBenchError if a tracker's package is not installed.
    """
    trackers: list[Tracker] = []
    if tensorboard:
        trackers.append(_TensorBoard(folder / "tensorboard", after))
    if wandb:
        module = _package("wandb", "wandb", 'track.wandb=""')
        run = _wandb_run(module, folder, wandb, dict(config or {}), note)
        trackers += [] if run is None else [_Wandb(run)]
    return Trackers(trackers, note)


class _TensorBoard:
    name = "tensorboard"

    def __init__(self, folder: Path, after: int) -> None:
        _package("tensorboard", "tensorboard", "track.tensorboard=false")
        writer: Any = _package("torch.utils.tensorboard", "tensorboard", "track.tensorboard=false")
        try:
            self._writer = writer.SummaryWriter(str(folder), purge_step=after + 1)
        except OSError as error:
            raise SeedBenchError(f"cannot write '{folder}': {error.strerror}; choose another --out.") from error

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, update)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _Wandb:
    name = "wandb"

    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=update)

    def close(self) -> None:
        self._run.finish()


def _package(module: str, package: str, off: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SeedBenchError(
            f"the run asks for the tracker {package}, which cannot be imported ({_reason(error)}): pip install"
            f" {package}, or --set {off}."
        ) from error


def _wandb_run(module: Any, folder: Path, project: str, config: dict[str, Any], note: Note) -> Any:
    """A run on the server; where that fails one in local files, for `wandb sync` later; else None."""
    settings = {"project": project, "name": folder.name, "dir": str(folder), "config": config, "resume": "allow"}
    for offline, instead in ((False, "it logs to local files, for `wandb sync` later"), (True, "it is left out")):
        mode = {"mode": "offline"} if offline else {}
        try:
            return module.init(**settings, **mode, id=_wandb_id(folder))
        except Exception as error:  # no network, no key, no project: none of them is a reason not to train
            note(f"wandb cannot be had ({_reason(error)}): {instead}")
    return None


def _wandb_id(folder: Path) -> str:
    """The same id each time that a run is gone on with."""
    path = folder / "wandb-id"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(uuid.uuid4().hex[:12])
    return path.read_text()


def _reason(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {error}", 200)

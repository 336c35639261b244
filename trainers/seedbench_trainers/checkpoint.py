"""Checkpoints of a training run: what is needed to go on bit for bit, written whole or not at all.

    checkpoints/update-000010/   model (a Hugging Face or LoRA folder), optimiser.pt, state.json
    best/                        weights of the best validation
    final/                       weights after the last update: what tables are made of

`best/` and `final/` say in `seedbench.json` what they are: label, model, method, recipe, suite, seed, update, data,
what training began from and what it cost. Evaluations of them copy it into their manifests.

The optimiser's file holds tensors and plain numbers and is read with `weights_only`, so that nothing in it can run.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from seedbench.errors import SeedBenchError
from seedbench.runs import write_json
from seedbench_trainers.checks import base_model
from seedbench_trainers.config import TrainConfig
from seedbench_trainers.trainee import Trainee, damaged

FOLDER, FINAL, BEST, LABEL = "checkpoints", "final", "best", "seedbench.json"
_STATE, _OPTIMISER = "state.json", "optimiser.pt"


@dataclass(slots=True)
class State:
    """Where a run stands, beside weights and optimiser. All values are plain."""

    update: int = 0
    """Updates that are done."""
    logged: bool = False
    """Whether the journal has the line of that update (validation included)."""
    optimiser_steps: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    """Figures of the update, until they are logged."""
    totals: dict[str, float] = field(default_factory=dict)
    """Cumulative counts: tokens, environment steps, seconds."""
    start: dict[str, Any] = field(default_factory=dict)
    """Identity of the model that training began from; validations are told apart by it, whatever was resumed."""
    best: float | None = None
    """Best validation success so far."""


def latest(run: Path) -> Path | None:
    """The newest whole checkpoint of a run folder; None where there is none."""
    found = sorted((run / FOLDER).glob("update-*"))
    return found[-1] if found else None


def save(run: Path, state: State, trainee: Trainee, optimiser: dict[str, Any], keep: int) -> Path:
    """Write a checkpoint and drop all but the newest `keep`. Raises SeedBenchError; older ones stay whole then.

    `optimiser`: its whole state, from whatever number of processes.
    """
    import torch

    target = run / FOLDER / f"update-{state.update:06d}"
    draft = run / FOLDER / f".{target.name}.tmp"
    shutil.rmtree(draft, ignore_errors=True)
    try:
        trainee.save(draft)
        try:
            torch.save({"optimiser": optimiser, "torch_rng": torch.get_rng_state()}, draft / _OPTIMISER)
        except (OSError, RuntimeError) as error:  # torch's writer turns a full disk into a RuntimeError
            raise SeedBenchError(
                f"cannot write the checkpoint in '{run}' ({str(error)[:200]}). Free space and run the same command"
                " again; it continues from the last whole checkpoint."
            ) from error
        write_json(draft / _STATE, asdict(state))
        _replace(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    for old in sorted((run / FOLDER).glob("update-*"))[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def restore(folder: Path, optimiser: Any, trainee: Trainee) -> State:
    """Load optimiser, random state and counters of a checkpoint. Raises SeedBenchError where it is damaged."""
    import torch

    from seedbench_trainers.sharding import load_state

    place = "cpu" if trainee.shards else trainee.loaded.model.device  # a process with shards needs a part of it
    try:
        stored = torch.load(folder / _OPTIMISER, map_location=place, weights_only=True, mmap=bool(trainee.shards))
        state = State(**json.loads((folder / _STATE).read_text(encoding="utf-8")))
        load_state(optimiser, stored["optimiser"])
        torch.set_rng_state(stored["torch_rng"].cpu())
    except Exception as error:  # damaged files fail in many ways
        raise damaged(folder, error) from error
    return state


_COSTS = {
    "environment_steps": "steps/environment",
    "prompt_tokens": "tokens/prompt",
    "generated_tokens": "tokens/generated",
    "trained_tokens": "tokens/trained",
    "seconds": "seconds",
    "gpu_seconds": "seconds/gpu",
}
"""What a checkpoint says of its cost -> the run's total."""


_BEGUN = ("label", "method", "seed", "update", "cost", "start")


def label(text: str, config: TrainConfig, state: State, start: dict[str, Any] | None) -> dict[str, Any]:
    """What a checkpoint says of itself: plain values, no places on this machine.

    Args:
        text: which checkpoint of the run it is.
        start: what the checkpoint says of itself that training began from; None where that is no training's. Its cost
            is not part of this one's.
    """
    begun = {key: value for key, value in (start or {}).items() if key in _BEGUN}
    data = config.data
    return {
        "label": text,
        "model": base_model(config.model),
        "method": config.method,
        "recipe": config.recipe,
        "suite": config.suite,
        "seed": config.seed,
        "update": state.update,
        "updates": config.planned_updates,
        "data": {"panel": data.panel, "fraction": data.fraction, "reading": data.reading},
        **({"start": begun} if begun else {}),
        "cost": {name: round(state.totals.get(total, 0.0), 3) for name, total in _COSTS.items()},
    }


def save_weights(target: Path, trainee: Trainee, about: dict[str, Any]) -> None:
    """Write the weights alone, with what they say of themselves, in place of what lay there."""
    draft = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        trainee.save(draft)
        write_json(draft / LABEL, about)
        _replace(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _replace(draft: Path, target: Path) -> None:
    """Move a finished folder into place; what lay there goes only once the new one is written."""
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    try:
        if target.exists():
            target.rename(old)
        draft.rename(target)
    except OSError as error:
        if old.exists() and not target.exists():
            old.rename(target)
        raise SeedBenchError(f"cannot write '{target}': {error.strerror}. Free space and try again.") from error
    shutil.rmtree(old, ignore_errors=True)

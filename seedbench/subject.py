"""Who was measured: the model and method behind a run, for tables, leaderboards and studies.

A training leaves `seedbench.json` in its checkpoints; an evaluation of one copies it into its manifest
(`policy.trained`); a bundle's `submission.json` names model and method itself and has the last word.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seedbench.errors import SeedBenchError
from seedbench.runs import SUMMARY, read_manifest

SUBMISSION, TRAINING = "submission.json", "training.json"
UNTRAINED, PROMPTED = "Vanilla", "Skill-Prompt*"
"""Methods of a checkpoint of which no training is known, without and with static skills in its prompts, as papers call
them. A trained method that is evaluated with skills gets a star as well."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What was measured; texts are as the run holds them, not yet made safe for any output."""

    model: str
    """The base model; empty for policies without one (oracle, random, rule)."""
    method: str
    """A training method, `Vanilla`, or the kind of a policy without a model."""
    seed: int | None = None
    """Of the training; None where nothing says."""
    updates: int | None = None
    fraction: float | None = None
    """Share of the training data, in (0, 1]."""
    reading: str = ""
    """What the share is of: `games` or `draws` (docs/training.md)."""
    cost: Mapping[str, float] | None = None
    """What the training spent: environment_steps, prompt_tokens, generated_tokens, trained_tokens, seconds,
    gpu_seconds."""


def subject(folder: Path) -> Subject:
    """The subject of a run folder or bundle.

    Raises UsageError where there is no manifest, SeedBenchError where it or the submission is damaged.
    """
    manifest = read_manifest(folder)
    found = _of_manifest(manifest["policy"]["name"], manifest["settings"]["policy"], manifest["policy"].get("trained"))
    path = folder / SUBMISSION
    if not path.is_file():
        return found
    try:
        claimed = json.loads(path.read_text(encoding="utf-8"))
        model, method = claimed["model"], claimed["method"]
        if not (isinstance(model, str) and isinstance(method, str)):
            raise TypeError("model and method must be texts")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SeedBenchError(f"'{path}' is damaged ({type(error).__name__}: {error}); pack the run again.") from error
    return Subject(model, method, found.seed, found.updates, found.fraction, found.reading, found.cost)


def validations(training: Path) -> list[tuple[int, Path]]:
    """Update and run folder of every finished validation of a training run, in order."""
    found = sorted(path.parent for path in training.glob(f"validation/update-*/{SUMMARY}"))
    return [(int(path.name.removeprefix("update-")), path) for path in found]


def run_names(paths: Sequence[Path]) -> list[str]:
    """What runs are called by default: their folders or archives, and the whole paths where those are called alike."""
    short = [path.resolve().name.removesuffix(".tar.gz") for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]


def is_model(identity: Mapping[str, Any]) -> bool:
    """Whether a policy of this identity is a language model, which reads prompts."""
    return "weights_sha256" in identity or identity.get("kind") in ("transformers", "vllm", "openai")


def _of_manifest(name: str, identity: Mapping[str, Any], trained: object) -> Subject:
    skilled = "skills_sha256" in identity
    if isinstance(trained, Mapping) and isinstance(method := trained.get("method"), str):
        data, cost = (part if isinstance(part := trained.get(key), Mapping) else {} for key in ("data", "cost"))
        return Subject(
            model=_text(trained.get("model")) or name,
            method=f"{method}*" if skilled else method,
            seed=_whole(trained.get("seed")),
            updates=_whole(trained.get("update")),
            fraction=_number(data.get("fraction")),
            reading=_text(data.get("reading")),
            cost=_numbers(cost) or None,
        )
    if is_model(identity):
        return Subject(name.removesuffix("*") if skilled else name, PROMPTED if skilled else UNTRAINED)
    return Subject("", name)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {key: number for key, value in values.items() if (number := _number(value)) is not None}

"""Who was measured."""

import json
from pathlib import Path
from typing import Any

import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.subject import Subject, subject

CHECKPOINT = {"kind": "transformers", "weights_sha256": "a" * 64}
TRAINED = {
    "label": "final",
    "method": "grpo",
    "model": "tiny",
    "seed": 3,
    "update": 100,
    "data": {"panel": "p", "fraction": 0.2, "reading": "games"},
    "cost": {"environment_steps": 1000, "seconds": 12.5, "odd": "text"},
}


def _run(folder: Path, name: str, identity: dict[str, Any], trained: object = None) -> Path:
    policy = {"name": name} if trained is None else {"name": name, "trained": trained}
    manifest = {"settings": {"policy": identity}, "policy": policy, "sessions": []}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def test_a_trained_checkpoint_says_what_it_is(tmp_path: Path) -> None:
    found = subject(_run(tmp_path, "final", CHECKPOINT, TRAINED))
    cost = {"environment_steps": 1000.0, "seconds": 12.5}
    assert found == Subject("tiny", "grpo", 3, 100, 0.2, "games", cost)


@pytest.mark.parametrize(
    ("name", "identity", "trained", "model", "method"),
    [
        ("oracle", {"kind": "oracle"}, None, "", "oracle"),
        ("Qwen", CHECKPOINT, None, "Qwen", "Vanilla"),
        ("Qwen", {"kind": "openai"}, None, "Qwen", "Vanilla"),
        ("Qwen*", {**CHECKPOINT, "skills_sha256": "b"}, None, "Qwen", "Skill-Prompt*"),
        ("final*", {**CHECKPOINT, "skills_sha256": "b"}, TRAINED, "tiny", "grpo*"),
        ("final", CHECKPOINT, {"label": "final"}, "final", "Vanilla"),
        ("final", CHECKPOINT, {"method": "sft", "model": 7, "seed": True, "data": []}, "final", "sft"),
    ],
)
def test_other_policies(
    tmp_path: Path, name: str, identity: dict[str, Any], trained: object, model: str, method: str
) -> None:
    found = subject(_run(tmp_path, name, identity, trained))
    assert (found.model, found.method) == (model, method)
    if trained is not TRAINED:
        assert (found.seed, found.fraction, found.cost) == (None, None, None)


def test_a_submission_has_the_last_word(tmp_path: Path) -> None:
    _run(tmp_path, "final", CHECKPOINT, TRAINED)
    (tmp_path / "submission.json").write_text(json.dumps({"model": "Qwen2.5-3B", "method": "SEED"}), encoding="utf-8")
    found = subject(tmp_path)
    assert (found.model, found.method, found.seed) == ("Qwen2.5-3B", "SEED", 3)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a run folder"):
        subject(tmp_path)
    _run(tmp_path, "final", CHECKPOINT)
    (tmp_path / "submission.json").write_text('{"model": 1, "method": "SEED"}', encoding="utf-8")
    with pytest.raises(SeedBenchError, match="damaged"):
        subject(tmp_path)

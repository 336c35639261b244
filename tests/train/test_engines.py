"""Roll-outs by another engine: it plays with the present weights, and a run of it equals one without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.base import Policy
from seedbench.policies.checkpoint import locate
from seedbench.policies.loading import load
from seedbench.policies.transformers_ import TransformersPolicy
from seedbench_trainers.checks import refuse_contradictions
from seedbench_trainers.config import TrainConfig
from tests.train.helpers import assert_same_weights, config, numbers, run

FREE: dict[str, Any] = {"protocol": "free", "updates": 2}


class Copy:
    """An engine that plays with what it reads from the folders it is given, and keeps a diary."""

    def __init__(self, broken: bool = False) -> None:
        self.diary: list[str] = []
        self._broken = broken

    def policy(self, *, name: str, identity: dict[str, Any], record: bool = False) -> Policy:
        self.diary.append("policy")
        return TransformersPolicy.serving(self._loaded, name=name, identity=identity, batch_size=128, record=record)

    def release(self) -> None:
        self.diary.append("release")

    def update(self, folder: Path) -> None:
        if self._broken:
            raise SeedBenchError("the engine did not take the new weights.")
        self.diary.append("update")
        self._loaded = load(locate(str(folder)), device="cpu", dtype="float32")

    def logprobs(self, ids: list[int]) -> list[float]:
        raise AssertionError("not asked while training")

    def close(self) -> None:
        self.diary.append("close")


def _rollout(engine: str) -> dict[str, Any]:
    return {"tasks": 2, "group": 3, "engine": engine, "cache_gib": 0.0}


def test_a_run_equals_one_without_the_engine(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Copy()
    monkeypatch.setattr("seedbench_trainers.loop.start_engine", lambda *given: engine)
    own = run(config(model, rollout=_rollout(""), **FREE), tmp_path / "own")
    other = run(config(model, rollout=_rollout("vllm"), **FREE), tmp_path / "other")
    assert engine.diary == ["update", "policy", "release"] * 2 + ["close"]
    assert numbers(own.parent) == numbers(other.parent)
    assert_same_weights(own, other)
    assert not list(other.parent.glob(".rollout-weights"))


def test_an_engine_that_fails_ends_the_run_and_is_stopped(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Copy(broken=True)
    monkeypatch.setattr("seedbench_trainers.loop.start_engine", lambda *given: engine)
    with pytest.raises(SeedBenchError, match="did not take the new weights"):
        run(config(model, rollout=_rollout("vllm"), **FREE), tmp_path)
    assert engine.diary == ["close"]


MINI: dict[str, Any] = {
    "method": "grpo",
    "suite": "mini-alfworld",
    "model": "tiny",
    "updates": 1,
    "data": {"panel": "mini-alfworld/train-small"},
}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rollout": {"engine": "ray"}}, "rollout.engine must be empty, vllm or openai:URL"),
        ({"rollout": {"engine": "vllm"}, "lora": {"rank": 4}}, "engines take whole models"),
    ],
)
def test_what_an_engine_cannot_do_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        TrainConfig.model_validate({**MINI, "protocol": {"name": "alfworld/quick"}, **changes})


def test_constrained_decoding_is_refused() -> None:
    given = {**MINI, "protocol": {"name": "alfworld/choose"}, "rollout": {"engine": "vllm"}}
    with pytest.raises(UsageError, match="decodes among the admissible actions, which vLLM cannot do"):
        refuse_contradictions(TrainConfig.model_validate(given))

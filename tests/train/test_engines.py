"""Roll-outs by another engine: it plays with the present weights, and a run of it equals one without."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.base import Policy
from seedbench.policies.checkpoint import locate
from seedbench.policies.loading import load
from seedbench.policies.transformers_ import TransformersPolicy
from seedbench.policies.vllm_setup import EngineSettings
from seedbench_trainers.checks import agent_protocol, refuse_contradictions
from seedbench_trainers.config import TrainConfig
from seedbench_trainers.engines import colocated
from seedbench_trainers.engines.served import Served
from seedbench_trainers.journal import Journal
from seedbench_trainers.remote import facts_of
from seedbench_trainers.setup import bound_settings, training_panel
from seedbench_trainers.trainee import load_trainee
from tests.train.helpers import EchoSuite, assert_same_weights, config, numbers, run

FREE: dict[str, Any] = {"protocol": "free", "updates": 2}


class Copy:
    """An engine that plays with what it reads from the folders it is given, and keeps a diary.

    `good`: how many weights it takes before it breaks.
    """

    def __init__(self, good: int = 1000) -> None:
        self.diary: list[str] = []
        self._good = good

    def policy(self, *, name: str, identity: dict[str, Any], record: bool = False) -> Policy:
        self.diary.append("policy")
        return TransformersPolicy.serving(self._loaded, name=name, identity=identity, batch_size=128, record=record)

    def release(self) -> None:
        self.diary.append("release")

    def update(self, folder: Path) -> None:
        if self.diary.count("update") == self._good:
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
    monkeypatch.setattr("seedbench_trainers.engines.turns.start_engine", lambda *given: engine)
    own = run(config(model, rollout=_rollout(""), **FREE), tmp_path / "own")
    other = run(config(model, rollout=_rollout("vllm"), **FREE), tmp_path / "other")
    assert engine.diary == ["update", "release", *["update", "policy", "release"] * 2, "close"]
    assert numbers(own.parent) == numbers(other.parent)
    assert_same_weights(own, other)
    assert not list(other.parent.glob(".rollout-weights"))


@pytest.mark.parametrize(
    ("good", "diary"), [(0, ["close"]), (2, ["update", "release", "update", "policy", "release", "close"])]
)
def test_an_engine_that_fails_ends_the_run_and_is_stopped(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: int, diary: list[str]
) -> None:
    """At the start, and in a later iteration."""
    engine, ends = Copy(good), list[str]()
    monkeypatch.setattr(Journal, "close", lambda self: ends.append("journal"))
    monkeypatch.setattr("seedbench_trainers.engines.turns.start_engine", lambda *given: engine)
    with pytest.raises(SeedBenchError, match="did not take the new weights"):
        run(config(model, rollout=_rollout("vllm"), **FREE), tmp_path)
    assert engine.diary == diary
    assert ends == ["journal"]
    assert not list(tmp_path.glob(".rollout-weights"))


def test_an_engine_that_does_not_start_leaves_nothing_behind(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = threading.active_count()
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.setitem(sys.modules, "vllm.platforms", None)
    with pytest.raises(SeedBenchError, match="vLLM is not installed or does not load"):
        run(config(model, rollout=_rollout("vllm"), **FREE), tmp_path)
    assert threading.active_count() == threads
    assert not list(tmp_path.glob(".rollout-weights"))


def test_an_engine_starts_on_the_weights_as_the_trainee_saves_them(
    suite: EchoSuite, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A LoRA folder that training begins from is merged, and an engine of adapters would take no whole weights."""
    adapters = run(config(model, **{**FREE, "updates": 1}, lora={"rank": 4}), tmp_path / "lora")
    engine, begun = Copy(), list[tuple[Path, bool]]()

    def start(settings: TrainConfig, checkpoint: str, trainee: Any) -> Copy:
        begun.append((Path(checkpoint), locate(checkpoint).adapter is None))
        return engine

    monkeypatch.setattr("seedbench_trainers.engines.turns.start_engine", start)
    run(config(adapters, rollout=_rollout("vllm"), **FREE), tmp_path / "whole")
    assert locate(str(adapters)).adapter is not None
    assert begun == [(tmp_path / "whole" / ".rollout-weights", True)]


def test_torch_gives_its_spare_memory_back_before_the_engine_needs_it(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    diary: list[str] = []

    class Engine:
        def __init__(self, *given: Any) -> None: ...

        def start(self) -> None:
            diary.append("start")

        def update_weights(self, folder: Path) -> None:
            diary.append("update")

    monkeypatch.setattr(colocated, "VllmEngine", Engine)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: diary.append("room"))
    colocated.Colocated(str(model), EngineSettings()).update(model)
    assert diary == ["room", "start", "room", "update"]


def test_servers_are_told_by_their_addresses_without_the_name_of_the_model(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Any]] = []

    def request(method: str, url: str, *, json: Any, **rest: Any) -> httpx.Response:
        asked.append((url, json))
        return httpx.Response(200, json={"success": True})

    monkeypatch.setattr(httpx, "request", request)
    Served("http://a:1/v1,http://b:2/v1#tiny", str(model)).update(model)
    weights = {"method": "reload_checkpoint", "kwargs": {"folder": str(model.resolve())}}
    paths = {"/pause?mode=wait": None, "/collective_rpc": weights, "/reset_prefix_cache": None, "/resume": None}
    assert asked == [(f"{root}{path}", body) for root in ("http://a:1", "http://b:2") for path, body in paths.items()]


def test_where_an_engine_is_may_change_between_sittings(suite: EchoSuite) -> None:
    def bound(engine: str, memory: float = 0.4) -> dict[str, Any]:
        rollout = {**_rollout(engine), "engine_memory": memory}
        return bound_settings(config("m", protocol="free", rollout=rollout))

    assert bound("openai:http://a:8000/v1") == bound("openai:http://b:9000/v1", 0.3)
    assert bound("openai:http://a:8000/v1") != bound("vllm")
    assert bound("vllm") == bound("vllm", 0.2)
    assert bound("vllm") != bound("")


def test_workers_know_the_model_of_a_run_that_goes_on(suite: EchoSuite, model: Path, tmp_path: Path) -> None:
    """Configurations that older packages wrote come back in other words from a checkpoint of ours."""
    begun = Path(shutil.copytree(model, tmp_path / "begun"))
    old = json.loads((begun / "config.json").read_text())
    old |= {"rope_theta": old.pop("rope_parameters")["rope_theta"]}
    (begun / "config.json").write_text(json.dumps(old))
    settings = config(begun)
    panel, protocol = training_panel(settings), agent_protocol(settings)
    first = load_trainee(settings, str(begun), reference=False)
    first.save(tmp_path / "update")
    again = load_trainee(settings, str(begun), reference=False, resume=tmp_path / "update")
    start = first.loaded.identity
    assert again.loaded.identity["config_sha256"] != start["config_sha256"]
    assert facts_of(again, start, panel, protocol) == facts_of(first, start, panel, protocol)


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

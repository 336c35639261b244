"""Training roll-outs on Ray: the samples and the loss of one process, with the weights of the present iteration."""

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seedbench.errors import SeedBenchError
from seedbench.remote.cluster import Cluster, connected
from seedbench.types import Episode, Message, Task
from seedbench_trainers.base import Method
from seedbench_trainers.checks import agent_protocol, make_method
from seedbench_trainers.collect import Attempt, perform
from seedbench_trainers.config import TrainConfig
from seedbench_trainers.records import Batch
from seedbench_trainers.remote import Rollers
from seedbench_trainers.setup import rollout_protocol, training_panel
from seedbench_trainers.toolbox import Toolbox
from seedbench_trainers.trainee import load_trainee
from seedbench_trainers.update import Updater
from seedbench_trainers.view import TrainView
from tests.eval.helpers import Command, command_line, said
from tests.tiny_model import build

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (pip install 'seedbench[ray]')")


@pytest.fixture(scope="module", autouse=True)
def cluster(mini_store: Path) -> Iterator[Any]:
    with connected(Cluster("local", 4), store_bytes=100 << 20) as ray:
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        yield ray


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def bench(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Bench"]:
    made = Bench(model, tmp_path_factory.mktemp("run"), workers=2)
    yield made
    made.workers.close()


class View(TrainView):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []
        self.played: list[Episode] = []

    def note(self, message: str) -> None:
        self.notes.append(message)

    def episode(self, episode: Episode) -> None:
        self.played.append(episode)


class Bench:
    """A trainee with its tools, as the loop has them; with `workers` their roll-outs are played on Ray."""

    def __init__(self, model: Path, out: Path, workers: int = 0, **changes: Any) -> None:
        self.settings = settings = settings_for(model, **changes)
        self.method: Method = make_method(settings)
        self.trainee = load_trainee(settings, str(model), reference=False)
        self.view = View()
        panel, protocol = training_panel(settings), agent_protocol(settings)
        self.rollers = None
        if workers:
            asked = rollout_protocol(settings, protocol)
            cluster = Cluster("local", workers)
            start = self.trainee.loaded.identity
            self.rollers = Rollers(
                cluster, settings, str(model), panel, asked, self.trainee, self.view.note, start=start
            )
        self.tools = Toolbox(settings, panel, protocol, out, self.trainee, self.method, self.view, self.rollers)
        self.updater = Updater(self.trainee, self.method, settings, settings.planned_updates)

    @property
    def workers(self) -> Rollers:
        assert self.rollers is not None
        return self.rollers

    def batch(self, iteration: int) -> Batch:
        """Samples with their signals; advantages are drawn, for untrained models win nothing."""
        batch = self.method.gather(self.tools, iteration)
        self.method.signals(batch, self.tools)
        dice = np.random.default_rng(iteration)
        for sample in batch.samples:
            sample.signals["advantage"] = sample.spread(dice.normal(size=len(sample.spans)).tolist())
        return batch


def settings_for(model: Path, **changes: Any) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "method": "grpo",
            "suite": "mini-alfworld",
            "model": str(model),
            "updates": 2,
            "device": "cpu",
            "data": {"panel": "mini-alfworld/train-small", "limit": 6},
            "protocol": {"name": "alfworld/quick", "set": {"steps": 3, "response_tokens": 6}},
            # One prompt at a time: matrix products of other shapes round otherwise in the last bit.
            "rollout": {"tasks": 3, "group": 3, "batch_size": 1},
            "optimiser": {"lr": 1e-3},
            "options": {"kl_coefficient": 0.0},
            **changes,
        }
    )


def assert_same(one: Batch, other: Batch) -> None:
    """Bit for bit, but for the seconds."""
    # Tokens, spans, log-probabilities, signals: `assert_equal` asks arrays for equal values.
    np.testing.assert_equal([asdict(sample) for sample in other.samples], [asdict(sample) for sample in one.samples])

    def episodes(batch: Batch) -> list[dict[str, Any]]:
        return [{**t.episode.to_json(), "seconds": 0} for t in batch.trajectories]

    assert episodes(one) == episodes(other)
    assert [t.prompts for t in one.trajectories] == [t.prompts for t in other.trajectories]
    assert [(t.group, t.reward, t.penalties) for t in one.trajectories] == [
        (t.group, t.reward, t.penalties) for t in other.trajectories
    ]


def learn_the_same(alone: Bench, both: Bench) -> None:
    """Two iterations; the second one is sampled with weights that the first one changed."""
    for iteration in range(2):
        one, other = alone.batch(iteration), both.batch(iteration)
        assert_same(one, other)
        assert alone.updater.update(one.samples, iteration) == both.updater.update(other.samples, iteration)
    pairs = zip(alone.trainee.parameters, both.trainee.parameters, strict=True)
    assert all(torch.equal(first, second) for first, second in pairs)
    assert len(both.view.played) == len(alone.view.played) == 18


def test_two_workers_sample_and_learn_what_one_process_does(bench: Bench, model: Path, tmp_path: Path) -> None:
    learn_the_same(Bench(model, tmp_path), bench)


def test_adapters_travel(model: Path, tmp_path: Path) -> None:
    both = Bench(model, tmp_path, workers=2, lora={"rank": 4})
    learn_the_same(Bench(model, tmp_path, lora={"rank": 4}), both)
    both.workers.close()


def test_no_episode_is_played_with_old_weights(bench: Bench) -> None:
    """The log-probabilities of an update are those of the trainee, before and after its weights have changed."""
    attempts = [Attempt(task, number, number, 3 + number) for number, task in enumerate(bench.tools.panel.tasks[:2])]
    found = []
    for version in (10, 11):
        played = bench.workers.play(attempts, version, told=bench.view.episode)
        policy = bench.tools.policy(record=True)
        plan = bench.tools._plan
        here = perform(attempts, plan.panel, plan.protocol, policy)
        assert [p.sampled for p in played] == [p.sampled for p in here]
        found.append([sampled.logprobs for p in played for sampled in p.sampled])
        with torch.no_grad():
            for parameter in bench.trainee.parameters:
                parameter.mul_(1.2)
    assert found[0] != found[1]


class Deadly:
    """Kills the process of the worker that is first asked about a task; always, without a mark to leave."""

    def __init__(self, mark: Path | None) -> None:
        self.mark = mark

    def __call__(self, task: Task, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        if self.mark is None or not self.mark.exists():
            if self.mark is not None:
                self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return messages


def test_the_part_of_a_worker_that_dies_is_played_again(bench: Bench, tmp_path: Path) -> None:
    bench.view.notes.clear()
    tasks = bench.tools.panel.tasks[:2]
    attempts = [Attempt(task, number, number, 7 + number) for number, task in enumerate(tasks)]
    expected = bench.workers.play(attempts, 0, told=bench.view.episode)
    played = bench.workers.play(attempts, 0, rewrite=Deadly(tmp_path / "mark"), told=bench.view.episode)
    assert [p.sampled for p in played] == [p.sampled for p in expected]
    assert [p.attempt for p in played] == attempts
    assert len(bench.view.notes) == 1
    assert bench.view.notes[0].endswith("its 1 episodes are played again")
    with pytest.raises(SeedBenchError, match=r"^worker 1 died 3 times over the same 1 episodes .*last checkpoint\.$"):
        bench.workers.play(attempts[:1], 0, rewrite=Deadly(None), told=bench.view.episode)


def test_workers_need_a_cluster(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    cli: Command = command_line(monkeypatch, capsys)
    told = cli("train", "--method", "grpo", "--suite", "mini-alfworld", "--workers", 2)
    assert said(told, 2).startswith("--workers and --gpus-per-worker are for --ray")

"""SFT and the warm start: which samples an update takes, what is imitated, and that it learns."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from seedbench.errors import UsageError
from seedbench.evaluate import Evaluation, evaluate
from seedbench.panels import load_panel
from seedbench.policies.checkpoint import locate
from seedbench.policies.loading import Loaded, load
from seedbench.policies.oracle import OraclePolicy
from seedbench.protocol import load_protocol
from seedbench.registry import get_suite
from seedbench.ui.live import Progress
from seedbench_trainers.base import Tokens
from seedbench_trainers.config import TrainConfig
from seedbench_trainers.demonstrations import PLANNED
from seedbench_trainers.losses import reduce_term
from seedbench_trainers.methods.sft import SFT, SFTSettings, taken
from seedbench_trainers.records import Batch
from seedbench_trainers.warmstart import warm_start, warm_start_config
from tests.train import helpers


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory):
    with helpers.echo(tmp_path_factory.mktemp("echo")) as suite:
        yield suite


@pytest.fixture(scope="module")
def loaded(echo: helpers.EchoSuite, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    folder = helpers.build_model(tmp_path_factory.mktemp("model"))
    return load(locate(str(folder)), device="cpu", dtype="float32")


def _config(**changes: Any) -> TrainConfig:
    return helpers.config("tiny:xs", method="sft", **changes)


def _method(config: TrainConfig) -> SFT:
    return SFT(SFTSettings.model_validate(config.options), config)


def _tools(loaded: Loaded, protocol: str = "choose-3", notes: list[str] | None = None) -> Any:
    return SimpleNamespace(
        panel=load_panel("echo/train"),
        protocol=load_protocol(f"echo/{protocol}"),
        loaded=loaded,
        once=lambda work: work(),
        note=(notes if notes is not None else []).append,
    )


def _ids(batch: Batch) -> list[list[int]]:
    return [sample.ids.tolist() for sample in batch.samples]


def test_passes_over_the_data_are_seeded_and_whole():
    entries = taken(5, 0, 15, 3)
    assert [sorted(entries[at : at + 5]) for at in (0, 5, 10)] == [[0, 1, 2, 3, 4]] * 3
    assert len({tuple(entries[at : at + 5]) for at in (0, 5, 10)}) > 1
    assert taken(5, 4, 7, 3) == entries[4:11]
    assert taken(5, 0, 15, 4) != entries


def test_an_update_takes_the_next_samples(loaded: Loaded):
    """12 tasks of 3 turns each, played once: 36 samples, so that 9 updates of 8 are two passes."""
    notes: list[str] = []
    config = _config(update={"mini_batch": 8}, options={"episodes": 12})
    method, tools = _method(config), _tools(loaded, notes=notes)
    batches = [method.gather(tools, number) for number in range(9)]
    assert [len(batch.samples) for batch in batches] == [8] * 9
    assert notes == ["36 samples of 12 demonstrations, 12 of them solved"]
    everything = method._data
    assert everything is not None
    passes = [ids for batch in batches for ids in _ids(batch)]
    assert sorted(passes[:36]) == sorted(passes[36:]) == sorted(_ids(everything))
    # After an interruption the method is made anew and goes on where it was.
    assert _ids(_method(config).gather(_tools(loaded), 5)) == _ids(batches[5])


def test_a_batch_has_the_trajectories_of_its_samples(loaded: Loaded):
    method = _method(_config(update={"mini_batch": 5}, options={"episodes": 12}))
    batch = method.gather(_tools(loaded), 0)
    assert {sample.trajectory for sample in batch.samples} == set(range(len(batch.trajectories)))
    for sample in batch.samples:
        turn = batch.trajectories[sample.trajectory].episode.turns[sample.turns[0]]
        start, stop = sample.spans[0]
        assert loaded.tokenizer.decode(sample.ids[start : stop - 1]) == turn.response


def test_without_a_mini_batch_an_update_takes_everything(loaded: Loaded):
    batch = _method(_config(options={"episodes": 12})).gather(_tools(loaded, "chat"), 3)
    assert len(batch.samples) == 12


def test_figures_of_a_batch(loaded: Loaded):
    method = _method(_config(options={"episodes": 24, "noise": 0.5, "only_solved": False}))
    tools = _tools(loaded)
    batch = method.gather(tools, 0)
    figures = method.signals(batch, tools)
    planned = np.concatenate([sample.signals[PLANNED] for sample in batch.samples])
    assert figures["demonstrations/tokens"] == len(planned)
    assert figures["demonstrations/planned"] == pytest.approx(planned.mean())
    assert 0 < planned.mean() < 1
    solved = [trajectory.episode.success for trajectory in batch.trajectories]
    assert figures["demonstrations/solved"] == pytest.approx(np.mean(solved))
    assert 0 < np.mean(solved) < 1


def test_the_loss_is_the_mean_negative_log_likelihood_of_what_is_imitated():
    logprobs = torch.tensor([[-1.0, -2.0], [-4.0, 0.0]], requires_grad=True)
    mask = torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    planned = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    tokens = Tokens(logprobs, torch.zeros(2, 2), mask, None, {PLANNED: planned})

    def gradient(imitate: str, weights: torch.Tensor) -> tuple[float, torch.Tensor]:
        method = _method(_config(options={"imitate": imitate}))
        (term,) = method.terms()
        assert term.mask == ("" if imitate == "all" else PLANNED)
        total, count = reduce_term(method.loss(tokens)["nll"], weights, term.average)
        (slope,) = torch.autograd.grad(total / float(count), logprobs)
        return total.item() / float(count), slope

    value, slope = gradient("all", mask)
    assert value == pytest.approx((1 + 2 + 4) / 3)
    assert slope.tolist() == [[pytest.approx(-1 / 3), pytest.approx(-1 / 3)], [pytest.approx(-1 / 3), 0.0]]
    value, slope = gradient("oracle", mask * planned)
    assert value == pytest.approx((1 + 4) / 2)
    assert slope.tolist() == [[-0.5, 0.0], [-0.5, 0.0]]
    statistic = _method(_config()).loss(tokens)["probability"]
    assert not statistic.requires_grad
    assert statistic[0, 1] == pytest.approx(np.exp(-2))


def test_recorded_runs_are_imitated(loaded: Loaded, tmp_path: Path):
    panel, protocol = load_panel("echo/train"), load_protocol("echo/choose-3")
    oracle = OraclePolicy(lambda task: get_suite("echo").oracle(panel, task))
    evaluate(Evaluation(panel=panel, protocol=protocol, policy=oracle, out=tmp_path / "run"), Progress())
    method = _method(_config(options={"source": "runs", "runs": [str(tmp_path / "run")]}))
    assert len(method.gather(_tools(loaded), 0).samples) == 36


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"options": {"source": "runs"}}, "source is 'runs' and runs names 0 folders"),
        ({"options": {"runs": ["here"]}}, "source is 'oracle' and runs names 1 folders"),
        ({"options": {"source": "runs", "runs": ["/not/here"]}}, "'/not/here', which is no folder"),
        ({"update": {"epochs": 2}}, "update.epochs must be 1"),
    ],
)
def test_what_contradicts_itself_is_refused(changes: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        _method(_config(**changes))


@pytest.mark.parametrize("protocol", ["choose-3", "free-3", "chat", "chat-free"])
def test_it_learns_what_it_is_shown(loaded: Loaded, protocol: str, tmp_path: Path):
    settings = _config(
        protocol=protocol,
        updates=30,
        update={"mini_batch": 12},
        options={"episodes": 24},
        checkpoints={"every": 0},
    )
    helpers.run(settings, tmp_path)
    probability = helpers.metric(tmp_path, "policy/probability")
    assert len(probability) == 30
    assert helpers.metric(tmp_path, "rollout/success") == []  # demonstrations are not the policy's episodes
    assert probability[-1] > 0.9 > probability[0]


def test_the_warm_start_is_an_sft_of_the_same_task():
    config = helpers.config(
        "tiny:s",
        seed=7,
        data={"families": ["left"], "fraction": 0.5, "reading": "draws"},
        validate=True,
        rollout={"group": 3},
        update={"tokens": 999, "epochs": 2},
        warmstart={"updates": 5, "lr": 2e-3, "episodes": 9, "noise": 0.25, "mini_batch": 6},
    )
    stage = warm_start_config(config)
    assert (stage.method, stage.suite, stage.model, stage.seed, stage.updates) == ("sft", "echo", "tiny:s", 7, 5)
    assert stage.planned_updates == 5
    assert (stage.data.panel, stage.data.families, stage.data.fraction) == ("echo/train", ("left",), 1.0)
    assert stage.protocol == config.protocol
    assert (stage.optimiser.lr, stage.optimiser.schedule) == (2e-3, "cosine")
    assert (stage.update.mini_batch, stage.update.tokens, stage.update.epochs) == (6, 999, 1)
    assert stage.validation.panel == ""
    assert stage.warmstart.updates == 0
    assert (_method(stage).settings.episodes, _method(stage).settings.noise) == (9, 0.25)


def test_the_warm_start_is_a_stage_only_where_it_is_asked_for():
    asked: list[tuple[TrainConfig, str]] = []

    def train(config: TrainConfig, folder: str) -> str:
        asked.append((config, folder))
        return f"run/{folder}/final"

    assert warm_start(helpers.config("tiny"), train) is None
    assert asked == []
    config = helpers.config("tiny", warmstart={"updates": 2})
    assert warm_start(config, train) == "run/warmstart/final"
    assert asked == [(warm_start_config(config), "warmstart")]

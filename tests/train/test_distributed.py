"""Two processes (gloo, on the CPU) do what one does: updates, whole runs, continued runs; and they end together."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from seedbench.errors import SeedBenchError, UsageError
from seedbench_trainers import launch
from seedbench_trainers.checks import checked
from seedbench_trainers.config import TrainConfig
from seedbench_trainers.distributed import World, evenly
from seedbench_trainers.interrupts import Interrupts
from seedbench_trainers.rollouts import RolloutPlan
from seedbench_trainers.scoring import TokenScorer
from tests.eval.helpers import REPOSITORY, wait_until
from tests.train.helpers import EchoSuite, config, echo, metric, numbers, read, recipe, run, weights
from tests.train.ranks import Job, launched, one_update, together
from tests.train.teaching import NO_STAGE1, static_file

SMOOTH = {"lr": 3e-3, "eps": 1e-3}
"""With Adam's usual epsilon a gradient that is zero but for rounding moves a weight as far as any other."""
Told = dict[str, dict[str, Any]]
FSDP: dict[str, Any] = {"distributed": {"strategy": "fsdp"}}
DDP: dict[str, Any] = {"distributed": {"strategy": "ddp"}}
SMALL: dict[str, Any] = {
    "protocol": "choose-3", "rollout": {"tasks": 3, "group": 3}, "update": {"mini_batch": 10, "tokens": 96},
    "optimiser": SMOOTH, "reward": {"of": "score"},
}  # fmt: skip


def _cases(folder: Path) -> dict[str, dict[str, Any]]:
    taught = {"method": "seed", "options": {**NO_STAGE1, "skill": static_file(folder), "weight": 0.5}}
    return {
        "grpo, ddp": DDP,
        "grpo, fsdp": FSDP,
        "conversation, fsdp": {**FSDP, "protocol": "chat"},
        "checkpointing, fsdp": {**FSDP, "update": {"checkpointing": True}},
        "a sample a step, fsdp": {
            **FSDP,
            "protocol": "choose",
            "update": {"mini_batch": 1},
            "rollout": {"tasks": 2, "group": 4},
        },
        "seed, ddp": {**DDP, **taught},
        "seed, fsdp": {**FSDP, **taught},
        "lora": {"lora": {"rank": 4}},
        "sft, fsdp": {**FSDP, "method": "sft", "options": {"episodes": 8}},
        "sft, broken environments on the second, ddp": {**DDP, "method": "sft", "options": {"episodes": 8}},
    }


NAMES = [
    "grpo, ddp", "grpo, fsdp", "conversation, fsdp", "checkpointing, fsdp", "a sample a step, fsdp",
    "seed, ddp", "seed, fsdp", "lora", "sft, fsdp", "sft, broken environments on the second, ddp",
]  # fmt: skip
BROKEN = {NAMES[-1]: "broken"}


def _merged(model: Path, changes: dict[str, Any]) -> TrainConfig:
    sections = {key: {**SMALL.get(key, {}), **value} if isinstance(value, dict) else value
                for key, value in changes.items()}  # fmt: skip
    return config(model, **{**SMALL, **sections})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("distributed")


@pytest.fixture(scope="module")
def updated(echo_folder: Path, built: Path, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What each of two processes says of one update, by case."""
    with echo(echo_folder):
        jobs = [
            Job(_merged(built, case), folder / name, "update", BROKEN.get(name, ""))
            for name, case in _cases(folder).items()
        ]
        told = together(echo_folder, folder, jobs)
    return {job.out.name: [one, other] for job, one, other in zip(jobs, *told, strict=True)}


@pytest.mark.parametrize("name", NAMES)
def test_an_update_equals_that_of_one_process(
    updated: Any, suite: EchoSuite, built: Path, folder: Path, tmp_path: Path, name: str
) -> None:
    alone = one_update(_merged(built, _cases(folder)[name]), tmp_path, World())
    for rank, told in enumerate(updated[name]):
        assert told["ids"] == alone["ids"]
        assert told["shards"] is name.endswith("fsdp")
        assert told["figures"] == pytest.approx(alone["figures"], rel=1e-5, abs=1e-6)
        mine, theirs = (torch.load(at / f"weights-{n}.pt") for at, n in ((tmp_path, 0), (folder / name, rank)))
        assert mine.keys() == theirs.keys()
        for weight, value in mine.items():
            torch.testing.assert_close(theirs[weight], value, rtol=1e-5, atol=1e-6)
    if name.startswith("seed"):
        assert alone["figures"]["gradient/distil"] > 0
    assert alone["figures"]["optim/grad_norm"] > 1e-4
    first, second = (torch.load(folder / name / f"weights-{rank}.pt") for rank in (0, 1))
    assert all(torch.equal(first[weight], second[weight]) for weight in first)  # replicas must never drift apart


# Whole runs

RUN: dict[str, Any] = {
    **SMALL, "updates": 3, "validate": True, "validation": {"every": 2, "limit": 4}, "checkpoints": {"every": 1},
}  # fmt: skip


def _runs(model: Path, folder: Path) -> dict[str, TrainConfig]:
    taught = {"method": "seed", "options": {**NO_STAGE1, "skill": "own", "analysis_tokens": 8, "weight": 0.5}}
    seed = {**RUN, **taught, "protocol": "chat-free"}
    return {
        "grpo": config(model, **RUN, **FSDP),
        "seed": config(model, **seed, **DDP),
        "seed, sharded": config(model, **seed, **FSDP),
        "warm start": config(model, **RUN, **DDP, warmstart={"updates": 2, "episodes": 8}),
    }


@pytest.fixture(scope="module")
def ran(echo_folder: Path, built: Path, folder: Path) -> Iterator[Told]:
    """What two processes say of whole runs, and of runs that one process begins or ends. The first's word."""
    with echo(echo_folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr("seedbench_trainers.curves.draw_curves", lambda folder: [])
        runs = _runs(built, folder)
        jobs = [Job(settings, folder / f"run {name}") for name, settings in runs.items()]
        begun = folder / "begun alone"
        _stopped_alone(runs["grpo"], begun)
        jobs += [
            Job(runs["grpo"], begun),
            Job(runs["grpo"], folder / "stopped", fault="stop"),
            Job(runs["grpo"], folder / "stopped in the update", fault="stop in the update"),
            Job(runs["grpo"], folder / "stopped both", fault="stop both"),
            Job(runs["grpo"], folder / "disk", fault="disk"),
            Job(runs["grpo"], folder / "load", fault="load"),
            Job(_uneven(runs["grpo"]), folder / "uneven"),
            Job(_uneven(config(built, **RUN, **DDP)), folder / "uneven, ddp"),
            Job(config(built, **{**RUN, "seed": 1}), folder / "run grpo"),
        ]
        told = together(echo_folder, folder, jobs)
        yield {job.out.name + ("!" if job is jobs[-1] else ""): {"first": one, "second": other}
               for job, one, other in zip(jobs, *told, strict=True)}  # fmt: skip


def _uneven(settings: TrainConfig) -> TrainConfig:
    return settings.model_copy(update={"method": "uneven"})


def _stopped_alone(settings: TrainConfig, out: Path) -> None:
    collect = RolloutPlan.collect

    def stopped(self: RolloutPlan, iteration: int) -> Any:
        if iteration == 2:
            raise KeyboardInterrupt
        return collect(self, iteration)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RolloutPlan, "collect", stopped)
        with pytest.raises(KeyboardInterrupt):
            run(settings, out)


def _assert_alike(whole: Path, parts: Path) -> None:
    for one, other in zip(numbers(whole), numbers(parts), strict=True):
        assert one[:2] == other[:2]
        assert other[2] == pytest.approx(one[2], rel=1e-4, abs=1e-5, nan_ok=True)
    first, second = weights(whole / "final"), weights(parts / "final")
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["grpo", "seed", "seed, sharded", "warm start"])
def test_a_run_equals_that_of_one_process(ran: Told, model: Path, folder: Path, tmp_path: Path, name: str) -> None:
    together = folder / f"run {name}"
    assert ran[together.name] == {
        "first": {"final": str(together / "final"), "shown": True},
        "second": {"final": str(together / "final"), "shown": False},
    }
    run(_runs(model, folder)[name], tmp_path)
    assert len(metric(tmp_path, "validation/success")) == 3
    _assert_alike(tmp_path, together)
    assert read(together / "training.json")["settings"] == read(tmp_path / "training.json")["settings"]


def test_begun_by_one_and_ended_by_two(ran: Told, model: Path, folder: Path) -> None:
    assert ran["begun alone"]["first"]["shown"]
    _assert_alike(folder / "run grpo", folder / "begun alone")
    assert len(read(folder / "begun alone" / "training.json")["sessions"]) == 2


@pytest.mark.parametrize("name", ["stopped", "stopped both", "stopped in the update"])
def test_a_signal_to_one_stops_both_and_one_goes_on(ran: Told, model: Path, folder: Path, name: str) -> None:
    """The signal comes in roll-outs, in those and to the other as it waits, or in an update, whose end it waits for."""
    assert ran[name] == {who: {"error": "KeyboardInterrupt", "text": "", "agreed": True} for who in ("first", "second")}
    (saved,) = (folder / name / "checkpoints").iterdir()
    assert read(saved / "state.json")["update"] == (1 if "update" in name else 2)
    run(_runs(model, folder)["grpo"], folder / name)
    _assert_alike(folder / "run grpo", folder / name)


# Faults


def _both(ran: Told, name: str) -> str:
    """The one message of both processes."""
    first, second = ran[name]["first"], ran[name]["second"]
    assert first == second
    assert first["agreed"] is True
    return str(first["text"])


def test_a_full_disk_on_the_first_ends_both(ran: Told, folder: Path) -> None:
    assert "No space left on device" in _both(ran, "disk")
    assert not list((folder / "disk" / "checkpoints").glob("*"))


def test_a_process_that_cannot_load_ends_both(ran: Told) -> None:
    assert "device lost" in _both(ran, "load")


@pytest.mark.parametrize("name", ["uneven", "uneven, ddp"])
def test_a_loss_that_is_no_number_on_one_ends_both(ran: Told, folder: Path, name: str) -> None:
    assert _both(ran, name).startswith("update 1: the loss is not a finite number. Training stopped before the step")
    assert all(bool(value.isfinite().all()) for value in weights(folder / name / "halted").values())


def test_other_settings_are_refused_by_both(ran: Told) -> None:
    assert "holds a run with other settings: seed" in _both(ran, "run grpo!")


@pytest.mark.parametrize(
    ("fault", "first", "second"),
    [
        # In an update with shards the other waits for a part that never comes; only its end can be told.
        ("lost", (1, "Traceback"), (1, "MemoryError: a pass does not fit")),
        ("died", (1, "error: another process of this training has ended"), (9, "")),
        ("mistaken", (1, "error: process 2 of 2 failed (ValueError: a mistake of ours)"), (1, "in mistaken")),
    ],
)
def test_nobody_waits_for_a_process_that_ends(
    suite: EchoSuite, model: Path, tmp_path: Path, fault: str, first: tuple[int, str], second: tuple[int, str]
) -> None:
    settings = config(model, **{**RUN, **FSDP, "validate": False, "validation": {}})
    ended = launched(suite.folder, tmp_path, [Job(settings, tmp_path / "run", fault=fault)])
    for (code, text), told in zip((first, second), ended, strict=True):
        assert told.code == code
        assert text in told.err


# The launcher


def _launched(suite: EchoSuite, folder: Path, *words: object) -> subprocess.Popen[str]:
    script = folder / "train.py"
    script.write_text(
        "import pathlib, tests.train.helpers as helpers\n"
        f"held = helpers.echo(pathlib.Path({str(suite.folder)!r}))\nheld.__enter__()\n"
        "from seedbench.cli import main\nmain()\n"
    )
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d",
                "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1")  # fmt: skip
    return subprocess.Popen(
        [sys.executable, *launcher, script, "train", *map(str, words)],
        cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path])},
    )  # fmt: skip


def test_torchrun_is_told_to_stop(suite: EchoSuite, model: Path, tmp_path: Path) -> None:
    settings = config(
        model, **{**RUN, "updates": 400, "validate": False, "validation": {}, "checkpoints": {"every": 0}}
    )
    words = ("--method", "grpo", "--recipe", recipe(tmp_path, settings), "-q", "--out", tmp_path / "run")
    child = _launched(suite, tmp_path, *words)
    try:
        wait_until(lambda: (tmp_path / "run" / "metrics.jsonl").is_file() and len(numbers(tmp_path / "run")) > 3, 120)
        child.send_signal(signal.SIGTERM)
        _, err = child.communicate(timeout=60)
    finally:
        child.terminate()  # and with it its processes
    assert err.count("interrupted; run the same command again to continue.") == 1
    assert child.returncode != 0
    (saved,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert 3 <= read(saved / "state.json")["update"] < settings.updates


def test_torchrun_and_a_wrong_setting(suite: EchoSuite, tmp_path: Path) -> None:
    child = _launched(suite, tmp_path, "--method", "groo", "--suite", "echo")
    _, err = child.communicate(timeout=120)
    assert err.count("error: unknown method 'groo': did you mean 'grpo'?") == 1
    assert child.returncode != 0


# The parts


def test_alone_nothing_is_told() -> None:
    world = World()
    assert (world.leads, world.agree(lambda: 1), world.exchange(lambda: 2), world.first(lambda: 3)) == (True, 1, [2], 3)
    assert world.shared("abc", [0, 1, 5], lambda some: [letter.upper() for letter in some]) == ["A", "B", "C"]
    with pytest.raises(ZeroDivisionError):
        world.agree(lambda: 1 // 0)


@pytest.mark.parametrize(
    ("sizes", "parts", "expected"),
    [
        ([5, 5, 5, 5], 2, [0, 0, 1, 1]), ([9, 1, 1, 1], 2, [0, 1, 1, 1]), ([1, 1], 4, [0, 2]), ([], 3, []),
        ([3, 3, 3], 1, [0, 0, 0]), ([0, 0], 2, [0, 0]),
    ],
)  # fmt: skip
def test_evenly(sizes: list[int], parts: int, expected: list[int]) -> None:
    assert evenly(sizes, parts) == expected


def test_shields_within_shields_let_a_signal_through_at_the_outer_end() -> None:
    ends = []

    def block(interrupts: Interrupts) -> None:
        with interrupts.shielded():
            with interrupts.shielded():
                signal.raise_signal(signal.SIGTERM)
                signal.raise_signal(signal.SIGTERM)  # ignored: others wait for this process
            ends.append("inner")
        ends.append("outer")

    with Interrupts(once=True) as interrupts, pytest.raises(KeyboardInterrupt):
        block(interrupts)
    assert ends == ["inner"]


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two', not a number"),
        (
            {"WORLD_SIZE": "2", "RANK": "0"},
            "WORLD_SIZE says 2 processes, but LOCAL_RANK, MASTER_ADDR, MASTER_PORT is not",
        ),
    ],
)
def test_a_launcher_that_says_too_little(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], text: str
) -> None:
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=text):
        launch.join()


def test_a_gpu_for_every_process(monkeypatch: pytest.MonkeyPatch, suite: EchoSuite) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.set_device", lambda local: None)
    world, settings = World(size=4), config("m")
    auto, cuda, one = (settings.model_copy(update={"device": name}) for name in ("auto", "cuda", "cuda:1"))
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert [launch.placed(c, world).device for c in (settings, auto, cuda)] == ["cpu", "cuda:1", "cuda:1"]
    with pytest.raises(UsageError, match="device is cuda:1, one GPU for 4 processes; say cuda"):
        launch.placed(one, world)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(SeedBenchError, match="process 3 of this machine has no GPU of its own: 2 are there"):
        launch.placed(auto, world)


def test_adapters_in_shards_are_refused(suite: EchoSuite) -> None:
    settings = config("m", lora={"rank": 4}).model_dump(mode="json") | FSDP
    with pytest.raises(UsageError, match=r"distributed\.strategy is fsdp and lora\.rank is set"):
        checked(TrainConfig, settings)


def test_a_pass_over_forced_tokens_has_the_parameters_of_any_other(suite: EchoSuite) -> None:
    """Processes add up gradients parameter by parameter: none may be missing on one of them."""
    shape = LlamaConfig(hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                        vocab_size=50, tie_word_embeddings=False)  # fmt: skip
    model: Any = LlamaForCausalLM(shape)
    scorer, head = TokenScorer(model), model.lm_head.weight
    ids, rows, positions = torch.tensor([[1, 2, 3]]), torch.zeros(1, dtype=torch.long), torch.tensor([2])
    forced = {"allowed": torch.tensor([[3]]), "restricted": torch.tensor([True])}
    scorer(ids, rows, positions, **forced)[0].sum().backward()
    assert head.grad is None
    scorer.whole_graph = True
    logprobs, _ = scorer(ids, rows, positions, **forced)
    logprobs.sum().backward()
    assert logprobs.item() == 0
    assert head.grad is not None
    assert torch.equal(head.grad, torch.zeros_like(head))
    scorer.zero_grad()
    zero = scorer.idle()
    zero.backward()
    assert zero.item() == 0
    assert all(p.grad is not None and not bool(p.grad.any()) for p in scorer.parameters())

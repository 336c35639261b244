"""What goes wrong in a training run is one sentence and an exit code; what was done before is kept."""

import errno
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from seedbench.errors import SeedBenchError
from seedbench_trainers.base import Tokens
from seedbench_trainers.checkpoint import _replace
from seedbench_trainers.config import TrainConfig
from seedbench_trainers.methods.grpo import GRPO
from tests.eval.helpers import Command, command_line, said
from tests.train.helpers import (
    EchoSuite,
    assert_same_weights,
    config,
    method_installed,
    metric,
    numbers,
    panel,
    read,
    recipe,
    run,
    weights,
)

SMALL: dict[str, Any] = {"rollout": {"tasks": 2, "group": 3}, "updates": 3}


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_line(monkeypatch, capsys)


@pytest.fixture
def train(cli: Command, model: Path, tmp_path: Path) -> Callable[..., Any]:
    """The real command on a configuration; what it told."""

    def told(settings: TrainConfig | None = None, *more: object, method: str = "grpo") -> Any:
        file = recipe(tmp_path, settings or config(model, **SMALL))
        return cli("train", "--method", method, "--recipe", file, "-q", "--out", tmp_path / "run", *more)

    return told


# Environments


def test_an_environment_that_breaks_too_often(
    train: Callable[..., Any], suite: EchoSuite, model: Path, tmp_path: Path
) -> None:
    for task in panel("train", 12).tasks:
        suite.faults[task.id] = 1
    settings = config(model, updates=1, rollout={"tasks": 4, "group": 4})
    text = said(train(settings), 1)
    assert text == (
        "4 of 16 training episodes ended in infrastructure errors (the last: environment: OSError: the engine fell"
        " over). Mend the cause and run the same command again."
    )
    assert train(settings).code == 0  # the engine has been mended
    assert metric(tmp_path / "run", "rollout/broken") == [0]
    assert len(read(tmp_path / "run" / "training.json")["sessions"]) == 2


def test_an_environment_that_always_breaks(train: Callable[..., Any], suite: EchoSuite) -> None:
    for task in panel("train", 12).tasks:
        suite.faults[task.id] = 99
    assert said(train(), 1).startswith("6 of 6 training episodes ended in infrastructure errors")


# Losses that are no number


class Poisoned(GRPO):
    """A loss that is no number in its third update."""

    name: ClassVar[str] = "poisoned"
    calls: ClassVar[int] = 0

    def loss(self, tokens: Tokens) -> Mapping[str, torch.Tensor]:
        values = dict(super().loss(tokens))
        type(self).calls += 1
        if self.calls == 3:
            values["policy"] = values["policy"] * float("nan")
        return values


def test_a_loss_that_is_no_number(train: Callable[..., Any], model: Path, tmp_path: Path) -> None:
    Poisoned.calls = 0
    settings = config(model, method="grpo", **SMALL).model_copy(update={"method": "poisoned"})
    with method_installed("poisoned", Poisoned):
        text = said(train(settings, method="poisoned"), 1)
        assert text == (
            "update 3: the loss is not a finite number. Training stopped before the step; the weights and the batch"
            f" are in '{tmp_path}/run/halted'. A lower optimiser.lr is the usual cure; the run's last checkpoint is"
            " untouched."
        )
        halted, saved = tmp_path / "run" / "halted", tmp_path / "run" / "checkpoints" / "update-000002"
        assert_same_weights(halted, saved)  # of before the step
        assert all(bool(torch.isfinite(tensor).all()) for tensor in weights(halted).values())
        label = read(halted / "seedbench.json")
        assert (label["label"], label["update"]) == ("before the step that failed", 2)
        with np.load(halted / "batch.npz") as batch:
            assert {name.partition("/")[0] for name in batch} == {str(n) for n in range(6)}
            assert {name.partition("/")[2] for name in batch} == {"ids", "positions", "old", "advantage", "ref"}
            assert batch["0/old"].shape == batch["0/positions"].shape == batch["0/advantage"].shape
        # The checkpoint is whole: the loss is a number by now, and the run ends as if nothing had been.
        assert train(settings, method="poisoned").code == 0
        run(settings, tmp_path / "whole")
    assert numbers(tmp_path / "run") == numbers(tmp_path / "whole")


def test_a_loss_that_is_no_number_and_a_full_disk(train: Callable[..., Any], model: Path) -> None:
    Poisoned.calls = 0
    settings = config(model, method="grpo", **SMALL).model_copy(update={"method": "poisoned"})
    with method_installed("poisoned", Poisoned), pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "savez_compressed", _full)
        text = said(train(settings, method="poisoned"), 1)
    assert text.startswith("update 3: the loss is not a finite number, and ")
    assert "No space left on device" in text


@pytest.mark.parametrize("rate", [1e30, 1e5])
@pytest.mark.parametrize("size", [0, 2])
def test_a_learning_rate_that_destroys_the_model(
    train: Callable[..., Any], model: Path, tmp_path: Path, size: int, rate: float
) -> None:
    settings = config(model, optimiser={"lr": rate}, update={"mini_batch": size}, **SMALL)
    text = said(train(settings), 1)
    print(text)
    assert "is not a finite number. Training stopped before the step" in text
    assert (tmp_path / "run" / "halted" / "batch.npz").is_file()


def test_a_model_whose_weights_are_no_numbers(train: Callable[..., Any], model: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    shutil.copytree(model, tmp_path / "broken")
    network: Any = AutoModelForCausalLM.from_pretrained(model)
    with torch.no_grad():
        network.model.embed_tokens.weight.fill_(float("nan"))
    network.save_pretrained(tmp_path / "broken")
    text = said(train(config(tmp_path / "broken", **SMALL)), 1)
    assert text.startswith(f"the weights of '{tmp_path}/broken' are not all finite numbers: ")
    assert not (tmp_path / "run" / "final").exists()


# Disks


def _full(*args: object, **named: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("what", ["weights", "optimiser"])
def test_a_full_disk_at_a_checkpoint(
    train: Callable[..., Any], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    settings = config(model, checkpoints={"every": 1}, **SMALL)
    owner, name = (PreTrainedModel, "save_pretrained") if what == "weights" else (torch, "save")
    real, calls = getattr(owner, name), 0

    def save(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        return _full() if calls == 2 else real(*args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, save)
        text = said(train(settings), 1)
    assert text.startswith("cannot write the checkpoint ")
    assert "No space left on device" in text
    assert "it continues from the last whole checkpoint." in text
    folder = tmp_path / "run" / "checkpoints"
    assert [path.name for path in folder.iterdir()] == ["update-000001"]  # whole, and no draft beside it
    assert train(settings).code == 0
    run(settings, tmp_path / "whole")
    assert numbers(tmp_path / "run") == numbers(tmp_path / "whole")
    assert_same_weights(tmp_path / "run" / "final", tmp_path / "whole" / "final")


# Folders


def test_a_full_disk_for_the_tiny_model(
    train: Callable[..., Any], suite: EchoSuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PreTrainedModel, "save_pretrained", _full)
        text = said(train(config("tiny:xs", **SMALL)), 1)
    assert text.startswith("cannot write the tiny model ")
    assert text.endswith("Free space and run the same command again.")
    assert not list((tmp_path / "run").glob("*start*"))


def test_a_folder_that_cannot_be_replaced_stays(tmp_path: Path) -> None:
    (tmp_path / "final").mkdir()
    with pytest.raises(SeedBenchError, match="cannot write"):
        _replace(tmp_path / "no draft", tmp_path / "final")
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


def test_a_seed_of_any_size(train: Callable[..., Any], model: Path) -> None:
    assert train(config(model, seed=10**30, lora={"rank": 2}, **SMALL)).code == 0


def test_a_folder_with_other_settings(train: Callable[..., Any], model: Path, tmp_path: Path) -> None:
    assert train(None, "--updates", 1).code == 0
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    text = said(train(None, "--updates", 1, "--seed", 3, "--set", "optimiser.lr=0.5"), 2)
    assert text.startswith(f"'{tmp_path}/run' holds a run with other settings: ")
    for part in ("seed", "optimiser", "0.5", "Choose another --out"):
        assert part in text
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_a_folder_that_is_no_run(train: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("all of it")
    assert "is not an empty folder and holds no training run" in said(train(), 2)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.tex"]
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "run").write_text("a file")
    assert "is not an empty folder" in said(train(), 2)


def test_a_second_process_in_the_folder(train: Callable[..., Any], model: Path, tmp_path: Path) -> None:
    from seedbench_trainers.setup import open_run

    settings = config(model, **SMALL)
    with open_run(settings.model_copy(update={"recipe": "echo"}), tmp_path / "run"):
        text = said(train(settings), 1)
    assert text == f"another process is training in '{tmp_path}/run'; wait for it or choose another --out."
    assert train(settings).code == 0


@pytest.mark.parametrize("file", ["optimiser.pt", "state.json", "model.safetensors", "config.json"])
@pytest.mark.parametrize("fault", ["cut", "gone"])
def test_a_damaged_checkpoint(train: Callable[..., Any], tmp_path: Path, file: str, fault: str) -> None:
    assert train(None, "--updates", 1).code == 0
    (saved,) = (tmp_path / "run" / "checkpoints").iterdir()
    path = saved / file
    if fault == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.unlink()
    text = said(train(None, "--updates", 1), 1)
    assert str(saved) in text
    assert "Delete that folder" in text
    shutil.rmtree(saved)
    assert train(None, "--updates", 1).code == 0


@pytest.mark.parametrize("file", ["adapter_model.safetensors", "adapter_config.json"])
def test_a_damaged_adapter(train: Callable[..., Any], model: Path, tmp_path: Path, file: str) -> None:
    settings = config(model, lora={"rank": 2}, **SMALL)
    assert train(settings, "--updates", 1).code == 0
    (saved,) = (tmp_path / "run" / "checkpoints").iterdir()
    (saved / file).write_bytes((saved / file).read_bytes()[:40])
    assert said(train(settings, "--updates", 1), 1).startswith(f"the checkpoint '{saved}' is damaged (")


def test_a_record_that_is_no_record(train: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "training.json").write_text('{"settings": ')
    assert "training.json' is damaged" in said(train(), 1)


# Names and models


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--method", "gprO"], "unknown method 'gprO': did you mean 'grpo'?"),
        (["--method", "grpo", "--recipe", "mini-alfwrld"], "unknown recipe 'mini-alfwrld': did you mean 'mini-"),
        (["--method", "grpo", "--suite", "mini-alfworld", "--set", "rollout.gruop=3"], "did you mean 'group'?"),
        (["--method", "grpo", "--suite", "mini-alfworld", "--set", "method.clip_hihg=3"], "did you mean 'clip_high'?"),
        (["--method", "grpo", "--suite", "mini-alfworld", "--set", "data.panel=mini-alfworld/trian"], "did you mean"),
        (["--method", "grpo", "--suite", "mini-alfworld", "--set", "protocol.set.stpes=3"], "did you mean 'steps'?"),
    ],
)  # fmt: skip
def test_a_name_that_does_not_exist(cli: Command, words: list[str], text: str) -> None:
    assert text in said(cli("train", *words), 2)


def test_a_model_that_is_not_there(train: Callable[..., Any], tmp_path: Path) -> None:
    text = said(train(config(tmp_path / "no-model", **SMALL)), 2)
    assert "no-model" in text
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_tokenizer_without_a_chat_template(train: Callable[..., Any], model: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(model, tmp_path / "bare")
    (bare / "chat_template.jinja").unlink()
    text = said(train(config(bare, **SMALL)), 1)
    assert "chat template" in text
    assert "bare" in text


def test_lora_on_modules_that_do_not_exist(train: Callable[..., Any], model: Path) -> None:
    text = said(train(config(model, lora={"rank": 2, "targets": ("query",)}, **SMALL)), 2)
    assert text.startswith("lora.targets: ")
    assert "query" in text


def test_data_that_is_not_in_the_store(
    train: Callable[..., Any], suite: EchoSuite, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "content_hashes", lambda panel: {})
    text = said(train(), 1)
    assert "0 of 12 tasks are in the store" in text
    assert text.endswith("Fetch the data again: `seedbench data fetch echo`.")

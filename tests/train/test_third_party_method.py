"""The example of docs/adding-a-method.md, in a package of its own with an entry point, trains a policy."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seedbench import registry
from seedbench_trainers.base import Tokens
from tests.eval.helpers import REPOSITORY, Command, command_line, said
from tests.train.helpers import config, echo, metric, recipe

PAGE = (REPOSITORY / "docs" / "adding-a-method.md").read_text(encoding="utf-8")
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.S)[0]
PROJECT = tomllib.loads(re.findall(r"```toml\n(.*?)```", PAGE, re.S)[0])["project"]
GROUP = "seedbench.trainers"


def _forget() -> None:
    registry._points.cache_clear()
    registry.get_method.cache_clear()
    registry.get_suite.cache_clear()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built: Path, echo_folder: Path) -> Iterator[Path]:
    """The example as an installer would leave it on the path; the folder."""
    folder = tmp_path / "site"
    about = folder / f"{PROJECT['name']}-{PROJECT['version']}.dist-info"
    about.mkdir(parents=True)
    (folder / "mymethods.py").write_text(CODE, encoding="utf-8")
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PROJECT['name']}\nVersion: {PROJECT['version']}\n")
    points = PROJECT["entry-points"][GROUP]
    (about / "entry_points.txt").write_text(f"[{GROUP}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()))
    monkeypatch.syspath_prepend(folder)
    _forget()
    with echo(echo_folder):
        yield folder
    _forget()


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_line(monkeypatch, capsys)


def test_the_example_is_short() -> None:
    assert len(CODE.strip().splitlines()) < 60
    assert PROJECT["entry-points"][GROUP] == {"rloo": "mymethods:RLOO"}


def test_it_is_listed_and_its_settings_are_checked(package: Path, cli: Command) -> None:
    assert "  rloo                   REINFORCE with a leave-one-out baseline" in cli("train", "--list").out
    words = ("train", "--method", "rloo", "--suite", "mini-alfworld", "--dry-run")
    assert "entropy_coefficient = 0.5" in cli(*words, "--set", "method.entropy_coefficient=0.5").out
    text = said(cli(*words, "--set", "method.entropy_coeficient=0.5"), 2)
    assert "unknown key in [method] 'entropy_coeficient': did you mean 'entropy_coefficient'?" in text
    assert "set rollout.group to 2 or more" in said(cli(*words, "--set", "rollout.group=1"), 2)


def test_it_solves_the_trivial_environment(package: Path, cli: Command, built: Path, tmp_path: Path) -> None:
    settings = config(
        built, method="rloo", validate=True, updates=12, rollout={"tasks": 6, "group": 8}, optimiser={"lr": 2e-3},
        options={"entropy_coefficient": 0.001}, checkpoints={"every": 0},
    )  # fmt: skip
    told = cli("train", "--method", "rloo", "--recipe", recipe(tmp_path, settings), "-q", "--out", tmp_path / "run")
    assert (told.code, told.err) == (0, "")
    before, after = metric(tmp_path / "run", "validation/success")
    assert (before < 0.8, after) == (True, 1.0)
    assert "rloo" in told.out
    assert f"curve: {tmp_path}/run/learning-curve.png\n" in told.out
    entropy = metric(tmp_path / "run", "loss/entropy")
    assert abs(entropy[-1]) < abs(entropy[0])


def test_its_numbers_by_hand(package: Path) -> None:
    from seedbench_trainers.records import Batch
    from tests.train.test_grpo import TOOLS, _sample, _trajectory

    settings: Any = config("none", method="rloo")
    kind = registry.get_method("rloo")
    method = kind(kind.Settings(), settings)
    batch = Batch(
        [_trajectory(0, 6.0, (0.0, 0.5)), _trajectory(0, 0.0, (0.0,)), _trajectory(0, 3.0, (0.0,))],
        [_sample(0, (0, 1), (2, 1)), _sample(1, (0,), (1,)), _sample(2, (0,), (1,))],
    )
    figures = method.signals(batch, TOOLS)
    # Baselines: (0 + 3) / 2, (6 + 3) / 2, (6 + 0) / 2.
    assert [s.signals["advantage"].tolist() for s in batch.samples] == [[4.5, 4.5, 4.0], [-4.5], [0.0]]
    assert figures["advantage/abs"] == np.mean([4.5, 4.0, 4.5, 0.0])
    logp = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    tokens = Tokens(logp, logp.detach(), torch.ones(1, 2), None, {"advantage": torch.tensor([[3.0, -1.0]])})
    assert method.loss(tokens)["policy"].tolist() == [[3.0, -2.0]]

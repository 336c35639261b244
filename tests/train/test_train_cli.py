"""`seedbench train` by the real entry point; the loop itself is replaced."""

import importlib.metadata
import subprocess
import sys
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest

import seedbench.cli
from seedbench.registry import method_names
from seedbench_trainers.config import TrainConfig
from seedbench_trainers.recipes import resolve, shipped_recipes
from tests.eval.helpers import Command, command_line, said

GRPO = ("train", "--method", "grpo", "--suite", "mini-alfworld")


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_line(monkeypatch, capsys)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[TrainConfig, Path, bool]]:
    """What the command asks the loop, which is replaced and trains nothing."""
    asked: list[tuple[TrainConfig, Path, bool]] = []

    def train(config: TrainConfig, out: Path, *, quiet: bool, cluster: None = None) -> dict[str, Any]:
        asked.append((config, out, quiet))
        return {"final": out / "final", "tables": [], "curves": [out / "curve.png"]}

    loop = types.ModuleType("seedbench_trainers.loop")
    loop.train = train  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "seedbench_trainers.loop", loop)
    return asked


def test_list(cli: Command) -> None:
    told = cli("train", "--list")
    assert (told.code, told.err) == (0, "")
    methods, recipes = told.out.split("\n\n")
    assert [line.split()[0] for line in methods.splitlines()[1:]] == method_names()
    assert {"grpo", "gigpo", "sft"} <= set(method_names())
    assert "2402.03300" in methods
    assert [line.split()[0] for line in recipes.splitlines()[1:]] == list(shipped_recipes())


def test_dry_run_prints_the_configuration_and_its_sizes(cli: Command, calls: list[Any], tmp_path: Path) -> None:
    told = cli(*GRPO, "--dry-run", "--set", "optimiser.lr=1e-4", "--updates", 7, "--seed", 2)
    assert (told.code, told.err, calls) == (0, "", [])
    table = tomllib.loads(told.out)
    assert (table["optimiser"]["lr"], table["updates"], table["seed"]) == (1e-4, 7, 2)
    assert "# 7 updates; in each at most 128 samples, 524,288 tokens, 1 optimiser step; at most 896 samples" in told.out
    assert "# tiny: 618,624 parameters, 618,624 of them trained\n" in told.out
    assert "(weights 2.4 MiB, gradients 2.4 MiB, optimiser 4.7 MiB, activations " in told.out
    file = tmp_path / "printed.toml"
    file.write_text(told.out, encoding="utf-8")
    again = resolve("grpo", recipe=str(file))
    assert again == resolve(
        "grpo", "mini-alfworld", overrides=["optimiser.lr=1e-4"], updates=7, seed=2
    ).model_copy(update={"recipe": "printed"})  # fmt: skip
    assert not list(tmp_path.glob("runs"))


def test_dry_run_of_a_model_that_is_not_here(cli: Command) -> None:
    told = cli("train", "--method", "grpo", "--suite", "alfworld", "--model", "someone/Great-9B", "--dry-run")
    assert told.out.endswith("# someone/Great-9B: about 9,000,000,000 parameters by its name; memory unknown\n")
    told = cli("train", "--method", "grpo", "--suite", "alfworld", "--model", "someone/great", "--dry-run")
    assert told.out.endswith("# someone/great: its size is unknown until it is here, and so is the memory\n")


def test_what_the_loop_is_asked(cli: Command, calls: list[Any], tmp_path: Path) -> None:
    told = cli(*GRPO, "--model", "tiny:xs", "--out", tmp_path / "run", "--device", "cpu", "-q", "--set", "seed=4")
    assert (told.code, told.err) == (0, "")
    (asked,) = calls
    expected = resolve("grpo", "mini-alfworld", "tiny:xs", overrides=["seed=4"], device="cpu")
    assert asked == (expected, tmp_path / "run", True)
    assert told.out == f"curve: {tmp_path}/run/curve.png\nrun: {tmp_path}/run  (checkpoint: {tmp_path}/run/final)\n"


def test_the_run_has_a_folder_of_its_own(cli: Command, calls: list[Any]) -> None:
    assert cli(*GRPO).code == 0
    assert cli(*GRPO, "--model", "someone/Great-9B").code == 0
    assert [str(out) for _, out, _ in calls] == [
        "runs/grpo--mini-alfworld--tiny",
        "runs/grpo--mini-alfworld--Great-9B",
    ]


def test_resume_only_goes_on(cli: Command, calls: list[Any], tmp_path: Path) -> None:
    for _ in range(2):  # without the folder, and with an empty one
        told = cli(*GRPO, "--resume", "--out", tmp_path / "run")
        assert f"there is no run in '{tmp_path / 'run'}'" in said(told, 2)
        (tmp_path / "run").mkdir(exist_ok=True)
    assert calls == []
    (tmp_path / "run" / "training.json").write_text("{}")
    assert cli(*GRPO, "--resume", "--out", tmp_path / "run").code == 0
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--suite", "alfworld"], "name a method with --method"),
        (["--method", "grpo"], "name a suite with --suite"),
        (["--method", "gpro", "--suite", "alfworld"], "unknown method 'gpro': did you mean 'grpo'?"),
        (["--method", "grpo", "--suite", "alfwrld"], "unknown suite 'alfwrld': did you mean 'alfworld'?"),
        (["--method", "grpo", "--recipe", "mini-alfwrld"], "did you mean 'mini-alfworld'?"),
        ([*GRPO[1:], "--model", "smollm"], "unknown model 'smollm': did you mean 'smollm2-135m'?"),
        ([*GRPO[1:], "--set", "rollout.grup=3"], "unknown key in [rollout] 'grup': did you mean 'group'?"),
        ([*GRPO[1:], "--set", "rollouts.group=3"], "unknown section in --set 'rollouts': did you mean 'rollout'?"),
        ([*GRPO[1:], "--set", "method.kl=3"], "unknown key in [method] 'kl'"),
        ([*GRPO[1:], "--device", "gpu"], "device must be auto, cpu, cuda or cuda:N, not 'gpu'"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(cli: Command, calls: list[Any], words: list[str], text: str) -> None:
    assert text in said(cli("train", *words), 2)
    assert calls == []


# Verbs of other packages


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> list[importlib.metadata.EntryPoint]:
    """The verbs that are registered: `train` and those that a test adds."""
    group = seedbench.cli.VERBS
    found = list(importlib.metadata.entry_points(group=group))
    monkeypatch.setattr(seedbench.cli, "entry_points", lambda group: found)
    return found


def test_verbs_of_other_packages(cli: Command, points: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import typer

    module = types.ModuleType("other_package")

    def greet(name: str = typer.Option("you")) -> None:
        """Greet someone."""
        typer.echo(f"hello {name}")

    group = typer.Typer(help="A group.")
    group.command("one")(greet)
    group.command("two")(greet)
    module.greet, module.group = greet, group  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "other_package", module)
    point = importlib.metadata.EntryPoint
    points += [
        point("broken", "no_such_package:verb", seedbench.cli.VERBS),
        point("greet", "other_package:greet", seedbench.cli.VERBS),
        point("many", "other_package:group", seedbench.cli.VERBS),
        point("eval", "other_package:greet", seedbench.cli.VERBS),
    ]
    assert cli("greet", "--name", "all") == (0, "hello all\n", "")
    assert cli("many", "two") == (0, "hello you\n", "")
    told = cli("--help")
    assert told.code == 0
    assert "Greet someone." in told.out
    assert "does not load: ModuleNotFoundError" in told.out
    assert "Score a policy on a panel." in told.out  # ours is not replaced
    assert "Train a model with a method." in told.out
    text = said(cli("broken", "word", "--option", "3"), 1)
    assert text.startswith("the verb 'broken' (no_such_package:verb) is registered but does not load")


def test_a_mistyped_verb_is_offered(cli: Command) -> None:
    told = cli("trian")
    assert told.code == 2
    assert "Did you mean 'train'?" in told.err


@pytest.mark.parametrize(
    "code",
    [
        "import seedbench_trainers.base, seedbench_trainers.config, seedbench_trainers.recipes, seedbench_trainers.cli",
        "import seedbench_trainers.checks, seedbench_trainers.estimate",
        "from seedbench_trainers.recipes import resolve; resolve('grpo', 'mini-alfworld')",
    ],
)
def test_configurations_load_no_model_library(code: str) -> None:
    script = f"{code}\nimport sys\nprint({{'torch', 'transformers', 'scipy', 'matplotlib', 'peft'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "set()\n"

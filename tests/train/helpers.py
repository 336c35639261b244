"""A suite that any correct trainer solves in seconds, and configurations for it; runs are real, models tiny."""

import hashlib
import json
import math
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from seedbench import registry
from seedbench.panels import Panel, write_panel
from seedbench.suite import DataStatus, Option, Suite, refuse_unknown
from seedbench.types import Task
from seedbench_trainers.config import TrainConfig
from seedbench_trainers.journal import Record, read_journal
from tests.eval.helpers import REPOSITORY, Plugin, Step, command, installed

WORDS = ("left", "right")
FAMILIES = {"left": "pick", "right": "look"}  # named as in a table layout, so that results can be printed
SIZES = {"train": 12, "test": 8}
PROTOCOLS = {
    # name: context, decoding, steps
    "choose": ("window", "admissible", 1),
    "choose-3": ("window", "admissible", 3),
    "chat": ("chat", "admissible", 3),
    "free": ("window", "free", 1),
    "free-3": ("window", "free", 3),
    "chat-free": ("chat", "free", 3),
}
_PROTOCOL = """
name = "echo/{name}"
version = 1
summary = "for tests"
suites = ["echo"]
limits = {{ steps = {steps}, prompt_tokens = 200, response_tokens = 3 }}
context = {{ kind = "{kind}", history = 1 }}
parser = {{ action_tag = "" }}
sampling = {{ temperature = 1.0, decode = "{decode}" }}
prompts = {{ first = "prompt.jinja", later = "prompt.jinja" }}
environment = {{ turns = {steps} }}
"""
_TEMPLATE = "{{ instruction }}: {% for past in history %}after {{ past.action }}, {% endfor %}{{ observation }}"


class EchoEnv:
    """Every turn names a word; an episode is a success if each was said back. `long` tasks have a long prompt."""

    slow = False

    def __init__(self, turns: int, faults: Counter[str]) -> None:
        self.turns, self.faults = turns, faults
        self.task, self.said = "", list[str]()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.task, self.said = (options or {})["task"], []
        return self._observation(), self._info(True)

    def step(self, action: str) -> Step:
        if self.faults[self.task] > 0:
            self.faults[self.task] -= 1
            raise OSError("the engine fell over")
        self.said.append(action)
        return self._observation(), 0.0, len(self.said) >= self.turns, False, self._info(action in WORDS)

    def close(self) -> None:
        """Nothing is held."""

    def wanted(self) -> list[str]:
        """The words of the turns: the first is the family's, then they take turns."""
        _, word, number = self.task.split("-")
        first = WORDS.index(word)
        return [WORDS[(first + turn * (int(number) % 2)) % 2] for turn in range(self.turns + 1)]

    def _observation(self) -> str:
        return f"say {self.wanted()[len(self.said)]}"

    def _info(self, valid: bool) -> dict[str, Any]:
        right = [said == wanted for said, wanted in zip(self.said, self.wanted(), strict=False)]
        return {
            "task_id": self.task,
            "family": FAMILIES[self.task.split("-")[1]],
            "instruction": f"game {self.task.rpartition('-')[2]}" + " and so on" * (200 * ("long" in self.task)),
            "admissible_actions": list(WORDS),
            "success": len(right) == self.turns and all(right),
            "score": sum(right) / self.turns,
            "action_valid": valid,
        }


class EchoSuite(Suite):
    """The suite of the environment above, its panels and protocols in a folder. `faults`: task -> failing steps."""

    name = "echo"
    official = False
    families: Mapping[str, str] = {family: family.title() for family in FAMILIES.values()}
    default_protocol = "echo/choose"
    layout = "alfworld"

    def __init__(self, folder: Path) -> None:
        self.resources = self.folder = folder
        self.faults: Counter[str] = Counter()
        for name, (kind, decode, steps) in PROTOCOLS.items():
            file = folder / "protocols" / f"{name}@1.toml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(_PROTOCOL.format(name=name, kind=kind, decode=decode, steps=steps))
        (folder / "protocols" / "prompt.jinja").write_text(_TEMPLATE)
        for split, count in {**SIZES, "long": 2}.items():
            write_panel(panel(split, count), folder / "panels" / f"echo--{split}@1.jsonl.gz")

    def make(self, panel: Panel, engine: str = "native", **options: Option) -> EchoEnv:
        refuse_unknown(options, ("turns",))
        return EchoEnv(int(options["turns"]), self.faults)

    def content_hashes(self, panel: Panel) -> Mapping[str, str]:
        return {task.id: task.sha256 for task in panel.tasks}

    def oracle(self, panel: Panel, task: Task) -> Sequence[str]:
        env = EchoEnv(4, Counter())
        env.reset(options={"task": task.id})
        return env.wanted()

    def fetch(self, source: Path | None, report: Any) -> None:
        report("nothing to fetch")

    def check(self) -> DataStatus:
        return DataStatus("nothing to check")


def panel(split: str, count: int) -> Panel:
    """`count` tasks, of both families in turn."""
    names = [f"{split}-{WORDS[number % 2]}-{number // 2}" for number in range(count)]
    tasks = tuple(Task(n, FAMILIES[n.split("-")[1]], split, hashlib.sha256(n.encode()).hexdigest()) for n in names)
    return Panel(f"echo/{split}@1", "echo", split, False, "", tasks)


@contextmanager
def echo(folder: Path) -> Iterator[EchoSuite]:
    """The suite, installed for as long as the context lasts."""
    suite = EchoSuite(folder)
    with installed("echo", suite):
        yield suite


@contextmanager
def method_installed(name: str, kind: type) -> Iterator[None]:
    """A training method of that name beside the real ones."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as after:
        patch.setitem(registry._points(registry.TRAINERS), name, Plugin(kind))
        registry.get_method.cache_clear()
        after.callback(registry.get_method.cache_clear)
        yield


def build_model(folder: Path, protocol: str = "chat", size: str = "tiny:xs", seed: int = 0) -> Path:
    """A tiny random model with a tokenizer of the suite's words."""
    from seedbench.panels import load_panel
    from seedbench.protocol import load_protocol
    from seedbench_trainers.tiny import build_tiny

    return build_tiny(size, load_panel("echo/train"), load_protocol(f"echo/{protocol}"), folder, seed)


def config(model: object, *, protocol: str = "choose", validate: bool = False, **changes: Any) -> TrainConfig:
    """A resolved configuration on the CPU; dictionaries are merged into their sections."""
    from seedbench_trainers.checks import make_method
    from seedbench_trainers.recipes import merged

    settings: dict[str, Any] = {
        "method": "grpo",
        "suite": "echo",
        "model": str(model),
        "updates": 3,
        "device": "cpu",
        "data": {"panel": "echo/train"},
        "protocol": {"name": f"echo/{protocol}"},
        "rollout": {"tasks": 4, "group": 4, "batch_size": 64},
        "optimiser": {"lr": 3e-3},
        "validation": {"panel": "echo/test"} if validate else {},
        "checkpoints": {"every": 1},
    }
    made = TrainConfig.model_validate(merged(settings, changes))
    return made.model_copy(update={"options": make_method(made).settings.model_dump(mode="json")})


def run(settings: TrainConfig, out: Path) -> Path:
    """Train quietly; the folder of the final weights."""
    from seedbench_trainers.loop import train

    final = train(settings, out, quiet=True)["final"]
    assert isinstance(final, Path)
    return final


def numbers(folder: Path) -> list[tuple[int, int, dict[str, float]]]:
    """The journal, less times and memory, with NaN as text so that records can be compared."""
    return [(r.update, r.optimiser_steps, _stable(r)) for r in read_journal(folder)]


def _stable(record: Record) -> dict[str, Any]:
    return {
        name: value if math.isfinite(value) else "nan"
        for name, value in record.metrics.items()
        if not name.startswith(("time/", "memory/")) and name != "seconds"
    }


def metric(folder: Path, name: str) -> list[float]:
    """A metric of every journal line that has it, in order."""
    return [record.metrics[name] for record in read_journal(folder) if name in record.metrics]


def weights(folder: Path) -> dict[str, Any]:
    """The tensors of a checkpoint, or of its adapter."""
    from safetensors.torch import load_file

    return load_file(next(folder.glob("*model.safetensors")))


def assert_same_weights(one: Path, other: Path) -> None:
    """Bit for bit."""
    import torch

    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def recipe(folder: Path, settings: TrainConfig) -> Path:
    """The configuration as a recipe file."""
    from seedbench_trainers.recipes import to_toml

    file = folder / "echo.toml"
    file.write_text(to_toml(settings), encoding="utf-8")
    return file


def process(suite: Path, *words: object) -> subprocess.Popen[str]:
    """The real command in a process of its own, with the suite installed."""
    before = (
        "import pathlib, tests.train.helpers as helpers\n"
        f"held = helpers.echo(pathlib.Path({str(suite)!r}))\nheld.__enter__()"
    )
    return subprocess.Popen(
        command(*words, before=before), cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(child: subprocess.Popen[str], sent: signal.Signals | None = None) -> tuple[int, str]:
    """Send a signal, if any, wait, and return the exit code and what it said."""
    if sent is not None:
        child.send_signal(sent)
    _, err = child.communicate(timeout=120)
    assert "Traceback" not in err, err
    return child.returncode, err


def read(path: Path) -> Any:
    """A JSON file's content."""
    return json.loads(path.read_text(encoding="utf-8"))

"""A suite, environments and policies in memory, for tests of the harness; nothing here needs games or models."""

import asyncio
import hashlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from seedbench import registry
from seedbench.errors import unknown
from seedbench.evaluate import Evaluation, evaluate
from seedbench.panels import Panel
from seedbench.policies.base import Policy, Request, Response
from seedbench.protocol import Protocol, ProtocolFile
from seedbench.runs import SUMMARY, read_episodes
from seedbench.suite import DataStatus, Option, Suite, refuse_unknown
from seedbench.types import Task, Usage
from seedbench.ui.live import Progress

REPOSITORY = Path(__file__).resolve().parents[2]
FAMILIES = {"one": "One", "two": "Two", "three": "Three"}
ACTIONS = ["help", "left", "lose", "right"]

Step = tuple[str, float, bool, bool, dict[str, Any]]


def protocol(steps: int = 4, **sections: dict[str, Any]) -> Protocol:
    """A small window protocol for the suite below; `sections` replace settings of sections."""
    settings: dict[str, Any] = {
        "name": "counting/small",
        "version": 1,
        "summary": "for tests",
        "suites": ["counting"],
        "limits": {"steps": steps, "prompt_tokens": 0, "response_tokens": 8},
        "context": {"kind": "window", "history": 2},
        "parser": {"think_tag": "think"},
        "sampling": {"temperature": 0.0},
        "prompts": {"first": "first.jinja", "later": "later.jinja", "hide": ["help"]},
        "dialect": {"name": "turns", "requires": ["help"], "excludes": ["^go "]},
    }
    for section, values in sections.items():
        settings[section] = {**settings[section], **values}
    templates = {
        "first.jinja": "{{ instruction }} {{ observation }} {{ admissible | join(',') }}",
        "later.jinja": "{{ step }}:{% for past in history %}{{ past.step }}{{ past.action }};{% endfor %}"
        "{{ observation }}",
    }
    return Protocol(ProtocolFile.model_validate(settings), templates)


def task(family: str, number: int) -> Task:
    """A task of the suite below: say `right` as often as the family says, `number` tells tasks apart."""
    name = f"train/{family}-{number}"
    return Task(name, family, "train", hashlib.sha256(name.encode()).hexdigest())


def panel(count: int = 4) -> Panel:
    """`count` tasks of every family."""
    tasks = tuple(task(family, number) for number in range(count) for family in FAMILIES)
    return Panel("counting/train@1", "counting", "train", False, "", tasks)


class CountingEnv:
    """Solved once `right` was said 1, 2 or 3 times; `lose` ends it; the observation tells all that was said."""

    slow = False

    def __init__(self, faults: Counter[str]) -> None:
        self.faults = faults
        self.said: list[str] = []
        self.task = ""
        self.closed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.task = (options or {})["task"]
        self.said = []
        return self._observation(), self._info(True)

    def step(self, action: str) -> Step:
        if self.faults[self.task] > 0:
            self.faults[self.task] -= 1
            raise OSError("the engine fell over")
        self.said.append(action)
        info = self._info(action in ACTIONS)
        return self._observation(), 0.0, info["success"] or "lose" in self.said, False, info

    def close(self) -> None:
        self.closed += 1

    def _observation(self) -> str:
        return f"{self.task} said {' '.join(self.said) or 'nothing'}"

    def _info(self, valid: bool) -> dict[str, Any]:
        family = self.task.partition("/")[2].partition("-")[0]
        wanted = list(FAMILIES).index(family) + 1
        right = self.said.count("right")
        return {
            "task_id": self.task,
            "family": family,
            "instruction": f"say right {wanted} times",
            "admissible_actions": ACTIONS,
            "success": right >= wanted and "lose" not in self.said,
            "score": min(right, wanted) / wanted,
            "action_valid": valid,
        }


class CountingSuite(Suite):
    """The suite of the environment above. Tests may break it: `faults` (task -> failing steps), `held`."""

    name = "counting"
    official = False
    families = FAMILIES
    default_protocol = "counting/small"
    layout = "alfworld"
    resources = REPOSITORY / "tests" / "no-resources"

    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()
        self.damaged: set[str] = set()
        self.made: list[CountingEnv] = []

    def make(self, panel: Panel, engine: str = "native", **options: Option) -> CountingEnv:
        refuse_unknown(options, ())
        if engine != "native":
            raise unknown("engine", engine, ["native"])
        self.made.append(CountingEnv(self.faults))
        return self.made[-1]

    def content_hashes(self, panel: Panel) -> Mapping[str, str]:
        return {t.id: "0" * 64 if t.id in self.damaged else t.sha256 for t in panel.tasks}

    def oracle(self, panel: Panel, task: Task) -> Sequence[str]:
        return ["right"] * (list(FAMILIES).index(task.family) + 1)

    def fetch(self, source: Path | None, report: Callable[[str], None]) -> None:
        report("nothing to fetch")

    def check(self) -> DataStatus:
        return DataStatus("nothing to check")


class Script(Policy):
    """Answers turn t with the t-th entry: a text, a response, or an exception to raise."""

    name = "script"

    def __init__(self, *answers: str | Response | Exception, needs_prompt: bool = True) -> None:
        self.answers = answers
        self.needs_prompt = needs_prompt
        self.requests: list[Request] = []
        self.events: list[str] = []

    def identity(self) -> dict[str, Any]:
        return {"kind": "script"}

    async def open(self) -> None:
        self.events.append("open")

    async def close(self) -> None:
        self.events.append("close")

    async def act(self, request: Request) -> Response:
        self.requests.append(request)
        answer = self.answers[min(request.turn, len(self.answers) - 1)]
        if isinstance(answer, Exception):
            raise answer
        return Response(text=answer) if isinstance(answer, str) else answer


class Babbler(Policy):
    """A stand-in for a model: its text follows from the prompt and the seed alone, its delay from neither.

    Some answers have no tags, some no thinking, some name no admissible action.
    """

    name = "babbler"
    TEXTS = (
        "<think>so</think><action>right</action>",
        "<think>so</think><action> RIGHT </action>",
        "<action>left</action>",
        "<think>hm</think><action>fly</action>",
        "right",
        "<think>oh</think><action>lose</action>",
    )

    def __init__(self, jitter: bool = True) -> None:
        self.jitter = jitter
        self.asked = 0

    def identity(self) -> dict[str, Any]:
        return {"kind": "babbler"}

    async def act(self, request: Request) -> Response:
        self.asked += 1
        if self.jitter:
            await asyncio.sleep((self.asked * 7919 % 5) * 1e-4)
        digest = hashlib.sha256(repr((request.messages, request.seed)).encode()).digest()
        size = sum(len(message.content) for message in request.messages)
        return Response(text=self.TEXTS[digest[0] % 6], usage=Usage(size, digest[1]), finish_reason="stop")


def job(folder: Path, policy: Policy, **settings: Any) -> Evaluation:
    """An evaluation of the suite above."""
    return Evaluation(**{"panel": panel(), "protocol": protocol(), "policy": policy, "out": folder, **settings})


def without_seconds(summary: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on how a run came about."""
    return {key: value for key, value in summary.items() if key != "seconds"}


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary file of a run, less the seconds."""
    return without_seconds(json.loads((folder / "summary.json").read_text(encoding="utf-8")))


def seedbench(*arguments: object, before: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own; `before` is Python that runs first. Fails on a traceback."""
    done = subprocess.run(
        command(*arguments, before=before), capture_output=True, text=True, timeout=120, check=False, **options
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def command(*arguments: object, before: str = "") -> list[str]:
    """The words of a process that runs the `seedbench` command."""
    words = [str(argument) for argument in arguments]
    if not before:
        return [sys.executable, "-m", "seedbench", *words]
    return [sys.executable, "-c", f"{before}\nfrom seedbench.cli import main\nmain()", *words]


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Poll until the condition holds; fail after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "what was waited for did not happen"
        time.sleep(0.002)


def size(path: Path) -> int:
    """Bytes of a file, 0 where there is none."""
    return path.stat().st_size if path.exists() else 0


class Plugin:
    """What stands for an installed suite's entry point: loads to `thing`, or raises it."""

    value = "some_package:SUITE"

    def __init__(self, thing: object) -> None:
        self.thing = thing

    def load(self) -> object:
        if isinstance(self.thing, Exception):
            raise self.thing
        return self.thing


@contextmanager
def installed(name: str, thing: object) -> Iterator[None]:
    """A suite of that name beside the real ones, for as long as the context lasts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._points("seedbench.environments"), name, Plugin(thing))
        registry.get_suite.cache_clear()
        try:
            yield
        finally:
            registry.get_suite.cache_clear()


class Told(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Told]


def command_line(patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> Command:
    """A function that runs the real entry point in this process: words in, exit code and output out."""

    def run(*words: object) -> Told:
        from seedbench.cli import main

        patch.setattr(sys, "argv", ["seedbench", *map(str, words)])
        capture.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        return Told(int(end.value.code or 0), *capture.readouterr())

    return run


def said(told: Told, code: int) -> str:
    """The one sentence, after a check that it is one."""
    assert told.code == code, told
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1
    assert told.err.endswith(".\n")
    return told.err[7:-1]


def valid_summary(work: Evaluation, progress: Progress | None = None) -> dict[str, Any]:
    """Evaluate; the summary, less the seconds, after a check against the schema and the file."""
    import jsonschema

    summary = evaluate(work, progress or Progress())
    schema = REPOSITORY / "seedbench" / "schemas" / "summary.schema.json"
    jsonschema.validate(summary, json.loads(schema.read_text(encoding="utf-8")))
    assert json.loads((work.out / SUMMARY).read_text(encoding="utf-8")) == summary
    return without_seconds(summary)


def logged(folder: Path) -> list[dict[str, Any]]:
    """The last record of every attempt, by task and repeat, less the seconds."""
    last = {episode.key: episode for episode in read_episodes(folder)}
    return [{**last[key].to_json(), "seconds": 0} for key in sorted(last)]

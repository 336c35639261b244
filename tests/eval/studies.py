"""Studies for tests: trainings are played by a script that writes what a training leaves, evaluations are real."""

import csv
import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from seedbench.cli.study import study_command
from seedbench.evaluate import Evaluation, evaluate
from seedbench.panels import load_panel
from seedbench.policies.base import Policy, Request, Response
from seedbench.protocol import Protocol, load_protocol
from seedbench.study import plan as planning
from seedbench.study.plan import check, plan
from seedbench.study.run import Runner
from seedbench.study.spec import Study, load_study
from seedbench.ui.live import Progress

STUDY = """
[study]
name = "small"
suite = "echo"
model = "tiny:xs"
protocol = "echo/choose"
seeds = [0, 1]

[settings]
updates = 2
optimiser.lr = 1e-3

[[starts]]
name = "warm"
method = "sft"

[[cells]]
methods = ["grpo", "gigpo"]
start = "warm"

[evaluation]
panels = { unseen = "echo/test" }
"""

# What stands for the `seedbench` command. Files beside it decide: NAME.fail fails, NAME.wait waits for it to go.
SCRIPT = """
import json, pathlib, shutil, signal, sys, time
words, here = sys.argv[1:], pathlib.Path(__file__).parent
value = lambda name: words[words.index(name) + 1]
out = pathlib.Path(value("--out"))
settings = {"model": value("--model"), "updates": 2, "seed": int(value("--seed"))} if words[0] == "train" else {}
if "--dry-run" in words:
    lr = [w for w in words if w.startswith("optimiser.lr")] or ["optimiser.lr = 0.5"]
    print(f'suites = ["echo"]\\nmodel = "{settings["model"]}"\\nseed = 0\\nupdates = 2\\ndevice = "auto"')
    print(f'[data]\\npanel = "echo/train"\\nfraction = 1.0\\nreading = "games"\\n[optimiser]\\n{lr[0][10:]}')
    sys.exit()
with (here / "calls").open("a") as calls:
    calls.write(f"{words[0]} {out.name if words[0] == 'train' else out.parents[1].name}\\n")
if (here / f"{out.name}.fail").exists():
    sys.exit("one line\\nerror: it cannot be done.")
if words[0] == "eval":
    shutil.copytree(here / "evaluations" / out.parents[1].name, out)
    sys.exit()
out.mkdir(parents=True, exist_ok=True)
lr = [float(w.partition("=")[2]) for w in words if w.startswith("optimiser.lr")] or [0.5]
data = {"panel": "echo/train", "fraction": 1.0, "reading": "games", "limit": None}
for word in words:
    if word.startswith("data."):
        data[word[5:].partition("=")[0]] = json.loads(word.partition("=")[2])
settings |= {"method": value("--method"), "suite": "echo", "recipe": "echo", "data": data}
settings |= {"optimiser": {"lr": lr[0]}, "options": {}}
(out / "training.json").write_text(json.dumps({"settings": settings}))
signal.signal(signal.SIGINT, lambda *_: (here / "stopped").touch() or sys.exit(130))
while (here / f"{out.name}.wait").exists():
    (here / "waiting").touch()
    time.sleep(0.01)
journal = here / "journals" / out.name
(out / "metrics.jsonl").write_text(journal.read_text() if journal.exists() else '{"update": 2, "metrics": {}}\\n')
(out / "final").mkdir()
(out / "final" / "seedbench.json").write_text('{"update": 2}')
"""


class Half(Policy):
    """Solves the tasks whose names it was given."""

    name = "half"
    gpus = 0

    def __init__(self, solved: set[str]) -> None:
        self._solved = solved

    def identity(self) -> dict[str, Any]:
        return {"kind": "half", "solved": sorted(self._solved)}

    async def act(self, request: Request) -> Response:
        word = request.observation.removeprefix("say ")
        return Response(action=word if request.task.id in self._solved else {"left": "right", "right": "left"}[word])


def installed(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Put the script in place of the command, with an evaluation for every run of the study; its folder."""
    folder.mkdir()
    (folder / "seedbench.py").write_text(SCRIPT)
    patch.setattr(planning, "COMMAND", (sys.executable, "-S", str(folder / "seedbench.py")))
    # Of 8 tasks (4 a family) so many are solved, in the order left-0, right-0, left-1, right-1...
    for name, solved in {"grpo-s0": 2, "grpo-s1": 4, "gigpo-s0": 6, "gigpo-s1": 8}.items():
        played(folder / "evaluations" / name, solved)
    return folder


def played(out: Path, solved: int, protocol: Protocol | None = None) -> None:
    """A finished evaluation on echo/test, in which the first `solved` tasks are."""
    panel = load_panel("echo/test")
    names = {task.id for task in panel.tasks[:solved]}
    evaluate(Evaluation(panel, protocol or load_protocol("echo/choose"), Half(names), out), Progress())


def read_study(folder: Path, text: str = STUDY) -> Study:
    folder.mkdir(exist_ok=True)
    (folder / "s.toml").write_text(text)
    return load_study(folder / "s.toml")


def run(study: Study, out: Path, workers: int = 2) -> tuple[dict[str, str], str]:
    """Run what is missing; the failures and what was said."""
    jobs = plan(study, out)
    check(study, jobs, out, workers)
    with (out / "said").open("w") as said:
        runner = Runner(study, out, workers, Console(file=said))
        runner.run(jobs)
    return runner.failures, (out / "said").read_text()


def calls(script: Path) -> list[str]:
    """What was asked of the script, sorted."""
    return sorted((script / "calls").read_text().splitlines())


def overrides(words: list[str]) -> list[str]:
    """What follows each `--set`."""
    return [word for before, word in pairwise(words) if before == "--set"]


def sheet(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def command(file: Path, out: Path, **changed: Any) -> None:
    """The verb, as the command line calls it."""
    plain: dict[str, Any] = {"jobs": 2, "only": [], "dry_run": False, "report": False, "source": None, "packed": None}
    study_command(file, out=out, **{**plain, **changed})


JOURNAL = [  # (update, environment steps, generated tokens, seconds, validation success)
    (0, None, None, None, 0.0),
    (1, 100, 300, 10.0, None),
    (2, 200, 600, 20.0, 0.4),
]


def journal(script: Path, name: str, stretch: float = 1.0) -> None:
    """The journal of a run whose totals are `stretch` times those above."""
    lines = []
    for update, steps, tokens, seconds, success in JOURNAL:
        metrics: dict[str, float] = {}
        if steps is not None and tokens is not None and seconds is not None:
            metrics |= {"steps/environment": stretch * steps, "tokens/generated": stretch * tokens, "seconds": seconds}
            metrics |= {"tokens/prompt": 1000.0, "tokens/trained": 50.0, "seconds/gpu": 0.0}
        metrics |= {} if success is None else {"validation/success": success}
        lines.append(json.dumps({"update": update, "optimiser_steps": update, "metrics": metrics}) + "\n")
    (script / "journals").mkdir(exist_ok=True)
    (script / "journals" / name).write_text("".join(lines))

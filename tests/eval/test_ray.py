"""Evaluations on Ray: the results of one process, whatever the number of workers and whoever dies; clear refusals."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.evaluate import Evaluation, evaluate
from seedbench.panels import load_panel
from seedbench.policies import ModelOptions, make_policy
from seedbench.policies.base import Policy, PolicyFault, Request, Response
from seedbench.policies.random_ import RandomPolicy
from seedbench.protocol import load_protocol
from seedbench.remote.cluster import Cluster, connected
from seedbench.remote.evaluation import on_ray
from seedbench.runs import LOG, SUMMARY, read_episodes
from seedbench.types import Outcome
from seedbench.ui.live import Progress
from tests.eval.helpers import Command, command, command_line, logged, said, valid_summary
from tests.tiny_model import build

# Ray reads its settings when it is imported: `connected` is to be the first that does.
pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (pip install 'seedbench[ray]')")
PANEL = load_panel("mini-alfworld/valid_unseen").subset(limit=18)
CLUSTER = 4


@pytest.fixture(scope="module", autouse=True)
def cluster(mini_store: Path) -> Iterator[Any]:
    """One local cluster for the tests below; its workers know this module by what is sent of it."""
    with connected(Cluster("local", CLUSTER), store_bytes=100 << 20) as ray:
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        yield ray


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_line(monkeypatch, capsys)


class Notes(Progress):
    """Keeps what the user is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, message: str) -> None:
        self.said.append(message)


class Mortal(RandomPolicy):
    """Kills its process when it is first asked about a task, once: `mark` is written before. Without `mark`, always."""

    def __init__(self, task: str, mark: Path | None = None) -> None:
        self.task, self.mark = task, mark

    async def act(self, request: Request) -> Response:
        if request.task.id == self.task and request.turn == 2 and not (self.mark and self.mark.exists()):
            if self.mark:
                self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().act(request)


class Faulty(RandomPolicy):
    """Cannot answer the second turn of some tasks."""

    def __init__(self, tasks: tuple[str, ...]) -> None:
        self.tasks = tasks

    async def act(self, request: Request) -> Response:
        if request.task.id in self.tasks and request.turn == 1:
            raise PolicyFault(f"no answer for {request.task.id}")
        return await super().act(request)


class Individual(RandomPolicy):
    """Another one in each process."""

    def identity(self) -> dict[str, Any]:
        return {"kind": "random", "process": os.getpid()}


class Stubborn(RandomPolicy):
    """Does not open."""

    async def open(self) -> None:
        raise UsageError("there is no such model; choose another.")


def job(out: Path, make: Callable[[], Policy] = RandomPolicy, **changes: Any) -> Evaluation:
    protocol = load_protocol("alfworld/seed").with_settings(steps=6, response_tokens=12)
    return Evaluation(PANEL, protocol, make(), out, **{"repeats": 3, "seed": 5, "concurrency": 8, **changes})


def on(workers: int, out: Path, make: Callable[[], Policy] = RandomPolicy, **changes: Any) -> Evaluation:
    return on_ray(job(out, make, **changes), make, Cluster("local", workers))


def summary_text(folder: Path) -> str:
    """The summary file, byte for byte, but for the seconds."""
    summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    return json.dumps({**summary, "seconds": None})


@pytest.fixture(scope="module")
def alone(mini_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process."""
    out = tmp_path_factory.mktemp("runs") / "alone"
    evaluate(job(out), Progress())
    return out


def same(out: Path, alone: Path) -> None:
    """The same summary and log, and nothing played or written twice."""
    assert summary_text(out) == summary_text(alone)
    assert logged(out) == logged(alone)
    assert len(list(read_episodes(out))) == len(PANEL.tasks) * 3


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_gives_the_result_of_one_process(workers: int, tmp_path: Path, alone: Path) -> None:
    valid_summary(on(workers, tmp_path / "run"))
    same(tmp_path / "run", alone)


def test_a_worker_killed_in_the_middle(tmp_path: Path, alone: Path) -> None:
    notes = Notes()
    make = partial(Mortal, PANEL.tasks[7].id, tmp_path / "mark")
    evaluate(on(2, tmp_path / "run", make), notes)
    same(tmp_path / "run", alone)
    assert len(notes.said) == 1
    assert "died (its process ended" in notes.said[0]
    assert notes.said[0].endswith("open episodes are played again")
    assert 1 <= int(notes.said[0].split("its ")[-1].split()[0]) <= 8  # only what that worker had open


def test_an_episode_that_always_kills(tmp_path: Path, alone: Path) -> None:
    culprit = PANEL.tasks[7]
    with pytest.raises(SeedBenchError, match=r"^3 workers died while they played the same episodes, .*same command"):
        evaluate(on(2, tmp_path / "run", partial(Mortal, culprit.id), concurrency=2), Progress())
    kept = {e.key: {**e.to_json(), "seconds": 0} for e in read_episodes(tmp_path / "run")}
    whole = {e.key: {**e.to_json(), "seconds": 0} for e in read_episodes(alone)}
    assert kept.items() <= whole.items()
    assert culprit.sha256 not in {task for task, _ in kept}
    valid_summary(on(2, tmp_path / "run"))  # and it goes on once the cause is mended
    same(tmp_path / "run", alone)


def test_a_run_begun_in_one_process_goes_on_in_several(tmp_path: Path, alone: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "manifest.json").write_bytes((alone / "manifest.json").read_bytes())
    lines = (alone / LOG).read_bytes().splitlines(keepends=True)
    (out / LOG).write_bytes(b"".join(lines[:20]) + lines[20][:50])
    valid_summary(on(4, out))
    same(out, alone)
    assert (out / LOG).read_bytes().splitlines(keepends=True)[:20] == lines[:20]


def test_faults_of_episodes_are_infrastructure_errors(tmp_path: Path) -> None:
    make = partial(Faulty, (PANEL.tasks[3].id,))
    valid_summary(job(tmp_path / "alone", make, max_infra=0.1))
    valid_summary(on(3, tmp_path / "run", make, max_infra=0.1))
    assert summary_text(tmp_path / "run") == summary_text(tmp_path / "alone")
    assert logged(tmp_path / "run") == logged(tmp_path / "alone")
    broken = [e for e in read_episodes(tmp_path / "run") if e.outcome is Outcome.INFRA_ERROR]
    assert [e.error for e in broken] == [f"policy: no answer for {PANEL.tasks[3].id}"] * 3


def test_too_many_faults_end_the_run_as_in_one_process(tmp_path: Path) -> None:
    make = partial(Faulty, tuple(task.id for task in PANEL.tasks))
    with pytest.raises(
        SeedBenchError, match=r"^4 of 54 episodes ended in infrastructure errors \(the last: policy: no"
    ):
        evaluate(on(2, tmp_path / "run", make, max_infra=0.01), Progress())


def test_a_checkpoint_is_the_same_policy_in_every_worker(tmp_path: Path) -> None:
    folder = build(tmp_path / "tiny")
    options = ModelOptions(device="cpu", dtype="float32")
    make = partial(make_policy, str(folder), PANEL, options)
    valid_summary(job(tmp_path / "alone", make, repeats=1, keep_prompts=True))
    work = on(2, tmp_path / "run", make, repeats=1, keep_prompts=True)
    summary = valid_summary(work)
    assert summary["policy"]["identity"]["weights_sha256"]
    assert (summary["policy"]["name"], work.policy.gpus) == ("tiny", 0)
    assert summary_text(tmp_path / "run") == summary_text(tmp_path / "alone")
    assert logged(tmp_path / "run") == logged(tmp_path / "alone")


def test_workers_that_are_not_alike_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SeedBenchError, match=r"^worker \d would not answer as .*: policy\.process was \d+, now \d+\. "):
        evaluate(on(2, tmp_path / "run", Individual), Progress())
    assert not (tmp_path / "run").exists()


def test_what_a_worker_refuses_is_refused_in_its_words(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^there is no such model; choose another\.$"):
        evaluate(on(2, tmp_path / "run", Stubborn), Progress())


def test_more_workers_than_cpus(tmp_path: Path) -> None:
    with pytest.raises(
        SeedBenchError, match=r"^the Ray cluster has 4 CPUs and 5 workers need 5: .*smaller --workers\.$"
    ):
        evaluate(on(CLUSTER + 1, tmp_path / "run"), Progress())


def test_more_gpus_than_there_are(tmp_path: Path) -> None:
    work = on_ray(job(tmp_path / "run"), RandomPolicy, Cluster("local", 3, gpus=0.4))
    with pytest.raises(SeedBenchError, match=r"^the Ray cluster has 0 GPUs and 3 workers need 2: "):
        evaluate(work, Progress())


def test_a_local_cluster_is_heard_on_this_machine_only(cluster: Any) -> None:
    """All of 127.0.0.0/8 is this machine, but only one address of it is listened to."""
    port = int(cluster.get_runtime_context().gcs_address.rpartition(":")[2])
    socket.create_connection(("127.0.0.1", port), 5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), 5).close()


WORDS = ("eval", "random", "-p", "mini-alfworld/valid_unseen")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_cluster_that_cannot_be_reached(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    words = (*WORDS, "--ray", address, "--out", tmp_path / "run")
    done = subprocess.run(command(*words), capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"error: nothing answers at the Ray cluster's address '{address}' (")
    assert "ray start --head" in done.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ("--ray", "ray://head:10001"),
            "--ray takes local, auto or HOST:PORT of a cluster's head, not 'ray://head:1000",
        ),
        (("--ray", "head"), "--ray takes local, auto or HOST:PORT"),
        (("--ray", "local", "--gpus-per-worker", "1.5"), "--gpus-per-worker is a whole number or a share below 1, not"),
        (("--workers", "2"), "--workers and --gpus-per-worker are for --ray"),
        (("--gpus-per-worker", "1"), "--workers and --gpus-per-worker are for --ray"),
    ],
)
def test_options_that_cannot_be(options: tuple[str, ...], sentence: str, cli: Command, tmp_path: Path) -> None:
    assert said(cli(*WORDS, *options, "--out", tmp_path / "run"), 2).startswith(sentence)


def test_without_ray(cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    told = cli(*WORDS, "--ray", "local", "--out", tmp_path / "run")
    assert said(told, 1).startswith("Ray is not installed: pip install 'seedbench[ray]'")


def test_the_command_says_what_it_says_without_ray(tmp_path: Path) -> None:
    """A cluster of its own, and a worker that dies in it, leave no word of Ray's on the terminal."""
    mark = tmp_path / "mark"
    before = (
        "import os, signal, pathlib\nimport seedbench.remote.evaluation as remote\n"
        "class Mortal(remote.Worker):\n"
        "    async def exchange(self, attempts):\n"
        f"        if not pathlib.Path({str(mark)!r}).exists():\n"
        f"            pathlib.Path({str(mark)!r}).touch(); os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return await super().exchange(attempts)\n"
        "remote.Worker = Mortal"
    )
    words = (*WORDS, "--steps", 5, "--limit", 12, "--out", tmp_path / "run")
    plain = subprocess.run(command(*words, "--quiet"), capture_output=True, text=True, timeout=120, check=True)
    (tmp_path / "run").rename(tmp_path / "alone")
    more = ("--ray", "local", "--workers", 2)
    done = subprocess.run(
        command(*words, *more, before=before), capture_output=True, text=True, timeout=200, check=False
    )
    assert mark.exists()
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    assert [line for line in done.stderr.splitlines() if "died" in line] != []
    assert all(word not in done.stderr for word in ("raylet", "ray::", "WARNING", "SYSTEM_ERROR", "\x1b"))
    assert summary_text(tmp_path / "run") == summary_text(tmp_path / "alone")

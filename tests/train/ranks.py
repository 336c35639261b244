"""Processes of one training, started by a test: each does the same jobs, and says how they went.

Run as `python -m tests.train.ranks SUITE JOBS`; the launcher's environment says which process it is.
"""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

from seedbench_trainers.config import TrainConfig
from tests.eval.helpers import REPOSITORY
from tests.train.helpers import EchoEnv, echo, method_installed

ENDING = ("lost", "died", "mistaken")
"""Faults after which a process is of no more use."""


@dataclass(frozen=True)
class Job:
    """A configuration to train into a folder, or one update of it, with a fault on one process."""

    config: TrainConfig
    out: Path
    kind: str = "train"
    fault: str = ""

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"config": self.config.model_dump(mode="json"), "out": str(self.out), "kind": self.kind,
                "fault": self.fault}  # fmt: skip


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    out: str
    err: str


def together(suite: Path, folder: Path, jobs: Sequence[Job], size: int = 2) -> list[list[dict[str, Any]]]:
    """Do the jobs on some processes; what each of them told of each."""
    ended = launched(suite, folder, jobs, size)
    assert [one.code for one in ended] == [0] * size, "\n".join(one.err for one in ended)
    return [json.loads(one.out.splitlines()[-1]) for one in ended]


def launched(suite: Path, folder: Path, jobs: Sequence[Job], size: int = 2) -> list[Ended]:
    """Do the jobs on some processes; how each of them ended."""
    file = folder / "jobs.json"
    file.write_text(json.dumps([job.to_json() for job in jobs]))
    shared = {**os.environ, "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
              "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}  # fmt: skip
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.train.ranks", str(suite), str(file)],
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(size)
    ]  # fmt: skip
    try:
        said = [child.communicate(timeout=240) for child in children]
    finally:
        for child in children:
            child.kill()
    return [Ended(child.returncode, out, err) for child, (out, err) in zip(children, said, strict=True)]


def one_update(config: TrainConfig, out: Path, world: Any) -> dict[str, Any]:
    """Gather, fill the signals, update; the figures, what was sampled, and the weights as they are then."""
    import torch

    from seedbench_trainers.checks import agent_protocol, make_method
    from seedbench_trainers.setup import training_panel
    from seedbench_trainers.sharding import sharded
    from seedbench_trainers.toolbox import Toolbox
    from seedbench_trainers.trainee import load_trainee
    from seedbench_trainers.update import Updater
    from seedbench_trainers.view import TrainView

    method = make_method(config)
    plain = load_trainee(config, config.model, reference=method.needs_reference)
    trainee = sharded(plain, config, world)
    protocol = agent_protocol(config)
    tools = Toolbox(config, training_panel(config), protocol, out, trainee, method, TrainView(), world=world)
    batch = method.gather(tools, 0)
    if method.needs_reference:
        tools.fill_reference(batch.samples)
    figures = method.signals(batch, tools)
    figures |= Updater(trainee, method, config, 3, world).update(batch.samples, 0)
    out.mkdir(exist_ok=True)
    # The adapters' first half is random, so that all of them are told apart.
    held = {name: p.detach().clone() for name, p in trainee.loaded.model.named_parameters()}
    torch.save(held, out / f"weights-{world.rank}.pt")
    ids = [[int(id_) for id_ in sample.ids] for sample in batch.samples]
    return {"figures": figures, "ids": ids, "shards": trainee.shards is not None}


def _do(job: dict[str, Any]) -> dict[str, Any]:
    from seedbench.errors import SeedBenchError
    from seedbench_trainers.distributed import is_agreed
    from seedbench_trainers.launch import join
    from seedbench_trainers.loop import train

    config, out = TrainConfig.model_validate(job["config"]), Path(job["out"])
    with pytest.MonkeyPatch.context() as patch:
        _spoil(job["fault"], int(os.environ["RANK"]), patch)
        if job["kind"] == "update":
            return one_update(config, out, join())
        try:
            done = train(config, out, quiet=True)
        except (SeedBenchError, KeyboardInterrupt) as error:
            if job["fault"] in ENDING:
                raise
            return {"error": type(error).__name__, "text": str(error), "agreed": is_agreed(error)}
    return {"final": str(done["final"]), "shown": "tables" in done}


def _spoil(fault: str, rank: int, patch: pytest.MonkeyPatch) -> None:
    """Make something go wrong on one process."""
    from seedbench.errors import SeedBenchError
    from seedbench_trainers import trainee
    from seedbench_trainers.distributed import World
    from seedbench_trainers.rollouts import RolloutPlan
    from seedbench_trainers.update import Updater

    def full(*args: Any, **named: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def stopped(self: Any, iteration: int) -> Any:
        if iteration == 2:
            signal.raise_signal(signal.SIGTERM)
        return collect(self, iteration)

    def stopped_late(self: Any) -> float:
        if self.steps_done == 1:
            signal.raise_signal(signal.SIGTERM)
        return apply(self)

    def unloadable(*args: Any, **named: Any) -> Any:
        raise SeedBenchError("device lost")

    def lost(self: Any, *given: Any) -> Any:
        if self._world.entangled:
            raise MemoryError("a pass does not fit")
        return forward(self, *given)

    def died(self: Any, iteration: int) -> Any:
        os._exit(9)

    def mistaken(self: Any, iteration: int) -> Any:
        raise ValueError("a mistake of ours")

    def broken(*given: Any) -> Any:
        raise OSError("the engine fell over")

    def told(self: World, *given: Any) -> Any:
        if waiting and not self.leads:
            waiting.clear()
            signal.raise_signal(signal.SIGTERM)
        return tell(self, *given)

    def waits(self: Any, iteration: int) -> Any:
        if iteration == 2:
            waiting.append(iteration)
            if rank == 0:
                signal.raise_signal(signal.SIGTERM)
        return collect(self, iteration)

    waiting: list[int] = []
    tell = World._tell
    collect, apply, forward = RolloutPlan.collect, Updater._apply, Updater._forward
    if fault == "disk" and rank == 0:
        patch.setattr("torch.save", full)
    elif fault == "stop" and rank == 1:
        patch.setattr(RolloutPlan, "collect", stopped)
    elif fault == "stop both":
        patch.setattr(RolloutPlan, "collect", waits)
        patch.setattr(World, "_tell", told)
    elif fault == "broken" and rank == 1:
        patch.setattr(EchoEnv, "step", broken)
    elif fault == "stop in the update" and rank == 1:
        patch.setattr(Updater, "_apply", stopped_late)
    elif fault == "load" and rank == 1:
        patch.setattr(trainee, "load", unloadable)
    elif fault == "lost" and rank == 1:
        patch.setattr(Updater, "_forward", lost)
    elif fault == "died" and rank == 1:
        patch.setattr(RolloutPlan, "collect", died)
    elif fault == "mistaken" and rank == 1:
        patch.setattr(RolloutPlan, "collect", mistaken)


def main(suite: str, file: str) -> None:
    """Do the jobs in their order and print what came of them as one line."""
    from seedbench_trainers.launch import one_voice

    with one_voice(), ExitStack() as held:
        held.enter_context(echo(Path(suite)))
        held.enter_context(method_installed("uneven", uneven()))
        told = [_do(job) for job in json.loads(Path(file).read_text())]
    print(json.dumps(told))


def uneven() -> type:
    """GRPO whose loss is no number on the second process."""
    import torch

    from seedbench_trainers.base import Tokens
    from seedbench_trainers.methods.grpo import GRPO

    class Uneven(GRPO):
        name: ClassVar[str] = "uneven"

        def loss(self, tokens: Tokens) -> Mapping[str, torch.Tensor]:
            values = dict(super().loss(tokens))
            if os.environ.get("RANK") == "1":
                values["policy"] = values["policy"] * float("nan")
            return values

    return Uneven


if __name__ == "__main__":
    main(*sys.argv[1:])

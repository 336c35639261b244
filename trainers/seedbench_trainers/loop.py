"""The training loop: gather -> signals -> update -> validate -> checkpoint. It knows no method by name.

Everything random follows from the run's seed and the number of the update (task draws, episode seeds, the order of
mini-batches), so that a run continued from a checkpoint goes on as if it had never stopped: on a CPU bit for bit.

Several processes run the same loop in step (`distributed`): all have the same batch, share the work on it, and come out
with the same weights. The first alone writes into the folder.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from seedbench.errors import SeedBenchError
from seedbench.panels import Panel
from seedbench.policies.checkpoint import origin_of, sha256_of_json
from seedbench.protocol import Protocol
from seedbench.remote.cluster import Cluster
from seedbench_trainers import checkpoint
from seedbench_trainers.base import Method, Metrics
from seedbench_trainers.checkpoint import State
from seedbench_trainers.config import Budget, TrainConfig
from seedbench_trainers.distributed import World
from seedbench_trainers.engines.turns import EngineTurns
from seedbench_trainers.interrupts import Interrupts
from seedbench_trainers.journal import Journal, read_journal
from seedbench_trainers.launch import join, placed, several
from seedbench_trainers.records import Batch
from seedbench_trainers.remote import Rollers
from seedbench_trainers.rollouts import describe
from seedbench_trainers.setup import (
    Prepared,
    TrainingRun,
    bound_settings,
    drop_validations,
    fraction_mark,
    open_run,
    prepare,
    refuse_apart,
    rollout_protocol,
    validation_folder,
)
from seedbench_trainers.sharding import sharded, whole_state
from seedbench_trainers.toolbox import Toolbox
from seedbench_trainers.traces import traces_due, write_traces
from seedbench_trainers.trackers import open_trackers
from seedbench_trainers.trainee import Trainee, load_trainee
from seedbench_trainers.update import NotFinite, Updater
from seedbench_trainers.validation import validate
from seedbench_trainers.view import TrainView, make_view


class Loop:
    """One training run in a folder of its own."""

    def __init__(
        self, config: TrainConfig, out: Path, view: TrainView, world: World, cluster: Cluster | None = None
    ) -> None:
        self.config, self.out, self.view, self.world, self.cluster = config, out, view, world, cluster
        self.interrupts = world.interrupts
        self.total = config.planned_updates
        self.digest = sha256_of_json(bound_settings(config))
        self.method: Method
        self.panel: Panel
        self.protocol: Protocol
        self.trainee: Trainee
        self.updater: Updater
        self.tools: Toolbox
        self.journal: Journal | None = None
        self.origin: dict[str, Any] | None = None
        self.state = State()
        self._held = ExitStack()

    @property
    def ended(self) -> bool:
        """Whether the last update is done: all of them, or enough for the budget."""
        steps = self.config.budget.environment_steps
        played = self.state.totals.get("steps/environment", 0.0)
        return self.state.update >= self.total or 0 < steps <= played

    def run(self, prepared: Prepared) -> None:
        """Train from where the folder stands to the last update."""
        self.origin = origin_of(Path(prepared.model))
        self.method, self.panel, self.protocol = prepared.method, prepared.panel, prepared.protocol
        agree = self.world.agree
        with self._held:
            agree(lambda: self._load(prepared.model))
            try:
                if not self.state.logged:
                    agree(self._close_update)
                while not self.ended:
                    agree(self._update)
                    agree(self._close_update)
            except KeyboardInterrupt:
                self._save()
                raise

    def _load(self, model: str) -> None:
        folder, agree = self.world.first(lambda: checkpoint.latest(self.out)), self.world.agree
        self.view.phase("loading the model")
        reference = self.method.needs_reference
        plain = agree(lambda: load_trainee(self.config, model, reference=reference, resume=folder))
        with self.interrupts.shielded():
            self.trainee = sharded(plain, self.config, self.world)
        self.updater = Updater(self.trainee, self.method, self.config, self.total, self.world)
        if folder is not None:
            self.state = agree(lambda: checkpoint.restore(folder, self.updater.optimiser, self.trainee))
            self.updater.steps_done = self.state.optimiser_steps
        self.state.start = self.state.start or dict(self.trainee.loaded.identity)
        self.world.first(self._open)
        self.tools = Toolbox(
            self.config, self.panel, self.protocol, self.out, self.trainee, self.method, self.view,
            self._rollers(model), self.world, self._engine(),
        )  # fmt: skip
        past = read_journal(self.out) if self.world.leads else []
        self.view.start(self.total, self._title(), list(self.panel.families()), past)

    def _open(self) -> None:
        """Open the files that the first process writes."""
        drop_validations(self.out, self.state.update)
        # An update that was not logged yet is closed first; lines after the checkpoint's are made again.
        lines = self.state.update if self.state.logged else self.state.update - 1
        trackers = open_trackers(
            self.out,
            tensorboard=self.config.track.tensorboard,
            wandb=self.config.track.wandb,
            after=lines,
            config=self.config.model_dump(mode="json"),
            note=self.view.note,
        )
        self.journal = Journal(self.out, after=lines, trackers=trackers)
        self._held.callback(self.journal.close)

    def _rollers(self, model: str) -> Rollers | None:
        if self.cluster is None or not self.method.samples_policy:
            return None
        protocol, start = rollout_protocol(self.config, self.protocol), self.state.start
        rollers = Rollers(
            self.cluster, self.config, model, self.panel, protocol, self.trainee, self.view.note, start=start
        )
        self._held.callback(rollers.close)
        return rollers

    def _engine(self) -> EngineTurns | None:
        if not self.config.rollout.engine or not self.method.samples_policy:
            return None
        self.view.phase("starting the engine")
        engine = EngineTurns(self.config, self.trainee, self.out, self.world)
        self._held.callback(engine.close)
        engine.start()
        return engine

    def _title(self) -> str:
        config = self.config
        return f"{config.method}{fraction_mark(config)} · {config.suite} · {config.model} · {self.protocol.name}"

    def _update(self) -> None:
        """One iteration. The weights change only inside the shielded block at its end."""
        number = self.state.update
        metrics: Metrics = {}
        with self._timed("rollout", metrics):
            batch = self.method.gather(self.tools, number)
        if not batch.samples:
            raise SeedBenchError(
                f"update {number + 1} has nothing to learn from: no episode has a single response. Look at the run's"
                " protocol and model (`seedbench eval` with the same ones shows what happens)."
            )
        with self._timed("signals", metrics):
            if self.method.needs_reference:
                self.tools.fill_reference(batch.samples)
            metrics |= self.method.signals(batch, self.tools)
        self.tools.rest()
        if self.method.samples_policy and batch.trajectories:  # success of demonstrations is not the policy's
            metrics |= describe(batch)
        with self.interrupts.shielded():
            with self._timed("update", metrics):
                try:
                    metrics |= self.updater.update(batch.samples, number)
                except NotFinite as error:
                    raise self.world.first(partial(self._halted, error, batch.samples)) from None
            metrics |= self.method.after(batch)
            metrics["memory/peak_gib"] = max(self.world.exchange(peak_gib))
            self._count(batch, metrics)
            done = replace(
                self.state,
                update=number + 1,
                logged=False,
                optimiser_steps=self.updater.steps_done,
                metrics=metrics,
            )
            self.state = self.world.first(lambda: done)  # clocks differ, and what follows from them must not
            self.world.first(lambda: self._trace(batch, number + 1))

    def _trace(self, batch: Batch, number: int) -> None:
        track, last = self.config.track, number if self.ended else self.total
        if self.method.samples_policy and batch.trajectories and traces_due(track, number, last):
            beta = getattr(self.method.settings, "beta", None)
            write_traces(self.out, number, batch, self.trainee.loaded.tokenizer, beta, track.traces)

    def _halted(self, error: NotFinite, samples: list[Any]) -> SeedBenchError:
        """Keep what is needed to look into it: the weights before the step and the batch."""
        folder = self.out / "halted"
        try:
            checkpoint.save_weights(folder, self.trainee, self._label("before the step that failed"))
            error.dump(samples, folder / "batch.npz")
        except (SeedBenchError, OSError) as full:
            reason = str(full).rstrip(".")
            return SeedBenchError(
                f"update {self.state.update + 1}: {error}, and the batch cannot be kept in '{folder}': {reason}."
            )
        return SeedBenchError(
            f"update {self.state.update + 1}: {error}. Training stopped before the step; the weights and the batch are"
            f" in '{folder}'. A lower optimiser.lr is the usual cure; the run's last checkpoint is untouched."
        )

    def _count(self, batch: Any, metrics: Metrics) -> None:
        totals = dict(self.state.totals)
        played = [*(t.episode for t in batch.trajectories), *batch.discarded]
        episodes = played if self.method.samples_policy else []
        asked = self.tools.asked()
        seconds = sum(metrics[f"time/{p}"] for p in ("rollout", "signals", "update"))
        on_gpu = self.trainee.loaded.model.device.type == "cuda"
        for key, amount in (
            ("tokens/prompt", asked.prompt_tokens + sum(e.usage.prompt_tokens for e in episodes)),
            ("tokens/generated", asked.generated_tokens + sum(e.usage.generated_tokens for e in episodes)),
            ("tokens/trained", metrics.get("update/tokens", 0.0)),
            ("steps/environment", sum(len(e.turns) for e in episodes)),
            ("episodes", len(episodes)),
            ("seconds", seconds),
            ("seconds/gpu", seconds * self.world.size if on_gpu else 0.0),
        ):
            totals[key] = totals.get(key, 0.0) + amount
        self.state.totals = totals
        metrics |= totals

    def _close_update(self) -> None:
        """Validate where it is due, log the update's line, save."""
        number, metrics = self.state.update, dict(self.state.metrics)
        last = self.ended
        if last:
            self._save_weights(checkpoint.FINAL, self._label("final"))
        if self._validation_due(number, last):
            with self._timed("validation", metrics):
                metrics |= self.world.first(lambda: self._validate(number, last))
            self._keep_best(number, metrics["validation/success"])
        with self.interrupts.shielded():
            self.world.first(lambda: self._record(number, metrics))
            self.state = replace(self.state, logged=True, metrics={})
            self.view.update(number, metrics)
            every = self.config.checkpoints.every
            if last or (every and number and number % every == 0):
                self._save()

    def _record(self, number: int, metrics: Metrics) -> None:
        assert self.journal is not None, "the first process has opened it"
        self.journal.record(number, metrics, self.state.optimiser_steps)

    def _validate(self, number: int, last: bool) -> Metrics:
        identity = self.state.start
        if last:  # what `seedbench eval RUN/final` will find
            identity = self.trainee.identity(self.out / checkpoint.FINAL)
        elif number:
            identity = {"kind": "training", "update": number, "start": identity, "configuration": self.digest}
        policy = self.tools.policy(identity=identity)
        policy.origin = self._label("validation") if number else self.origin
        folder = validation_folder(self.out, number)
        return validate(self.config, self.protocol, policy, folder, self.view.progress("validation"))

    def _validation_due(self, number: int, last: bool) -> bool:
        settings = self.config.validation
        if not settings.panel:
            return False
        if number == 0:
            return settings.before
        return last or bool(settings.every and number % settings.every == 0)

    def _keep_best(self, number: int, success: float) -> None:
        if self.state.best is not None and success <= self.state.best:
            return
        self.state.best = success
        if number:
            label = {**self._label("best of validation"), "validation/success": success}
            self._save_weights(checkpoint.BEST, label)

    def _label(self, text: str) -> dict[str, Any]:
        return checkpoint.label(text, self.config, self.state, self.origin)

    def _save_weights(self, name: str, label: dict[str, Any]) -> None:
        with self.interrupts.shielded():
            self.world.first(lambda: checkpoint.save_weights(self.out / name, self.trainee, label))

    def _save(self) -> None:
        with self._timed("checkpoint", {}):
            with self.world.entangling():
                optimiser = whole_state(self.updater.optimiser, self.world.leads)
            keep = self.config.checkpoints.keep
            self.world.first(lambda: checkpoint.save(self.out, self.state, self.trainee, optimiser, keep))

    @contextmanager
    def _timed(self, phase: str, metrics: Metrics) -> Iterator[None]:
        self.view.phase(phase)
        start = time.perf_counter()
        yield
        metrics[f"time/{phase}"] = time.perf_counter() - start


def cost(out: Path) -> str:
    """Seconds of each phase over the whole run, and peak memory, in a line; from the journal."""
    records = read_journal(out)
    phases: dict[str, float] = {}
    for record in records:
        for name, value in record.metrics.items():
            if name.startswith("time/"):
                phases[name.removeprefix("time/")] = phases.get(name.removeprefix("time/"), 0.0) + value
    total = sum(phases.values()) or 1.0
    parts = [f"{name} {seconds:,.1f} s ({seconds / total:.0%})" for name, seconds in phases.items()]
    peak = max((record.metrics.get("memory/peak_gib", 0.0) for record in records), default=0.0)
    return f"{', '.join(parts)}; peak memory {peak:.2f} GiB"


def peak_gib() -> float:
    """Most memory used so far, in GiB: the GPU's where there is one, else the process's."""
    import resource

    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # kibibytes on Linux


def train(config: TrainConfig, out: Path, *, quiet: bool = False, cluster: Cluster | None = None) -> dict[str, Any]:
    """Train a configuration into a folder, or go on there, and return what there is to show.

    With `cluster` its workers play the training roll-outs; it is no setting of the run.

    Returns:
        `final`: folder of the final weights; `tables`: (label, summary) of the validations before the first and after
        the last update; `cost`: a line on time and memory; `curves`: files of the learning curve.

    Raises:
        UsageError: the configuration cannot be right, or the folder holds a run with another one.
        SeedBenchError: data, model or disk fail; what is done is kept and the same command goes on.
        KeyboardInterrupt: passed on after the state was saved.

    Of several processes (`distributed`) all make this call; the first returns what there is to show, all others the
    folder alone. Each of them raises what any does.
    """
    with Interrupts(once=several() > 1) as interrupts:
        world = join(interrupts)
        return world.agree(lambda: _train(placed(config, world), out, world, quiet, cluster))


def _train(config: TrainConfig, out: Path, world: World, quiet: bool, cluster: Cluster | None) -> dict[str, Any]:
    from rich.console import Console

    with ExitStack() as held:
        run = world.agree(lambda: held.enter_context(open_run(config, out)) if world.leads else None)
        world.agree(lambda: refuse_apart(out))
        prepared = prepare(config, out, lambda c, folder: train_stage(c, out / folder, quiet, world, cluster), world)
        if run is not None:
            run.note_panel(prepared.panel)
        with make_view(Console(stderr=True), quiet or not world.leads) as view:
            loop = Loop(config, out, view, world, cluster)
            try:
                loop.run(prepared)
            finally:
                if run is not None:
                    run.end(loop.state.totals)
        return {"final": out / checkpoint.FINAL} if run is None else _shown(run, out, loop.state.update)


def _shown(run: TrainingRun, out: Path, last: int) -> dict[str, Any]:
    from seedbench_trainers.curves import curve_csv, draw_curves

    return {
        "final": out / checkpoint.FINAL,
        "tables": run.tables(last),
        "cost": cost(out),
        "curves": [*draw_curves(out), curve_csv(out)],
    }


def train_stage(config: TrainConfig, out: Path, quiet: bool, world: World, cluster: Cluster | None = None) -> str:
    """Train a stage of another run unless it is done; the path of its final weights. Budgets are the run's own."""
    config = config.model_copy(update={"budget": Budget()})
    final = out / checkpoint.FINAL
    if not world.first((final / checkpoint.LABEL).is_file):
        train(config, out, quiet=quiet, cluster=cluster)
    return str(final)

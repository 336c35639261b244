"""`seedbench train`: train a method on a suite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from seedbench.remote.cluster import Cluster
    from seedbench_trainers.config import TrainConfig
    from seedbench_trainers.estimate import Estimate


def train_command(
    method: str = typer.Option("", help="Training method (`--list`)."),
    suite: str | None = typer.Option(None, help="Suite to train on, e.g. mini-alfworld; default: the recipe's."),
    model: str | None = typer.Option(
        None, help="A Hugging Face folder, a hub name, a stored model, or tiny[:SIZE]; default: the recipe's."
    ),
    recipe: str | None = typer.Option(
        None, help="Recipe (`--list`) or TOML file; default: the one for the suite and the model."
    ),
    out: Path | None = typer.Option(None, help="Run folder; default: runs/<method>--<suite>--<model>."),
    seed: int | None = typer.Option(None, help="Seed of the run; default: the recipe's, or 0."),
    changes: list[str] = typer.Option([], "--set", help="section.key=value over the recipe, as TOML; repeatable."),
    updates: int | None = typer.Option(None, min=1, help="Updates instead of the recipe's."),
    device: str | None = typer.Option(None, help="auto, cpu, cuda or cuda:N."),
    resume: bool = typer.Option(False, "--resume", help="Only go on: refuse to begin where there is no run."),
    listing: bool = typer.Option(False, "--list", help="Show the methods and the recipes, and train nothing."),
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Print the resolved configuration with sizes and memory, and train nothing."
    ),
    ray: str = typer.Option("", help="Play training roll-outs on Ray: local, auto or HOST:PORT (docs/scale.md)."),
    workers: int = typer.Option(1, min=1, help="Processes on Ray, each with the model."),
    gpus_per_worker: float = typer.Option(0.0, min=0, help="GPUs of each of them; a share below 1 is allowed."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show no progress."),
) -> None:
    """Train a model with a method. Interrupted or killed, the same command continues where it stopped."""
    if listing:
        _list()
        return
    from seedbench.errors import UsageError
    from seedbench_trainers.launch import one_voice
    from seedbench_trainers.recipes import resolve
    from seedbench_trainers.setup import RECORD

    def resolved() -> TrainConfig:
        if not method:
            raise UsageError("name a method with --method (`seedbench train --list` shows them).")
        return resolve(
            method, suite, model, recipe=recipe, overrides=changes, seed=seed, updates=updates, device=device
        )  # fmt: skip

    if dry_run:
        _show(resolved(), out)
        return
    with one_voice() as world:
        config = world.agree(resolved)
        folder = out or default_folder(config)

        def work() -> None:
            if resume and not world.first((folder / RECORD).is_file):
                raise UsageError(f"there is no run in '{folder}' to go on with; leave out --resume to begin one.")
            _train(config, folder, quiet, _cluster(ray, workers, gpus_per_worker, world.size, config.rollout.engine))

        world.agree(work)


def _cluster(ray: str, workers: int, gpus: float, processes: int, engine: str) -> Cluster | None:
    from seedbench.errors import UsageError

    if ray and engine:
        raise UsageError(f"--ray and rollout.engine '{engine}' both play the roll-outs: leave out one of them.")
    if engine == "vllm" and processes > 1:
        raise UsageError(
            f"rollout.engine 'vllm' runs in one process, and there are {processes}: start `vllm serve` and name it as"
            " openai:URL (docs/vllm.md), or leave the roll-outs to the trainer."
        )
    if ray and processes > 1:
        raise UsageError(
            f"--ray gives roll-outs to workers, and {processes} processes play them themselves: leave out --ray, or"
            " start one process without torchrun."
        )
    if ray:
        from seedbench.remote.cluster import Cluster

        return Cluster(ray, workers, gpus)
    if workers > 1 or gpus:
        raise UsageError("--workers and --gpus-per-worker are for --ray; add --ray local, or leave them out.")
    return None


def _show(config: TrainConfig, out: Path | None) -> None:
    """What `--dry-run` prints; of several processes the first alone prints it."""
    from seedbench_trainers.estimate import estimate
    from seedbench_trainers.launch import leads
    from seedbench_trainers.recipes import to_toml

    if leads():
        typer.echo(
            f"# seedbench train --method {config.method} --recipe {config.recipe} --out {out or default_folder(config)}"
        )
        typer.echo(to_toml(config))
        typer.echo("".join(f"# {line}\n" for line in estimate_lines(config, estimate(config))), nl=False)


def _train(config: TrainConfig, folder: Path, quiet: bool, cluster: Cluster | None = None) -> None:
    from seedbench.cli.output import print_table
    from seedbench.registry import get_suite
    from seedbench_trainers.loop import train

    done = train(config, folder, quiet=quiet, cluster=cluster)
    if "tables" not in done:  # one of several processes, of which the first shows what there is
        return
    if done["tables"]:
        print_table(done["tables"], get_suite(config.suite).layout, "terminal")
    if done.get("cost"):
        typer.echo(f"time: {done['cost']}")
    for path in done.get("curves", ()):
        typer.echo(f"curve: {path}")
    typer.echo(f"run: {folder}  (checkpoint: {done['final']})")


def default_folder(config: TrainConfig) -> Path:
    """`runs/<method>--<suite>--<model>`, with the last part of the model's name."""
    from seedbench.cli.eval import default_folder as named

    return named(f"{config.method}--{config.suite}", config.model.rstrip("/").rpartition("/")[2])


def _list() -> None:
    from seedbench.errors import SeedBenchError
    from seedbench.registry import get_method, method_names
    from seedbench_trainers.recipes import shipped_recipes

    typer.echo("methods")
    for name in method_names():
        try:
            text = get_method(name).summary
        except SeedBenchError as error:  # a broken package must not hide the others
            text = f"broken: {error}"
        typer.echo(f"  {name:<22} {text}")
    typer.echo("\nrecipes")
    for name, recipe in shipped_recipes().items():
        typer.echo(f"  {name:<22} {recipe.summary} ({recipe.model})")


def estimate_lines(config: TrainConfig, sizes: Estimate) -> list[str]:
    """What `--dry-run` says of a configuration's sizes, a sentence a line."""
    total, plural = config.planned_updates, "s" if sizes.steps > 1 else ""
    lines = [
        f"{total} updates; in each at most {sizes.samples:,} samples, {sizes.tokens:,} tokens,"
        f" {sizes.steps:,} optimiser step{plural}; at most {total * sizes.samples:,} samples in all"
    ]
    if most := config.budget.environment_steps:
        lines.append(f"budget: ends after the first update at which {most:,} environment steps were played")
    if config.data.fraction < 1:
        lines.append(f"data: {100 * config.data.fraction:g}% of the {config.data.reading}")
    if sizes.parameters is None:
        return [*lines, f"{config.model}: its size is unknown until it is here, and so is the memory"]
    memory = sizes.memory
    if memory is None:
        return [*lines, f"{config.model}: about {sizes.parameters:,} parameters by its name; memory unknown"]
    lines.append(f"{config.model}: {sizes.parameters:,} parameters, {sizes.trainable:,} of them trained")
    parts = ", ".join(f"{name} {_size(n)}" for name, n in memory.parts().items() if n)
    each = ""
    if sizes.processes > 1:
        each = f" of each of {sizes.processes} processes ({'fsdp' if sizes.sharded else 'ddp'})"
    return [*lines, f"memory on {sizes.device}{each}: about {_size(memory.peak)} at the peak ({parts})"]


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"

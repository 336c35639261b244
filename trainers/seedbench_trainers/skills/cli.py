"""`seedbench collect` and `seedbench annotate`: stage 1 of hindsight-skill training, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from seedbench.panels import Panel


def collect_command(
    policy: str = typer.Argument(help="As in `seedbench eval`: oracle, random, openai:URL[#MODEL], a model folder..."),
    panel: str = typer.Option(..., "--panel", "-p", help="Training panel, by name or file."),
    protocol: str = typer.Option("", help="Protocol name or TOML file; default: the suite's own."),
    out: Path | None = typer.Option(None, help="Run folder; default: runs/collect-<policy>--<panel>."),
    tasks: int = typer.Option(180, min=1, help="Tasks, spread evenly over the families."),
    repeats: int = typer.Option(8, min=1, help="Attempts at every task."),
    temperature: float = typer.Option(0.4, min=0, help="Sampling temperature."),
    seed: int = typer.Option(0, help="Seed of the run; every episode's seed follows from it."),
    families: str = typer.Option("", help="Only these families, e.g. heat,look."),
    concurrency: int = typer.Option(16, min=1, help="Episodes open at once; does not change results."),
    batch_size: int = typer.Option(16, min=1, help="Prompts a local model answers at once; does not change results."),
    device: str = typer.Option("auto", help="auto, cpu or cuda, for local models."),
    dtype: str = typer.Option("auto", help="auto, float32, bfloat16 or float16, for local models."),
    adapter: str | None = typer.Option(None, help="LoRA adapter folder to apply to a local model."),
    timeout: float = typer.Option(120.0, help="Seconds a server may take for a response."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show no progress."),
) -> None:
    """Record episodes of a policy on a training panel, prompts included. The same command goes on where it stopped."""
    from rich.console import Console

    from seedbench.cli.eval import default_folder
    from seedbench.cli.selection import chosen_panel
    from seedbench.evaluate import Evaluation, evaluate
    from seedbench.policies import ModelOptions, make_policy
    from seedbench.protocol import load_protocol
    from seedbench.registry import get_suite
    from seedbench.ui.live import make_progress

    chosen = chosen_panel(panel, families, tasks)
    if not chosen.split.startswith("train"):
        typer.echo(
            f"note: '{chosen.name}' is split '{chosen.split}': do not report scores on what was trained on.", err=True
        )
    asked = load_protocol(protocol or get_suite(chosen.suite).default_protocol).with_settings(temperature=temperature)
    answerer = make_policy(policy, chosen, ModelOptions(batch_size, device, dtype, adapter, concurrency, timeout))
    job = Evaluation(
        chosen, asked, answerer, out or default_folder(f"collect-{answerer.name}", chosen.name),
        repeats=repeats, seed=seed, concurrency=concurrency, keep_prompts=True,
    )  # fmt: skip
    evaluate(job, make_progress(Console(stderr=True), quiet=quiet))
    _tell_families(job.out, chosen)
    typer.echo(f"run: {job.out}  (next: seedbench annotate {job.out} --analyzer rules)")


def annotate_command(
    run: Path = typer.Argument(help="Run folder of `seedbench collect` or `seedbench eval`."),
    analyzer: str = typer.Option(
        ..., "--analyzer", "-a", help="rules, openai:URL[#MODEL], a stored model or a model folder."
    ),
    out: Path | None = typer.Option(None, help="File; default: annotations.jsonl in the run folder."),
    style: str = typer.Option("full", help="full, or brief for tiny models that were trained on it."),
    prompt_tokens: int = typer.Option(16_384, min=256, help="Longest prompt; steps are left out from its middle."),
    new_tokens: int = typer.Option(4_096, min=1, help="Longest answer."),
    panel: str = typer.Option("", help="Panel file of the run, where its panel is not a shipped one."),
    concurrency: int = typer.Option(16, min=1, help="Episodes asked about at once."),
    batch_size: int = typer.Option(16, min=1, help="Prompts a local model answers at once."),
    device: str = typer.Option("auto", help="auto, cpu or cuda, for local models."),
    dtype: str = typer.Option("auto", help="auto, float32, bfloat16 or float16, for local models."),
    adapter: str | None = typer.Option(None, help="LoRA adapter folder to apply to a local model."),
    timeout: float = typer.Option(600.0, help="Seconds a server may take for an answer."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show no progress."),
) -> None:
    """Write a summary and a hindsight skill for every finished episode. The same command goes on where it stopped."""
    from rich.console import Console
    from rich.progress import Progress

    from seedbench.errors import unknown
    from seedbench.policies import ModelOptions
    from seedbench_trainers.skills.analyzers import make_analyzer, panel_of
    from seedbench_trainers.skills.annotate import FILE, annotate, finished_episodes, read_annotations

    if style not in ("full", "brief"):
        raise unknown("style", style, ("full", "brief"))
    writer = make_analyzer(
        analyzer, panel_of(run, panel), ModelOptions(batch_size, device, dtype, adapter, concurrency, timeout),
        style="brief" if style == "brief" else "full", prompt_tokens=prompt_tokens, new_tokens=new_tokens,
    )  # fmt: skip
    file = out or run / FILE
    total, done = len(finished_episodes(run)), len(read_annotations(file)) if file.is_file() else 0
    with Progress(console=Console(stderr=True), disable=quiet) as progress:
        bar = progress.add_task(f"annotations by {analyzer}", total=total, completed=done)
        lines: list[str] = []
        annotate(run, writer, file, concurrency=concurrency, told=lambda _: progress.advance(bar), note=lines.append)
    typer.echo("\n".join([*lines, f"annotations: {file}"]))


def _tell_families(folder: Path, panel: Panel) -> None:
    from seedbench_trainers.skills.annotate import finished_episodes

    episodes = finished_episodes(folder)
    for family in panel.families():
        solved = [episode.success for episode in episodes if episode.family == family]
        typer.echo(f"{family:<18} {len(solved):>6} episodes, {sum(solved):>6} solved")

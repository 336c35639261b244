"""`seedbench eval`: score a policy on a panel."""

from __future__ import annotations

from pathlib import Path

import typer


def evaluate_command(
    policy: str = typer.Argument(
        help="oracle, random, a baseline of the suite (rule), replay:RUN, openai:URL[,URL...][#MODEL], vllm:MODEL,"
        " a stored model (`seedbench models list`), a Hugging Face folder or a hub name.",
    ),
    panel: str = typer.Option(..., "--panel", "-p", help="Panel name (`seedbench panels list`) or panel file."),
    protocol: str = typer.Option("", help="Protocol name or TOML file; default: the suite's own."),
    out: Path | None = typer.Option(None, help="Run folder; default: runs/<policy>--<panel>."),
    repeats: int = typer.Option(1, min=1, help="Attempts at every task."),
    seed: int = typer.Option(0, help="Seed of the run; every episode's seed follows from it."),
    temperature: float | None = typer.Option(None, min=0, help="Sampling temperature instead of the protocol's."),
    steps: int | None = typer.Option(None, min=1, help="Step limit instead of the protocol's."),
    response_tokens: int | None = typer.Option(None, min=1, help="Response limit instead of the protocol's."),
    thinking: str | None = typer.Option(None, help="on, off or default instead of the protocol's."),
    limit: int | None = typer.Option(None, help="Only so many tasks, spread evenly over the families."),
    families: str = typer.Option("", help="Only these families, e.g. heat,look."),
    engine: str = typer.Option("native", help="Engine of the suite's environment (its docs page lists them)."),
    concurrency: int = typer.Option(16, min=1, help="Episodes open at once; does not change results."),
    batch_size: int = typer.Option(16, min=1, help="Prompts a local model answers at once; does not change results."),
    device: str = typer.Option("auto", help="auto, cpu or cuda, for local models."),
    dtype: str = typer.Option("auto", help="auto, float32, bfloat16 or float16, for local models."),
    adapter: str | None = typer.Option(None, help="LoRA adapter folder to apply to a local model."),
    timeout: float = typer.Option(120.0, help="Seconds a server may take for a response."),
    max_infra: float = typer.Option(0.05, min=0, max=1, help="Share of infrastructure errors that fails the run."),
    keep_prompts: bool = typer.Option(False, help="Keep the text of every prompt in the log."),
    shuffle: int | None = typer.Option(None, help="Seed of another order of episodes; does not change results."),
    ray: str = typer.Option("", help="Play on Ray: local, auto or HOST:PORT (docs/scale.md); does not change results."),
    workers: int = typer.Option(1, min=1, help="Processes on Ray; --concurrency is shared by them."),
    gpus_per_worker: float = typer.Option(0.0, min=0, help="GPUs of each of them; a share below 1 is allowed."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show no progress."),
) -> None:
    """Score a policy on a panel. Interrupted or killed, the same command continues where it stopped."""
    from functools import partial

    from rich.console import Console

    from seedbench.cli.output import print_table
    from seedbench.cli.selection import chosen_panel
    from seedbench.errors import SeedBenchError, UsageError
    from seedbench.evaluate import Evaluation, evaluate
    from seedbench.policies import ModelOptions, make_policy
    from seedbench.protocol import load_protocol
    from seedbench.registry import get_suite
    from seedbench.ui.live import make_progress

    tasks = chosen_panel(panel, families, limit)
    suite = get_suite(tasks.suite)
    asked = load_protocol(protocol or suite.default_protocol).with_settings(
        temperature=temperature, steps=steps, response_tokens=response_tokens, thinking=thinking
    )
    options = ModelOptions(batch_size, device, dtype, adapter, concurrency, timeout)
    answerer = make_policy(policy, tasks, options)
    job = Evaluation(
        tasks, asked, answerer, out or default_folder(answerer.name, tasks.name),
        repeats=repeats, seed=seed, engine=engine, concurrency=concurrency,
        keep_prompts=keep_prompts, max_infra=max_infra, shuffle=shuffle,
    )  # fmt: skip
    if ray:
        from seedbench.remote.cluster import Cluster
        from seedbench.remote.evaluation import on_ray

        job = on_ray(job, partial(make_policy, policy, tasks, options), Cluster(ray, workers, gpus_per_worker))
    elif workers > 1 or gpus_per_worker:
        raise UsageError("--workers and --gpus-per-worker are for --ray; add --ray local, or leave them out.")
    summary = evaluate(job, make_progress(Console(stderr=True), quiet=quiet))
    print_table([(job.policy.name, summary)], suite.layout, "terminal")
    typer.echo(f"run: {job.out}  (summary.json, episodes.jsonl, manifest.json)")
    infra = summary["outcomes"]["infra_error"]
    if infra > max_infra * summary["episodes"]:
        raise SeedBenchError(
            f"{infra} of {summary['episodes']} episodes ended in infrastructure errors, outside the rates; run the"
            " same command again to try them again."
        )


def default_folder(policy: str, panel: str) -> Path:
    """`runs/<policy>--<panel>`, with every character that is awkward in a file name replaced."""
    safe = "".join(c if c.isalnum() or c in "-._@=" else "-" for c in f"{policy}--{panel}")
    return Path("runs") / safe.strip("-.")

"""The trainer against a bare forward and backward pass, and against TRL's GRPOTrainer, in one run.

    pip install trl        (a dependency of this benchmark alone; without it that part is left out)
    python benchmarks/trainer.py [--tasks 4 --group 8 --prompt 200 --response 48 --hidden 192 --layers 4 --tokens 4096]

update       tokens a CPU second of an update (reference scores and roll-outs done; the optimiser's step included)
             against the model's own loss on the same micro-batches, forward and backward, nothing else
iteration    a whole GRPO iteration of one-turn episodes: roll-outs, reference scores, update. TRL has the same model,
             prompts, group, answer lengths, AdamW, KL coefficient and number of optimiser steps, everything in float32
phases       the iteration's parts; peak memory of the process of each trainer

Every part runs in a process of its own on one thread; times are CPU seconds, medians of `--repeats` after one warm-up.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.talk_world import Bench, Lengths, build_model, configuration, talk

SIZES = {
    "tasks": 4,
    "group": 8,
    "prompt": 200,
    "response": 48,
    "hidden": 192,
    "layers": 4,
    "tokens": 4096,
    "repeats": 3,
}
_FRAME = 20
"""Words of a prompt beside the task and the observation."""


def lengths(options: argparse.Namespace) -> Lengths:
    """Half of a prompt is the task, half the observation."""
    words = options.prompt - _FRAME
    return Lengths(task=words // 2, seen=words - words // 2, said=options.response)


def bench(options: argparse.Namespace, folder: Path) -> Bench:
    """A GRPO run with one optimiser step an iteration."""
    model = build_model(folder / "model", options.hidden, options.layers)
    sections = {"optimiser": {"lr": 1e-5}, "update": {"tokens": options.tokens}}
    return Bench(configuration(model, "grpo", options.tasks, options.group, **sections), folder)


def peak() -> int:
    """Largest resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def iteration(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Iterations of this trainer."""
    run = bench(options, folder)
    for number in range(options.repeats + 1):
        batch = run.rollouts(number)
        run.signals(batch)
        run.update(batch, number)
        said = sum(sample.length for sample in batch.samples)
        fed = sum(len(sample.ids) for sample in batch.samples)
    phases = {phase: median(seconds[1:]) for phase, seconds in run.times.items()}
    return {"phases": phases, "seconds": sum(phases.values()), "peak": peak(), "said": said, "fed": fed}


def update(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Updates of one batch, and the bare passes, in turn."""
    run = bench(options, folder)
    batch = run.rollouts(0)
    run.signals(batch)
    batches = _labelled(run, batch.samples)
    bare = []
    for number in range(options.repeats + 1):
        run.update(batch, number)
        start = time.process_time()
        for ids, labels in batches:
            run.trainee.loaded.model(input_ids=ids, labels=labels, use_cache=False).loss.backward()
        bare.append(time.process_time() - start)
        run.updater.optimiser.zero_grad(set_to_none=True)
    fed = sum(len(sample.ids) for sample in batch.samples)
    return {"update": median(run.times["update"][1:]), "bare": median(bare[1:]), "fed": fed, "peak": peak()}


def _labelled(run: Bench, samples: Any) -> list[Any]:
    """Micro-batches as (ids, labels); what is no response is no label."""
    import torch

    from seedbench_trainers.microbatch import collate, micro_batches

    made = []
    for indices in micro_batches(samples, run.config.update.tokens):
        batch = collate(samples, indices, "cpu", signals=False)
        labels = torch.full_like(batch.ids, -100)
        labels[batch.rows, batch.positions] = batch.ids[batch.rows, batch.positions]
        made.append((batch.ids, labels))
    return made


def by_trl(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Iterations of TRL's GRPOTrainer on the prompts that this trainer would have drawn."""
    import pyarrow as pa
    import torch
    from datasets import Dataset  # type: ignore[import-not-found]
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer  # type: ignore[import-not-found]

    prompts = _prompts(options, folder)
    path, ends, said = str(folder / "model"), [time.process_time()], list[int]()

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.process_time())

    def reward(completion_ids: Any, **_: Any) -> list[float]:
        said.append(sum(map(len, completion_ids)))
        return [10.0 * (sum(ids) % 2) for ids in completion_ids]

    arguments = GRPOConfig(
        output_dir=str(folder / "trl"), report_to=[], use_cpu=True, bf16=False, disable_tqdm=True, save_strategy="no",
        per_device_train_batch_size=options.tasks * options.group, num_generations=options.group,
        max_completion_length=options.response, max_steps=options.repeats + 1, generation_kwargs={"eos_token_id": None},
        learning_rate=1e-5, lr_scheduler_type="constant", weight_decay=0.01, max_grad_norm=1.0, beta=0.01, delta=3.0,
        loss_type="bnpo", disable_dropout=True, gradient_checkpointing=False, use_bias_correction_kl=False,
        logging_steps=1000, shuffle_dataset=False,
    )  # fmt: skip
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    trainer = GRPOTrainer(
        model=model, reward_funcs=reward, args=arguments, processing_class=AutoTokenizer.from_pretrained(path),
        # With a fingerprint of its own: some pairs of dill and pyarrow cannot make one.
        train_dataset=Dataset(pa.table({"prompt": prompts}), fingerprint="prompts"), callbacks=[Clock()],
    )  # fmt: skip
    trainer.train()
    seconds = [after - before for before, after in pairwise(ends)][1:]
    return {"seconds": median(seconds), "peak": peak(), "said": median(said)}


def _prompts(options: argparse.Namespace, folder: Path) -> list[str]:
    """Rendered prompts of the tasks that the iterations draw."""
    from seedbench.policies.base import Policy, Request, Response
    from seedbench_trainers.collect import Attempt, play
    from seedbench_trainers.rollouts import drawn

    class Mute(Policy):
        name = "mute"

        def identity(self) -> dict[str, Any]:
            return {}

        async def act(self, request: Request) -> Response:
            return Response("w0")

    run = bench(options, folder)
    tasks = drawn(run.tools.panel, 0, 0, options.tasks * (options.repeats + 1))
    attempts = [Attempt(task, number, number, 0) for number, task in enumerate(tasks)]
    played = play(attempts, run.tools.panel, run.tools.protocol, Mute())
    return [run.tools._prompts.render(one.prompts[0]) for one in played]


PARTS: dict[str, Callable[[argparse.Namespace, Path], dict[str, Any]]] = {
    "iteration": iteration,
    "update": update,
    "trl": by_trl,
}


def in_process(options: argparse.Namespace, part: str) -> dict[str, Any]:
    """A part in a process of its own."""
    sizes = [f"--{key}={getattr(options, key)}" for key in SIZES]
    run = subprocess.run(
        [sys.executable, __file__, *sizes, "--part", part], check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for key, size in SIZES.items():
        parser.add_argument(f"--{key}", type=int, default=size)
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        import torch

        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as folder, talk(Path(folder), lengths(options)):
            print(json.dumps(PARTS[options.part](options, Path(folder))))
        return
    report(options)


def report(options: argparse.Namespace) -> None:
    """Run the parts and print their figures."""
    print(", ".join(f"{key} {getattr(options, key)}" for key in SIZES))
    own = in_process(options, "update")
    rates = {name: own["fed"] / own[name] for name in ("update", "bare")}
    print(f"update     {rates['update']:8.0f} tokens/CPU-s, bare forward+backward {rates['bare']:.0f}", end="")
    print(f"   ratio {rates['update'] / rates['bare']:.2f} (aim .90)")
    ours = in_process(options, "iteration")
    print(f"iteration  {_told(ours)}")
    for phase, seconds in ours["phases"].items():
        print(f"  {phase:9} {seconds:7.2f} CPU-s {seconds / ours['seconds']:5.0%}")
    if importlib.util.find_spec("trl") is None:
        print("TRL        left out: it is not installed (pip install trl)")
        return
    trl = in_process(options, "trl")
    print(f"TRL        {_told(trl)}   ratio {trl['seconds'] / ours['seconds']:.2f} (aim 1.5)")


def _told(result: dict[str, Any]) -> str:
    return f"{result['seconds']:8.2f} CPU-s, {result['said']:.0f} tokens sampled, peak {result['peak'] / 1e9:.2f} GB"


if __name__ == "__main__":
    main()

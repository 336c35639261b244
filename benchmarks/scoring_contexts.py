"""Log-probabilities of the same responses in the plain and in the skill context: CPU time and peak memory of four ways.

    python benchmarks/scoring_contexts.py [--model smollm2-135m] [--prompt 400 --skill 120 --response 40 --group 8]

A group has one prompt; every member has its own response and its own skill. No gradient. Each way runs in a process of
its own, so that peak memory is its own; loading the model is not timed. The largest difference from full forward
passes over the same tokens is printed beside it. Without the model in the store a random one of its shape is taken.

full logits         two forward passes of the model, all logits, skill after the task line (a quarter into the prompt)
selected positions  the trainer's scoring without sharing, same contexts
shared, after task  the trainer's packed scoring, same contexts
shared, end         the trainer's packed scoring, skill at the end of the prompt: another context, so other numbers
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from seedbench.errors import SeedBenchError
from seedbench_trainers.records import Sample, in_context

WAYS = ("full logits", "selected positions", "shared, after task", "shared, end")
BUDGET = 65536
"""Tokens a pass: four times the default of `update.tokens`, as the trainer scores without gradient."""


def load_model(name: str) -> tuple[Any, str]:
    """The stored model, or a random one of smollm2-135m's shape; and what it is."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from seedbench.models import resolve
    from seedbench.policies.checkpoint import locate
    from seedbench.policies.loading import load
    from seedbench.store import store_root

    try:
        return load(locate(resolve(name, store_root())), device="cpu", dtype="float32").model, name
    except SeedBenchError:
        config = LlamaConfig(
            vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
            num_key_value_heads=3, tie_word_embeddings=True,
        )  # fmt: skip
        torch.manual_seed(0)
        model: Any = LlamaForCausalLM(config)
        return model.eval(), "random model of 135 M parameters"


def contexts(options: argparse.Namespace, vocabulary: int, *, at_end: bool) -> list[Sample]:
    """The group in its plain context, then in its skill context."""
    random = np.random.default_rng(0)

    def tokens(count: int) -> list[int]:
        return [int(token) for token in random.integers(20, vocabulary, size=count)]

    prompt = tokens(options.prompt)
    place = len(prompt) if at_end else len(prompt) // 4
    plain, skilled = [], []
    for _ in range(options.group):
        said, skill = tokens(options.response), tokens(options.skill)
        ids = np.asarray(prompt + said, dtype=np.int32)
        plain.append(Sample(ids, ((len(prompt), len(ids)),), np.zeros(len(said), dtype=np.float32)))
        skilled.append(in_context(plain[-1], prompt[:place] + skill + prompt[place:]))
    return plain + skilled


def by_full_logits(model: Any, samples: Sequence[Sample]) -> list[Any]:
    """The model's own forward pass of each half of the samples, with all its logits."""
    import torch

    scores = []
    with torch.no_grad():
        for part in (samples[: len(samples) // 2], samples[len(samples) // 2 :]):
            ids = torch.from_numpy(np.stack([sample.ids for sample in part]).astype(np.int64))
            logprobs = model(input_ids=ids, use_cache=False).logits.log_softmax(-1)  # (B, T, V)
            for row, sample in enumerate(part):
                where = torch.from_numpy(sample.positions)
                scores.append(logprobs[row, where - 1, ids[row, where]].numpy())
    return scores


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """CPU seconds of one way (median), the process's peak memory, what was computed and on which model."""
    import torch

    from seedbench_trainers.packed import score_packed, takes_rows
    from seedbench_trainers.scoring import TokenScorer, score

    torch.set_num_threads(1)
    model, name = load_model(options.model)
    at_end = options.way == WAYS[3] or options.end
    samples = contexts(options, model.config.vocab_size, at_end=at_end)
    scorer = TokenScorer(model)
    takes_rows(scorer)
    seconds, scores = [], list[Any]()
    for _ in range(options.repeats):
        start = time.process_time()
        if options.way == WAYS[0]:
            scores = by_full_logits(model, samples)
        else:
            ways = (score, score_packed)
            scores = ways[options.way != WAYS[1]](scorer, samples, tokens=BUDGET, temperature=1.0)
        seconds.append(time.process_time() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"model": name, "seconds": median(seconds), "peak": peak, "scores": [one.tolist() for one in scores]}


def in_process(options: argparse.Namespace, way: str, *extra: str) -> dict[str, Any]:
    """`measure` in a process of its own."""
    sizes = [f"--{key}={getattr(options, key)}" for key in ("model", "prompt", "skill", "response", "group", "repeats")]
    run = subprocess.run(
        [sys.executable, __file__, *sizes, "--way", way, *extra], check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Largest difference of two results' log-probabilities."""
    pairs = zip(one["scores"], other["scores"], strict=True)
    return max(float(np.abs(np.subtract(a, b)).max()) for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    for key, size in {"prompt": 400, "skill": 120, "response": 40, "group": 8, "repeats": 1}.items():
        parser.add_argument(f"--{key}", type=int, default=size)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--end", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measure(options)))
        return
    results = {way: in_process(options, way) for way in WAYS}
    references = dict.fromkeys(WAYS, results[WAYS[0]])
    references[WAYS[3]] = in_process(options, WAYS[0], "--end")
    first = results[WAYS[0]]
    print(f"{first['model']}: prompt {options.prompt}, skill {options.skill}, response {options.response}, ", end="")
    print(f"group of {options.group}, both contexts; {options.repeats} run(s) each, one thread")
    print(f"  {'way':20} {'CPU-s':>8} {'ratio':>7} {'peak GB':>8} {'apart':>9}")
    for way, result in results.items():
        ratio = first["seconds"] / result["seconds"]
        print(
            f"  {way:20} {result['seconds']:8.2f} {ratio:6.2f}x {result['peak'] / 1e9:8.2f}"
            f" {apart(result, references[way]):9.1e}"
        )


if __name__ == "__main__":
    main()

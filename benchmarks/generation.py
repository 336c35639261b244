"""Generation with and without reuse, against transformers' own `generate`, in one run: CPU time, read the ratios.

    python benchmarks/generation.py [--turns 20] [--episodes 16] [--small]

A conversation: every turn an observation of 40 tokens comes in and 16 tokens are answered, all episodes in one batch.
It is played by the generator with its kept keys and values, by the generator without them, and by `generate` of
transformers (its own cache within a turn); temperature 1. A group: eight rows with one prompt of 600 tokens, against
eight prompts that differ in their first token. Models: the tests' random model, and smollm2-135m (fewer episodes and
turns) where it is in the store; `--small` leaves that out.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from seedbench.errors import SeedBenchError
from seedbench.models import resolve
from seedbench.policies.base import Sampling
from seedbench.policies.checkpoint import locate
from seedbench.policies.generation import Generator, Row
from seedbench.policies.loading import Loaded, load
from seedbench.store import store_root
from tests.tiny_model import build

SEEN, SAID, GROUP, PROMPT = 40, 16, 8, 600

Answer = Callable[[list[list[int]], int], list[list[int]]]
"""Prompts (B, P) and a turn's number -> answers (B, SAID)."""


def tokens(count: int, seed: int) -> list[int]:
    """Ids that any vocabulary has, none of them special."""
    return [(31 * seed + 7 * place * place + 3 * place) % 300 + 20 for place in range(count)]


def by_generator(loaded: Loaded, cache_bytes: int) -> Answer:
    generator = Generator(loaded, record=True, cache_bytes=cache_bytes)

    def answer(prompts: list[list[int]], turn: int) -> list[list[int]]:
        rows = [Row(prompt, 1000 * turn + row, episode=row) for row, prompt in enumerate(prompts)]
        return [one.ids for one in generator.generate(rows, Sampling(1.0, SAID))]

    return answer


def by_transformers(loaded: Loaded) -> Answer:
    import torch

    def answer(prompts: list[list[int]], turn: int) -> list[list[int]]:
        torch.manual_seed(turn)
        given = torch.tensor(prompts)
        ids: Any = loaded.model.generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=SAID,
            do_sample=True,
            top_k=0,
            eos_token_id=None,
        )
        said: list[list[int]] = ids[:, given.shape[1] :].tolist()
        return said

    return answer


def conversation(answer: Answer, episodes: int, turns: int) -> float:
    """CPU seconds of a conversation."""
    start = time.process_time()
    prompts = [tokens(3 * SEEN, episode) for episode in range(episodes)]
    for turn in range(turns):
        said = answer(prompts, turn)
        prompts = [
            [*prompt, *words, *tokens(SEEN, 100 * turn + episode)]
            for episode, (prompt, words) in enumerate(zip(prompts, said, strict=True))
        ]
    return time.process_time() - start


def group(loaded: Loaded, alike: bool) -> float:
    """CPU seconds for one token behind each of the group's prompts."""
    generator = Generator(loaded)
    rows = [Row([20 if alike else 20 + row, *tokens(PROMPT - 1, 1)], row) for row in range(GROUP)]
    start = time.process_time()
    generator.generate(rows, Sampling(1.0, 1))
    return time.process_time() - start


def measure(name: str, loaded: Loaded, episodes: int, turns: int) -> None:
    loaded = replace(loaded, eos=())
    loaded.model.generation_config.eos_token_id = None
    conversation(by_generator(loaded, 0), 2, 2)  # warm
    count = episodes * turns * SAID
    times = {
        "kept between turns": conversation(by_generator(loaded, 2**31), episodes, turns),
        "not kept": conversation(by_generator(loaded, 0), episodes, turns),
        "transformers generate": conversation(by_transformers(loaded), episodes, turns),
    }
    print(f"{name}: {episodes} episodes x {turns} turns, {SEEN} tokens seen and {SAID} said a turn")
    for way, seconds in times.items():
        ratio = seconds / times["kept between turns"]
        print(f"  {way:24} {seconds:7.2f} CPU-s {count / seconds:9.0f} tokens/CPU-s   {ratio:5.2f}x")
    once, each = (min(group(loaded, alike) for _ in range(3)) for alike in (True, False))
    print(f"  {GROUP} equal prompts of {PROMPT}: {once:.3f} CPU-s, unequal ones {each:.3f} CPU-s   {each / once:5.2f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=16)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tiny = load(locate(str(build(Path(folder) / "tiny"))), device="cpu", dtype="float32")
    measure("random model, 2 layers of 64", tiny, options.episodes, options.turns)
    if options.small:
        return
    try:
        real = load(locate(resolve("smollm2-135m", store_root())), device="cpu", dtype="float32")
    except SeedBenchError as error:
        print(f"smollm2-135m: left out ({error})")
        return
    measure("smollm2-135m", real, max(2, options.episodes // 4), max(2, options.turns // 4))


if __name__ == "__main__":
    main()

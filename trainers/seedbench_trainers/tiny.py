"""Tiny models: a Llama of 0.4-5 M random parameters and a tokenizer made from a suite's own text.

`tiny` or `tiny:SIZE` in place of a model's name. They read nothing but their suite, and learn it on a CPU in minutes:
what methods are studied with, never a row of a table beside real models. A checkpoint is a function of the spec, the
training panel, the protocol and the seed alone. The tokenizer is `words.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seedbench.errors import unknown
from seedbench.rollout import derive_seed
from seedbench_trainers.words import Texts, make_tokenizer

if TYPE_CHECKING:
    from seedbench.panels import Panel
    from seedbench.protocol import Protocol
    from seedbench.types import Episode

CONTEXT = 4096
_EPISODES = 300
"""Whose text the tokenizer is made from."""


@dataclass(frozen=True, slots=True)
class Size:
    """Shape of a tiny model; heads have 32 dimensions, the inner layer is three times the hidden one."""

    hidden: int
    layers: int


SIZES = {"xs": Size(96, 2), "s": Size(128, 2), "m": Size(128, 4), "l": Size(192, 4), "xl": Size(256, 5)}
"""About 0.4, 0.6, 1.0, 2.2 and 4.7 M parameters with a vocabulary of 1,500."""


def is_tiny(spec: str) -> bool:
    """Whether a model's name asks for a tiny model."""
    return spec == "tiny" or spec.startswith("tiny:")


def size_of(spec: str) -> Size:
    """The shape of `tiny` (size s) or `tiny:SIZE`. Raises UsageError for another size (the nearest is offered)."""
    name = spec.partition(":")[2] if ":" in spec else "s"
    if name not in SIZES:
        raise unknown("tiny model size", name, SIZES)
    return SIZES[name]


def build_tiny(spec: str, panel: Panel, protocol: Protocol, folder: Path, seed: int) -> Path:
    """Write a checkpoint (float32 weights, tokenizer, chat template) into `folder` and return it.

    Args:
        spec: see `size_of`.
        panel: the training panel, whose episodes (scripted, half random) are the tokenizer's text.
        protocol: how prompts and answers read.
        folder: made if needed; files of an earlier model there are overwritten.
        seed: of the weights and of the episodes.

    Raises:
        UsageError: an unknown size.
        SeedBenchError: as `collect.play`.
    """
    size = size_of(spec)
    words = make_tokenizer(_texts(panel, protocol, seed))
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # it would tear the live view

    # Not Qwen2: for that architecture transformers puts Qwen's own rules in the place of any tokenizer's.
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=size.hidden,
        intermediate_size=3 * size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.hidden // 32,
        num_key_value_heads=size.hidden // 32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        initializer_range=0.05,
        bos_token_id=None,
        eos_token_id=words.eos_token_id,
        pad_token_id=None,  # padding and end are one token, whose embedding must learn
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "tiny") % 2**63)
        model = LlamaForCausalLM(config)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def _hindsight(episode: Episode, plan: Sequence[str] | None) -> Iterator[str]:
    """Lines of what is asked and said about a finished episode, so that skills are short to write too."""
    from seedbench_trainers.skills.analysis import analysis_prompt, format_analysis
    from seedbench_trainers.skills.insertion import skill_block
    from seedbench_trainers.skills.rules import analyse

    analysis = analyse(episode, plan, episode.family)
    for text in (analysis_prompt(episode, style="brief")[-1].content, skill_block(analysis.skill)):
        yield from text.splitlines()
    yield format_analysis(analysis)


def _texts(panel: Panel, protocol: Protocol, seed: int) -> Texts:
    from seedbench_trainers.collect import play
    from seedbench_trainers.script import Script, attempts
    from seedbench_trainers.skills.analyzers import oracle_plan

    plan = oracle_plan(panel)

    script = Script(panel, protocol, noise=0.5)
    lines: Counter[str] = Counter()
    instructions = set()
    played = play(attempts(panel, _EPISODES, derive_seed(seed, "words")), panel, protocol, script)
    for one in played:
        # A conversation shows every message again each turn: once an episode is enough.
        told = {message.content for prompt in one.prompts for message in prompt}
        for text in (*told, *(turn.response for turn in one.episode.turns)):
            lines.update(text.splitlines())
        lines.update(_hindsight(one.episode, plan(one.episode)))
        instructions.add(one.episode.instruction)
    lines.update(protocol.format_action(action) for action in sorted(script.seen))
    return Texts(lines, frozenset(instructions), len(played))

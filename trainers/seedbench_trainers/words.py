"""A tokenizer made from the text of a suite, for tiny models.

It is byte-level BPE over words. What the suite says all the time is one piece on top of that: names ("mug 1": a word
and a number) and frequent text between names ("You arrive at", ", you see a", "go to"), so that an action is two to
four decisions. Names that were never seen fall back to word and number, other text to words and bytes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

ROLES = ("system", "user", "assistant")
END = "<|end|>"
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_MERGES = 600
_NAMES = 640
_PHRASES = 128
_NAME = r" ?[A-Za-z]+ \d{1,2}(?!\d)"
_WORDS = r" ?[A-Za-z]+| ?\d| ?[^\sA-Za-z\d]|\n+|\s"


@dataclass(frozen=True, slots=True)
class Texts:
    """What the tokenizer is made from: lines with how often they were seen, and the tasks' own words."""

    lines: Counter[str]
    instructions: frozenset[str]
    episodes: int


def make_tokenizer(texts: Texts) -> Any:
    """A transformers tokenizer from text: byte-level BPE over words, with names and frequent phrases as pieces."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    phrases = _phrases(texts)
    # Longest first; a phrase must not end within a word.
    listed = "".join(f"{re.escape(phrase)}(?![A-Za-z])|" for phrase in sorted(phrases, key=lambda p: (-len(p), p)))
    pattern = f"{listed}{_NAME}|{_WORDS}"
    counts: Counter[str] = Counter()
    for line, count in texts.lines.items():
        for piece in re.findall(pattern, line):
            counts[piece] += count
    names = {piece: n for piece, n in counts.items() if re.fullmatch(_NAME, piece)}
    whole = [*sorted(phrases), *sorted(_most(names, _NAMES, at_least=2))]
    vocabulary, merges = _merges({piece: n for piece, n in counts.items() if piece not in phrases}, names)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for piece in whole:
        vocabulary.setdefault(byte_level.pre_tokenize_str(piece)[0][0], len(vocabulary))
    # A piece of the vocabulary is taken whole, although no merges lead to it.
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True))
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level])
    backend.decoder = decoders.ByteLevel()
    fast: Any = PreTrainedTokenizerFast
    return fast(
        tokenizer_object=backend,
        eos_token=END,
        pad_token=END,
        additional_special_tokens=[f"<|{role}|>" for role in ROLES],
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def _phrases(texts: Texts) -> set[str]:
    """Frequent text of several words or signs between names; the tasks' own words are left to be read one by one."""
    kinds = {match[1] for line in texts.lines for match in re.finditer(r"([A-Za-z]+) \d{1,2}(?!\d)", line)}
    listed = "|".join(map(re.escape, sorted(kinds))) or r"(?!)"
    cut = re.compile(rf" ?\b(?:{listed})\b(?: \d{{1,2}}(?!\d))?")
    counts: Counter[str] = Counter()
    for line, count in texts.lines.items():
        for part in _without(line, texts.instructions):
            phrases = (phrase.rstrip() for phrase in cut.split(part))
            counts.update({phrase: count for phrase in phrases if len(re.findall(_WORDS, phrase)) > 1})
    return _most(counts, _PHRASES, at_least=max(2, texts.episodes // 8))


def _without(line: str, instructions: Iterable[str]) -> Iterator[str]:
    """The parts of a line around a task's sentence."""
    told = max(
        (text for text in instructions if text and text in line), key=lambda text: (len(text), text), default=None
    )
    yield from line.split(told) if told else (line,)


def _most(counts: dict[str, int], limit: int, *, at_least: int) -> set[str]:
    often = [piece for piece, count in counts.items() if count >= at_least]
    return set(sorted(often, key=lambda piece: (-counts[piece], piece))[:limit])


def _merges(words: dict[str, int], names: dict[str, int]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary (specials, bytes, merged pieces) and merges of BPE over the words, those inside names included."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    counts: Counter[str] = Counter()
    for word, count in words.items():
        parts = re.findall(_WORDS, word) if word in names else [word]
        counts.update(dict.fromkeys(parts, count))
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    specials = [*(f"<|{role}|>" for role in ROLES), END]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=len(specials) + len(alphabet) + _MERGES,
        special_tokens=specials,
        initial_alphabet=alphabet,
        min_frequency=2,
        show_progress=False,
    )
    # The square root keeps the text small and still puts frequent words first.
    texts = (word for word, count in sorted(counts.items()) for _ in range(1 + int(count**0.5)))
    backend.train_from_iterator(texts, trainer)
    model = json.loads(backend.to_str())["model"]
    return dict(model["vocab"]), [tuple(merge) for merge in model["merges"]]

"""Generated passages for tests, with the inflections, marks and ties that tell analysers apart; and a tiny encoder."""

import gzip
import importlib
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from seedbench_envs.searchqa.records import Passage

PLACES = ("Alder", "Birkmoor", "Cairn", "Dunlow", "Eastfell", "Fenwick", "Garth", "Hollin")
TRADES = ("painters", "bridges", "relational databases", "women's choirs", "sailing", "1950s films", "state-of-the-art")
VERBS = ("was founded in", "is known for", "has the oldest", "hosted the running of", "controlled", "generously funded")
NUMBERS = ("1,024", "9.5", "1887", "twenty", "no", "U.S.")


def generated(count: int, seed: int = 0) -> list[Passage]:
    """Passages with ids in another order than theirs; some are alike, so that scores tie."""
    rng = random.Random(seed)
    passages = []
    for number in range(count):
        place, other = rng.sample(PLACES, 2)
        sentences = [
            f"{rng.choice((place, 'It'))} {rng.choice(VERBS)} {rng.choice(NUMBERS)} {rng.choice(TRADES)}"
            f" near {other}{rng.choice(('', chr(39) + 's harbours', ' (the conditional logic)'))}."
            for _ in range(rng.choice((1, 1, 2, 5, 12)))
        ]
        passages.append(
            Passage(f"p{(number * 37) % 1000}-{number}", f"{place} {rng.choice(TRADES)}", " ".join(sentences))
        )
    return passages


def write(path: Path, passages: Iterable[Passage]) -> Path:
    """A corpus file in wiki-18 layout; gzip where the name says so."""
    lines = "".join(json.dumps({"id": p.id, "contents": p.contents}) + "\n" for p in passages).encode()
    path.write_bytes(gzip.compress(lines) if path.name.endswith(".gz") else lines)
    return path


def tiny_encoder(folder: Path, seed: int = 0) -> Path:
    """A random BERT of two layers (hidden size 32) with a word-piece tokenizer over letters and a few words."""
    import torch
    from transformers import BertConfig, BertModel

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "query", "passage", ":"]
    pieces += [chr(code) for code in range(33, 127) if chr(code) != ":" and not chr(code).isupper()]
    pieces += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(pieces), "utf-8")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = BertConfig(
            vocab_size=len(pieces), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
            max_position_embeddings=64, initializer_range=0.3,
        )  # fmt: skip
        BertModel(config).save_pretrained(folder)
    tokenizer: Any = importlib.import_module("transformers").BertTokenizerFast
    tokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder

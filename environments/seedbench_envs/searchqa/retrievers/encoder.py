"""Texts to vectors with an E5-style encoder (Wang et al., 2022) through transformers.

The mean of the last layer over the text's tokens, of length 1. Weights are safetensors; no code of a checkpoint runs.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.checkpoint import Checkpoint, locate, missing_packages, sha256_of
from seedbench.ui.text import inert


class Encoder:
    """An encoder on the first GPU, or on the processor where there is none. Several threads may use it."""

    def __init__(self, path_or_name: str, max_tokens: int = 256) -> None:
        """Load the encoder of a folder or hub name; texts are cut at `max_tokens`, or at fewer where it takes fewer.

        Raises:
            UsageError or SeedBenchError: it is missing, incomplete, or in pickle files.
        """
        checkpoint = found(path_or_name)
        self.weights = sha256_of(checkpoint.weights)
        """SHA-256 of the weights, 64 hex digits."""
        self.name = checkpoint.name
        self._lock = threading.Lock()
        self._torch, self._tokenizer, self._model = _loaded(checkpoint)
        positions = getattr(self._model.config, "max_position_embeddings", None) or max_tokens
        self._max_tokens = int(min(max_tokens, positions, self._tokenizer.model_max_length))
        self._device = "cuda" if self._torch.cuda.is_available() else "cpu"
        self._model.to(self._device)
        self.size = int(self._model.config.hidden_size)
        """Numbers of a vector."""

    def encode(self, texts: Sequence[str], batch: int = 32) -> NDArray[np.float32]:
        """Vectors of length 1, (texts, size). Texts of like length go together, which changes nothing but time."""
        vectors = np.empty((len(texts), self.size), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        for first in range(0, len(order), batch):
            chosen = order[first : first + batch]
            vectors[chosen] = self._batch([texts[number] for number in chosen])
        return vectors

    def _batch(self, texts: list[str]) -> NDArray[np.float32]:
        torch = self._torch
        with self._lock:  # fast tokenizers fail where two threads set their padding
            tokens = self._tokenizer(
                texts, padding=True, truncation=True, max_length=self._max_tokens, return_tensors="pt"
            ).to(self._device)
        with torch.inference_mode():
            states = self._model(**tokens).last_hidden_state.float()  # (B, T, size)
            mask = tokens["attention_mask"].unsqueeze(-1).float()  # (B, T, 1)
            mean = (states * mask).sum(1) / mask.sum(1).clamp(min=1)  # (B, size)
            unit = torch.nn.functional.normalize(mean, dim=1)
        vectors: NDArray[np.float32] = unit.cpu().numpy()
        return vectors


def found(path_or_name: str) -> Checkpoint:
    """The checked files of an encoder. Raises UsageError or SeedBenchError."""
    if not path_or_name:
        raise UsageError(
            "a dense index needs an encoder: name a folder or hub name, e.g. `--encoder intfloat/e5-base-v2`."
        )
    try:
        checkpoint = locate(path_or_name)
    except SeedBenchError as error:
        raise type(error)(f"the encoder '{path_or_name}' cannot be used: {error}") from error
    if checkpoint.adapter is not None:
        raise UsageError(f"the encoder '{path_or_name}' is a LoRA folder: merge it into its base model first.")
    return checkpoint


def _loaded(checkpoint: Checkpoint) -> tuple[Any, Any, Any]:
    try:
        torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    except ImportError as error:
        raise missing_packages(error) from error
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint.tokenizer, trust_remote_code=False)
        model, report = transformers.AutoModel.from_pretrained(
            checkpoint.model, dtype=torch.float32, use_safetensors=True, trust_remote_code=False,
            output_loading_info=True,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = inert(str(error).strip().partition("\n")[0], 200)
        raise SeedBenchError(f"the encoder '{checkpoint.name}' cannot be loaded: {reason}.") from error
    # transformers fills absent weights with random numbers. The pooler's do not matter: the mean is taken instead.
    absent = sorted(key for key in report["missing_keys"] if "pooler" not in key)
    if absent:
        raise SeedBenchError(
            f"the encoder '{checkpoint.name}' lacks {len(absent)} weights of its architecture, {absent[0]} for one:"
            " save the whole model again."
        )
    return torch, tokenizer, model.eval()

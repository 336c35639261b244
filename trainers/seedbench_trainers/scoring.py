"""Log-probabilities of fixed response tokens under a causal model, without a (batch, time, vocabulary) tensor.

The decoder runs over whole sequences; only the hidden states before response tokens go through the output layer, a
chunk at a time, and in training a chunk's logits are computed again in the backward pass. Nothing here samples.

Simplifications: text only; adapters that change weights (LoRA), not those that add virtual tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from seedbench.errors import SeedBenchError
from seedbench_trainers.base import Tokens
from seedbench_trainers.microbatch import MicroBatch, collate, micro_batches
from seedbench_trainers.records import Floats, Sample

_CHUNK_ROWS = 1024
_CPU_TOKENS = 4096
"""Most tokens of a pass without gradient on a CPU: larger ones leave its caches, and were a quarter slower."""
_FORBIDDEN = -1e30  # not -inf: 0 * -inf in the entropy would be NaN

Scores = tuple[Tensor, Tensor | None]


class TokenScorer(torch.nn.Module):
    """A causal language model of transformers (plain, or with LoRA adapters) as a scorer of response tokens.

    Args:
        model: the model; it stays shared with the caller.
        chunk_bytes: most bytes of float32 logits held at once; None: 64 MiB on a CPU, 256 MiB elsewhere.

    Raises:
        SeedBenchError: the model's logits are not its output layer's, scaled or capped in a way known here.
    """

    def __init__(self, model: torch.nn.Module, *, chunk_bytes: int | None = None) -> None:
        super().__init__()
        self.model = model
        cpu = next(model.parameters()).device.type == "cpu"
        self.packs: bool | None = None  # whether `packed` may be used; found out there
        self.whole_graph = False
        """Whether every parameter is part of the graph of every pass with gradient: processes that share their
        gradients pass by pass need the same ones."""
        self.chunk_bytes = chunk_bytes or (64 << 20 if cpu else 256 << 20)
        config = self.base.config.get_text_config()
        # Cohere multiplies, Granite divides, Gemma squashes.
        self._scale = float(getattr(config, "logit_scale", None) or 1) / float(
            getattr(config, "logits_scaling", None) or 1
        )
        self._cap = float(getattr(config, "final_logit_softcapping", None) or 0)
        self._check()

    def forward(
        self,
        ids: Tensor,
        rows: Tensor,
        positions: Tensor,
        *,
        allowed: Tensor | None = None,
        restricted: Tensor | None = None,
        temperature: float = 1.0,
        entropy: bool = False,
    ) -> Scores:
        """Score N tokens of B sequences, each from what stands before it.

        Args:
            ids: (B, T) int64, padded on the right with anything.
            rows: (N,) the sequence of each scored token.
            positions: (N,) its index in that sequence, >= 1.
            allowed: (N, K) ids that were allowed at restricted tokens, the token itself among them, padded with -1.
            restricted: (N,) bool, where `allowed` counts; elsewhere the whole vocabulary is allowed.
            temperature: logits are divided by it, > 0.
            entropy: also return entropies.

        Returns:
            Log-probabilities (N,) float32 in nats, and entropies (N,) or None. Both are exactly 0, without gradient,
            where one id alone was allowed.
        """
        # No attention mask: padding stands after every token of its row and a causal layer does not look ahead.
        hidden = self.states(ids[:, :-1])  # (B, T-1, H)
        hidden = hidden.reshape(-1, hidden.shape[-1]).index_select(0, rows * (ids.shape[1] - 1) + positions - 1)
        logprobs, spread = self.pick(
            hidden, ids[rows, positions],
            allowed=allowed, restricted=restricted, temperature=temperature, entropy=entropy,
        )  # fmt: skip
        if self.whole_graph:  # tokens that were all forced do not use the output layer
            for parameter in self.base.get_output_embeddings().parameters():
                logprobs = logprobs + 0.0 * parameter.reshape(-1)[0]
        return logprobs, spread

    def idle(self) -> Tensor:
        """Zero, by a pass over two tokens: what a process does while others, which need its part, make a pass."""
        device = next(self.parameters()).device
        ids, one = torch.zeros((1, 2), dtype=torch.long, device=device), torch.ones(1, dtype=torch.long, device=device)
        return 0.0 * cast("Scores", self(ids, one - 1, one))[0].sum()

    def states(self, ids: Tensor, positions: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Hidden states (B, T, H) behind every token of ids (B, T).

        Args:
            ids: int64.
            positions: (B, T) where each token stands, given together with the mask; None: one after the other.
            mask: (B, 1, T, T) bool, True where a query (third axis) sees a key; None: causal.
        """
        layout = {} if positions is None else {"position_ids": positions, "attention_mask": mask}
        return cast("Tensor", self.base.base_model(input_ids=ids, use_cache=False, **layout).last_hidden_state)

    def pick(
        self,
        hidden: Tensor,
        targets: Tensor,
        *,
        allowed: Tensor | None = None,
        restricted: Tensor | None = None,
        temperature: float = 1.0,
        entropy: bool = False,
    ) -> Scores:
        """Score targets (N,) from the hidden states (N, H) before them; the rest is as in `forward`."""
        if allowed is None or restricted is None:
            return self._free(hidden, targets, temperature, entropy)
        free = (~restricted).nonzero().squeeze(1)
        open_ = (restricted & ((allowed >= 0).sum(1) > 1)).nonzero().squeeze(1)  # a forced token needs no model
        parts = []
        if len(free):
            parts.append((free, self._free(hidden.index_select(0, free), targets[free], temperature, entropy)))
        if len(open_):
            scores = self._restricted(
                hidden.index_select(0, open_), targets[open_], allowed[open_], temperature, entropy
            )
            parts.append((open_, scores))
        logprobs = hidden.new_zeros(len(targets), dtype=torch.float32)
        if not parts:  # zero, but part of the graph: a mini-batch of forced tokens alone has a backward pass too
            logprobs = logprobs + 0.0 * hidden.sum()
        entropies = torch.zeros_like(logprobs) if entropy else None
        for where, (values, spread) in parts:
            logprobs = logprobs.index_put((where,), values)
            if entropies is not None and spread is not None:
                entropies = entropies.index_put((where,), spread)
        return logprobs, entropies

    @property
    def base(self) -> Any:
        """The causal language model, without a wrapper of adapters (its layers keep them)."""
        model: Any = self.model
        return model.get_base_model() if hasattr(model, "get_base_model") else model

    def _free(self, hidden: Tensor, targets: Tensor, temperature: float, entropy: bool) -> Scores:
        head = self.base.get_output_embeddings()

        def piece(states: Tensor, picked: Tensor) -> Scores:
            return _pick(self._finish(head(states)) / temperature, picked, entropy)

        return self._chunked(piece, self.base.config.get_text_config().vocab_size, hidden, targets)

    def _restricted(
        self, hidden: Tensor, targets: Tensor, allowed: Tensor, temperature: float, entropy: bool
    ) -> Scores:
        """As `_free`, over the allowed ids: the output layer is cut down to the ids that are allowed anywhere."""
        column = (allowed == targets[:, None]).int().argmax(1)  # (N,)
        padding = allowed < 0
        choices, inverse = torch.unique(allowed.clamp_min(0), return_inverse=True)  # (U,), (N, K)
        head = self.base.get_output_embeddings()
        plain = type(head) is torch.nn.Linear
        # Cut once, not in every chunk: its gradient is as large as the whole layer.
        weight = head.weight.index_select(0, choices) if plain else None
        bias = head.bias.index_select(0, choices) if plain and head.bias is not None else None

        def piece(states: Tensor, picked: Tensor, where: Tensor, absent: Tensor) -> Scores:
            logits = head(states)[:, choices] if weight is None else F.linear(states, weight, bias)  # (n, U)
            logits = self._finish(logits).gather(1, where) / temperature  # (n, K)
            return _pick(logits.masked_fill(absent, _FORBIDDEN), picked, entropy)

        width = len(choices) if plain else self.base.config.get_text_config().vocab_size
        return self._chunked(piece, max(width, allowed.shape[1]), hidden, column, inverse, padding)

    def _finish(self, logits: Tensor) -> Tensor:
        """What the model does to its output layer's values, in float32."""
        logits = logits.float()
        if self._scale != 1.0:
            logits = logits * self._scale
        return torch.tanh(logits / self._cap) * self._cap if self._cap else logits

    def _chunked(self, piece: Callable[..., Scores], width: int, *rows: Tensor) -> Scores:
        """Apply `piece` to some rows of every tensor at a time, so that (rows, width) floats fit the budget."""
        size = max(1, min(_CHUNK_ROWS, self.chunk_bytes // (4 * width)))
        parts = list(zip(*(torch.split(tensor, size) for tensor in rows), strict=True))
        if torch.is_grad_enabled() and len(parts) > 1:
            scores = [cast("Scores", checkpoint(piece, *part, use_reentrant=False)) for part in parts]
        else:
            scores = [piece(*part) for part in parts]
        entropies = [spread for _, spread in scores if spread is not None]
        return torch.cat([values for values, _ in scores]), torch.cat(entropies) if entropies else None

    @torch.no_grad()
    def _check(self) -> None:
        """Compare with the model's own logits on a few tokens: no list of architectures would stay complete."""
        base, training = self.base, self.model.training
        name = type(base).__name__
        if base.base_model is base or base.get_output_embeddings() is None:
            raise SeedBenchError(f"{name} has no output layer over a decoder: train a causal language model.")
        self.model.eval()
        ids = torch.tensor([[3, 1, 4, 1]], device=next(self.model.parameters()).device)
        theirs = self.model(input_ids=ids, use_cache=False).logits.float()
        hidden = base.base_model(input_ids=ids, use_cache=False).last_hidden_state
        ours = self._finish(base.get_output_embeddings()(hidden))
        self.model.train(training)
        if not torch.allclose(ours, theirs, rtol=0.02, atol=0.02 * float(theirs.abs().max())):
            raise SeedBenchError(
                f"{name} changes its logits behind the output layer in a way that the trainer does not know, so its"
                " log-probabilities would be wrong: train another architecture."
            )


def _pick(logits: Tensor, targets: Tensor, entropy: bool) -> Scores:
    """Log-softmax of float32 logits (n, C) at `targets` (n,), and the entropy of each row."""
    total = logits.logsumexp(1)
    logprobs = logits.gather(1, targets[:, None]).squeeze(1) - total
    return logprobs, total - (logits.softmax(1) * logits).sum(1) if entropy else None


def forward(scorer: TokenScorer, batch: MicroBatch, *, temperature: float, entropy: bool = False) -> Tokens:
    """Score a micro-batch, with gradient where that is on. Autocast is the caller's."""
    logprobs, spread = scorer(
        batch.ids, batch.rows, batch.positions,
        allowed=batch.allowed, restricted=batch.restricted, temperature=temperature, entropy=entropy,
    )  # fmt: skip
    return batch.tokens(logprobs, spread)


def pass_tokens(tokens: int, device: torch.device) -> int:
    """The tokens of a pass without gradient where `tokens` fit into memory: a CPU is faster with fewer."""
    return min(tokens, _CPU_TOKENS) if device.type == "cpu" else tokens


@torch.no_grad()
def score(
    scorer: TokenScorer, samples: Sequence[Sample], *, tokens: int, temperature: float, passes: int = 0
) -> list[Floats]:
    """Log-probabilities (L,) float32 of each sample's response tokens, in the order given, without gradient.

    Args:
        scorer: the model, which is put into evaluation mode for the while.
        samples: what to score; their signals are not read.
        tokens: most padded tokens a pass (see `pass_tokens`); results depend on it by rounding alone.
        temperature: as at sampling time.
        passes: how many are made at least (see `TokenScorer.idle`).
    """
    device, training = next(scorer.parameters()).device, scorer.model.training
    scorer.model.eval()
    tokens = pass_tokens(tokens, device)
    scores: list[Floats] = [np.zeros(0, dtype=np.float32)] * len(samples)
    cut = micro_batches(samples, tokens)
    for _ in range(passes - len(cut)):
        scorer.idle()
    for indices in cut:
        values = (
            forward(scorer, collate(samples, indices, device, signals=False), temperature=temperature)
            .logprobs.cpu()
            .numpy()
        )
        for row, index in zip(values, indices, strict=True):
            scores[index] = row[: samples[index].length].copy()
    scorer.model.train(training)
    return scores

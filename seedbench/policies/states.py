"""Keys and values of the sequences in a batch, and those that are kept between the turns of episodes.

Sequences of unlike lengths stand side by side: columns without a token are masked, wherever they are. That, taking a
row out and putting it into another batch are sound only where every layer attends to all earlier tokens and a key does
not depend on how long its sequence is (`Network.plain`). Other models (sliding windows, recurrent layers, dynamic
rotary scaling) get one batch from its first prompt token to its last answer, padded on the left.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from inspect import signature
from threading import Lock
from typing import TYPE_CHECKING, Any

from seedbench.policies.loading import Loaded

if TYPE_CHECKING:
    from torch import Tensor

Layers = list[tuple["Tensor", "Tensor"]]
"""Keys and values of one sequence, a pair a layer, each (heads, tokens, head size)."""


class Network:
    """A causal language model as a function from token chunks to the logits behind them."""

    def __init__(self, loaded: Loaded) -> None:
        self.model = loaded.model
        self.pad = loaded.pad
        base = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model
        accepted = signature(base.forward).parameters
        self._config = base.config
        self._takes_positions = "position_ids" in accepted
        self._cache_argument = "cache" if "cache" in accepted else "past_key_values"  # renamed in transformers 5
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        self.plain = self._takes_positions and self._is_plain()
        """Whether rows may be taken out, put in, and padded in the middle."""

    def empty_cache(self) -> Any:
        """A cache that holds nothing yet."""
        from transformers import DynamicCache

        return DynamicCache(config=self._config)

    def logits(self, ids: Tensor, mask: Tensor, cache: Any) -> Tensor:
        """Float32 logits (B, V) behind the last column of `ids` (B, C), whose keys and values `cache` takes up.

        `mask` (B, W + C): 1 where there is a token, for the W columns in the cache and the C new ones.
        """
        options = {**self._options, self._cache_argument: cache}
        if self._takes_positions:
            options["position_ids"] = (mask.cumsum(dim=1) - 1).clamp_min(0)[:, -ids.shape[1] :]
        output = self.model(input_ids=ids, attention_mask=mask, use_cache=True, **options)
        logits: Tensor = output.logits[:, -1].float()
        return logits

    def _is_plain(self) -> bool:
        from transformers.cache_utils import DynamicLayer

        text = self._config.get_text_config(decoder=True)
        rotary = (getattr(text, "rope_parameters", None), getattr(text, "rope_scaling", None))
        return all(type(layer) is DynamicLayer for layer in self.empty_cache().layers) and not _grows(rotary)


def _grows(rotary: object) -> bool:
    """Whether rotary settings, nested by layer type or not, name a scaling that depends on the sequence's length."""
    if isinstance(rotary, dict):
        return _grows(tuple(rotary.values()))
    if isinstance(rotary, tuple):
        return any(_grows(value) for value in rotary)
    return rotary in ("dynamic", "longrope")


class States:
    """What the model knows of B sequences. `mask` (B, W): 1 where a column of a sequence holds a token."""

    def __init__(self, network: Network, cache: Any, mask: Tensor) -> None:
        self._network = network
        self._cache = cache
        self.mask = mask

    @classmethod
    def of(cls, network: Network, rows: Sequence[Layers | None]) -> States:
        """A batch of sequences that begin with what is known of them; None: with nothing."""
        import torch

        lengths = [0 if layers is None else layers[0][0].shape[1] for layers in rows]
        width = max(lengths)
        held = [[0] * (width - length) + [1] * length for length in lengths]
        mask = torch.tensor(held, dtype=torch.long, device=network.model.device)  # (B, W)
        cache = network.empty_cache()
        known = next((layers for layers in rows if layers is not None), [])
        for number in range(len(known) if width else 0):
            stacked = []
            for part, like in enumerate(known[number]):
                heads, _, size = like.shape
                whole = like.new_zeros(len(rows), heads, width, size)
                for row, layers in enumerate(rows):
                    if layers is not None:
                        whole[row, :, width - lengths[row] :] = layers[number][part]
                stacked.append(whole)
            cache.update(stacked[0], stacked[1], number)
        return cls(network, cache, mask)

    @classmethod
    def joined(cls, batches: Sequence[States]) -> States:
        """The sequences of several batches, in order, as one."""
        import torch
        from torch.nn.functional import pad

        width = max(batch.mask.shape[1] for batch in batches)
        missing = [width - batch.mask.shape[1] for batch in batches]
        network, cache = batches[0]._network, batches[0]._network.empty_cache()
        for number in range(len(cache.layers)):
            parts = [batch._cache.layers[number] for batch in batches]
            keys = [pad(part.keys, (0, 0, count, 0)) for part, count in zip(parts, missing, strict=True)]
            values = [pad(part.values, (0, 0, count, 0)) for part, count in zip(parts, missing, strict=True)]
            cache.update(torch.cat(keys), torch.cat(values), number)
        masks = [pad(batch.mask, (count, 0)) for batch, count in zip(batches, missing, strict=True)]
        return cls(network, cache, torch.cat(masks))

    def feed(self, chunks: Sequence[Sequence[int]]) -> Tensor:
        """Append a chunk (which may be empty) to each sequence; float32 logits (B, V) behind the last tokens.

        The logits of a sequence with an empty chunk mean nothing.
        """
        import torch

        pad, device = self._network.pad, self.mask.device
        width = max(map(len, chunks))
        ids = [[pad] * (width - len(chunk)) + list(chunk) for chunk in chunks]
        held = [[0] * (width - len(chunk)) + [1] * len(chunk) for chunk in chunks]
        self.mask = torch.cat([self.mask, torch.tensor(held, dtype=torch.long, device=device)], dim=1)
        return self._network.logits(torch.tensor(ids, device=device), self.mask, self._cache)

    def select(self, rows: Sequence[int]) -> None:
        """Keep these sequences, in this order; one may be named more than once. Columns that none uses go."""
        import torch

        chosen = torch.tensor(rows, device=self.mask.device)
        mask = self.mask.index_select(0, chosen)
        columns = mask.any(dim=0).nonzero().squeeze(1)
        self.mask = mask.index_select(1, columns)
        for layer in self._cache.layers:
            layer.keys = layer.keys.index_select(0, chosen).index_select(2, columns)
            layer.values = layer.values.index_select(0, chosen).index_select(2, columns)

    def row(self, number: int) -> Layers:
        """A copy of one sequence's keys and values, without the columns that hold no token."""
        columns = self.mask[number].nonzero().squeeze(1)
        return [
            (layer.keys[number].index_select(1, columns), layer.values[number].index_select(1, columns))
            for layer in self._cache.layers
        ]


@dataclass(frozen=True, slots=True)
class _Kept:
    ids: Sequence[int]
    layers: Layers
    size: int


class KeptStates:
    """Keys and values of episodes between their turns, at most `limit` bytes; the oldest go first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._size = 0
        self._lock = Lock()  # episodes are forgotten by another thread than the model's

    def put(self, episode: Hashable, ids: Sequence[int], layers: Layers) -> None:
        """Keep what is known of `ids` (n,) until it is taken, forgotten or pushed out."""
        size = sum(keys.nbytes + values.nbytes for keys, values in layers)
        self.forget(episode)
        with self._lock:
            self._kept[episode] = _Kept(ids, layers, size)
            self._size += size
            while self._size > self.limit:
                self._size -= self._kept.popitem(last=False)[1].size

    def take(self, episode: Hashable, ids: Sequence[int]) -> Layers | None:
        """Remove an episode's states; what they say of a proper beginning of `ids`, None where they say nothing."""
        with self._lock:
            kept = self._kept.pop(episode, None)
            self._size -= kept.size if kept else 0
        if kept is None:
            return None
        most = min(len(kept.ids), len(ids) - 1)  # the last token must be fed: its logits are wanted
        common = next((at for at in range(most) if kept.ids[at] != ids[at]), most)
        return [(keys[:, :common], values[:, :common]) for keys, values in kept.layers] if common else None

    def forget(self, episode: Hashable) -> None:
        """Drop an episode's states, if there are any."""
        with self._lock:
            kept = self._kept.pop(episode, None)
            self._size -= kept.size if kept else 0

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._kept.clear()
            self._size = 0

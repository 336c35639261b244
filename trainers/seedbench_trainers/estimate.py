"""What a configuration will ask of the machine, before anything is loaded: samples, tokens, bytes.

Sizes come from the model's config alone; its modules are built without memory (torch's meta device). The figures are
upper bounds on what the run's limits allow, not a forecast: most episodes are shorter than the protocol lets them be.
With several processes (WORLD_SIZE) memory is that of each.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seedbench.errors import SeedBenchError
from seedbench.protocol import Protocol
from seedbench_trainers.checks import agent_protocol, make_method, most_samples, samples_an_episode
from seedbench_trainers.config import Lora, TrainConfig
from seedbench_trainers.launch import is_sharded, several

_TINY_VOCABULARY = 1500
_KNOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2.5-3b-instruct": (
        "qwen2",
        {"hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16,
         "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True},
    ),
    "qwen2.5-7b-instruct": (
        "qwen2",
        {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
         "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False},
    ),
    "qwen3-1.7b": (
        "qwen3",
        {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16,
         "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True},
    ),
}  # fmt: skip
"""Shapes of the paper's models, from their published configs: a dry run needs no download."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on the device."""

    weights: int
    """4 a parameter: weights are float32. 2 more under bfloat16 autocast, which keeps a copy for the pass."""
    reference: int
    """Another 4 a parameter where the method compares with the start; none with adapters, which are switched off."""
    gradients: int
    """4 a trained parameter."""
    optimiser: int
    """8 a trained parameter: AdamW's two moments."""
    activations: int
    """Kept for the backward pass of one micro-batch; see `activation_bytes`."""
    cache: int
    """Keys and values while a batch of prompts is answered; see `cache_bytes`."""
    gathered: int = 0
    """With shards: the whole weights in roll-outs, where the other parts are this process's share."""
    passing: int = 0
    """With shards: what a pass gathers, embeddings and output layer, and two layers at a time; without activation
    checkpointing also 2 a parameter for the bfloat16 weights that the backward pass needs again."""

    @property
    def peak(self) -> int:
        """Weights, reference and optimiser stay; roll-out (gathered, cache) and update (gradients, activations,
        passing) take turns."""
        playing, learning = self.gathered + self.cache, self.gradients + self.activations + self.passing
        return self.weights + self.reference + self.optimiser + max(playing, learning)

    def parts(self) -> dict[str, int]:
        """Name -> bytes, in the order of the fields."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Upper bounds for an update, and the memory of a run."""

    samples: int
    tokens: int
    """Prompt and response tokens of the samples."""
    steps: int
    """Optimiser steps."""
    device: str
    parameters: int | None
    """None where nothing is known of the model's size."""
    trainable: int | None
    memory: Memory | None
    processes: int = 1
    sharded: bool = False


def estimate(config: TrainConfig) -> Estimate:
    """Sizes of a resolved configuration. Raises UsageError for a tiny size or names that do not exist."""
    protocol = agent_protocol(config)
    method = make_method(config)
    samples = most_samples(config, protocol) if method.samples_policy else _demonstrated(config, protocol)
    shape = _model_config(config.model)
    longest = _longest_sample(protocol, shape)
    steps = config.update.epochs * -(-samples // (config.update.mini_batch or samples))
    bf16, device = _number_format(config)
    known, size = (samples, samples * longest, steps, device), several()
    if shape is None:
        return Estimate(*known, _size_in_name(config.model), None, None, size)
    model = _skeleton(shape)
    parameters = sum(p.numel() for p in model.parameters())
    trainable = lora_parameters(model, config.lora) if config.lora.rank else parameters
    reference = parameters if method.needs_reference and not config.lora.rank else 0
    tokens = min(max(config.update.tokens, longest), samples * longest)
    sharded = is_sharded(config, size, parameters, gpu=device != "cpu")
    share, whole = size if sharded else 1, (6 if bf16 else 4) * parameters
    memory = Memory(
        weights=4 * parameters // share if sharded else whole,
        reference=4 * reference // share,
        gradients=4 * trainable // share,
        optimiser=8 * trainable // share,
        activations=activation_bytes(shape, tokens, bf16=bf16, checkpointing=config.update.checkpointing),
        cache=_cache(config, shape, longest, bf16, size) if method.samples_policy else 0,
        gathered=whole if sharded else 0,
        passing=_passing(model, shape, bf16=bf16, checkpointing=config.update.checkpointing) if sharded else 0,
    )
    return Estimate(*known, parameters, trainable, memory, size, sharded)


def _passing(model: Any, shape: Any, *, bf16: bool, checkpointing: bool) -> int:
    parameters: int = sum(p.numel() for p in model.parameters())
    ends = {
        id(layer.weight): int(layer.weight.numel())
        for layer in (model.get_input_embeddings(), model.get_output_embeddings())
    }
    around = sum(ends.values())
    layers = 2 * (parameters - around) // int(shape.num_hidden_layers)
    kept = 2 * parameters if bf16 and not checkpointing else 0
    return 4 * (around + layers) + kept


def _demonstrated(config: TrainConfig, protocol: Protocol) -> int:
    """Samples an update of a method that plays no roll-outs: a mini-batch, or all of its episodes."""
    episodes = int(config.options.get("episodes", 1))
    return config.update.mini_batch or episodes * samples_an_episode(protocol)


def activation_bytes(shape: Any, tokens: int, *, bf16: bool, checkpointing: bool) -> int:
    """What a decoder of gated layers keeps for the backward pass of `tokens` tokens.

    A layer keeps, in values a token (h hidden, i inner, q and k the widths of queries and of keys): 6h around its norms
    and residuals, 2q + 2k around attention, which keeps no square of the length (twice that where queries and keys have
    norms of their own), and 4i in the gated layer; the last norm keeps 2h. With checkpointing every layer keeps its
    input, h, and one layer at a time everything. Values have 4 bytes, or 2.4 on average under bfloat16 autocast, which
    keeps norms in float32. The output layer, which sees response tokens only and in chunks, is left out.

    Args:
        shape: a transformers text config.
        tokens: in one forward and backward pass, padding included.
    """
    hidden, inner, layers = shape.hidden_size, shape.intermediate_size, shape.num_hidden_layers
    head = getattr(shape, "head_dim", None) or hidden // shape.num_attention_heads
    around = 4 if str(shape.model_type).startswith("qwen3") else 2
    layer = 6 * hidden + around * head * (shape.num_attention_heads + shape.num_key_value_heads) + 4 * inner
    values = (layers * hidden + layer if checkpointing else layers * layer) + 2 * hidden
    return int(tokens * values * (2.4 if bf16 else 4))


def cache_bytes(shape: Any, tokens: int, *, bf16: bool) -> int:
    """Keys and values of `tokens` tokens: 2 x layers x key heads x head width values a token, of 4 bytes or 2."""
    head = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    return int(tokens * 2 * shape.num_hidden_layers * shape.num_key_value_heads * head * (2 if bf16 else 4))


def _cache(config: TrainConfig, shape: Any, longest: int, bf16: bool, size: int) -> int:
    """Keys and values of the batch that is being answered, and of what is kept between turns, by one of `size`."""
    played = -(-config.rollout.tasks // size) * config.rollout.group
    asked = cache_bytes(shape, min(config.rollout.batch_size, played) * longest, bf16=bf16)
    episodes = cache_bytes(shape, played * longest, bf16=bf16)
    return asked + min(int(config.rollout.cache_gib * 2**30), episodes)


def lora_parameters(model: Any, settings: Lora) -> int:
    """Parameters of the adapters: rank x (inputs + outputs) of every chosen linear layer."""
    import torch

    output = model.get_output_embeddings()
    return sum(
        settings.rank * (layer.in_features + layer.out_features)
        for name, layer in model.named_modules()
        if isinstance(layer, torch.nn.Linear)
        and (name.endswith(settings.targets) if settings.targets else layer is not output)
    )


def _longest_sample(protocol: Protocol, shape: Any) -> int:
    """Tokens of the longest sample: the protocol's limits, or the model's context where that is shorter or alone."""
    limits = protocol.settings.limits
    context: int = getattr(shape, "max_position_embeddings", 0) or 32768
    wanted = limits.prompt_tokens + limits.response_tokens if limits.prompt_tokens else context
    return min(wanted, context)


def _number_format(config: TrainConfig) -> tuple[bool, str]:
    """Whether forward passes run in bfloat16, and on which device."""
    device = config.device
    if device == "auto":
        try:
            import torch

            device = "cuda" if torch.cuda.is_available() else "cpu"
        except ImportError:
            device = "cpu"
    auto = config.update.dtype == "auto" and device != "cpu"
    return auto or config.update.dtype == "bfloat16", device


def _model_config(model: str) -> Any:
    """The model's transformers text config without its weights; None where there is none here."""
    try:
        import transformers
    except ImportError:
        return None
    from seedbench.models import resolve
    from seedbench.store import store_root
    from seedbench_trainers.tiny import CONTEXT, is_tiny, size_of

    library: Any = transformers
    if is_tiny(model):
        size = size_of(model)
        return library.LlamaConfig(
            hidden_size=size.hidden, intermediate_size=3 * size.hidden, num_hidden_layers=size.layers,
            num_attention_heads=size.hidden // 32, num_key_value_heads=size.hidden // 32,
            vocab_size=_TINY_VOCABULARY, max_position_embeddings=CONTEXT, tie_word_embeddings=True,
        )  # fmt: skip
    name = model.rpartition("/")[2].lower()
    if name in _KNOWN and not Path(model).is_dir():
        kind, values = _KNOWN[name]
        return library.AutoConfig.for_model(kind, **values)
    try:
        found = library.AutoConfig.from_pretrained(_base(resolve(model, store_root())), local_files_only=True)
    except (OSError, ValueError, SeedBenchError):  # not here, or no model: loading it says which
        return None
    return found.get_text_config()


def _base(folder: str) -> str:
    """The base model of a LoRA folder, else the folder itself."""
    from seedbench.policies.checkpoint import read_json

    adapter = Path(folder) / "adapter_config.json"
    if not adapter.is_file() or (Path(folder) / "config.json").is_file():
        return folder
    return str(read_json(adapter).get("base_model_name_or_path", folder))


def _skeleton(shape: Any) -> Any:
    """The model's modules without memory behind them."""
    import torch
    import transformers

    library: Any = transformers
    with torch.device("meta"):
        return library.AutoModelForCausalLM.from_config(shape)


def _size_in_name(model: str) -> int | None:
    """Parameters that a hub name tells, e.g. 1.7B or 135M; None where it tells none."""
    import re

    found = re.search(r"(?:^|[-_/])(\d+(?:\.\d+)?)([bm])(?![a-z])", model.lower())
    return round(float(found[1]) * {"b": 1e9, "m": 1e6}[found[2]]) if found else None

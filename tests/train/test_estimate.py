"""Sizes of a configuration against counts by hand and against what torch really keeps."""

from typing import Any

import pytest

from seedbench_trainers.config import Lora
from seedbench_trainers.estimate import activation_bytes, cache_bytes, estimate, lora_parameters
from seedbench_trainers.recipes import resolve

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")


def shape(hidden: int, inner: int, layers: int, heads: int, keys: int, kind: str = "qwen2", **values: Any) -> Any:
    return transformers.AutoConfig.for_model(
        kind, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=keys, vocab_size=100, **values,
    )  # fmt: skip


def kept_bytes(config: Any, tokens: int, *, checkpointing: bool = False) -> int:
    """What autograd really keeps of a forward pass, the parameters not counted."""
    model = transformers.AutoModelForCausalLM.from_config(config).train()
    if checkpointing:
        model.activation_checkpointing_enable()
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage  # alive, so that no address is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.base_model(input_ids=torch.zeros(1, tokens, dtype=torch.long), use_cache=False)
    return sum(storage.nbytes() for storage in kept.values())


@pytest.mark.parametrize(
    "sizes",
    [
        (64, 192, 2, 2, 2), (128, 384, 3, 4, 1), (128, 192, 6, 8, 8),
        (64, 192, 2, 4, 2, "qwen3", {"head_dim": 32}),
    ],
)  # fmt: skip
def test_activations_are_what_torch_keeps(sizes: Any) -> None:
    plain, *more = [part for part in sizes if isinstance(part, dict)] or [{}]
    config = shape(*[part for part in sizes if not isinstance(part, dict)], **plain)
    assert not more
    real = kept_bytes(config, 80)
    assert activation_bytes(config, 80, bf16=False, checkpointing=False) == pytest.approx(real, rel=0.05)


def test_checkpointing_keeps_the_inputs_and_one_layer() -> None:
    config = shape(64, 192, 4, 2, 2)
    one_layer = 4 * 80 * (6 * 64 + 2 * (64 + 64) + 4 * 192)
    real = kept_bytes(config, 80, checkpointing=True)
    assert activation_bytes(config, 80, bf16=False, checkpointing=True) - one_layer == pytest.approx(real, rel=0.05)


@pytest.mark.parametrize(
    ("model", "parameters"),
    # Counts of the published checkpoints.
    [
        ("Qwen/Qwen2.5-3B-Instruct", 3_085_938_688),
        ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512),
        ("Qwen/Qwen3-1.7B", 1_720_574_976),
    ],
)
def test_the_papers_models(model: str, parameters: int) -> None:
    sizes = estimate(resolve("grpo", "alfworld", model, device="cuda"))
    assert (sizes.samples, sizes.steps, sizes.tokens) == (16 * 8 * 30, 15, 16 * 8 * 30 * 2560)
    assert (sizes.parameters, sizes.trainable, sizes.device) == (parameters, parameters, "cuda")
    memory = sizes.memory
    assert memory is not None
    # 4 bytes a weight and 2 for its copy in bfloat16.
    assert (memory.weights, memory.reference) == (6 * parameters, 4 * parameters)
    assert (memory.gradients, memory.optimiser) == (4 * parameters, 8 * parameters)
    standing = memory.weights + memory.reference + memory.optimiser
    assert memory.peak == standing + max(memory.cache, memory.gradients + memory.activations)


def test_keys_and_values() -> None:
    # 36 layers, 2 key heads of 128, bfloat16: 2 * 36 * 2 * 128 * 2 bytes = 36 KiB a token.
    config = shape(2048, 11008, 36, 16, 2)
    assert cache_bytes(config, 10, bf16=True) == 10 * 36 * 1024
    assert cache_bytes(config, 10, bf16=False) == 10 * 72 * 1024


def test_without_a_penalty_no_reference_is_held() -> None:
    memory = estimate(resolve("grpo", "alfworld", overrides=["method.kl_coefficient=0.0"])).memory
    assert memory is not None
    assert memory.reference == 0


def test_adapters() -> None:
    model = transformers.AutoModelForCausalLM.from_config(shape(64, 192, 2, 2, 1, tie_word_embeddings=False))
    # q 64+64, k and v 64+32, o 64+64, gate and up 64+192, down 192+64
    each = 128 + 2 * 96 + 128 + 3 * 256
    assert lora_parameters(model, Lora(rank=8)) == 2 * 8 * each
    assert lora_parameters(model, Lora(rank=8, targets=("q_proj", "v_proj"))) == 2 * 8 * (128 + 96)
    peft = pytest.importorskip("peft")
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"))
    assert sum(p.numel() for p in adapted.parameters() if p.requires_grad) == 2 * 8 * each


def test_a_conversation_is_one_sample() -> None:
    sizes = estimate(resolve("grpo", "mini-alfworld", device="cpu"))
    # 4,096 + 32 tokens do not fit the tiny model's context of 4,096.
    assert (sizes.samples, sizes.steps, sizes.tokens) == (128, 1, 128 * 4096)
    # 2 layers of 128 with an inner 384; 1,500 embeddings, tied; norms.
    layer = 4 * 128 * 128 + 3 * 128 * 384 + 2 * 128
    assert sizes.parameters == 1500 * 128 + 2 * layer + 128


def test_demonstrations() -> None:
    sizes = estimate(resolve("sft", "mini-alfworld"))
    assert (sizes.samples, sizes.steps) == (32, 1)
    assert sizes.memory is not None
    assert (sizes.memory.cache, sizes.memory.reference) == (0, 0)
    everything = estimate(resolve("sft", "mini-alfworld", overrides=["update.mini_batch=0"]))
    assert everything.samples == 4800


@pytest.mark.parametrize(
    ("model", "parameters"),
    [("someone/Great-1.7B-Chat", 1_700_000_000), ("someone/small-135M", 135_000_000), ("someone/great-model", None)],
)
def test_models_that_are_not_here(model: str, parameters: int | None) -> None:
    sizes = estimate(resolve("grpo", "alfworld", model))
    assert (sizes.parameters, sizes.trainable, sizes.memory) == (parameters, None, None)
    assert sizes.samples == 3840


def test_memory_of_one_of_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = resolve("grpo", "alfworld", "Qwen/Qwen2.5-7B-Instruct", device="cuda")
    parameters, ends, layers = 7_615_616_512, 2 * 152064 * 3584, 28
    monkeypatch.setenv("WORLD_SIZE", "8")
    sizes = estimate(settings)
    memory = sizes.memory
    assert memory is not None
    assert (sizes.processes, sizes.sharded) == (8, True)
    assert (memory.weights, memory.reference, memory.gradients) == (4 * parameters // 8,) * 3
    assert memory.optimiser == parameters
    assert memory.gathered == 6 * parameters
    assert memory.passing == 4 * (ends + 2 * (parameters - ends) // layers)
    # 2 of 16 tasks are its own: 16 episodes of 2,560 tokens, 28 layers, 4 key heads of 128 in bfloat16, and 2 GiB kept.
    assert memory.cache == 16 * 2560 * 2 * 28 * 4 * 128 * 2 + 2 * 2**30
    standing = 2 * parameters  # 4 + 4 + 8 bytes in eight parts
    assert memory.peak == standing + max(
        6 * parameters + memory.cache, memory.gradients + memory.activations + memory.passing
    )
    plain = settings.model_copy(update={"distributed": settings.distributed.model_copy(update={"strategy": "ddp"})})
    whole, alone = estimate(plain), estimate(plain).memory
    assert (whole.processes, whole.sharded) == (8, False)
    assert alone is not None
    assert (alone.weights, alone.gathered, alone.passing) == (6 * parameters, 0, 0)
    kept = settings.model_copy(update={"update": settings.update.model_copy(update={"checkpointing": False})})
    longer = estimate(kept).memory
    assert longer is not None
    assert longer.passing == memory.passing + 2 * parameters

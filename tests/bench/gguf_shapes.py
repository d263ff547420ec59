"""Writes GGUF files of a shape with random weights, which Manta and llama.cpp can both load.

    python -m tests.bench.gguf_shapes FOLDER [--shape 135m|1b|moe] [--llama BUILD/bin]
        [--types Q8_0 Q4_0 Q4_K_M Q6_K]

One file is in bfloat16. `llama-quantize` makes the others of it, where `--llama` says where it is.
The vocabulary is that of a byte-level BPE with invented tokens: no text is tokenized.
"""

import argparse
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import gguf
import torch
from rich.console import Console
from tokenizers import pre_tokenizers
from transformers import LlamaConfig, Qwen3MoeConfig

from tests.bench.engine import SHAPES

TYPES = ("Q8_0", "Q4_0", "Q4_K_M", "Q6_K")
END = "<|endoftext|>"

Config: TypeAlias = LlamaConfig | Qwen3MoeConfig


def tensors(config: Config) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The names and shapes of the weights; the output layer shares those of the embeddings."""
    hidden = config.hidden_size
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    head_dim = config.head_dim
    yield "token_embd.weight", (config.vocab_size, hidden)
    yield "output_norm.weight", (hidden,)
    for layer in range(config.num_hidden_layers):
        for name, shape in {
            "attn_norm": (hidden,),
            "attn_q": (heads * head_dim, hidden),
            "attn_k": (kv_heads * head_dim, hidden),
            "attn_v": (kv_heads * head_dim, hidden),
            "attn_output": (hidden, heads * head_dim),
            "ffn_norm": (hidden,),
            **_feed_forward(config),
        }.items():
            yield f"blk.{layer}.{name}.weight", shape


def _feed_forward(config: Config) -> dict[str, tuple[int, ...]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    if not isinstance(config, Qwen3MoeConfig):
        return {
            "ffn_gate": (inner, hidden),
            "ffn_up": (inner, hidden),
            "ffn_down": (hidden, inner),
        }
    head, n, inner = (config.head_dim,), config.num_experts, config.moe_intermediate_size
    return {
        "attn_q_norm": head,
        "attn_k_norm": head,
        "ffn_gate_inp": (n, hidden),
        "ffn_gate_exps": (n, inner, hidden),
        "ffn_up_exps": (n, inner, hidden),
        "ffn_down_exps": (n, hidden, inner),
    }


def write(path: Path, config: Config) -> None:
    """The same weights each time: they don't depend on the machine."""
    architecture = "qwen3moe" if isinstance(config, Qwen3MoeConfig) else "llama"
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    if isinstance(config, Qwen3MoeConfig):
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    add_vocabulary(writer, config.vocab_size)
    random = torch.Generator().manual_seed(0)
    for name, shape in tensors(config):
        if len(shape) == 1:
            writer.add_tensor(name, torch.ones(shape).numpy())
            continue
        weight = torch.randn(shape, generator=random) * shape[-1] ** -0.5
        if "ffn_gate_inp" in name:  # llama.cpp reads routers as float32
            writer.add_tensor(name, weight.numpy())
            continue
        octets = weight.bfloat16().view(torch.uint8).numpy()
        writer.add_tensor(name, octets, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    known = [END, *alphabet, alphabet[0] + alphabet[1]]
    invented = [f"<{number}>" for number in range(size - len(known))]
    kinds = [gguf.TokenType.CONTROL] + [gguf.TokenType.NORMAL] * (size - 1)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*known, *invented])
    writer.add_token_types(kinds)
    writer.add_token_merges([f"{alphabet[0]} {alphabet[1]}"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=("135m", "1b", "moe"), default="135m")
    parser.add_argument("--llama", type=Path, help="folder of llama-quantize")
    parser.add_argument("--types", nargs="+", default=TYPES)
    arguments = parser.parse_args()
    plain = arguments.folder / f"{arguments.shape}-BF16.gguf"
    with Console().status("drawing weights"):
        write(plain, SHAPES[arguments.shape])
    for kind in arguments.types if arguments.llama else ():
        made = arguments.folder / f"{arguments.shape}-{kind}.gguf"
        subprocess.run([arguments.llama / "llama-quantize", plain, made, kind], check=True)
    print(f"{arguments.folder} is ready")

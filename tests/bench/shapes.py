"""Writes a checkpoint of SmolLM-135M's shape with random weights, for servers to be compared on.

    python -m tests.bench.shapes FOLDER

What it says does not matter to its speed. Its tokenizer is real: byte-level BPE with GPT-2's
pre-tokenizer, trained on the source of Python's standard library.
"""

import argparse
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch
from rich.console import Console
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3MoeConfig,
)

from tests.checkpoints import CHAT_TEMPLATE, SPECIAL

END = "<|endoftext|>"
VOCABULARY = 49_152
SHAPE_135M = LlamaConfig(
    vocab_size=VOCABULARY,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    head_dim=64,
    tie_word_embeddings=True,
    max_position_embeddings=8192,
    initializer_range=1 / 24,  # 576 ** -0.5: logits of unit variance
    bos_token_id=0,
    eos_token_id=0,
    pad_token_id=None,
)
# For `tests.bench.gpu`, which draws their weights on the device.
ENDS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
LLAMA_8B = LlamaConfig(  # Llama-3-8B
    vocab_size=128256,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    max_position_embeddings=40960,
    rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
    **ENDS,
)
QWEN3_600M = Qwen3Config(  # Qwen3-0.6B
    vocab_size=151936,
    hidden_size=1024,
    intermediate_size=3072,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    tie_word_embeddings=True,
    max_position_embeddings=16384,
    **ENDS,
)
QWEN3_MOE_30B = Qwen3MoeConfig(  # Qwen3-30B-A3B
    vocab_size=151936,
    hidden_size=2048,
    moe_intermediate_size=768,
    num_hidden_layers=48,
    num_attention_heads=32,
    num_key_value_heads=4,
    head_dim=128,
    num_experts=128,
    num_experts_per_tok=8,
    norm_topk_prob=True,
    max_position_embeddings=40960,
    **ENDS,
)

QWEN3_MOE_1B = Qwen3MoeConfig(  # 1.34 B weights, of which a token reads 0.28 B
    vocab_size=32_000,
    hidden_size=1024,
    moe_intermediate_size=384,
    num_hidden_layers=16,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    num_experts=64,
    num_experts_per_tok=8,
    norm_topk_prob=True,
    tie_word_embeddings=True,
    max_position_embeddings=8192,
    initializer_range=1 / 32,
    **ENDS,
)


def sources() -> Iterator[str]:
    """Python's own, as far as it is ASCII: then no likely token is part of a character, and each
    one that a server samples is text at once.
    """
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        raw = path.read_bytes()
        if "site-packages" not in path.parts and raw.isascii():
            yield raw.decode()


def train_tokenizer(texts: Iterator[str], vocabulary: int) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=1,
        special_tokens=[END, *SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=16,
    )
    backend.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=END, eos_token=END)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def save(folder: Path, config: LlamaConfig, texts: Iterator[str]) -> None:
    """The same weights each time: they don't depend on the machine."""
    tokenizer = train_tokenizer(texts, config.vocab_size)
    if len(tokenizer) != config.vocab_size:
        raise SystemExit(f"the text was enough for {len(tokenizer)} tokens alone")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    with Console().status("training a tokenizer, drawing weights"):
        save(arguments.folder, SHAPE_135M, sources())
    print(f"{arguments.folder} is ready")

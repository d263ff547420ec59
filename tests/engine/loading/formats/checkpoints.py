"""Checkpoints of tiny models with quantized weights, and the same models with dequantized ones."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import GptOssConfig, LlamaConfig, PretrainedConfig, Qwen3MoeConfig

from tests.engine.loading.formats.writers import Writer
from tests.models import SIZES, from_config

WIDE = {**SIZES, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}


def llama() -> PretrainedConfig:
    return LlamaConfig(**WIDE)


def biased_llama() -> PretrainedConfig:
    return LlamaConfig(**WIDE, attention_bias=True, mlp_bias=True)


def qwen3_moe() -> PretrainedConfig:
    return Qwen3MoeConfig(
        **{**WIDE, "num_hidden_layers": 1},
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=64,
    )


def gpt_oss() -> PretrainedConfig:
    return GptOssConfig(
        **{**WIDE, "num_hidden_layers": 1},
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=16,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    )


def save_quantized(
    folder: Path, config: PretrainedConfig, writer: Writer, *, seed: int = 0
) -> tuple[str, str]:
    """Saves a model whose projections are quantized. Returns its path, and that of the same model
    with dequantized weights."""
    quantized, plain = folder / "quantized", folder / "plain"
    from_config(config).save_pretrained(plain)
    random = torch.Generator().manual_seed(seed)
    dequantized, stored = {}, {}
    for name, tensor in load_file(plain / "model.safetensors").items():
        if name.endswith("_proj.bias"):
            tensor = torch.randn(tensor.shape, generator=random)
        dequantized[name], module = tensor, name.removesuffix(".weight")
        if not name.endswith(writer.ends):
            stored[name] = tensor
            continue
        made = writer.write(random, *tensor.shape)
        dequantized[name] = made.weight
        stored |= {module + end: part for end, part in made.tensors.items()}
    save(plain, dequantized)
    quantized.mkdir()
    fields = json.loads((plain / "config.json").read_text())
    save(quantized, stored, {**fields, "quantization_config": writer.options})
    return str(quantized), str(plain)


def save(
    folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any] | None = None
) -> None:
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))

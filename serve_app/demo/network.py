"""The demo network: its shape, its loss, and its files in bfloat16."""

import copy
import os
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AttentionInterface,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from serve_app.demo.batches import IGNORED
from serve_app.demo.vocabulary import END, END_OF_TEXT, MAX_POSITIONS, VOCABULARY

LONG = 256  # tokens of a row from which fused attention is the faster one to train through


def shape() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=MAX_POSITIONS,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        bos_token_id=None,
    )


def fresh(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = shape()
    config.eos_token_id = tokenizer.convert_tokens_to_ids(END)
    config.pad_token_id = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    model = LlamaForCausalLM(config)
    model.set_attn_implementation("causal_matmul")
    return model


def answer_loss(model: LlamaForCausalLM, ids: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy over the targets that count; logits are computed for those alone."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        counted = targets != IGNORED
        logits = model.lm_head(hidden[counted]).float()  # [counted tokens, vocabulary]
    # Not functional.cross_entropy: the backward of its log_softmax is many times slower on a CPU.
    hits = logits.gather(1, targets[counted][:, None]).squeeze(1)
    loss: Tensor = (logits.logsumexp(dim=1) - hits).mean()
    return loss


def causal_matmul(
    module: nn.Module,
    query: Tensor,  # [rows, heads, tokens, dim]
    key: Tensor,  # [rows, kv heads, tokens, dim]
    value: Tensor,  # [rows, kv heads, tokens, dim]
    attention_mask: Tensor | None,
    scaling: float = 1.0,
    **_: object,
) -> tuple[Tensor, None]:
    """Causal attention of whole rows: for short ones, faster to train through than fused SDPA.

    Padding stands on the right and no target looks at it, so no other mask is needed.
    """
    if query.shape[2] > LONG:
        return _causal_sdpa(query, key, value, scaling), None
    rows, heads, tokens, dim = query.shape
    kv_heads = key.shape[1]
    grouped = query.reshape(rows, kv_heads, -1, dim) * scaling
    scores = torch.matmul(grouped, key.transpose(2, 3)).view(rows, heads, tokens, tokens)
    future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(future, -torch.inf).softmax(dim=-1).to(value.dtype)
    mixed = torch.matmul(weights.view(rows, kv_heads, -1, tokens), value)
    return mixed.view(rows, heads, tokens, dim).transpose(1, 2), None


def _causal_sdpa(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    mixed = functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scale, enable_gqa=True
    )
    return mixed.transpose(1, 2)


AttentionInterface.register("causal_matmul", causal_matmul)


def export(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Writes each file whole: a reader sees the old one or the new one."""
    out.mkdir(parents=True, exist_ok=True)
    light = copy.deepcopy(model).to(torch.bfloat16)
    light.generation_config = _generation(tokenizer)
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        light.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        for file in Path(folder).iterdir():
            file.chmod(0o644)
            os.replace(file, out / file.name)


def _generation(tokenizer: PreTrainedTokenizerFast) -> GenerationConfig:
    return GenerationConfig(
        eos_token_id=tokenizer.convert_tokens_to_ids([END, END_OF_TEXT]),
        pad_token_id=tokenizer.convert_tokens_to_ids(END_OF_TEXT),
    )

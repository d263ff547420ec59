"""Counts what a model's steps read and compute, for floors of their times."""

import torch
from transformers import PretrainedConfig, Qwen3MoeConfig

DTYPE = torch.bfloat16


def matrix_weights(config: PretrainedConfig) -> int:
    """Weights of the layers' matrices, which every token is multiplied by."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = 2 * config.num_attention_heads + 2 * config.num_key_value_heads
    layer = config.hidden_size * (heads * head_dim + 3 * config.intermediate_size)
    return int(config.num_hidden_layers * layer)


def prefill_operations(config: PretrainedConfig, tokens: int) -> float:
    """Counts the operations of the matrices, and of the seen half of attention's scores."""
    attention = 2 * tokens**2 * config.hidden_size * config.num_hidden_layers
    return float(2 * matrix_weights(config) * tokens + attention)


def decode_bytes(config: PretrainedConfig, rows: int, context: int) -> float:
    """Counts the bytes that one step has to read: matrices, the output layer, keys and values."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    token = 2 * config.num_hidden_layers * config.num_key_value_heads * head_dim
    weights = matrix_weights(config) + config.vocab_size * config.hidden_size
    return float(DTYPE.itemsize * (weights + rows * context * token))


def sparse_decode_bytes(config: Qwen3MoeConfig, rows: int, context: int) -> float:
    """Counts the bytes that one step of a model with experts has to read. Rows that choose at
    random leave some experts unread."""
    head_dim, layers = config.head_dim, config.num_hidden_layers
    queries, keys = config.num_attention_heads, config.num_key_value_heads
    unread = (1 - config.num_experts_per_tok / config.num_experts) ** rows
    experts = config.num_experts * (1 - unread) * 3 * config.moe_intermediate_size
    layer = config.hidden_size * (2 * (queries + keys) * head_dim + config.num_experts + experts)
    weights = layers * layer + config.vocab_size * config.hidden_size
    return float(DTYPE.itemsize * (weights + rows * context * 2 * layers * keys * head_dim))

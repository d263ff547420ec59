"""MiniMax's lightning attention: a layer that keeps a state, whose tokens are computed in blocks.

Transformers goes on token by token behind a state. Here blocks go on there, too.
"""

from typing import Any

import torch
from torch import Tensor
from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention

from deployments.engine.forward.state_pool import CacheOfRows


def is_lightning(module: object) -> bool:
    return type(module) is MiniMaxLightningAttention


def mix(module: Any, hidden_states: Tensor, states: CacheOfRows) -> Tensor:
    """[rows, tokens, hidden] -> [rows, tokens, hidden]"""
    rows, n, _ = hidden_states.shape
    heads, dim = module.num_attention_heads, module.head_dim
    joined = module.act_fn(module.qkv_proj(hidden_states)).view(rows, n, heads, 3 * dim)
    parts = [part.transpose(1, 2) for part in joined.split(dim, -1)]
    state = states.get_recurrent_state(module.layer_idx)
    if state is None:
        state = joined.new_zeros(rows, heads, dim, dim)
    mixed = []
    for begin in range(0, n, module.block_size):
        q, k, v = (part[:, :, begin : begin + module.block_size] for part in parts)
        size = q.shape[2]
        weights = (q @ k.transpose(-1, -2)) * module.diagonal_decay[:, :, :size, :size]
        mixed.append(weights @ v + (q * module.query_decay[:, :size]) @ state)
        added = (k * module.key_decay[:, -size:]).transpose(-1, -2) @ v
        state = state * torch.exp(-module.slope_rate * size) + added
    states.update_recurrent_state(state, module.layer_idx)
    found = module.norm(torch.cat(mixed, 2).transpose(1, 2).reshape(rows, n, -1))
    answer: Tensor = module.out_proj(module.output_gate(hidden_states).sigmoid() * found)
    return answer

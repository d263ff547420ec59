"""Attention over the paged cache, in the place of a Hugging Face model's own.

Rows with the same number of new tokens share one call; there is no other difference between a
prompt's chunk and a decode.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

from kv.view import KvcacheView

# A plain name of our own: transformers then builds no mask and passes on `step`.
ATTENTION = "manta"


@dataclass(slots=True)
class RowGroup:
    """Rows of one batch with `n` new tokens each."""

    view: KvcacheView
    tokens: Tensor  # [rows * n], places of their tokens in the flat batch
    positions: Tensor  # [rows, n], absolute
    masks: dict[int | None, Tensor] = field(default_factory=dict)  # by sliding window

    def mask(self, window: int | None) -> Tensor:
        """What each new token may see. [rows, 1, n, context] bool; made once a step."""
        if window not in self.masks:
            context = self.view.page_table.shape[1] * self.view.storage.page_size
            key = torch.arange(context, device=self.positions.device)
            query = self.positions[:, :, None]
            seen = key <= query
            if window is not None:
                seen &= key > query - window
            self.masks[window] = seen[:, None]
        return self.masks[window]


@dataclass(frozen=True, slots=True)
class AttentionStep:
    """What the attention layers of one forward pass share."""

    view: KvcacheView
    groups: list[RowGroup]


def plan_attention(view: KvcacheView, new_len: Tensor) -> AttentionStep:
    """Groups the rows of a flat batch. `new_len` [rows] on the CPU."""
    starts = new_len.cumsum(0) - new_len
    groups = []
    for n in sorted(set(new_len.tolist())):
        rows = (new_len == n).nonzero().flatten()
        offsets = torch.arange(n)
        tokens = (starts[rows, None] + offsets).flatten().to(view.total_len.device)
        part = view.select(rows.to(view.total_len.device))
        positions = part.total_len[:, None] - n + offsets.to(view.total_len.device)
        groups.append(RowGroup(part, tokens, positions))
    return AttentionStep(view, groups)


def paged_attention(
    module: nn.Module,
    query: Tensor,  # [1, heads, tokens, head_dim]
    key: Tensor,  # [1, kv_heads, tokens, head_dim], rotary embedding applied
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    step: AttentionStep,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """The function registered with transformers; returns [1, tokens, heads, head_dim]."""
    layer: int = module.layer_idx  # type: ignore[assignment]
    step.view.write(layer, key[0].transpose(0, 1), value[0].transpose(0, 1))
    flat = query[0].transpose(0, 1)  # [tokens, heads, head_dim]
    out = torch.empty_like(flat, memory_format=torch.contiguous_format)
    for group in step.groups:
        rows, n = group.positions.shape
        q = flat[group.tokens].view(rows, n, *flat.shape[1:]).transpose(1, 2)
        k, v = (kv.transpose(1, 2) for kv in group.view.gather(layer))
        mask = group.mask(sliding_window)
        if softcap is None and s_aux is None:
            o = _attend(q, k, v, mask, scaling)
        else:
            o = _attend_plainly(q, k, v, mask, scaling or q.shape[-1] ** -0.5, softcap, s_aux)
        out[group.tokens] = o.transpose(1, 2).flatten(0, 1)
    return out[None], None


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scaling: float | None) -> Tensor:
    rows, heads, n, _ = q.shape
    kv_heads = k.shape[1]
    if n > 1 or heads == kv_heads:
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=scaling, enable_gqa=heads != kv_heads
        )
    # One query a row: the heads that share keys become its queries, and nothing is repeated.
    q = q.reshape(rows, kv_heads, heads // kv_heads, -1)
    o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scaling)
    return o.reshape(rows, heads, 1, -1)


def _attend_plainly(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor,
    scaling: float,
    softcap: float | None,
    sinks: Tensor | None,  # [heads]
) -> Tensor:
    """Written out for soft-capped scores and attention sinks, which the fused kernels lack."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = (q @ k.transpose(2, 3)) * scaling
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores.masked_fill(~mask, float("-inf"))
    if sinks is not None:
        column = sinks.view(1, -1, 1, 1).expand(*scores.shape[:3], 1).to(scores.dtype)
        scores = torch.cat([scores, column], -1)
    weights = scores.softmax(-1, dtype=torch.float32).to(q.dtype)
    return weights[..., : k.shape[2]] @ v


AttentionInterface.register(ATTENTION, paged_attention)

"""Attention over the paged cache, in the place of a Hugging Face model's own.

Rows with the same number of new tokens share a call. Where kernels of ours can compute with the
cache's type, few new tokens of a row are theirs, and chunks of prompts where torch has no
instructions that would be faster.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from deployments.engine.attention.cpu_rows import ChunkRows, DecodeRows, attend
from deployments.engine.attention.interface import AttentionParams
from deployments.engine.kernels.cpu import layer_ops
from deployments.engine.kernels.cpu.features import has_matmul_kernels, has_native_bf16, is_cpu_bf16
from deployments.engine.kernels.cpu.simd import HAS_AVX512
from deployments.engine.kernels.rotary import HeadNorm, RotaryEmbedding
from deployments.engine.limits import MAX_DRAFTED_STEP_CPU
from kv.storage import Storage
from kv.view import KvcacheView, bind, bind_padded

# Keys and values of one layer that are gathered for one call: so few that they are read from a
# cache when they have just been copied.
PART_BYTES = 4 << 20
# Contexts are padded to a multiple of so many tokens: a kernel that computes as many at once then
# treats no row otherwise for what it is padded to.
PADDING = 16
# New tokens of a row up to which our kernel reads its keys for each of them: drafts, mostly, which
# are then computed as single tokens are.
FEW = MAX_DRAFTED_STEP_CPU

Ints = NDArray[np.int64]


@dataclass(slots=True)
class Part:
    """Rows of one batch with `n` new tokens each, which share a call."""

    view: KvcacheView
    tokens: Tensor  # [rows * n], places of their tokens in the flat batch
    n: int
    masks: dict[int | None, Tensor] = field(default_factory=dict)  # by sliding window

    @property
    def context(self) -> int:
        """Tokens that each row is padded to."""
        n_pages: int = self.view.page_table.shape[1]
        return n_pages * self.view.storage.page_size

    def begins(self, window: int | None) -> bool:
        """Whether these are beginnings of prompts, in which a token sees all before it."""
        narrow = window is not None and window < self.n
        return self.n > 1 and not narrow and bool((self.view.total_len == self.n).all())

    def mask(self, window: int | None, dtype: torch.dtype) -> Tensor:
        """To be added to the scores: what no new token may see. [rows, 1, n, context]

        Made once a step.
        """
        if window is not None and window >= self.context:
            window = None
        if window not in self.masks:
            self.masks[window] = self._mask(window, dtype)
        return self.masks[window]

    def _mask(self, window: int | None, dtype: torch.dtype) -> Tensor:
        position = self.view.total_len[:, None] - self.n + np.arange(self.n)
        key, query = np.arange(self.context), position[:, :, None]
        seen = key <= query
        if window is not None:
            seen &= key > query - window
        hidden = torch.from_numpy(~seen).to(self.tokens.device)
        mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
        return mask.masked_fill_(hidden, float("-inf"))[:, None]


@dataclass(frozen=True, slots=True)
class CpuAttention:
    """Attention part by part, in torch's own operations, and of the other rows by our kernels."""

    new: KvcacheView
    parts: list[Part]
    decodes: DecodeRows | None
    chunks: ChunkRows | None
    has_kernels: bool

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        params: AttentionParams,
    ) -> Tensor:
        self._store(layer, k, v)
        batch = [rows for rows in (self.decodes, self.chunks) if rows is not None]
        if not batch and len(self.parts) == 1:
            return _attend_part(self.parts[0], layer, q, params)
        if batch:
            out = attend(batch, q, *self.new.storage.layers[layer], params)
        else:
            out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for part in self.parts:
            own = q.index_select(0, part.tokens)
            out.index_copy_(0, part.tokens, _attend_part(part, layer, own, params))
        return out

    def attend_qkv(
        self,
        layer: int,
        qkv: Tensor,
        rotary: RotaryEmbedding,
        norms: tuple[HeadNorm, HeadNorm] | None,
        params: AttentionParams,
    ) -> Tensor:
        kv_heads = self.new.storage.layers[layer][0].shape[2]
        heads = qkv.shape[1] - 2 * kv_heads
        qk = _norm_and_rotate(qkv[:, : heads + kv_heads], rotary, norms, heads)
        q, k, v = qk[:, :heads], qk[:, heads:], qkv[:, heads + kv_heads :]
        return self.attend(layer, q, k, v, params)

    def _store(self, layer: int, k: Tensor, v: Tensor) -> None:
        if self.has_kernels:
            layer_ops.store(k, v, self.new.slots, *self.new.storage.layers[layer])
        else:
            self.new.write(layer, k, v)


def plan_cpu_attention(
    storage: Storage, page_table: Ints, total_len: Ints, new_len: Ints
) -> CpuAttention:
    """Cuts a flat batch into parts. `page_table` [rows, pages], the others [rows]."""
    starts = new_len.cumsum() - new_len
    new = bind(storage, page_table, total_len, new_len)
    decodes = chunks = None
    has_kernels = is_cpu_bf16(storage.k)
    lengths = np.unique(new_len).tolist()
    if has_kernels and lengths[0] <= FEW:
        rows = (new_len <= FEW).nonzero()[0]
        # Each of their tokens is a row of its own: the keys before it are stored by then.
        rows = rows.repeat(new_len[rows])
        nth = np.arange(len(rows)) - np.searchsorted(rows, rows)
        seen = total_len[rows] - new_len[rows] + 1 + nth
        decodes = DecodeRows(starts[rows] + nth, page_table[rows], seen)
        lengths = [n for n in lengths if n > FEW]
    if lengths and _has_chunk_kernel(storage):
        rows = (new_len > FEW).nonzero()[0]
        chunks = ChunkRows(starts[rows], page_table[rows], total_len[rows], new_len[rows])
        lengths = []
    parts = []
    for n in lengths:
        for rows in _alike((new_len == n).nonzero()[0], total_len, storage):
            tokens = (starts[rows, None] + np.arange(n)).ravel()
            view = bind_padded(storage, page_table[rows], total_len[rows], PADDING)
            place = torch.from_numpy(tokens).to(storage.k.device)
            parts.append(Part(view, place, n))
    return CpuAttention(new, parts, decodes, chunks, has_kernels)


def _norm_and_rotate(
    qk: Tensor,  # [tokens, heads + kv_heads, head_dim], may be changed
    rotary: RotaryEmbedding,
    norms: tuple[HeadNorm, HeadNorm] | None,
    heads: int,
) -> Tensor:
    """Queries and keys behind their norms, if there are any, and the rotary embedding."""
    if is_cpu_bf16(qk):
        layer_ops.apply_rotary_(qk, rotary.cos, rotary.sin, norms, heads)
        return qk
    if norms is not None:
        parts = zip(norms, (qk[:, :heads], qk[:, heads:]), strict=True)
        normed = [F.rms_norm(x, norm.weight.shape, norm.weight, norm.epsilon) for norm, x in parts]
        qk = torch.cat(normed, 1)
    return rotary.apply_(qk)


def _has_chunk_kernel(storage: Storage) -> bool:
    """Whether ours is there, and takes less time than torch's operation."""
    is_even = storage.k.shape[-1] % 2 == 0  # it takes numbers of a key in pairs
    return is_cpu_bf16(storage.k) and has_matmul_kernels() and is_even and not has_native_bf16()


def _alike(rows: Ints, total_len: Ints, storage: Storage) -> Iterator[Ints]:
    """The rows in parts of similar lengths, the longest first: all are padded to the longest."""
    if storage.k.device.type != "cpu":
        yield rows
        return
    most = max(1, PART_BYTES // storage.token_bytes)
    if len(rows) * int(total_len[rows].max()) <= most:
        yield rows
        return
    rows = rows[np.argsort(-total_len[rows], kind="stable")]
    while len(rows):
        n = max(1, most // int(total_len[rows[0]]))
        yield rows[:n]
        rows = rows[n:]


def _attend_part(part: Part, layer: int, q: Tensor, params: AttentionParams) -> Tensor:
    """[rows * n, heads, head_dim]"""
    queries = q.view(-1, part.n, *q.shape[1:])
    turned = [one.transpose(1, 2) for one in (queries, *part.view.gather(layer))]
    if params.softcap is None and params.sinks is None:
        mask = None if part.begins(params.window) else part.mask(params.window, q.dtype)
        out = _attend(turned, mask, params.scale)
    else:
        mask = part.mask(params.window, q.dtype)
        out = _attend_plainly(turned, mask, params)
    return out.transpose(1, 2).flatten(0, 1)


def _attend(qkv: Sequence[Tensor], mask: Tensor | None, scale: float) -> Tensor:
    """Without a mask every token sees those before it, the first the first alone."""
    q, k, v = qkv
    dtype, grouped = q.dtype, q.shape[1] != k.shape[1]
    if is_cpu_bf16(q) and not HAS_AVX512:  # of which torch has no fast products
        q, k, v = q.float(), k.float(), v.float()
        mask = None if mask is None else mask.float()
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=grouped
    )
    return out.to(dtype)


def _attend_plainly(
    qkv: Sequence[Tensor],
    mask: Tensor,
    params: AttentionParams,
) -> Tensor:
    """Written out for soft-capped scores and attention sinks, which the fused kernels lack."""
    q, k, v = qkv
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = (q @ k.transpose(2, 3)) * params.scale
    if params.softcap is not None:
        scores = torch.tanh(scores / params.softcap) * params.softcap
    scores = scores + mask
    if params.sinks is not None:
        column = params.sinks.view(1, -1, 1, 1).expand(*scores.shape[:3], 1).to(scores.dtype)
        scores = torch.cat([scores, column], -1)
    weights = scores.softmax(-1, dtype=torch.float32).to(q.dtype)
    return weights[..., : k.shape[2]] @ v

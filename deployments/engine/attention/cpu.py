"""Attention on a CPU over the paged cache: by our kernels, or by torch on padded rows.

Where our kernels support the cache's type, they compute rows with few new tokens. They compute
chunks of prompts as well if the processor has no bfloat16 instructions for torch to use.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.engine.attention.cpu_rows import ChunkRows, DecodeRows, attend
from deployments.engine.attention.interface import AttentionParams
from deployments.engine.attention.tiles import NO_SPANS, spans_within
from deployments.engine.kernels.cpu import layer_ops
from deployments.engine.kernels.cpu.features import has_bf16_tiles, has_matmul_kernels, is_cpu_bf16
from deployments.engine.kernels.cpu.simd import HAS_AVX512
from deployments.engine.kernels.norms import HeadNorm, rms_norm
from deployments.engine.kernels.rotary import RotaryEmbedding
from deployments.engine.limits import MAX_DRAFTED_STEP_CPU
from kv.arrays import IntArray
from kv.storage import Storage
from kv.view import KvcacheView, bind, bind_padded

# Keys and values of one layer that are gathered for one call of torch. They still are in the
# processor's cache when torch reads them.
MAX_GATHERED_BYTES = 4 << 20
# Contexts are padded to a multiple of this many tokens. Torch's kernel computes as many keys at
# once, so that a row's result does not depend on the length that it is padded to.
CONTEXT_MULTIPLE = 16


@dataclass(slots=True)
class PaddedRows:
    """Rows with equally many new tokens, padded to one context length and computed by torch."""

    view: KvcacheView
    token_index: Tensor  # [rows * new_len], their tokens' indices in the flat batch
    new_len: int
    spans: IntArray = field(default_factory=lambda: NO_SPANS)  # of them, as in the step
    masks: dict[int | None, Tensor] = field(default_factory=dict)  # by sliding window

    @property
    def context(self) -> int:
        """Tokens that each row is padded to."""
        n_pages: int = self.view.page_table.shape[1]
        return n_pages * self.view.storage.page_size

    def is_causal(self, window: int | None) -> bool:
        """Whether all rows are whole prompts, and each token attends to all before it."""
        is_narrow = window is not None and window < self.new_len
        if is_narrow or self.new_len == 1:
            return False
        if len(self.spans) and len(spans_within(self.spans, window)):
            return False
        return bool((self.view.total_len == self.new_len).all())

    def mask(self, window: int | None, dtype: torch.dtype, slopes: Tensor | None = None) -> Tensor:
        """Returns the mask to add to the scores: -inf for keys that a token must not see, else 0,
        or with `slopes` [heads] what distances add.

        Its shape is [rows, 1 or heads, new_len, context]. It is computed once a step without them.
        """
        if window is not None and window >= self.context and not len(self.spans):
            window = None
        if window not in self.masks:
            self.masks[window] = self._mask(window, dtype)
        mask = self.masks[window]
        return mask if slopes is None else mask + self._bias(slopes, dtype)

    def _bias(self, slopes: Tensor, dtype: torch.dtype) -> Tensor:
        """[rows, heads, new_len, context]"""
        position = self.view.total_len[:, None] - self.new_len + np.arange(self.new_len)
        distance = np.arange(self.context) - position[:, None, :, None]
        distances = torch.from_numpy(distance).to(self.token_index.device)
        return (slopes.float().view(1, -1, 1, 1) * distances).to(dtype)

    def _mask(self, window: int | None, dtype: torch.dtype) -> Tensor:
        position = self.view.total_len[:, None] - self.new_len + np.arange(self.new_len)
        key, query = np.arange(self.context), position[:, :, None]
        visible = key <= query
        before = self.view.total_len - self.new_len
        for row, first, end, _ in spans_within(self.spans, window):
            visible[row, first:end, before[row] + first : before[row] + end] = True
        if window is not None:
            visible &= key > query - window
        hidden = torch.from_numpy(~visible).to(self.token_index.device)
        mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
        return mask.masked_fill_(hidden, float("-inf"))[:, None]


@dataclass(frozen=True, slots=True)
class CpuAttention:
    """The attention of one forward pass on a CPU. Each row is in one of three groups."""

    view: KvcacheView  # of all rows; its slots are those of the new tokens
    padded: list[PaddedRows]
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
        self.store(layer, k, v)
        kernel_rows = [rows for rows in (self.decodes, self.chunks) if rows is not None]
        if not kernel_rows and len(self.padded) == 1:
            return _attend_padded(self.padded[0], layer, q, params)
        if kernel_rows:
            out = attend(kernel_rows, q, *self.view.storage.layers[layer], params)
        else:
            out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for rows in self.padded:
            row_q = q.index_select(0, rows.token_index)
            out.index_copy_(0, rows.token_index, _attend_padded(rows, layer, row_q, params))
        return out

    def attend_qkv(
        self,
        layer: int,
        qkv: Tensor,
        rotary: RotaryEmbedding,
        norms: tuple[HeadNorm, HeadNorm] | None,
        params: AttentionParams,
    ) -> Tensor:
        return self.attend(layer, *self._rotated(layer, qkv, rotary, norms), params)

    def store_qkv(
        self,
        layer: int,
        qkv: Tensor,
        rotary: RotaryEmbedding,
        norms: tuple[HeadNorm, HeadNorm] | None,
    ) -> None:
        _, k, v = self._rotated(layer, qkv, rotary, norms)
        self.store(layer, k, v)

    def _rotated(
        self,
        layer: int,
        qkv: Tensor,
        rotary: RotaryEmbedding,
        norms: tuple[HeadNorm, HeadNorm] | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each [tokens, heads, head_dim]."""
        kv_heads = self.view.storage.layers[layer][0].shape[2]
        heads = qkv.shape[1] - 2 * kv_heads
        qk = _norm_and_rotate(qkv[:, : heads + kv_heads], rotary, norms, heads)
        return qk[:, :heads], qk[:, heads:], qkv[:, heads + kv_heads :]

    def store(self, layer: int, k: Tensor, v: Tensor) -> None:
        if self.has_kernels:
            layer_ops.store(k, v, self.view.slots, *self.view.storage.layers[layer])
        else:
            self.view.write(layer, k, v)


def plan_cpu_attention(
    storage: Storage,
    page_table: IntArray,  # [rows, pages]
    total_len: IntArray,  # [rows], tokens after the step
    new_len: IntArray,  # [rows]
    layer: int = 0,
    spans: IntArray = NO_SPANS,  # as in the step
    seen_len: IntArray | None = None,  # [rows], of `total_len` those that are attended to
) -> CpuAttention:
    """Groups the rows of a flat batch by how their attention is computed, in all layers with the
    group and the page stride of `layer`. Our kernels are causal: rows with spans are torch's."""
    has_kernels = _has_kernels(storage)
    stored_len, total_len = total_len, total_len if seen_len is None else seen_len
    if has_kernels and not len(spans) and new_len.max(initial=1) == 1:  # as in most steps
        view = bind(storage, page_table, stored_len, layer=layer)
        singles = DecodeRows(np.arange(len(new_len)), page_table, total_len)
        return CpuAttention(view, [], singles, None, has_kernels)
    starts = new_len.cumsum() - new_len
    view = bind(storage, page_table, stored_len, new_len, layer)
    if has_kernels and not len(spans) and new_len.max() <= MAX_DRAFTED_STEP_CPU:  # with drafts
        every = np.arange(len(new_len))
        singles = _each_token(every, starts, page_table, total_len, new_len)
        return CpuAttention(view, [], singles, None, has_kernels)
    decodes = chunks = None
    is_causal = np.full(len(new_len), has_kernels)
    is_causal[spans[:, 0]] = False
    # Rows with drafts are decodes, too: their tokens then have the results of single tokens.
    is_decode = is_causal & (new_len <= MAX_DRAFTED_STEP_CPU)
    is_chunk = is_causal & ~is_decode & (has_kernels and _has_chunk_kernel(storage))
    if len(rows := is_decode.nonzero()[0]):
        decodes = _each_token(rows, starts, page_table, total_len, new_len)
    if len(rows := is_chunk.nonzero()[0]):
        chunks = ChunkRows(starts[rows], page_table[rows], total_len[rows], new_len[rows])
    padded, is_other = [], ~(is_decode | is_chunk)
    lengths = np.unique(new_len[is_other]).tolist()
    if lengths:
        group = storage.groups[storage.group_of[layer]]
        window = None if group.is_tumbling else group.window
        page_table, total_len = _within_window(storage, window, page_table, total_len, new_len)
    for n in lengths:
        rows_of_length = (is_other & (new_len == n)).nonzero()[0]
        for rows in _split_by_context(rows_of_length, total_len, storage):
            tokens = (starts[rows, None] + np.arange(n)).ravel()
            row_view = bind_padded(storage, page_table[rows], total_len[rows], CONTEXT_MULTIPLE)
            token_index = torch.from_numpy(tokens).to(storage.device)
            padded.append(PaddedRows(row_view, token_index, n, _spans_of(rows, spans)))
    return CpuAttention(view, padded, decodes, chunks, has_kernels)


def _each_token(
    rows: IntArray, starts: IntArray, page_table: IntArray, total_len: IntArray, new_len: IntArray
) -> DecodeRows:
    """The new tokens of some rows as rows of their own. All keys are stored before they are read.
    `starts` [all rows] are indices of their first new tokens."""
    n = new_len[rows]
    behind = n.cumsum()
    each = rows.repeat(n)
    nth = np.arange(len(each)) - (behind - n).repeat(n)
    context = (total_len - new_len)[each] + 1 + nth
    return DecodeRows(starts[each] + nth, page_table[each], context)


def _spans_of(rows: IntArray, spans: IntArray) -> IntArray:
    """Returns the spans of `rows`. They number the rows from 0, in the order of `rows`."""
    if not len(spans):
        return spans
    order = np.argsort(rows)
    spans = spans[np.isin(spans[:, 0], rows)]
    at = order[np.searchsorted(rows[order], spans[:, 0])]
    return np.column_stack([at, spans[:, 1:]])


def _within_window(
    storage: Storage,
    window: int | None,
    page_table: IntArray,
    total_len: IntArray,
    new_len: IntArray,
) -> tuple[IntArray, IntArray]:
    """Pages and tokens of each row as if it began at the first page that a new token attends to."""
    if window is None:
        return page_table, total_len
    first = (total_len - new_len - window + 1).clip(min=0) // storage.page_size
    width = int((-(-total_len // storage.page_size) - first).max())
    index = (first[:, None] + np.arange(width)).clip(max=page_table.shape[1] - 1)
    return np.take_along_axis(page_table, index, 1), total_len - first * storage.page_size


def _norm_and_rotate(
    qk: Tensor,  # [tokens, heads + kv_heads, head_dim], may be changed
    rotary: RotaryEmbedding,
    norms: tuple[HeadNorm, HeadNorm] | None,
    heads: int,
) -> Tensor:
    """Applies the norms, if there are any, the rotary embedding and its scale of queries."""
    if is_cpu_bf16(qk):
        layer_ops.apply_rotary_(qk, rotary, norms, heads)
        return qk
    if norms is None or norms[0].is_behind:
        qk = rotary.apply_(qk)
    if norms is not None:
        parts = zip(norms, (qk[:, :heads], qk[:, heads:]), strict=True)
        normed = [rms_norm(x, norm.weight, norm.epsilon, norm.plus) for norm, x in parts]
        qk = torch.cat(normed, 1)
    if norms is not None and not norms[0].is_behind:
        qk = rotary.apply_(qk)
    if rotary.query_scale is not None:
        qk[:, :heads] *= rotary.query_scale
    return qk


def _has_kernels(storage: Storage) -> bool:
    """Whether our kernels compute attention. For the many heads of a latent they take half a minute
    to compile, and torch is faster."""
    return is_cpu_bf16(storage.k[0]) and not storage.has_values_in_keys


def _has_chunk_kernel(storage: Storage) -> bool:
    """Whether our chunk kernel can run, and is faster than torch."""
    if not has_matmul_kernels() or has_bf16_tiles():
        return False
    return all(k.shape[-1] % 2 == 0 for k in storage.k)  # it reads a key's elements in pairs


def _split_by_context(rows: IntArray, total_len: IntArray, storage: Storage) -> Iterator[IntArray]:
    """Splits rows so that the keys and values gathered for one call fit MAX_GATHERED_BYTES.

    All rows of a call are padded to its longest, so rows of similar lengths share a call. The
    longest come first.
    """
    if storage.device.type != "cpu":
        yield rows
        return
    max_tokens = max(1, MAX_GATHERED_BYTES // max(1, storage.token_bytes))
    if len(rows) * int(total_len[rows].max()) <= max_tokens:
        yield rows
        return
    rows = rows[np.argsort(-total_len[rows], kind="stable")]
    while len(rows):
        n = max(1, max_tokens // int(total_len[rows[0]]))
        yield rows[:n]
        rows = rows[n:]


def _attend_padded(rows: PaddedRows, layer: int, q: Tensor, params: AttentionParams) -> Tensor:
    """[rows * new_len, heads, head_dim]"""
    q = q.view(-1, rows.new_len, *q.shape[1:])
    qkv = [x.transpose(1, 2) for x in (q, *rows.view.gather(layer))]
    if params.softcap is None and params.sinks is None:
        needs_mask = params.slopes is not None or not rows.is_causal(params.window)
        mask = rows.mask(params.window, q.dtype, params.slopes) if needs_mask else None
        out = _sdpa(qkv, mask, params.scale)
    else:
        out = _eager_attention(qkv, rows.mask(params.window, q.dtype, params.slopes), params)
    return out.transpose(1, 2).flatten(0, 1)


def _sdpa(qkv: Sequence[Tensor], mask: Tensor | None, scale: float) -> Tensor:
    """Torch's scaled dot-product attention. Without a mask it is causal."""
    q, k, v = qkv
    # Heads that share all keys see what so many tokens would see: torch reads the keys once then.
    swaps_heads = q.shape[2] == k.shape[1] == 1
    if swaps_heads:
        q = q.transpose(1, 2)
    dtype, is_grouped = q.dtype, q.shape[1] != k.shape[1]
    # Without AVX-512 torch multiplies bfloat16 slowly.
    if is_cpu_bf16(q) and not HAS_AVX512:
        q, k, v = q.float(), k.float(), v.float()
        mask = None if mask is None else mask.float()
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=is_grouped
    )
    return (out.transpose(1, 2) if swaps_heads else out).to(dtype)


def _eager_attention(
    qkv: Sequence[Tensor],
    mask: Tensor,
    params: AttentionParams,
) -> Tensor:
    """Attention in single operations: torch's fused one has no soft cap and no sinks."""
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

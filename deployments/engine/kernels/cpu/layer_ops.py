"""Attention, what stands between the matrix products of a step, and products, on tensors.

`suit` says of which: bfloat16 on a CPU. The loops themselves are in numba_kernels.py and
attention_kernels.py.
"""

import sys
from collections.abc import Sequence
from platform import machine
from typing import NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from deployments.engine.attention.gpu import tile
from deployments.engine.kernels.cpu.attention_kernels import (
    SPLIT,
    chunk_kernel,
    decode_kernel,
    merge_kernel,
)
from deployments.engine.kernels.cpu.dispatch import TEAM, THREAD
from deployments.engine.kernels.cpu.layer_kernels import (
    NONE,
    PACK,
    Form,
    norm_kernel,
    product_kernel,
    store_kernel,
    turn_kernel,
    widen_kernel,
)
from deployments.engine.kernels.cpu.simd import HAS_AVX512 as HAS_AVX512
from deployments.engine.kernels.cpu.simd import HAS_FMA

BLOCK_TOKENS = 8  # that one task of a norm takes
MANY_SPLITS = 4  # for each thread: one is a task for all heads, whose pages come in one piece
LEAST_ROWS = 48  # that a task of a product multiplies with one block of its weights
HELD_NUMBERS = 1 << 17  # of the rows of such a task, which stay in the second cache
PIECE_ROWS = 192  # queries, of all heads that share keys, that a task attends for
TASKS_EACH = 3  # of the threads, at least, where there are enough queries
ALL = (1 << 31) - 1  # tokens: no window
FEW_ROWS = 2  # of more the processor's matrix instructions are as fast


def suit(x: Tensor) -> bool:
    """Whether these kernels can compute with a tensor of this kind."""
    return x.device.type == "cpu" and x.dtype is torch.bfloat16


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Memory for what a kernel gives."""
    recording = THREAD.recording
    return torch.empty(shape, dtype=dtype) if recording is None else recording.empty(shape, dtype)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """[tokens, width]"""
    x = x.contiguous()
    out = empty(x.shape, x.dtype)
    places = x.data_ptr(), weight.data_ptr(), out.data_ptr()
    norm_kernel()(x.numel(), *places, *x.shape, BLOCK_TOKENS, epsilon)
    return out


class Packed(NamedTuple):
    """Where a packed matrix lies, and the scales of its weights, if they have any."""

    address: int
    form: Form
    scales: int = 0


def can_multiply() -> bool:
    """Whether `product` is worth more than one row or two: it has been measured on x86 alone."""
    return machine() in ("x86_64", "AMD64") and HAS_FMA and TEAM is not None


class PackedMatrix(NamedTuple):
    """Has to be kept as long as its place is used."""

    weights: Tensor
    scales: Tensor | None
    form: Form

    @property
    def place(self) -> Packed:
        return Packed(self.weights.data_ptr(), self.form, _place(self.scales))

    def outputs(self, first: int, end: int) -> "PackedMatrix":
        """Some of them, from a multiple of PACK on."""
        blocks = slice(first // PACK, -(-end // PACK))
        scales = None if self.scales is None else self.scales[blocks]
        return PackedMatrix(self.weights[blocks], scales, self.form)


def pack(weight: Tensor) -> PackedMatrix:
    """[out, in] of bfloat16."""
    blocks = _in_blocks(_filled(weight, 0, weight.shape[1] % 2))
    pairs = blocks.view(len(blocks), PACK, blocks.shape[2] // 2, 2)
    return PackedMatrix(pairs.transpose(1, 2).contiguous(), None, Form(PACK))


def pack_int8(numbers: Tensor, scales: Tensor) -> PackedMatrix:
    """int8 [out, in], and bfloat16 [out]."""
    blocks = _in_blocks(_filled(numbers, 0, numbers.shape[1] % 2))
    packed = blocks.transpose(1, 2).contiguous()
    return PackedMatrix(packed, _in_blocks(scales).contiguous(), Form(PACK, 8))


def pack_int4(numbers: Tensor, scales: Tensor, least: Tensor) -> PackedMatrix:
    """uint8 [out, in] of 0 to 15; bfloat16 [out, groups], and what 0 stands for in each."""
    n_out, width = numbers.shape
    pairs = numbers.view(n_out, width // 2, 2)
    packed = _in_blocks(pairs[..., 0] | (pairs[..., 1] << 4)).transpose(1, 2).contiguous()
    both = _in_blocks(torch.stack([scales, least], 2)).permute(0, 2, 3, 1).contiguous()
    return PackedMatrix(packed, both, Form(PACK, 4, width // scales.shape[1]))


def _in_blocks(x: Tensor) -> Tensor:
    """[out / PACK, PACK, ...] of [out, ...], filled up with zeros."""
    filled = _filled(x, *(0, 0) * (x.dim() - 1), 0, -len(x) % PACK)
    return filled.view(-1, PACK, *x.shape[1:])


def _filled(x: Tensor, *beside: int) -> Tensor:
    """With zeros, as `F.pad` takes their numbers; no copy where there are none."""
    return F.pad(x, beside) if any(beside) else x


def widened(weight: Packed, n_out: int, width: int) -> Tensor:
    """A matrix of whole numbers as bfloat16, turned: [in, out]."""
    out = torch.empty((width, n_out), dtype=torch.bfloat16)
    sizes = width, n_out
    widen_kernel(weight.form)(n_out * width, weight.address, weight.scales, out.data_ptr(), *sizes)
    return out


def product(
    x: Tensor,  # [..., in]
    weight: Packed,
    out_features: int,
    bias: Tensor | None,
    then: int = NONE,
    other: Tensor | None = None,  # [..., out]
) -> Tensor:
    """[..., out]"""
    *shape, width = x.shape
    rows = x.numel() // width
    x = x.contiguous()
    other = None if other is None else other.contiguous()
    out = empty((*shape, out_features), x.dtype)
    product_kernel(weight.form)(
        rows * width * out_features,
        *(x.data_ptr(), weight.address, weight.scales, _place(bias), _place(other)),
        *(out.data_ptr(), rows, width, out_features, then),
        min(rows, max(LEAST_ROWS, HELD_NUMBERS // width)),
    )
    return out


def _place(x: Tensor | None) -> int:
    return 0 if x is None else x.data_ptr()


class HeadNorm(Protocol):
    weight: Tensor  # [dim]
    epsilon: float


def turn(
    x: Tensor,  # [tokens, heads, dim], heads one behind the other
    cos: Tensor,  # [tokens, 1, dim], contiguous
    sin: Tensor,  # the same, negative in its first half
    norms: tuple[HeadNorm, HeadNorm] | None = None,  # of the first heads and of the others
    n_first: int = 0,
) -> None:
    """Rotary embedding in place, behind an RMSNorm of each head if there are any."""
    first, others, epsilon = 0, 0, 0.0
    if norms is not None:
        first, others = norms[0].weight.data_ptr(), norms[1].weight.data_ptr()
        epsilon = norms[0].epsilon
    turn_kernel()(
        x.numel(),
        *(x.data_ptr(), x.stride(0), *x.shape, cos.data_ptr(), sin.data_ptr()),
        *(first, n_first, others, epsilon),
    )


def store(k: Tensor, v: Tensor, slots: Tensor, keys: Tensor, values: Tensor) -> None:
    """Copies new keys and values [tokens, heads, dim] to their slots of one layer's cache.

    Raises ValueError for what does not fit into it.
    """
    fits = k.dtype is v.dtype is keys.dtype
    if not (fits and k.shape == v.shape == (len(slots), *keys.shape[2:])):
        raise ValueError(f"{k.dtype} {k.shape}, {v.dtype} {v.shape} for pages of {keys.shape[2:]}")
    k, v = _in_rows(k), _in_rows(v)
    strides = (k.data_ptr(), *k.stride()[:2]), (v.data_ptr(), *v.stride()[:2])
    places = slots.data_ptr(), keys.data_ptr(), values.data_ptr()
    store_kernel()(k.numel(), *strides[0], *strides[1], *places, *k.shape)


class Scores(NamedTuple):
    """How they are made."""

    scale: float
    window: int | None  # tokens that one sees, itself included
    softcap: float | None
    sinks: Tensor | None  # [heads]


class DecodeRows:
    """New tokens of a batch that are attended for one by one, each a row."""

    def __init__(
        self,
        places: NDArray[np.int64],  # [rows], of their tokens in the flat batch
        page_table: NDArray[np.int64],  # [rows, pages], contiguous
        total_len: NDArray[np.int64],  # [rows]
    ) -> None:
        self.places, self.page_table, self.total_len = places, page_table, total_len
        self._n_tokens = int(total_len.sum())
        # Asked of numpy once a step.
        self._addresses = places.ctypes.data, page_table.ctypes.data, total_len.ctypes.data

    def attend(self, out: Tensor, q: Tensor, keys: Tensor, values: Tensor, form: Scores) -> None:
        """As `attend`, of these rows."""
        _, heads, dim = q.shape
        _, page_size, kv_heads, _ = keys.shape
        n, width = self.page_table.shape
        sinks, window, group = _sinks(form, q), _window(form), heads // kv_heads
        splits = -(-width * page_size // SPLIT)
        parts = empty((n, splits * heads * (2 + dim)), torch.float32) if splits > 1 else None
        places, table, lengths = self._addresses
        decode_kernel(dim, group)(
            self._n_tokens * heads * dim,
            *(q.data_ptr(), q.stride(0), q.stride(1), out.data_ptr()),
            *(keys.data_ptr(), values.data_ptr(), n, places),
            *(table, width, lengths),
            *(kv_heads, page_size, window, _place(sinks), form.scale, form.softcap or 0.0),
            *(MANY_SPLITS * torch.get_num_threads(), _place(parts), splits),
        )
        if parts is not None:
            merge_kernel(dim, group)(
                n * splits * heads * dim,
                *(out.data_ptr(), _place(parts), splits, n, places, lengths, kv_heads, window),
            )


class ChunkRows:
    """Rows of a batch with several new tokens each, which read every key once for many of them."""

    def __init__(
        self,
        places: NDArray[np.int64],  # [rows], of their first tokens in the flat batch
        page_table: NDArray[np.int64],  # [rows, pages], contiguous
        total_len: NDArray[np.int64],  # [rows]
        new_len: NDArray[np.int64],  # [rows]
    ) -> None:
        self._rows = places, total_len, new_len
        self._n_new = int(new_len.sum())
        self._page_table = page_table
        self._pieces: dict[int, NDArray[np.int64]] = {}  # by the tokens of each

    def attend(self, out: Tensor, q: Tensor, keys: Tensor, values: Tensor, form: Scores) -> None:
        """As `attend`, of these rows."""
        _, heads, dim = q.shape
        _, page_size, kv_heads, _ = keys.shape
        tokens = self._piece(heads // kv_heads, kv_heads)
        pieces, sinks = self._cut(tokens), _sinks(form, q)
        chunk_kernel(dim, heads // kv_heads)(
            sys.maxsize,
            *(q.data_ptr(), q.stride(0), q.stride(1), out.data_ptr()),
            *(keys.data_ptr(), values.data_ptr(), len(pieces), pieces.ctypes.data),
            *(self._page_table.ctypes.data, self._page_table.shape[1]),
            *(kv_heads, page_size, _window(form), _place(sinks)),
            *(form.scale, form.softcap or 0.0, tokens),
        )

    def _piece(self, group: int, kv_heads: int) -> int:
        """Tokens of one: fewer where there would be nothing to do for some of the threads."""
        rows, least_tasks = PIECE_ROWS, TASKS_EACH * torch.get_num_threads()
        while rows > PACK and self._n_new * group * kv_heads < least_tasks * rows:
            rows //= 2
        return max(1, rows // group)

    def _cut(self, tokens: int) -> NDArray[np.int64]:
        """Pieces of up to so many tokens, as `chunk_kernel` takes them."""
        if tokens not in self._pieces:
            places, total_len, new_len = self._rows
            row, first = tile(np.arange(len(places)), new_len, total_len, tokens).T
            position = total_len[row] - new_len[row] + first
            n = np.minimum(tokens, new_len[row] - first)
            self._pieces[tokens] = np.stack([places[row] + first, position, n, row], axis=1)
        return self._pieces[tokens]


def attend(
    batch: Sequence[DecodeRows | ChunkRows],
    q: Tensor,  # [tokens, heads, dim]
    keys: Tensor,  # [pages, page size, kv heads, dim]
    values: Tensor,
    form: Scores,
) -> Tensor:
    """[tokens, heads, dim], of which the rows' places are written.

    Raises ValueError for what does not fit together.
    """
    heads, dim = q.shape[1:]
    if q.dtype is not keys.dtype or dim != keys.shape[3] or heads % keys.shape[2]:
        raise ValueError(f"{heads} heads of {dim} {q.dtype} for pages of {keys.shape[2:]}")
    q, out = _in_rows(q), empty(q.shape, q.dtype)
    for rows in batch:
        rows.attend(out, q, keys, values, form)
    return out


def _window(form: Scores) -> int:
    return ALL if form.window is None else min(form.window, ALL)


def _sinks(form: Scores, q: Tensor) -> Tensor | None:
    return None if form.sinks is None else form.sinks.to(q.dtype).contiguous()


def _in_rows(x: Tensor) -> Tensor:
    """With the last dimension's numbers side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()

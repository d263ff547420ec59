"""FlashAttention 3 or 4 for chunks of prompts, where torch and its libraries bring it.

Decodes and small chunks stay with our kernels. If the library chose the splits of a context, a
row's result would depend on its batch. Without splits, one program would have to read a whole long
context. Captured steps have small chunks, too, which must not depend on what else is in the batch.
"""

import inspect
import logging
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import attention as torch_attention

from deployments.engine.attention.gpu import (
    MAX_SMALL_CHUNK,
    TritonAttention,
    plan_triton_attention,
    tiling_of,
)
from deployments.engine.transfer import to_device
from kv.layout import alike
from kv.storage import Storage

if TYPE_CHECKING:
    from deployments.engine.kernels.gpu.attention_ops import Attention

log = logging.getLogger(__name__)

VERSIONS = {9: ("FA3", "FA4"), 10: ("FA4",)}  # by the GPU's major compute capability
MAX_HEAD_DIM = 256
DTYPES = (torch.float16, torch.bfloat16)
# Of larger pages the library loads whole blocks. It then does not mask NaN behind a row's end.
MAX_PAGE_SIZE = 32  # tokens
NO_TILES = 0, False  # what it needs of a step in their place is with the tiles
MAX_RELATIVE_ERROR = 0.02  # of FlashAttention against our own kernel, in bfloat16


@cache
def flash_version() -> str | None:
    """Activates FlashAttention for this process and returns its version.

    None if the GPU or the installed libraries do not support it with page tables.
    """
    if not torch.cuda.is_available() or not _supports_page_tables():
        return None
    for version in VERSIONS.get(torch.cuda.get_device_capability()[0], ()):
        try:
            torch_attention.activate_flash_attention_impl(version)
        except Exception as error:  # a broken installation may raise anything
            log.info("%s is not available: %s", version, error)
        else:
            return version
    return None


def _supports_page_tables() -> bool:
    """Whether torch's varlen_attn takes page tables: it does from torch 2.12 on."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    can_choose = hasattr(torch_attention, "activate_flash_attention_impl")
    return can_choose and "block_table" in inspect.signature(varlen_attn).parameters


class KernelConfig(NamedTuple):
    """The properties that select one of the library's kernels."""

    device: torch.device
    dtype: torch.dtype
    heads: int
    kv_heads: int
    head_dim: int
    page_size: int  # tokens
    window: int | None  # tokens


_IS_RELIABLE: dict[KernelConfig, bool] = {}  # of each kernel that was checked


@dataclass(frozen=True, slots=True)
class FlashAttention(TritonAttention):
    """The attention of one forward pass, with FlashAttention for the chunks that it supports.

    Before the first use of each library kernel, it and our own kernel compute a generated batch. If
    their results differ, our kernel is used from then on. The same holds once the library fails.
    """

    # The step with the chunks that are ours, small ones and those with spans, and with the others.
    _shares: dict[bool, "FlashAttention"] = field(default_factory=dict)

    @classmethod
    def from_triton(cls, step: TritonAttention) -> Self:
        return cls(**{entry.name: getattr(step, entry.name) for entry in fields(step)})

    def _attend_chunks(self, attention: "Attention", out: Tensor, q: Tensor) -> Tensor:
        if not self._shares:
            is_small = self.chunk_len <= MAX_SMALL_CHUNK
            if len(self.spans):
                is_small |= np.isin(self.chunk_rows, self.spans[:, 0])
            self._shares.update({True: self._of(is_small), False: self._of(~is_small)})
        ours, others = self._shares[True], self._shares[False]
        if len(others.chunk_rows):
            out = others._attend_prompts(attention, out, q)
        if len(ours.chunk_rows):
            # A bare `super()` would refer to the class that `slots=True` has replaced.
            out = super(FlashAttention, ours)._attend_chunks(attention, out, q)
        return out

    def _of(self, chosen: NDArray[np.bool_]) -> "FlashAttention":
        return replace(
            self,
            chunk_rows=self.chunk_rows[chosen],
            chunk_len=self.chunk_len[chosen],
            chunk_total=self.chunk_total[chosen],
            _tiles={},
            _contexts={},
            _shares={},
        )

    def _attend_prompts(self, attention: "Attention", out: Tensor, q: Tensor) -> Tensor:
        config = _kernel_config(attention, q)
        if config is not None and config not in _IS_RELIABLE:
            _IS_RELIABLE[config] = self._agrees(config)
        if config is not None and _IS_RELIABLE[config]:
            try:
                return self._attend_with_flash(attention, q)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                log.warning("FlashAttention failed and is no longer used: %s", error)
                _IS_RELIABLE[config] = False
        return super(FlashAttention, self)._attend_chunks(attention, out, q)

    def _agrees(self, config: KernelConfig) -> bool:
        attention, step, q = check_batch(config)
        out = torch.zeros_like(q)
        ours = step._attend_chunks(attention, out.clone(), q)
        try:
            flash = self.from_triton(step)._attend_with_flash(attention, q)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # an untested library may raise anything
            log.warning("FlashAttention failed a check and is not used: %s", error)
            return False
        relative_error = float((flash - ours).float().norm() / ours.float().norm())
        # Written with `not`, so that NaN fails, too.
        if not relative_error < MAX_RELATIVE_ERROR:
            log.warning(
                "FlashAttention is not used: its results differ from ours by %.3g", relative_error
            )
        return relative_error < MAX_RELATIVE_ERROR

    def _attend_with_flash(self, attention: "Attention", q: Tensor) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn

        window = -1 if attention.window is None else attention.window - 1
        out = varlen_attn(
            q.contiguous(),
            attention.k_pages,
            attention.v_pages,
            self.starts.to(torch.int32),
            None,
            int(self.chunk_len.max()),
            int(self.chunk_total.max()),
            scale=attention.scale,
            window_size=(window, 0),
            enable_gqa=True,
            # Decodes get no keys here. Our own kernel overwrites their zeros.
            seqused_k=self._seqused_k(),
            block_table=self.page_table.to(torch.int32),
            num_splits=1,
        )
        assert isinstance(out, Tensor)
        return out

    def _seqused_k(self) -> Tensor:
        """Number of keys of each chunk, and 0 of each decode. [rows] int32"""
        if NO_TILES not in self._tiles:
            n_keys = np.zeros(len(self.total_len), dtype=np.int64)
            n_keys[self.chunk_rows] = self.chunk_total
            self._tiles[NO_TILES] = to_device(n_keys, self.slots.device).to(torch.int32)
        return self._tiles[NO_TILES]


def _kernel_config(attention: "Attention", q: Tensor) -> KernelConfig | None:
    """None if FlashAttention does not support this attention."""
    pages = attention.k_pages
    if attention.softcap is not None or attention.sinks is not None:
        return None
    if attention.value_dim is not None or attention.slopes is not None:
        return None
    if q.dtype not in DTYPES or pages.dtype != q.dtype or q.shape[-1] > MAX_HEAD_DIM:
        return None
    _, page_size, kv_heads, head_dim = pages.shape
    if page_size > MAX_PAGE_SIZE:
        return None
    return KernelConfig(
        q.device, q.dtype, q.shape[1], kv_heads, head_dim, page_size, attention.window
    )


def check_batch(config: KernelConfig) -> tuple["Attention", TritonAttention, Tensor]:
    """A batch to check a kernel on: starts of prompts, chunks behind a context, and a decode.

    Returns the attention of one layer, the step, and queries [tokens, heads, head_dim].
    """
    from deployments.engine.kernels.gpu.attention_ops import Attention

    before, new = np.array([(200, 100), (0, 130), (77, 1), (150, 17)], dtype=np.int64).T
    width = -(-300 // config.page_size)
    table = np.random.default_rng(0).permutation(len(new) * width).reshape(-1, width)
    layout = alike(1, config.kv_heads, config.head_dim)
    sizes = table.size, config.page_size
    storage = Storage(layout, *sizes, dtype=config.dtype, device=config.device)
    generator = torch.Generator(config.device).manual_seed(0)
    shape = int(new.sum()), config.heads, config.head_dim
    q = torch.empty(shape, dtype=config.dtype, device=config.device)
    for tensor in (*storage.layers[0], q):
        tensor.normal_(generator=generator)
    step = plan_triton_attention(storage, table, before + new, new)
    tiling = tiling_of(config.dtype, config.head_dim, config.device)
    scale = config.head_dim**-0.5
    return (
        Attention(*storage.layers[0], scale, config.window, None, None, None, (1.0, 1.0), tiling),
        step,
        q,
    )

"""FlashAttention 3 or 4 for chunks, where the installed torch and its libraries bring them.

Decodes stay with our kernels: with splits chosen by the library a row's result would depend on
its batch, and without them a long context would be one program's work.
"""

import inspect
import logging
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import attention as torch_attention

from deployments.engine.attention.gpu import TritonAttention, plan_triton_attention, tiling_of
from deployments.engine.transfer import to_device
from kv.storage import Storage

if TYPE_CHECKING:
    from deployments.engine.kernels.gpu.attention_ops import Attention

log = logging.getLogger(__name__)

VERSIONS = {9: ("FA3", "FA4"), 10: ("FA4",)}  # by the GPU's major compute capability
WIDEST = 256  # head_dim
DTYPES = (torch.float16, torch.bfloat16)
# Whole blocks of larger pages it reads as they are, and then NaN behind a row's end is not hidden.
LONGEST_PAGE = 32
CLOSE = 0.02  # error of the two, relative, in bfloat16


@cache
def flash_version() -> str | None:
    """Activates FlashAttention with page tables for this process; None where there is none."""
    if not torch.cuda.is_available() or not _takes_pages():
        return None
    for version in VERSIONS.get(torch.cuda.get_device_capability()[0], ()):
        try:
            torch_attention.activate_flash_attention_impl(version)
        except Exception as error:  # a broken installation may raise anything
            log.info("%s is not there: %s", version, error)
        else:
            return version
    return None


def _takes_pages() -> bool:
    """Whether torch's function for sequences of many lengths knows of page tables: 2.12 does."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    can_choose = hasattr(torch_attention, "activate_flash_attention_impl")
    return can_choose and "block_table" in inspect.signature(varlen_attn).parameters


class Kind(NamedTuple):
    """What decides which of the library's kernels runs."""

    device: torch.device
    dtype: torch.dtype
    heads: int
    kv_heads: int
    head_dim: int
    page_size: int
    window: int | None


_TRUST: dict[Kind, bool] = {}  # those that were tried, and whether they agreed with our kernel


@dataclass(frozen=True, slots=True)
class FlashAttention(TritonAttention):
    """A step whose chunks go through FlashAttention, but for what that lacks.

    Before a kind's first one both kernels compute a made-up batch: where they do not agree, or the
    library fails, then or later, it is not asked again.
    """

    @classmethod
    def of(cls, step: TritonAttention) -> Self:
        return cls(**{field.name: getattr(step, field.name) for field in fields(step)})

    def _attend_chunks(self, attention: "Attention", out: Tensor, q: Tensor) -> Tensor:
        kind = _kind(attention, q)
        if kind is not None and kind not in _TRUST:
            _TRUST[kind] = self._agrees(kind)
        if kind is not None and _TRUST[kind]:
            try:
                return self._attend_with_flash(attention, q)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                log.warning("FlashAttention is not used any more: %s", error)
                _TRUST[kind] = False
        # Two arguments: without them `super` is of the class that slots have replaced.
        return super(FlashAttention, self)._attend_chunks(attention, out, q)

    def _agrees(self, kind: Kind) -> bool:
        attention, step, q = trial(kind)
        out = torch.zeros_like(q)
        ours = step._attend_chunks(attention, out.clone(), q)
        try:
            found = self.of(step)._attend_with_flash(attention, q)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a library that nobody has tried here may raise
            log.warning("FlashAttention is not used: %s", error)
            return False
        away = float((found - ours).float().norm() / ours.float().norm())
        if not away < CLOSE:
            log.warning("FlashAttention is not used: it is %.3g from our own kernel", away)
        return away < CLOSE

    def _attend_with_flash(self, attention: "Attention", q: Tensor) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn

        window = -1 if attention.window is None else attention.window - 1
        found = varlen_attn(
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
            # A decode has no keys here, and its zeros are overwritten.
            seqused_k=self._seen(),
            block_table=self.page_table.to(torch.int32),
            num_splits=1,
        )
        assert isinstance(found, Tensor)
        return found

    def _seen(self) -> Tensor:
        """Keys of each row that is a chunk, 0 of the others. [rows] int32"""
        if 0 not in self._tiles:
            seen = np.zeros(len(self.total_len), dtype=np.int64)
            seen[self.chunk_rows] = self.chunk_total
            self._tiles[0] = to_device(seen, self.slots.device).to(torch.int32)
        return self._tiles[0]


def _kind(attention: "Attention", q: Tensor) -> Kind | None:
    """None of what it lacks."""
    pages = attention.k_pages
    if attention.softcap is not None or attention.sinks is not None:
        return None
    if q.dtype not in DTYPES or pages.dtype != q.dtype or q.shape[-1] > WIDEST:
        return None
    _, page_size, kv_heads, head_dim = pages.shape
    if page_size > LONGEST_PAGE:
        return None
    return Kind(q.device, q.dtype, q.shape[1], kv_heads, head_dim, page_size, attention.window)


def trial(kind: Kind) -> tuple["Attention", TritonAttention, Tensor]:
    """A batch with beginnings of prompts, what follows on other tokens, and decodes; its q."""
    from deployments.engine.kernels.gpu.attention_ops import Attention

    before, new = np.array([(200, 100), (0, 130), (77, 1), (150, 17)], dtype=np.int64).T
    width = -(-300 // kind.page_size)
    table = np.random.default_rng(0).permutation(len(new) * width).reshape(-1, width)
    sizes = (1, table.size, kind.page_size, kind.kv_heads, kind.head_dim)
    storage = Storage(*sizes, dtype=kind.dtype, device=kind.device)
    made = torch.Generator(kind.device).manual_seed(0)
    shape = int(new.sum()), kind.heads, kind.head_dim
    q = torch.empty(shape, dtype=kind.dtype, device=kind.device)
    for tensor in (storage.k, storage.v, q):
        tensor.normal_(generator=made)
    step = plan_triton_attention(storage, table, before + new, new)
    tiling = tiling_of(kind.dtype, kind.head_dim, kind.device)
    scale = kind.head_dim**-0.5
    pages = storage.k[0], storage.v[0]
    return Attention(*pages, scale, kind.window, None, None, (1.0, 1.0), tiling), step, q

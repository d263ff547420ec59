"""FlashAttention 3 or 4 for chunks, where the installed torch and its libraries bring them.

Decodes stay with our kernels: with splits chosen by the library a row's result would depend on
its batch, and without them a long context would be one program's work.
"""

import inspect
import logging
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import attention as torch_attention

from deployments.engine.paged import PagedStep
from deployments.engine.transfer import to_device

if TYPE_CHECKING:
    from deployments.engine.paged_launch import Attention

log = logging.getLogger(__name__)

VERSIONS = ("FA3", "FA4")
WIDEST = 256  # head_dim
DTYPES = (torch.float16, torch.bfloat16)
TELLING = 64  # new tokens of a row in a step that is tried both ways
CLOSE = 0.02  # error of the two, relative, in bfloat16


@cache
def flash_version() -> str | None:
    """Activates FlashAttention with page tables for this process; None where there is none."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] < 9:
        return None
    if not _takes_pages():
        return None
    for version in VERSIONS:
        try:
            torch_attention.activate_flash_attention_impl(version)
        except (ImportError, RuntimeError, ValueError) as error:
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


@dataclass(frozen=True, slots=True)
class FlashStep(PagedStep):
    """A step whose chunks go through FlashAttention, but for what that lacks.

    The first ones of each kind go both ways: where the two do not agree, or it fails, it is not
    asked again.
    """

    @staticmethod
    def of(step: PagedStep) -> "FlashStep":
        return FlashStep(**{field.name: getattr(step, field.name) for field in fields(step)})

    def _attend_chunks(self, attention: "Attention", out: Tensor, q: Tensor) -> Tensor:
        kind = self._kind(attention, q)
        if kind is not None and _TRUST.get(kind, False):
            return self._attend_with_flash(attention, q)
        # Two arguments: without them `super` is of the class that slots have replaced.
        ours = super(FlashStep, self)._attend_chunks(attention, out, q)
        if kind is not None and kind not in _TRUST and self.chunk_len.max() >= TELLING:
            _TRUST[kind] = self._agrees(attention, q, ours)
        return ours

    def _kind(self, attention: "Attention", q: Tensor) -> "Kind | None":
        """None of what it lacks."""
        pages = attention.k_pages
        plain = attention.softcap is None and attention.sinks is None
        if not plain or q.dtype not in DTYPES or pages.dtype != q.dtype or q.shape[-1] > WIDEST:
            return None
        return q.device, q.dtype, q.shape[1], pages.shape[-2], q.shape[2], attention.window

    def _agrees(self, attention: "Attention", q: Tensor, ours: Tensor) -> bool:
        ends = self.starts[torch.from_numpy(self.chunk_rows + 1).to(q.device)] - 1
        try:
            found = self._attend_with_flash(attention, q)[ends].float()
            expected = ours[ends].float()
            error = float((found - expected).norm() / expected.norm())
        except Exception as failure:  # whatever a library that nobody has tried here may raise
            log.warning("FlashAttention is not used: %s", failure)
            return False
        if not error < CLOSE:
            log.warning("FlashAttention is not used: it is %.3g from our own kernel", error)
        return error < CLOSE

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


Kind = tuple[torch.device, torch.dtype, int, int, int, int | None]
_TRUST: dict[Kind, bool] = {}  # kinds of chunks that went both ways, and whether they agreed

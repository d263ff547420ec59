"""Matrix products of bfloat16 tensors on a CPU, and the packed weights that they read."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.engine.kernels.cpu.dispatch import address_of, empty
from deployments.engine.kernels.cpu.matmul_ir import PACK
from deployments.engine.kernels.cpu.matmul_kernels import (
    NONE,
    PackFormat,
    dequantize_kernel,
    matmul_kernel,
)

MIN_ROWS_PER_TASK = 48  # so that each block of weights is reused this often
MAX_TASK_NUMBERS = 1 << 17  # of a task's rows, so that they stay in the L2 cache
MAX_ROWS_BESIDE_ONEDNN = 2  # with more, the processor's matrix instructions are as fast
# Of a matrix that stays in the L2 cache, oneDNN's calls take longer than its products.
SMALL_MATRIX_NUMBERS, MAX_ROWS_OF_SMALL = 1 << 18, 16


class PackedPointer(NamedTuple):
    """The address of a packed matrix, and that of the scales of its weights, if they have any."""

    address: int
    pack_format: PackFormat
    scales: int = 0


class PackedWeight(NamedTuple):
    """It has to be kept as long as its `pointer` is used."""

    weights: Tensor
    scales: Tensor | None
    pack_format: PackFormat

    @property
    def pointer(self) -> PackedPointer:
        return PackedPointer(self.weights.data_ptr(), self.pack_format, address_of(self.scales))

    def outputs(self, first: int, end: int) -> "PackedWeight":
        """Returns the weights of some outputs; `first` is a multiple of PACK."""
        blocks = slice(first // PACK, -(-end // PACK))
        scales = None if self.scales is None else self.scales[blocks]
        return PackedWeight(self.weights[blocks], scales, self.pack_format)


def pack(weight: Tensor) -> PackedWeight:
    """[out, in] of bfloat16."""
    blocks = _in_blocks(_filled(weight, 0, weight.shape[1] % 2))
    pairs = blocks.view(len(blocks), PACK, blocks.shape[2] // 2, 2)
    return PackedWeight(pairs.transpose(1, 2).contiguous(), None, PackFormat(PACK))


def pack_int8(numbers: Tensor, scales: Tensor) -> PackedWeight:
    """int8 [out, in], and bfloat16 [out]."""
    blocks = _in_blocks(_filled(numbers, 0, numbers.shape[1] % 2))
    packed = blocks.transpose(1, 2).contiguous()
    return PackedWeight(packed, _in_blocks(scales).contiguous(), PackFormat(PACK, 8))


def pack_int4(numbers: Tensor, scales: Tensor, least: Tensor) -> PackedWeight:
    """uint8 [out, in] of 0 to 15; bfloat16 [out, groups], and what 0 stands for in each."""
    n_out, width = numbers.shape
    pairs = numbers.view(n_out, width // 2, 2)
    packed = _in_blocks(pairs[..., 0] | (pairs[..., 1] << 4)).transpose(1, 2).contiguous()
    both = _in_blocks(torch.stack([scales, least], 2)).permute(0, 2, 3, 1).contiguous()
    return PackedWeight(packed, both, PackFormat(PACK, 4, width // scales.shape[1]))


def _in_blocks(x: Tensor) -> Tensor:
    """[out / PACK, PACK, ...] of [out, ...], filled up with zeros."""
    filled = _filled(x, *(0, 0) * (x.dim() - 1), 0, -len(x) % PACK)
    return filled.view(-1, PACK, *x.shape[1:])


def _filled(x: Tensor, *beside: int) -> Tensor:
    """Pads x with zeros, whose numbers `F.pad` takes; makes no copy where there are none."""
    return F.pad(x, beside) if any(beside) else x


def dequantize(weight: PackedPointer, into: PackedPointer, n_out: int, width: int) -> None:
    """Writes a matrix of whole numbers as bfloat16 into memory that is packed for it."""
    dequantize_kernel(weight.pack_format).call(
        n_out * width,
        weight=weight.address,
        scales=weight.scales,
        out=into.address,
        in_features=width,
        out_features=n_out,
        out_pack=into.pack_format.pack,
    )


def matmul(
    x: Tensor,  # [..., in]
    weight: PackedPointer,
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
    matmul_kernel(weight.pack_format).call(
        rows * width * out_features,
        x=x.data_ptr(),
        weight=weight.address,
        scales=weight.scales,
        bias=address_of(bias),
        other=address_of(other),
        out=out.data_ptr(),
        rows=rows,
        in_features=width,
        out_features=out_features,
        epilogue=then,
        rows_per_task=min(rows, max(MIN_ROWS_PER_TASK, MAX_TASK_NUMBERS // width)),
    )
    return out

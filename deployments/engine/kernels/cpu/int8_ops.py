"""Products of many rows with packed quantized weights, whose inputs are rounded to 8 bits."""

from typing import NamedTuple

import torch
from torch import Tensor

from deployments.engine.kernels.cpu.dispatch import address_of, empty, row_stride
from deployments.engine.kernels.cpu.matmul_kernels import NONE
from deployments.engine.kernels.cpu.pack_format import QuantizedFormat
from deployments.engine.kernels.cpu.packed_weight import PackedPointer
from deployments.engine.kernels.cpu.quantized.int8_ir import INT8_ROWS
from deployments.engine.kernels.cpu.quantized.int8_kernels import (
    int8_matmul_kernel,
    int8_tile_kernel,
    round_kernel,
    unpack_kernel,
)
from deployments.engine.kernels.cpu.simd import PACK

SPAN = 64  # inputs that share a scale, or a group of more
TASKS_PER_THREAD = 4  # at least, where there are rows enough
MIN_ROWS_PER_TASK, MAX_ROWS_PER_TASK = 8 * INT8_ROWS, 84 * INT8_ROWS


class RoundedRows(NamedTuple):
    """Inputs of 8 bits, with rows filled up to a multiple of INT8_ROWS.

    values: int8 [rows, width].
    starts: int32 [rows, groups]: the sum of a group's values, times the offset of codes' bytes.
    totals: float32 [rows, groups]: the sum itself.
    scales: float32 [rows, spans of groups].
    """

    values: Tensor
    starts: Tensor
    totals: Tensor
    scales: Tensor
    span: int  # groups


def compile_for(quantized: QuantizedFormat) -> None:
    """Compiles what multiplies many rows with weights of a format, at the load of a model."""
    round_kernel()
    int8_matmul_kernel()
    unpack_kernel(quantized)
    int8_tile_kernel(quantized.input_group, bool(quantized.layout.least))


def round_rows(x: Tensor, quantized: QuantizedFormat) -> RoundedRows:
    """Rounds x [..., in] of bfloat16 to the inputs that a format's weights are multiplied with."""
    assert quantized.integers is not None
    x, group, width = x.contiguous(), quantized.input_group, x.shape[-1]
    rows, n_groups, span = x.numel() // width, -(-width // group), max(1, SPAN // group)
    filled = rows + -rows % INT8_ROWS
    rounded = RoundedRows(
        empty((filled, n_groups * group), torch.int8),
        empty((filled, n_groups), torch.int32),
        empty((filled, n_groups), torch.float32),
        empty((filled, -(-n_groups // span)), torch.float32),
        span,
    )
    round_kernel().call(
        x.numel(),
        x=x.data_ptr(),
        rows=rows,
        in_features=width,
        width=n_groups * group,
        group=group,
        span=span,
        offset=quantized.integers.offset,
        bytes=rounded.values.data_ptr(),
        starts=rounded.starts.data_ptr(),
        totals=rounded.totals.data_ptr(),
        scales=rounded.scales.data_ptr(),
    )
    return rounded


def matmul(
    x: Tensor,  # [..., in]
    weight: PackedPointer,
    out_features: int,
    bias: Tensor | None,
    then: int = NONE,
    other: Tensor | None = None,  # [..., out]
) -> Tensor:
    """[..., out]"""
    out = empty((*x.shape[:-1], out_features), x.dtype)
    matmul_into(out, x, weight, bias, then, other)
    return out


def matmul_into(
    out: Tensor,  # [..., out], whose rows lie at equal distances
    x: Tensor,  # [..., in]
    weight: PackedPointer,
    bias: Tensor | None,
    then: int = NONE,
    other: Tensor | None = None,  # as `out`, and may be the same
) -> None:
    """Writes a product into some outputs of a larger result."""
    quantized, regions = weight.pack_format.quantized, weight.regions
    assert quantized is not None
    assert regions is not None
    rows, n_in, n_out = x.numel() // x.shape[-1], x.shape[-1], out.shape[-1]
    rounded = round_rows(x, quantized)
    n_groups, n_scales = rounded.totals.shape[1], quantized.n_groups(quantized.factors[0], n_in)
    first, second, third, fourth = regions.factors
    int8_matmul_kernel().call(
        rows * n_in * n_out,
        unpack=unpack_kernel(quantized).address,
        tile=int8_tile_kernel(quantized.input_group, bool(quantized.layout.least)).address,
        x=rounded.values.data_ptr(),
        width=rounded.values.shape[1],
        starts=rounded.starts.data_ptr(),
        totals=rounded.totals.data_ptr(),
        x_scales=rounded.scales.data_ptr(),
        n_groups=n_groups,
        n_spans=rounded.scales.shape[1],
        span=rounded.span,
        weight=weight.address,
        stride=regions.stride,
        first=first,
        second=second,
        third=third,
        fourth=fourth,
        filled_inputs=regions.n_inputs,
        n_scales=n_scales,
        n_copies=n_groups // n_scales,
        bias=address_of(bias),
        other=address_of(other),
        other_stride=0 if other is None else row_stride(other),
        out=out.data_ptr(),
        out_stride=row_stride(out),
        rows=rows,
        out_features=n_out,
        epilogue=then,
        rows_per_task=rows_per_task(rows, n_out),
    )


def rows_per_task(rows: int, n_out: int) -> int:
    """Returns as many as leave some tasks for each thread. Each task unpacks a block."""
    blocks = -(-n_out // PACK)
    wanted = -(-TASKS_PER_THREAD * torch.get_num_threads() // blocks)
    share = min(max(-(-rows // wanted), MIN_ROWS_PER_TASK), MAX_ROWS_PER_TASK)
    return share + -share % INT8_ROWS

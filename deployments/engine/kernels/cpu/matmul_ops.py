"""Matrix products of bfloat16 tensors with packed weights on a CPU."""

import torch
from torch import Tensor

from deployments.engine.kernels.cpu import streaming
from deployments.engine.kernels.cpu.dispatch import address_of, empty, row_stride
from deployments.engine.kernels.cpu.matmul_ir import FULL_TILE
from deployments.engine.kernels.cpu.matmul_kernels import NONE, matmul_kernel, shares_of, unit_of
from deployments.engine.kernels.cpu.pack_format import QuantizedFormat
from deployments.engine.kernels.cpu.packed_weight import PackedPointer
from deployments.engine.kernels.cpu.quantized.quantized_kernels import (
    FLOATS,
    INTEGERS,
    PAIRS,
    dequantize_kernel,
    quantized_matmul_kernel,
    tile_kernel,
)
from deployments.engine.kernels.cpu.simd import HAS_PAIR_PRODUCTS, PACK
from deployments.engine.kernels.cpu.streaming import STAYING, Streaming

MIN_ROWS_PER_TASK = 48  # so that each block of weights is reused this often
MAX_TASK_NUMBERS = 1 << 17  # of a task's rows, so that they stay in the L2 cache
MAX_ROWS_BESIDE_ONEDNN = 2  # with more, the processor's matrix instructions are as fast
# Of a matrix that stays in the L2 cache, oneDNN's calls take longer than its products.
SMALL_MATRIX_NUMBERS, MAX_ROWS_OF_SMALL = 1 << 18, 16
# The same of a matrix that the L2 caches of a few cores hold, for as many rows as a register tile.
MEDIUM_MATRIX_NUMBERS, MAX_ROWS_OF_MEDIUM = 1 << 20, 4


def max_rows_beside_onednn(n_numbers: int) -> int:
    """The most rows that our kernel multiplies with a matrix of so many numbers where oneDNN could,
    too."""
    if n_numbers <= SMALL_MATRIX_NUMBERS:
        return MAX_ROWS_OF_SMALL
    return MAX_ROWS_OF_MEDIUM if n_numbers <= MEDIUM_MATRIX_NUMBERS else MAX_ROWS_BESIDE_ONEDNN


def compile_for(quantized: QuantizedFormat) -> None:
    """Compiles what multiplies weights of a format: at the load of a model, and not while its first
    step is recorded, when no operation of torch's may run."""
    quantized_matmul_kernel()
    tile_kernel(quantized)
    dequantize_kernel(quantized)


def dequantize(weight: PackedPointer, into: PackedPointer, n_out: int, width: int) -> None:
    """Writes a matrix of codes as bfloat16 into memory that is packed for it."""
    quantized, regions = weight.pack_format.quantized, weight.regions
    assert quantized is not None
    assert regions is not None
    first, second, third, fourth = regions.factors
    dequantize_kernel(quantized).call(
        n_out * width,
        weight=weight.address,
        stride=regions.stride,
        first=first,
        second=second,
        third=third,
        fourth=fourth,
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
    out = empty((*x.shape[:-1], out_features), x.dtype)
    if weight.regions is not None:
        matmul_into(out, x, weight, bias, then, other)
        return out
    width = x.shape[-1]
    rows = x.numel() // width
    x = x.contiguous()
    other = None if other is None else other.contiguous()
    pack = weight.pack_format.pack
    matmul_kernel(pack).call(
        rows * width * out_features,
        x=x.data_ptr(),
        weight=weight.address,
        bias=address_of(bias),
        other=address_of(other),
        out=out.data_ptr(),
        rows=rows,
        in_features=width,
        out_features=out_features,
        epilogue=then,
        rows_per_task=rows_per_task(rows, width),
        **_reading(rows, out_features, unit_of(pack)),
    )
    return out


def matmul_into(
    out: Tensor,  # [..., out], whose rows lie at equal distances
    x: Tensor,  # [..., in]
    weight: PackedPointer,
    bias: Tensor | None,
    then: int = NONE,
    other: Tensor | None = None,  # as `out`, and may be the same
) -> None:
    """Writes a product with quantized weights into some outputs of a larger result."""
    quantized, regions = weight.pack_format.quantized, weight.regions
    assert quantized is not None
    assert regions is not None
    width, n = x.shape[-1], out.shape[-1]
    rows = x.numel() // width
    x = x.contiguous()
    first, second, third, fourth = regions.factors
    quantized_matmul_kernel().call(
        rows * width * n,
        tile=tile_kernel(quantized).address,
        **inputs_of(quantized),
        x=x.data_ptr(),
        weight=weight.address,
        stride=regions.stride,
        first=first,
        second=second,
        third=third,
        fourth=fourth,
        bias=address_of(bias),
        other=address_of(other),
        other_stride=0 if other is None else row_stride(other),
        out=out.data_ptr(),
        out_stride=row_stride(out),
        rows=rows,
        in_features=width,
        filled_inputs=regions.n_inputs,
        n_totals=regions.n_totals,
        out_features=n,
        epilogue=then,
        rows_per_task=rows_per_task(rows, width),
        **_reading(rows, n, PACK),
    )


def inputs_of(quantized: QuantizedFormat | None) -> dict[str, int | float]:
    """How the tile of a format takes inputs; None: the one of bfloat16."""
    integers = None if quantized is None else quantized.integers
    if quantized is None or integers is None:
        has_pairs = HAS_PAIR_PRODUCTS if quantized is None else quantized.has_pairs
        return {
            "inputs": PAIRS if has_pairs else FLOATS,
            "input_group": 0,
            "offset": 0,
            "unit": 1.0,
        }
    group = quantized.input_group
    of_codes = {"offset": integers.offset, "unit": integers.unit}
    return {"inputs": INTEGERS, "input_group": group, **of_codes}


def rows_per_task(rows: int, width: int) -> int:
    return min(rows, max(MIN_ROWS_PER_TASK, MAX_TASK_NUMBERS // width))


def _reading(rows: int, n_out: int, unit: int) -> dict[str, int]:
    """How weights are read: once for each tile of rows."""
    way = way_of(rows)
    return {**shares_of(-(-n_out // unit), torch.get_num_threads()), **way._asdict()}


def way_of(rows: int) -> Streaming:
    """How the weights of so many rows are fetched."""
    return streaming.chosen() if rows <= FULL_TILE else STAYING

"""Multiplies a few rows with a block of bfloat16 weights, as a quantized format's tile does.

A sum is taken in the order of the inputs' pairs, whatever the number of rows.
"""

from functools import cache

from llvmlite import ir
from numba import njit, types
from numba.core.typing import Signature
from numba.extending import intrinsic

from deployments.engine.kernels.cpu.dispatch import Kernel
from deployments.engine.kernels.cpu.matmul_ir import (
    FULL_TILE,
    LARGE_TILE,
    ONE_ROW,
    SMALL_TILE,
    multiply_some,
)
from deployments.engine.kernels.cpu.quantized.decoding_ir import PARTS
from deployments.engine.kernels.cpu.quantized.number_ir import BFloatType, NumberEmitter
from deployments.engine.kernels.cpu.quantized.quantized_ir import TileArguments
from deployments.engine.kernels.cpu.quantized.quantized_kernels import tile_arguments
from deployments.engine.kernels.cpu.simd import (
    HAS_PAIR_PRODUCTS,
    LANES,
    PACK,
    WORD,
    Code,
)

PAIR_BYTES = 4 * PACK  # of two inputs' weights


@intrinsic(prefer_literal=True)
def multiply_pairs(typing: Code, block: Code, rows: Code) -> tuple[Signature, Code]:
    """Multiplies rows of bfloat16 with a block of weights [width / 2, PACK, 2] of bfloat16.

    `block` is the address of the words of TileArguments, behind another word. `rows` is a literal.
    """
    n_rows = rows.literal_value

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        emit = NumberEmitter(builder, LANES)
        tile = {
            name: emit.load(emit.address(arguments[0], 8 + 8 * nth), WORD)
            for nth, name in enumerate(TileArguments._fields)
        }
        kept = emit.zero_registers(n_rows * len(PARTS))
        kind = ir.VectorType(BFloatType(), 2 * LANES)
        with emit.loop(emit.half(tile["width"])) as loop:
            pair = emit.address(tile["codes"], emit.times(loop.index, PAIR_BYTES))
            emit.prefetch_range(emit.address(pair, tile["ahead"]), PAIR_BYTES, tile["stays"])
            inputs = emit.address(tile["x"], emit.times(loop.index, 4))
            weights = [emit.load(emit.address(pair, 4 * LANES * part), kind) for part in PARTS]
            for index, register in enumerate(kept):
                row, part = divmod(index, len(PARTS))
                own = emit.address(inputs, emit.times(tile["of_row"], row))
                total = emit.pair_fma(builder.load(register), weights[part], own)
                builder.store(total, register)
        addresses = [emit.address(tile["sums"], 4 * LANES * index) for index in range(len(kept))]
        emit.store_registers(kept, addresses)
        return context.get_dummy_value()

    return types.void(types.int64, rows), generate


@njit(inline="always")
def _multiply(block: Code, rows: Code) -> None:
    """`multiply_pairs` for up to FULL_TILE rows. It may take, and give, some behind the last."""
    if rows > LARGE_TILE:
        multiply_pairs(block, FULL_TILE)
    elif rows > SMALL_TILE:
        multiply_pairs(block, LARGE_TILE)
    elif rows > ONE_ROW:
        multiply_pairs(block, SMALL_TILE)
    else:
        multiply_pairs(block, ONE_ROW)


@cache
def bfloat16_tile_kernel() -> Kernel:
    """Takes inputs of bfloat16 where the processor multiplies pairs of them, else of float32."""

    def paired(block: Code) -> None:
        _multiply(block, tile_arguments(block).rows)

    def widened(block: Code) -> None:
        args = tile_arguments(block)
        multiply_some(
            args.codes, 0, args.x, args.of_row // 4, 1, args.sums, args.width, args.rows,
            PACK, PACK, 16, 0, args.ahead, args.stays,
        )  # fmt: skip

    return Kernel(paired if HAS_PAIR_PRODUCTS else widened, TileArguments)

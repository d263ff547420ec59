"""Inner loops of matrix products: `sums = x @ block` for a block of a packed matrix.

x [rows, width] and sums [rows, pack] are float32. A sum is taken in the order of the inputs,
whatever the number of rows. `rows` and `pack` are literals: each pair of them has code of its own.
"""

from numba import njit, types
from numba.core.typing import Signature
from numba.extending import intrinsic

from deployments.engine.kernels.cpu.simd import (
    LANES,
    PREFETCH_BYTES,
    STRICT,
    TILE_ROWS,
    Code,
    Emitter,
)

FULL_TILE, LARGE_TILE, SMALL_TILE, ONE_ROW = TILE_ROWS


class Loop:
    """A loop over pairs of inputs, for some rows and all vectors of a block."""

    def __init__(self, emit: Emitter, rows: int, pack: int, bits: int) -> None:
        self._emit = emit
        self._rows = rows
        self._pack = pack
        self._parts = range(pack // LANES)
        self._bits = bits
        self._pair_bytes = 2 * pack * bits // 8

    def sum_addresses(self, base: Code) -> list[Code]:
        """Returns the addresses of the vectors of sums."""
        return [
            self._emit.address(base, 4 * LANES * (row * len(self._parts) + part))
            for row in range(self._rows)
            for part in self._parts
        ]

    def run(
        self, kept: list[Code], weight: Code, x: Code, strides: tuple[Code, Code], pairs: Code
    ) -> None:
        """Adds to the vectors `kept`; the strides are those of rows and inputs in x."""
        emit, (of_row, of_input) = self._emit, strides
        with emit.loop(pairs) as loop:
            pair = emit.address(weight, emit.times(loop.index, self._pair_bytes))
            emit.prefetch_range(emit.address(pair, PREFETCH_BYTES), self._pair_bytes)
            inputs = emit.address(x, emit.times(emit.builder.mul(loop.index, of_input), 8))
            for part in self._parts:
                even, odd = self._weights(pair, part)
                for row in range(self._rows):
                    own = emit.address(inputs, emit.times(of_row, 4 * row))
                    register = kept[row * len(self._parts) + part]
                    total = emit.fma(emit.builder.load(register), even, emit.load_broadcast(own))
                    second = emit.address(own, emit.times(of_input, 4))
                    total = emit.fma(total, odd, emit.load_broadcast(second))
                    emit.builder.store(total, register)

    def load_scaled(self, addresses: list[Code], scales: Code) -> list[Code]:
        """The sums in memory, times a vector of as many scales as a block has outputs."""
        emit, builder = self._emit, self._emit.builder
        factors = [
            emit.load(emit.address(scales, 4 * LANES * part), emit.vector) for part in self._parts
        ]
        kept = emit.load_registers(addresses)
        for index, register in enumerate(kept):
            share = factors[index % len(factors)]
            builder.store(builder.fmul(builder.load(register), share, flags=STRICT), register)
        return kept

    def _weights(self, pair: Code, part: int) -> tuple[Code, Code]:
        """Loads the weights of two inputs, for the outputs of one vector."""
        emit = self._emit
        if self._bits == 32:
            first = emit.address(pair, 4 * LANES * part)
            second = emit.address(first, 4 * self._pack)
            return emit.load(first, emit.vector), emit.load(second, emit.vector)
        return emit.load_bfloat16_pairs(emit.address(pair, 4 * LANES * part))


@intrinsic(prefer_literal=True)
def multiply(
    typing: Code,
    weight: Code,
    scales: Code,
    x: Code,
    of_row: Code,
    of_input: Code,
    sums: Code,
    width: Code,
    rows: Code,
    pack: Code,
    bits: Code,
    scaled: Code,
) -> tuple[Signature, Code]:
    """Multiplies rows of inputs with a block of a packed matrix.

    `weight`, `scales`, `x` and `sums` are the addresses of the block, its scales, the inputs and
    the results. Rows of `x` are `of_row` numbers apart, the inputs of a row `of_input`.

    A block of 32 bits is [width, pack] of float32. Where it is scaled its scales are [pack] of
    float32, and it adds to the sums that are there, times these. A block of 16 bits is
    [width / 2, pack, 2] of bfloat16, and has no scales.
    """
    n_rows, n_pack, n_bits, is_scaled = (kind.literal_value for kind in (rows, pack, bits, scaled))

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        weight, scales, x, of_row, of_input, sums, width = arguments[:7]
        emit, strides = Emitter(builder, LANES), (of_row, of_input)
        loop = Loop(emit, n_rows, n_pack, n_bits)
        addresses = loop.sum_addresses(sums)
        if is_scaled:
            kept = loop.load_scaled(addresses, scales)
        else:
            kept = emit.zero_registers(len(addresses))
        loop.run(kept, weight, x, strides, emit.half(width))
        emit.store_registers(kept, addresses)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7, rows, pack, bits, scaled), generate


@njit(inline="always")
def multiply_some(
    weight: Code,
    scales: Code,
    x: Code,
    of_row: Code,
    of_input: Code,
    sums: Code,
    width: Code,
    left: Code,
    pack: Code,
    bits: Code,
    scaled: Code,
) -> Code:
    """`multiply` for as many of the rows that are `left` as go at once; returns how many. It may
    take, and give, some behind the last one."""
    if left > LARGE_TILE:
        tile = FULL_TILE
        multiply(weight, scales, x, of_row, of_input, sums, width, FULL_TILE, pack, bits, scaled)
    elif left > SMALL_TILE:
        tile = LARGE_TILE
        multiply(weight, scales, x, of_row, of_input, sums, width, LARGE_TILE, pack, bits, scaled)
    elif left > ONE_ROW:
        tile = SMALL_TILE
        multiply(weight, scales, x, of_row, of_input, sums, width, SMALL_TILE, pack, bits, scaled)
    else:
        tile = ONE_ROW
        multiply(weight, scales, x, of_row, of_input, sums, width, ONE_ROW, pack, bits, scaled)
    return tile

"""Inner loops of matrix products: `sums = x @ block` for a block of a packed matrix.

x [rows, width] and sums [rows, outputs] are float32. A sum is taken in the order of the inputs,
whatever the number of rows. Numbers of rows and outputs are literals: each pair of them has code of
its own.
"""

from collections.abc import Sequence

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

    def __init__(self, emit: Emitter, rows: int, outputs: int, pack: int, bits: int) -> None:
        self._emit = emit
        self._rows = rows
        self._pack = pack
        self._parts = range(outputs // LANES)
        self._part_bytes = 2 * LANES * bits // 8
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
        self,
        kept: list[Code],
        weight: Code,
        x: Code,
        strides: tuple[Code, Code],
        pairs: Code,
        fetch: Sequence[Code],
    ) -> None:
        """Adds to the vectors `kept`; the strides are those of rows and inputs in x. `fetch` says
        how far ahead weights are fetched, and whether they stay in caches."""
        emit, (of_row, of_input), (ahead, stays) = self._emit, strides, fetch
        with emit.loop(pairs) as loop:
            pair = emit.address(weight, emit.times(loop.index, self._pair_bytes))
            own_bytes = len(self._parts) * self._part_bytes
            emit.prefetch_range(emit.address(pair, ahead), own_bytes, stays)
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
    ahead: Code,
    stays: Code,
    rows: Code,
    outputs: Code,
    pack: Code,
    bits: Code,
    scaled: Code,
) -> tuple[Signature, Code]:
    """Multiplies rows of inputs with a block of a packed matrix.

    `weight`, `scales`, `x` and `sums` are the addresses of the block, its scales, the inputs and
    the results. Rows of `x` are `of_row` numbers apart, the inputs of a row `of_input`. Of the
    `pack` outputs of a block, as many are taken as `outputs` says, from the one at `weight` on.
    What lies `ahead` bytes of what is read is fetched, and `stays` in caches or does not.

    A block of 32 bits is [width, pack] of float32. Where it is scaled its scales are [pack] of
    float32, and it adds to the sums that are there, times these. A block of 16 bits is
    [width / 2, pack, 2] of bfloat16, and has no scales.
    """
    literals = rows, outputs, pack, bits, scaled
    n_rows, n_outputs, n_pack, n_bits, is_scaled = (kind.literal_value for kind in literals)

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        weight, scales, x, of_row, of_input, sums, width, *fetch = arguments[:9]
        emit, strides = Emitter(builder, LANES), (of_row, of_input)
        loop = Loop(emit, n_rows, n_outputs, n_pack, n_bits)
        addresses = loop.sum_addresses(sums)
        if is_scaled:
            kept = loop.load_scaled(addresses, scales)
        else:
            kept = emit.zero_registers(len(addresses))
        loop.run(kept, weight, x, strides, emit.half(width), fetch)
        emit.store_registers(kept, addresses)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 9, *literals), generate


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
    outputs: Code,
    pack: Code,
    bits: Code,
    scaled: Code,
    ahead: Code = PREFETCH_BYTES,
    stays: Code = 1,
) -> Code:
    """`multiply` for as many of the rows that are `left` as go at once; returns how many. It may
    take, and give, some behind the last one."""
    if left > LARGE_TILE:
        tile = FULL_TILE
        multiply(
            weight, scales, x, of_row, of_input, sums, width, ahead, stays,
            FULL_TILE, outputs, pack, bits, scaled,
        )  # fmt: skip
    elif left > SMALL_TILE:
        tile = LARGE_TILE
        multiply(
            weight, scales, x, of_row, of_input, sums, width, ahead, stays,
            LARGE_TILE, outputs, pack, bits, scaled,
        )  # fmt: skip
    elif left > ONE_ROW:
        tile = SMALL_TILE
        multiply(
            weight, scales, x, of_row, of_input, sums, width, ahead, stays,
            SMALL_TILE, outputs, pack, bits, scaled,
        )  # fmt: skip
    else:
        tile = ONE_ROW
        multiply(
            weight, scales, x, of_row, of_input, sums, width, ahead, stays,
            ONE_ROW, outputs, pack, bits, scaled,
        )  # fmt: skip
    return tile

"""Inner loops of matrix products: `sums = x @ block` for a block of a packed matrix.

x [rows, width] and sums [rows, pack] are float32. A sum is taken in the order of the inputs,
whatever the number of rows. `rows` and `pack` are literals: each pair of them has code of its own.
"""

from llvmlite import ir
from numba import njit, types
from numba.core.typing import Signature
from numba.extending import intrinsic

from deployments.engine.kernels.cpu.simd import (
    LANES,
    PREFETCH_BYTES,
    STRICT,
    TILE_ROWS,
    WORD,
    Code,
    Emitter,
)

PACK = 2 * LANES  # outputs of a block of packed weights
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

    def run_groups(
        self,
        kept: list[Code],
        weight: Code,
        scales: Code,
        x: Code,
        strides: tuple[Code, Code],
        totals: Code,
        width: Code,
        group: int,
    ) -> None:
        """The same of whole numbers that have a scale and a zero for so many inputs."""
        emit, builder = self._emit, self._emit.builder
        groups = builder.udiv(width, ir.Constant(WORD, group))
        with emit.loop(groups) as loop:
            own = emit.zero_registers(len(kept))
            block = emit.address(weight, emit.times(loop.index, group * self._pack // 2))
            inputs = emit.address(x, emit.times(builder.mul(loop.index, strides[1]), 4 * group))
            self.run(own, block, inputs, strides, ir.Constant(WORD, group // 2))
            of_group = emit.address(scales, emit.times(loop.index, 4 * self._pack))
            steps, zeros = (
                self._load_block(of_group),
                self._load_block(emit.address(of_group, 2 * self._pack)),
            )
            for index, (register, into) in enumerate(zip(own, kept, strict=True)):
                row, part = divmod(index, len(self._parts))
                at = emit.address(totals, emit.times(groups, 4 * row), emit.times(loop.index, 4))
                total = emit.fma(builder.load(into), builder.load(register), steps[part])
                builder.store(emit.fma(total, emit.load_broadcast(at), zeros[part]), into)

    def scale(self, kept: list[Code], scales: Code) -> None:
        factors, builder = self._load_block(scales), self._emit.builder
        for index, register in enumerate(kept):
            builder.store(
                builder.fmul(builder.load(register), factors[index % len(factors)]), register
            )

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

    def dequantize(
        self,
        weight: Code,
        scales: Code,
        outs: tuple[Code, Code],
        width: Code,
        pair_bytes: Code,
        group: int,
    ) -> None:
        """Writes the weights of each vector as bfloat16; without a `group` they have no zeros."""
        emit, builder = self._emit, self._emit.builder
        groups = builder.udiv(width, ir.Constant(WORD, group)) if group else ir.Constant(WORD, 1)
        pairs = ir.Constant(WORD, group // 2) if group else emit.half(width)
        with emit.loop(groups) as outer:
            of_group = emit.address(scales, emit.times(outer.index, 4 * self._pack))
            steps = self._load_block(of_group)
            zeros = self._load_block(emit.address(of_group, 2 * self._pack)) if group else []
            with emit.loop(pairs) as inner:
                nth = builder.add(builder.mul(outer.index, pairs), inner.index)
                pair = emit.address(weight, emit.times(nth, self._pair_bytes))
                emit.prefetch_range(emit.address(pair, PREFETCH_BYTES), self._pair_bytes)
                for part in reversed(self._parts):
                    numbers, step = self._weights(pair, part), steps[part]
                    if group:
                        both = [emit.fma(zeros[part], number, step) for number in numbers]
                    else:
                        both = [builder.fmul(number, step, flags=STRICT) for number in numbers]
                    to = emit.address(outs[part], builder.mul(nth, pair_bytes))
                    emit.store(emit.bfloat16_pairs(*both), to)

    def _load_block(self, base: Code) -> list[Code]:
        """A block's bfloat16 as float32."""
        return [
            self._emit.load_bfloat16(self._emit.address(base, 2 * LANES * part))
            for part in self._parts
        ]

    def _weights(self, pair: Code, part: int) -> tuple[Code, Code]:
        """Loads the weights of two inputs, for the outputs of one vector."""
        emit = self._emit
        if self._bits == 32:
            first = emit.address(pair, 4 * LANES * part)
            second = emit.address(first, 4 * self._pack)
            return emit.load(first, emit.vector), emit.load(second, emit.vector)
        if self._bits == 16:
            return emit.load_bfloat16_pairs(emit.address(pair, 4 * LANES * part))
        first = emit.address(pair, LANES * part)
        if self._bits == 4:
            return emit.load_uint4_pairs(first)
        return emit.load_int8(first), emit.load_int8(emit.address(first, self._pack))


@intrinsic(prefer_literal=True)
def multiply(
    typing: Code,
    weight: Code,
    scales: Code,
    x: Code,
    of_row: Code,
    of_input: Code,
    totals: Code,
    sums: Code,
    width: Code,
    rows: Code,
    pack: Code,
    bits: Code,
    group: Code,
) -> tuple[Signature, Code]:
    """Multiplies rows of inputs with a block of a packed matrix.

    `weight`, `scales`, `x` and `sums` are the addresses of the block, its scales, the inputs and
    the results. Rows of `x` are `of_row` numbers apart, the inputs of a row `of_input`. `totals` is
    the address of the inputs' sums by group.

    A block of 32 bits is [width, pack] of float32. With a group its scales are [pack] of float32,
    and it adds to the sums that are there, times these. A block of 16 bits is [width / 2, pack, 2]
    of bfloat16, and has no scales. A block of 8 bits is [width, pack] of int8, and its scales are
    [pack] of bfloat16. A block of 4 bits is [width / 2, pack] bytes, with the first of two inputs
    in the lower half. Its scales are [width / group, 2, pack] of bfloat16: those of the numbers 0
    to 15, and what 0 stands for. Its totals are [rows, width / group].
    """
    n_rows, n_pack, n_bits, n_group = (kind.literal_value for kind in (rows, pack, bits, group))

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        weight, scales, x, of_row, of_input, totals, sums, width = arguments[:8]
        emit, strides = Emitter(builder, LANES), (of_row, of_input)
        loop = Loop(emit, n_rows, n_pack, n_bits)
        addresses = loop.sum_addresses(sums)
        if n_bits == 32 and n_group:
            kept = loop.load_scaled(addresses, scales)
        else:
            kept = emit.zero_registers(len(addresses))
        if n_bits == 4:
            loop.run_groups(kept, weight, scales, x, strides, totals, width, n_group)
        else:
            loop.run(kept, weight, x, strides, emit.half(width))
        if n_bits == 8:
            loop.scale(kept, scales)
        emit.store_registers(kept, addresses)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 8, rows, pack, bits, group), generate


@intrinsic(prefer_literal=True)
def dequantize(
    typing: Code,
    weight: Code,
    scales: Code,
    first: Code,
    second: Code,
    width: Code,
    pair_bytes: Code,
    bits: Code,
    group: Code,
) -> tuple[Signature, Code]:
    """A block of PACK outputs of 8 or 4 bits, as `multiply` has them, as bfloat16.

    `first` and `second` say where the pairs of inputs of each half of the outputs go, which are
    `pair_bytes` apart. The first half is written last, so that `second` may be `first` where there
    is one half alone.
    """
    n_bits, n_group = bits.literal_value, group.literal_value

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        weight, scales, first, second, width, pair_bytes = arguments[:6]
        emit = Emitter(builder, LANES)
        loop = Loop(emit, 1, PACK, n_bits)
        loop.dequantize(weight, scales, (first, second), width, pair_bytes, n_group)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6, bits, group), generate


@njit(inline="always")
def multiply_some(
    weight: Code,
    scales: Code,
    x: Code,
    of_row: Code,
    of_input: Code,
    totals: Code,
    sums: Code,
    width: Code,
    left: Code,
    pack: Code,
    bits: Code,
    group: Code,
) -> Code:
    """`multiply` for as many of the rows that are `left` as go at once; returns how many. It may
    take, and give, some behind the last one."""
    if left > LARGE_TILE:
        tile = FULL_TILE
        multiply(
            weight, scales, x, of_row, of_input, totals, sums, width, FULL_TILE, pack, bits, group
        )
    elif left > SMALL_TILE:
        tile = LARGE_TILE
        multiply(
            weight, scales, x, of_row, of_input, totals, sums, width, LARGE_TILE, pack, bits, group
        )
    elif left > ONE_ROW:
        tile = SMALL_TILE
        multiply(
            weight, scales, x, of_row, of_input, totals, sums, width, SMALL_TILE, pack, bits, group
        )
    else:
        tile = ONE_ROW
        multiply(
            weight, scales, x, of_row, of_input, totals, sums, width, ONE_ROW, pack, bits, group
        )
    return tile

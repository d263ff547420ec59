"""Inner loops of products of quantized weights: `sums = x @ block` for a block of packed codes.

The numbers of a group's codes, times their inputs, are summed first. The sum is then multiplied by
the group's scale, and the inputs' own sum by its least number. All rows are summed in one order.
"""

from llvmlite import ir
from numba import njit, types
from numba.core.typing import Signature
from numba.extending import intrinsic

from deployments.engine.kernels.cpu.decoding_ir import (
    PARTS,
    CodeReader,
    FactorReader,
    NumberEmitter,
    Step,
)
from deployments.engine.kernels.cpu.matmul_ir import FULL_TILE, LARGE_TILE, ONE_ROW, SMALL_TILE
from deployments.engine.kernels.cpu.pack_format import FORMATS, QuantizedFormat
from deployments.engine.kernels.cpu.simd import LANES, STRICT, WORD, Code


class QuantizedLoop:
    """A loop over the groups of a block."""

    def __init__(
        self, builder: Code, quantized: QuantizedFormat, codes: Code, factors: list[Code]
    ) -> None:
        self._emit = emit = NumberEmitter(builder, LANES)
        self._quantized = quantized
        self._reader = CodeReader(emit, quantized)
        self._codes = codes
        layout = quantized.layout
        n = len(layout.scale)
        self._scale = FactorReader(emit, quantized, layout.scale, factors[:n])
        self._least = FactorReader(
            emit, quantized, layout.least, factors[n : n + len(layout.least)]
        )

    def multiply(self, x: Code, of_row: Code, totals: Code, width: Code, sums: list[Code]) -> None:
        """sums: registers, a row's vectors side by side. Rows of x are `of_row` bytes apart."""
        emit, builder = self._emit, self._emit.builder
        n_groups, n_units = self._counts(width)
        size = 2 if self._quantized.has_pairs else 4
        with emit.loop(n_groups) as loop:
            own = emit.zero_registers(len(sums))
            inputs = emit.address(x, emit.times(loop.index, size * self._quantized.group))
            with self._reader.steps(self._group_codes(loop.index), n_units) as (step, first):
                at = emit.address(inputs, emit.times(first, size))
                for pair in range(step.n_pairs):
                    self._add(own, step, pair, emit.address(at, 2 * size * pair), of_row)
            is_paired = self._quantized.has_pairs
            scale = self._scales(loop.index, 1 if is_paired else self._reader.number_unit)
            least = self._least.read(loop.index) if self._quantized.layout.least else []
            for index, (register, into) in enumerate(zip(own, sums, strict=True)):
                row, part = divmod(index, len(PARTS))
                total = emit.fma(builder.load(into), builder.load(register), scale[part])
                if least:
                    nth = emit.address(emit.times(n_groups, 4 * row), emit.times(loop.index, 4))
                    share = emit.load_broadcast(emit.address(totals, nth))
                    total = emit.fma(total, share, least[part])
                builder.store(total, into)

    def dequantize(self, outs: tuple[Code, Code], width: Code, pair_bytes: Code) -> None:
        """Writes the weights of each vector as bfloat16."""
        emit, builder = self._emit, self._emit.builder
        n_groups, n_units = self._counts(width)
        with emit.loop(n_groups) as loop:
            scale = self._scales(loop.index, self._reader.number_unit)
            least = self._least.read(loop.index) if self._quantized.layout.least else []
            start = emit.times(loop.index, self._quantized.group)
            with self._reader.steps(self._group_codes(loop.index), n_units) as (step, first):
                nth = emit.half(emit.address(start, first))
                for pair in range(step.n_pairs):
                    by = builder.mul(emit.address(nth, pair), pair_bytes)
                    numbers = step.numbers(pair)
                    for part in reversed(PARTS):
                        both = [
                            builder.fmul(number, scale[part], flags=STRICT)
                            for number in numbers[part]
                        ]
                        if least:
                            both = [builder.fadd(each, least[part], flags=STRICT) for each in both]
                        emit.store(emit.bfloat16_pairs(*both), emit.address(outs[part], by))

    def _counts(self, width: Code) -> tuple[Code, Code]:
        """The number of groups, and that of units in each."""
        group, unit = self._quantized.group, self._quantized.unit
        builder = self._emit.builder
        if group:
            return builder.udiv(width, ir.Constant(WORD, group)), ir.Constant(WORD, group // unit)
        return ir.Constant(WORD, 1), builder.udiv(width, ir.Constant(WORD, unit))

    def _group_codes(self, group: Code) -> Code:
        quantized = self._quantized
        size = quantized.group // quantized.unit * quantized.unit_bytes
        return self._emit.address(self._codes, self._emit.times(group, size))

    def _scales(self, group: Code, unit: float) -> list[Code]:
        scale = self._scale.read(group)
        if unit == 1:
            return scale
        by = self._emit.const(unit)
        return [self._emit.builder.fmul(part, by, flags=STRICT) for part in scale]

    def _add(self, own: list[Code], step: Step, pair: int, x: Code, of_row: Code) -> None:
        """Adds a pair of inputs' products to the registers."""
        emit, builder = self._emit, self._emit.builder
        is_paired = self._quantized.has_pairs
        weights = step.pairs(pair) if is_paired else step.numbers(pair)
        for index, register in enumerate(own):
            row, part = divmod(index, len(PARTS))
            at = emit.address(x, emit.times(of_row, row))
            total = builder.load(register)
            if is_paired:
                total = emit.pair_fma(total, weights[part], at)
            else:
                even, odd = weights[part]
                total = emit.fma(total, even, emit.load_broadcast(at))
                total = emit.fma(total, odd, emit.load_broadcast(emit.address(at, 4)))
            builder.store(total, register)


@intrinsic(prefer_literal=True)
def multiply_quantized(
    typing: Code,
    codes: Code,
    first: Code,
    second: Code,
    third: Code,
    fourth: Code,
    x: Code,
    of_row: Code,
    totals: Code,
    sums: Code,
    width: Code,
    rows: Code,
    number: Code,
) -> tuple[Signature, Code]:
    """Multiplies rows of inputs with a block of a packed matrix, whose format has this `number`.

    All are addresses: of the block's codes, of its factors of each kind, of the inputs, of the
    inputs' sums [rows, groups] and of the results [rows, PACK]. Inputs are bfloat16 where the
    format has pairs, else float32, and zero from the matrix's inputs on to `width`. Rows of them
    are `of_row` bytes apart. `rows` and `number` are literals.
    """
    n_rows, quantized = rows.literal_value, FORMATS[number.literal_value]

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        codes, *factors, x, of_row, totals, sums, width = arguments[:10]
        loop = QuantizedLoop(builder, quantized, codes, factors)
        emit = NumberEmitter(builder, LANES)
        kept = emit.zero_registers(n_rows * len(PARTS))
        loop.multiply(x, of_row, totals, width, kept)
        emit.store_registers(
            kept, [emit.address(sums, 4 * LANES * index) for index in range(len(kept))]
        )
        return context.get_dummy_value()

    return types.void(*[types.int64] * 10, rows, number), generate


@intrinsic(prefer_literal=True)
def dequantize_block(
    typing: Code,
    codes: Code,
    first: Code,
    second: Code,
    third: Code,
    fourth: Code,
    out: Code,
    other: Code,
    width: Code,
    pair_bytes: Code,
    number: Code,
) -> tuple[Signature, Code]:
    """The weights of a block of PACK outputs, as `multiply_quantized` has them, as bfloat16.

    `out` and `other` say where the pairs of inputs of each half of the outputs go, which are
    `pair_bytes` apart. The first half is written last, so that `other` may be `out` where there is
    one half alone.
    """
    quantized = FORMATS[number.literal_value]

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        codes, *factors, out, other, width, pair_bytes = arguments[:9]
        loop = QuantizedLoop(builder, quantized, codes, factors)
        loop.dequantize((out, other), width, pair_bytes)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 9, number), generate


@njit(inline="always")
def multiply_tile(
    codes: Code,
    first: Code,
    second: Code,
    third: Code,
    fourth: Code,
    x: Code,
    of_row: Code,
    totals: Code,
    sums: Code,
    width: Code,
    rows: Code,
    number: Code,
) -> None:
    """`multiply_quantized` for up to FULL_TILE rows. It may take, and give, some behind the last
    one."""
    if rows > LARGE_TILE:
        multiply_quantized(
            codes, first, second, third, fourth, x, of_row, totals, sums, width, FULL_TILE, number
        )
    elif rows > SMALL_TILE:
        multiply_quantized(
            codes, first, second, third, fourth, x, of_row, totals, sums, width, LARGE_TILE, number
        )
    elif rows > ONE_ROW:
        multiply_quantized(
            codes, first, second, third, fourth, x, of_row, totals, sums, width, SMALL_TILE, number
        )
    else:
        multiply_quantized(
            codes, first, second, third, fourth, x, of_row, totals, sums, width, ONE_ROW, number
        )

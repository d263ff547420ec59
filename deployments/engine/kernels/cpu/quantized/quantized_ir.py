"""Inner loops of products with quantized weights: LLVM IR for each layout.

The numbers of a group's codes, times their inputs, are summed first. The sum is multiplied with
the group's scale, and the inputs' own sum by its least number. All rows are summed in one order.
"""

from typing import NamedTuple

from llvmlite import ir
from numba import njit, types
from numba.core.typing import Signature
from numba.extending import intrinsic

from deployments.engine.kernels.cpu.matmul_ir import FULL_TILE, LARGE_TILE, ONE_ROW, SMALL_TILE
from deployments.engine.kernels.cpu.pack_format import FORMATS, QuantizedFormat
from deployments.engine.kernels.cpu.quantized.decoding_ir import (
    PARTS,
    ByteStep,
    CodeReader,
    FactorReader,
    Fetch,
    Step,
)
from deployments.engine.kernels.cpu.quantized.number_ir import NumberEmitter
from deployments.engine.kernels.cpu.simd import (
    LANES,
    PREFETCH_BYTES,
    STRICT,
    WORD,
    Code,
)

MAX_SUMS = 16  # vectors of int32 that stay in registers


class TileArguments(NamedTuple):
    """Some rows and a block, all by their addresses.

    Inputs are zero from the matrix's inputs on to `width`. They are bfloat16 where the format has
    pairs; int8 [2, width], 256 times the first one added to the second, where its codes are
    integers; else float32.
    """

    codes: int
    first: int  # factors of each kind
    second: int
    third: int
    fourth: int
    x: int
    of_row: int  # bytes from a row to the next one
    totals: int  # float32 [rows, groups]: sums of inputs
    scales: int  # float32 [rows, groups of inputs]: what integers have to be multiplied with
    starts: int  # int32 [rows, groups of inputs]: what is added to sums of integers
    sums: int  # float32 [rows, PACK]: the results
    width: int
    stride: int  # bytes from a block to the next one
    ahead: int  # bytes: codes are fetched so long before they are read
    stays: int  # whether they stay in caches
    rows: int  # up to FULL_TILE


class GroupLoop:
    """A loop over the groups of a block."""

    def __init__(
        self,
        emit: NumberEmitter,
        quantized: QuantizedFormat,
        codes: Code,
        factors: list[Code],
        stride: Code,
        ahead: Code,
        stays: Code | None = None,
    ) -> None:
        self._emit = emit
        self._quantized = quantized
        self._reader = CodeReader(emit, quantized)
        self._codes = codes
        layout = quantized.layout
        n = len(layout.scale)
        self._scale = FactorReader(emit, quantized, layout.scale, factors[:n])
        self._least = FactorReader(
            emit, quantized, layout.least, factors[n : n + len(layout.least)]
        )
        skipped = emit.builder.sub(emit.address(codes, stride), factors[0])
        self._fetch = Fetch(ahead, factors[0], skipped, stride, stays)

    def multiply(self, tile: dict[str, Code], rows: int) -> list[Code]:
        """Returns registers with the sums, a row's vectors side by side."""
        emit, builder = self._emit, self._emit.builder
        sums = emit.zero_registers(rows * len(PARTS))
        n_groups, n_units = self._counts(tile["width"])
        with emit.loop(n_groups) as loop:
            self._scale.fetch(loop.index, self._fetch)
            self._least.fetch(loop.index, self._fetch)
            self._unpack(loop.index)
            own = self._products(tile, loop.index, n_units, rows)
            scale = self._scale.read(loop.index)
            least = self._least.read(loop.index) if self._quantized.layout.least else []
            for index, into in enumerate(sums):
                row, part = divmod(index, len(PARTS))
                total = emit.fma(builder.load(into), own[index], scale[part])
                if least:
                    nth = emit.address(emit.times(n_groups, 4 * row), emit.times(loop.index, 4))
                    share = emit.load_broadcast(emit.address(tile["totals"], nth))
                    total = emit.fma(total, share, least[part])
                builder.store(total, into)
        return sums

    def _products(self, tile: dict[str, Code], group: Code, n_units: Code, rows: int) -> list[Code]:
        """The sums of a group's products, without its scale."""
        emit, builder = self._emit, self._emit.builder
        size = 2 if self._quantized.has_pairs else 4
        own = emit.zero_registers(rows * len(PARTS))
        inputs = emit.address(tile["x"], emit.times(group, size * self._quantized.group))
        with self._reader.steps(self._group_codes(group), n_units, self._fetch, group) as (
            step,
            first,
        ):
            at = emit.address(inputs, emit.times(first, size))
            for pair in range(step.n_pairs):
                self._add(own, step, pair, emit.address(at, 2 * size * pair), tile["of_row"])
        sums = [builder.load(register) for register in own]
        if self._quantized.has_pairs:
            return sums
        return [self._in_units(each) for each in sums]

    def dequantize(self, outs: tuple[Code, Code], width: Code, pair_bytes: Code) -> None:
        """Writes the weights of each vector as bfloat16."""
        emit, builder = self._emit, self._emit.builder
        n_groups, n_units = self._counts(width)
        with emit.loop(n_groups) as loop:
            self._unpack(loop.index)
            scale = [self._in_units(part) for part in self._scale.read(loop.index)]
            least = self._least.read(loop.index) if self._quantized.layout.least else []
            start = emit.times(loop.index, self._quantized.group)
            codes = self._group_codes(loop.index)
            with self._reader.steps(codes, n_units, self._fetch, loop.index) as (step, first):
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

    def _unpack(self, group: Code) -> None:
        """Before anything else of a group is read: where code branches, all that is between has to
        be kept."""
        self._scale.unpack(group)
        self._least.unpack(group)

    def _counts(self, width: Code) -> tuple[Code, Code]:
        """The number of groups, and that of units in each."""
        group, unit = self._quantized.group, self._quantized.planes.unit
        builder = self._emit.builder
        if group:
            return builder.udiv(width, ir.Constant(WORD, group)), ir.Constant(WORD, group // unit)
        return ir.Constant(WORD, 1), builder.udiv(width, ir.Constant(WORD, unit))

    def _group_codes(self, group: Code) -> Code:
        quantized = self._quantized
        if quantized.is_half_unit:
            group = self._emit.half(group)
        planes = quantized.planes
        size = max(1, quantized.group // planes.unit) * planes.unit_bytes
        return self._emit.address(self._codes, self._emit.times(group, size))

    def _in_units(self, numbers: Code) -> Code:
        unit = self._reader.number_unit
        if unit == 1:
            return numbers
        return self._emit.builder.fmul(numbers, self._emit.const(unit), flags=STRICT)

    def _add(
        self, own: list[Code], step: Step | ByteStep, pair: int, x: Code, of_row: Code
    ) -> None:
        """Adds a pair of inputs' products to the registers."""
        emit, builder = self._emit, self._emit.builder
        pairs = step.pairs() if isinstance(step, ByteStep) and self._quantized.has_pairs else None
        numbers = step.numbers(pair) if pairs is None else []
        for index, register in enumerate(own):
            row, part = divmod(index, len(PARTS))
            at = emit.address(x, emit.times(of_row, row))
            total = builder.load(register)
            if pairs is not None:
                total = emit.pair_fma(total, pairs[part], at)
            else:
                even, odd = numbers[part]
                total = emit.fma(total, even, emit.load_broadcast(at))
                total = emit.fma(total, odd, emit.load_broadcast(emit.address(at, 4)))
            builder.store(total, register)


class IntegerLoop(GroupLoop):
    """A loop over groups whose codes are bytes: their sums are exact.

    An input is a whole number of 16 bits times the scale of its group of inputs. Its bytes are
    multiplied by themselves.
    """

    def _products(self, tile: dict[str, Code], group: Code, n_units: Code, rows: int) -> list[Code]:
        emit, builder, quantized = self._emit, self._emit.builder, self._quantized
        codes = self._group_codes(group)
        if quantized.group == quantized.input_group:
            return self._summed(tile, codes, group, n_units, rows)
        at_once = quantized.input_group // quantized.planes.unit
        n_spans = builder.udiv(emit.address(n_units, at_once - 1), emit.whole(at_once))
        own = emit.zero_registers(rows * len(PARTS))
        first = emit.times(group, quantized.group // quantized.input_group)
        with emit.loop(n_spans) as loop:
            left = builder.sub(n_units, emit.times(loop.index, at_once))
            is_whole = builder.icmp_signed(">", left, emit.whole(at_once))
            count = builder.select(is_whole, emit.whole(at_once), left)
            at = emit.address(codes, emit.times(loop.index, at_once * quantized.planes.unit_bytes))
            nth = emit.address(first, loop.index)
            for register, each in zip(own, self._summed(tile, at, nth, count, rows), strict=True):
                builder.store(builder.fadd(builder.load(register), each, flags=STRICT), register)
        return [builder.load(register) for register in own]

    def _summed(
        self, tile: dict[str, Code], codes: Code, nth: Code, n_units: Code, rows: int
    ) -> list[Code]:
        """The sums of the products of a group of inputs, the nth one."""
        emit, builder, size = self._emit, self._emit.builder, self._quantized.input_group
        n_before = builder.udiv(emit.address(tile["width"], size - 1), emit.whole(size))
        own: list[Code] = []
        at_once = MAX_SUMS // (2 * len(PARTS))
        for begin in range(0, rows, at_once):
            some = range(begin, min(rows, begin + at_once))
            sums = [
                (row, part, self._sums(tile, nth, n_before, row)) for row in some for part in PARTS
            ]
            x = emit.address(tile["x"], emit.times(nth, size))
            fetch = None if begin else self._fetch
            with self._reader.steps(codes, n_units, fetch, nth) as (step, first):
                self._add_bytes(sums, step, emit.address(x, first), tile)
            for row, _, (high, low) in sums:
                by = emit.all_ints(8)
                whole = builder.add(builder.shl(builder.load(high), by), builder.load(low))
                scale = emit.load_broadcast(self._of_row(tile["scales"], nth, n_before, row))
                number = builder.sitofp(whole, emit.vector)
                own.append(builder.fmul(number, scale, flags=STRICT))
        return own

    def _of_row(self, address: Code, nth: Code, n: Code, row: int) -> Code:
        return self._emit.address(address, self._emit.times(n, 4 * row), self._emit.times(nth, 4))

    def _sums(self, tile: dict[str, Code], nth: Code, n: Code, row: int) -> tuple[Code, Code]:
        """Registers of products with upper bytes of inputs, and with lower ones."""
        emit = self._emit
        high, low = emit.int_registers(2)
        start = emit.load_broadcast_int(self._of_row(tile["starts"], nth, n, row))
        emit.builder.store(start, low)
        return high, low

    def _add_bytes(
        self,
        sums: list[tuple[int, int, tuple[Code, Code]]],
        step: Step,
        x: Code,
        tile: dict[str, Code],
    ) -> None:
        emit, builder, integers = self._emit, self._emit.builder, self._quantized.integers
        assert integers is not None
        for fourth in range(step.n_fourths):
            weights = [step.bytes_of(part, fourth, integers) for part in PARTS]
            for row, part, (high, low) in sums:
                at = emit.address(x, emit.times(tile["of_row"], row), 4 * fourth)
                for register, own in ((high, at), (low, emit.address(at, tile["width"]))):
                    inputs = emit.load_broadcast_int(own)
                    total = emit.sum_products(builder.load(register), weights[part], inputs)
                    builder.store(total, register)


@intrinsic(prefer_literal=True)
def multiply_quantized(
    typing: Code, block: Code, rows: Code, number: Code
) -> tuple[Signature, Code]:
    """Multiplies rows of inputs with a block of a packed matrix, whose format has this `number`.

    `block` is the address of the words of TileArguments, behind another word. `rows` and
    `number` are literals.
    """
    n_rows, quantized = rows.literal_value, FORMATS[number.literal_value]

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        emit = NumberEmitter(builder, LANES)
        tile = {
            name: emit.load(emit.address(arguments[0], 8 + 8 * nth), WORD)
            for nth, name in enumerate(TileArguments._fields)
        }
        factors = [tile[name] for name in ("first", "second", "third", "fourth")]
        kind = GroupLoop if quantized.integers is None else IntegerLoop
        loop = kind(
            emit, quantized, tile["codes"], factors, tile["stride"], tile["ahead"], tile["stays"]
        )
        kept = loop.multiply(tile, n_rows)
        emit.store_registers(
            kept, [emit.address(tile["sums"], 4 * LANES * index) for index in range(len(kept))]
        )
        return context.get_dummy_value()

    return types.void(types.int64, rows, number), generate


@intrinsic(prefer_literal=True)
def dequantize_block(
    typing: Code,
    codes: Code,
    first: Code,
    second: Code,
    third: Code,
    fourth: Code,
    stride: Code,
    out: Code,
    other: Code,
    width: Code,
    pair_bytes: Code,
    number: Code,
) -> tuple[Signature, Code]:
    """The weights of a block of PACK outputs, as `TileArguments` has them, as bfloat16.

    `out` and `other` say where the pairs of inputs of each half of the outputs go, which are
    `pair_bytes` apart. The first half is written last, so that `other` may be `out` where there is
    one half alone.
    """
    quantized = FORMATS[number.literal_value]

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        codes, *factors, stride, out, other, width, pair_bytes = arguments[:10]
        emit = NumberEmitter(builder, LANES)
        ahead = emit.whole(PREFETCH_BYTES)
        loop = GroupLoop(emit, quantized, codes, factors, stride, ahead)
        loop.dequantize((out, other), width, pair_bytes)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 10, number), generate


@njit(inline="always")
def multiply_tile(block: Code, rows: Code, number: Code) -> None:
    """`multiply_quantized` for up to FULL_TILE rows. It may take, and give, some behind the last
    one."""
    if rows > LARGE_TILE:
        multiply_quantized(block, FULL_TILE, number)
    elif rows > SMALL_TILE:
        multiply_quantized(block, LARGE_TILE, number)
    elif rows > ONE_ROW:
        multiply_quantized(block, SMALL_TILE, number)
    else:
        multiply_quantized(block, ONE_ROW, number)

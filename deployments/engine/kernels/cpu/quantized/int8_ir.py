"""Inner loops of products of many rows, whose inputs are rounded to 8 bits: LLVM IR.

A block of outputs is unpacked once for many rows, into bytes and factors of float32. Bytes of a
group are multiplied with those of inputs, and summed exactly. The sum is multiplied with the
group's scale, and sums of a span of groups with the scale that a row's inputs have there. All rows
are summed in one order.
"""

from typing import NamedTuple

from numba import types
from numba.core.typing import Signature
from numba.extending import intrinsic

from deployments.engine.kernels.cpu.pack_format import FORMATS
from deployments.engine.kernels.cpu.quantized.decoding_ir import PARTS, Step
from deployments.engine.kernels.cpu.quantized.number_ir import NumberEmitter
from deployments.engine.kernels.cpu.quantized.quantized_ir import GroupLoop
from deployments.engine.kernels.cpu.simd import (
    HAS_AVX512,
    LANES,
    PACK,
    PREFETCH_BYTES,
    STRICT,
    WORD,
    Code,
)

# Rows that are multiplied at once: their sums of a group and of a span stay in registers.
INT8_ROWS = 6 if HAS_AVX512 else 2
MAX_UNROLLED = 32  # inputs


class UnpackArguments(NamedTuple):
    """A block, and where it is unpacked to, all by their addresses."""

    codes: int
    first: int  # factors of each kind
    second: int
    third: int
    fourth: int
    stride: int  # bytes from a block to the next one
    width: int  # inputs, filled up
    n_scales: int  # groups of inputs that share a scale
    n_copies: int  # how many groups each of these becomes
    bytes: int  # uint8 [inputs / 4, PACK, 4]
    scales: int  # float32 [groups, PACK]
    leasts: int  # the same


class Int8TileArguments(NamedTuple):
    """INT8_ROWS rows of inputs and an unpacked block, all by their addresses."""

    bytes: int  # as in UnpackArguments
    scales: int
    leasts: int
    x: int  # int8 [rows, width]
    width: int
    starts: int  # int32 [rows, groups]: what is added to sums of products
    totals: int  # float32 [rows, groups]: sums of inputs
    x_scales: int  # float32 [rows, spans]
    n_groups: int
    n_spans: int
    span: int  # groups of a span; the last one may have fewer
    sums: int  # float32 [rows, PACK]: the results


class _Unpacking(GroupLoop):
    def run(self, block: dict[str, Code]) -> None:
        emit, group = self._emit, self._quantized.group
        _, n_units = self._counts(block["width"])
        with emit.loop(block["n_scales"]) as loop:
            self._unpack(loop.index)
            self._copy_factors(block, loop.index)
            codes, start = self._group_codes(loop.index), emit.times(loop.index, group)
            with self._reader.steps(codes, n_units, self._fetch, loop.index) as (step, first):
                assert isinstance(step, Step)
                at = emit.times(emit.address(start, first), PACK)
                self._write_bytes(step, emit.address(block["bytes"], at))

    def _copy_factors(self, block: dict[str, Code], group: Code) -> None:
        emit, integers = self._emit, self._quantized.integers
        assert integers is not None
        unit = emit.const(integers.unit)
        scale = [emit.builder.fmul(part, unit, flags=STRICT) for part in self._scale.read(group)]
        least = self._least.read(group) if self._quantized.layout.least else []
        with emit.loop(block["n_copies"]) as loop:
            nth = emit.address(emit.builder.mul(group, block["n_copies"]), loop.index)
            for base, factor in (("scales", scale), ("leasts", least)):
                at = emit.address(block[base], emit.times(nth, 4 * PACK))
                for part, vector in enumerate(factor):
                    emit.store(vector, emit.address(at, 4 * LANES * part))

    def _write_bytes(self, step: Step, out: Code) -> None:
        emit, integers = self._emit, self._quantized.integers
        assert integers is not None
        for fourth in range(step.n_fourths):
            for part in PARTS:
                at = emit.address(out, 4 * PACK * fourth + 4 * LANES * part)
                emit.store(step.bytes_of(part, fourth, integers), at)


class _Int8Tile:
    """Some rows times an unpacked block."""

    def __init__(
        self, emit: NumberEmitter, tile: dict[str, Code], group: int, has_leasts: bool
    ) -> None:
        self._emit = emit
        self._tile = tile
        self._group = group
        self._has_leasts = has_leasts
        self._places = [(row, part) for row in range(INT8_ROWS) for part in PARTS]

    def multiply(self) -> list[Code]:
        """Returns registers with the sums, a row's vectors side by side."""
        emit, builder, tile = self._emit, self._emit.builder, self._tile
        sums = emit.zero_registers(len(self._places))
        with emit.loop(tile["n_spans"]) as loop:
            own = emit.zero_registers(len(self._places))
            first = builder.mul(loop.index, tile["span"])
            left = builder.sub(tile["n_groups"], first)
            is_whole = builder.icmp_signed(">", left, tile["span"])
            with emit.loop(builder.select(is_whole, tile["span"], left)) as nth:
                self._add_group(own, builder.add(first, nth.index))
            for row in range(INT8_ROWS):
                scale = emit.load_broadcast(self._of_row("x_scales", "n_spans", row, loop.index))
                for part in PARTS:
                    index = row * len(PARTS) + part
                    total = builder.load(sums[index])
                    builder.store(emit.fma(total, builder.load(own[index]), scale), sums[index])
        return sums

    def _add_group(self, own: list[Code], group: Code) -> None:
        emit, builder = self._emit, self._emit.builder
        products = self._products(group)
        by_group = emit.times(group, 4 * PACK)
        scale = self._factor("scales", by_group)
        least = self._factor("leasts", by_group) if self._has_leasts else []
        for index, (row, part) in enumerate(self._places):
            number = builder.sitofp(builder.load(products[index]), emit.vector)
            total = emit.fma(builder.load(own[index]), number, scale[part])
            if least:
                share = emit.load_broadcast(self._of_row("totals", "n_groups", row, group))
                total = emit.fma(total, share, least[part])
            builder.store(total, own[index])

    def _products(self, group: Code) -> list[Code]:
        """Registers with the sums of a group's products as int32."""
        emit, builder = self._emit, self._emit.builder
        sums = emit.int_registers(len(self._places))
        for row in range(INT8_ROWS):
            start = emit.load_broadcast_int(self._of_row("starts", "n_groups", row, group))
            for part in PARTS:
                builder.store(start, sums[row * len(PARTS) + part])
        at_once = min(self._group, MAX_UNROLLED)
        first = emit.times(group, self._group)
        if at_once == self._group:
            self._add_products(sums, first, at_once)
        else:
            with emit.loop(emit.whole(self._group // at_once)) as loop:
                here = emit.address(first, emit.times(loop.index, at_once))
                self._add_products(sums, here, at_once)
        return sums

    def _add_products(self, sums: list[Code], first: Code, n: int) -> None:
        emit, builder, tile = self._emit, self._emit.builder, self._tile
        weights = emit.address(tile["bytes"], emit.times(first, PACK))
        inputs = emit.address(tile["x"], first)
        for fourth in range(n // 4):
            own = [
                emit.load_int32(emit.address(weights, 4 * PACK * fourth + 4 * LANES * part))
                for part in PARTS
            ]
            for row in range(INT8_ROWS):
                at = emit.address(inputs, emit.times(tile["width"], row), 4 * fourth)
                four = emit.load_broadcast_int(at)
                for part in PARTS:
                    register = sums[row * len(PARTS) + part]
                    total = emit.sum_products(builder.load(register), own[part], four)
                    builder.store(total, register)

    def _of_row(self, name: str, length: str, row: int, nth: Code) -> Code:
        """The address of the nth of a row's numbers of 4 bytes."""
        emit, tile = self._emit, self._tile
        return emit.address(tile[name], emit.times(tile[length], 4 * row), emit.times(nth, 4))

    def _factor(self, name: str, at: Code) -> list[Code]:
        emit = self._emit
        base = emit.address(self._tile[name], at)
        return [emit.load(emit.address(base, 4 * LANES * part), emit.vector) for part in PARTS]


def _words_of(emit: NumberEmitter, block: Code, arguments: type[NamedTuple]) -> dict[str, Code]:
    """The words of a block of arguments, behind the number of tasks taken."""
    return {
        name: emit.load(emit.address(block, 8 + 8 * nth), WORD)
        for nth, name in enumerate(arguments._fields)
    }


@intrinsic(prefer_literal=True)
def unpack_block(typing: Code, block: Code, number: Code) -> tuple[Signature, Code]:
    """Unpacks a block of the format of this `number`, as UnpackArguments at an address say."""
    quantized = FORMATS[number.literal_value]

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        emit = NumberEmitter(builder, LANES)
        words = _words_of(emit, arguments[0], UnpackArguments)
        factors = [words[name] for name in ("first", "second", "third", "fourth")]
        ahead = emit.whole(PREFETCH_BYTES)
        loop = _Unpacking(emit, quantized, words["codes"], factors, words["stride"], ahead)
        loop.run(words)
        return context.get_dummy_value()

    return types.void(types.int64, number), generate


@intrinsic(prefer_literal=True)
def multiply_int8(
    typing: Code, block: Code, group: Code, has_leasts: Code
) -> tuple[Signature, Code]:
    """Multiplies rows with an unpacked block, as Int8TileArguments at an address say. `group` is
    the number of inputs of a group; it and `has_leasts` are literals."""
    literals = group.literal_value, bool(has_leasts.literal_value)

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        emit = NumberEmitter(builder, LANES)
        words = _words_of(emit, arguments[0], Int8TileArguments)
        kept = _Int8Tile(emit, words, *literals).multiply()
        addresses = [emit.address(words["sums"], 4 * LANES * index) for index in range(len(kept))]
        emit.store_registers(kept, addresses)
        return context.get_dummy_value()

    return types.void(types.int64, group, has_leasts), generate

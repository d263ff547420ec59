"""Codes of packed weights as numbers: LLVM IR for each kind of codebook."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from llvmlite import ir
from numba.core import cgutils

from deployments.engine.kernels.cpu.pack_format import (
    BYTE_BITS,
    Integers,
    Planes,
    QuantizedFormat,
    planes_of,
)
from deployments.engine.kernels.cpu.quantized.number_ir import (
    BYTE,
    E4M3_UNIT,
    EACH_BYTE,
    BFloatType,
    NumberEmitter,
)
from deployments.engine.kernels.cpu.simd import (
    HAS_AVX512,
    LANES,
    PACK,
    STRICT,
    WORD,
    Code,
    Emitter,
)
from deployments.engine.quantized.layout import INT8, Codebook, FactorType

PARTS = range(PACK // LANES)  # vectors of a block's outputs
INT_BITS = 32


class Fetch(NamedTuple):
    """Fetches while a block is read: codes so many bytes `ahead`, and the factors of the next
    block, which lies `stride` bytes after it.

    end: the address behind the block's codes. The next block's codes lie `skipped` bytes after it.
    stays: whether it stays in caches, as `prefetch_range` takes it.
    """

    ahead: Code
    end: Code
    skipped: Code
    stride: Code
    stays: Code | None

    def codes(self, emit: Emitter, address: Code, n_bytes: int) -> None:
        build, at = emit.builder, emit.address(address, self.ahead)
        is_behind = build.icmp_unsigned(">=", at, self.end)
        at = build.select(is_behind, build.add(at, self.skipped), at)
        emit.prefetch_range(at, n_bytes, self.stays)

    def factors(self, emit: Emitter, address: Code, n_bytes: int) -> None:
        emit.prefetch_range(emit.address(address, self.stride), n_bytes, self.stays)


class Lookup:
    """Numbers of codes, which are the lowest bits of 32; what is above them is anything."""

    def __init__(self, emit: NumberEmitter, codebook: Codebook) -> None:
        self._emit = emit
        self._bits = codebook.bits
        self._is_signed = codebook == INT8
        self._offset = codebook.offset
        # Higher bits, which are anything, are looked up with those of a code.
        values = [*codebook.values] * max(1, 16 // len(codebook.values))
        self._tables = [
            ir.Constant(emit.vector, values[at : at + LANES]) for at in range(0, len(values), LANES)
        ]

    def numbers(self, codes: Code) -> Code:
        emit, build, tables = self._emit, self._emit.builder, self._tables
        if self._is_signed:
            by = emit.all_ints(INT_BITS - self._bits)
            return build.sitofp(build.ashr(build.shl(codes, by), by), emit.vector)
        if HAS_AVX512 and len(tables) == 1:
            return emit.call("llvm.x86.avx512.permvar.sf.512", emit.vector, tables[0], codes)
        if HAS_AVX512 and len(tables) == 2:
            name = "llvm.x86.avx512.vpermi2var.ps.512"
            return emit.call(name, emit.vector, tables[0], codes, tables[1])
        if self._offset is not None:
            whole = build.and_(codes, emit.all_ints((1 << self._bits) - 1))
            if self._offset:
                whole = build.add(whole, emit.all_ints(self._offset & 0xFFFFFFFF))
            return build.sitofp(whole, emit.vector)
        low, high = (
            emit.call("llvm.x86.avx2.permps", emit.vector, table, codes) for table in tables
        )
        top = build.shl(codes, emit.all_ints(28))
        return build.select(build.icmp_signed("<", top, emit.all_ints(0)), high, low)


class BytePairLookup:
    """Pairs of bfloat16 of codes that are bytes: 2 inputs of all outputs of a block."""

    def __init__(self, emit: NumberEmitter, codebook: Codebook) -> None:
        self._emit = emit
        self._bytes = ir.VectorType(BYTE, 2 * PACK)
        shorts = codebook.table.bfloat16().view(torch.int16).tolist()
        lower, upper = ([short >> by & 0xFF for short in shorts] for by in (0, 8))
        # By the highest bit of a code: the lower bytes of the numbers, and the upper ones.
        self._tables = [
            [self._halves(half[first : first + 128]) for half in (lower, upper)]
            for first in (0, 128)
        ]

    def pairs(self, address: Code) -> list[Code]:
        emit, build, kind = self._emit, self._emit.builder, self._bytes
        codes = emit.load(address, kind)
        is_high = build.icmp_signed("<", codes, ir.Constant(kind, None))
        low, high = (
            build.select(is_high, self._found(codes, above), self._found(codes, below))
            for below, above in zip(*self._tables, strict=True)
        )
        return [self._side_by_side(low, high, part) for part in PARTS]

    def _halves(self, numbers: list[int]) -> tuple[Code, Code]:
        n = len(numbers) // 2
        return ir.Constant(self._bytes, numbers[:n]), ir.Constant(self._bytes, numbers[n:])

    def _found(self, codes: Code, table: tuple[Code, Code]) -> Code:
        first, second = table
        name = "llvm.x86.avx512.vpermi2var.qi.512"
        return self._emit.call(name, self._bytes, first, codes, second)

    def _side_by_side(self, low: Code, high: Code, part: int) -> Code:
        """The bytes of the two numbers of each output, together."""
        n = 2 * PACK  # bytes of `low`, which those of `high` follow
        order = [
            half + of_input + LANES * part + lane
            for lane in range(LANES)
            for of_input in (0, PACK)
            for half in (0, n)
        ]
        kind = ir.VectorType(ir.IntType(32), n)
        pairs = self._emit.builder.shuffle_vector(low, high, ir.Constant(kind, order))
        return self._emit.builder.bitcast(pairs, ir.VectorType(BFloatType(), 2 * LANES))


class Step:
    """Codes of a few inputs, one after the other, for all outputs of a block."""

    def __init__(self, reader: "CodeReader", low: list[list[Code]], high: list[Code]):
        """low: words of the first plane, for each vector of outputs; high: those of the second."""
        self._reader = reader
        self._low = low
        self._high = high
        self.n_fourths = len(low) * BYTE_BITS // reader.low_bits  # of four inputs each
        self.n_pairs = 2 * self.n_fourths

    def numbers(self, pair: int) -> list[tuple[Code, Code]]:
        """The weights of a pair of inputs, without their scale, for each vector of outputs."""
        find = self._reader.lookup.numbers
        return [
            (find(self._code(part, 2 * pair)), find(self._code(part, 2 * pair + 1)))
            for part in PARTS
        ]

    def bytes_of(self, part: int, fourth: int, integers: Integers) -> Code:
        """Bytes of the codes of four inputs."""
        emit, reader = self._reader.emit, self._reader
        if reader.low_bits == BYTE_BITS:
            flipped = emit.all_ints(integers.flipped * EACH_BYTE)
            return emit.builder.xor(self._low[fourth][part], flipped)
        low = emit.shifted(self._low[0][part], reader.low_bits * fourth)
        low = emit.builder.and_(low, emit.all_ints(reader.low_mask * EACH_BYTE))
        if integers.table:
            return emit.bytes_in_table(integers.table, low)
        if not self._high:
            return low
        high = emit.shifted(self._high[part], reader.high_bits * fourth - reader.low_bits)
        mask = emit.all_ints((reader.high_mask << reader.low_bits) * EACH_BYTE)
        return emit.builder.or_(low, emit.builder.and_(high, mask))

    def _code(self, part: int, nth: int) -> Code:
        """The lowest bits are those of the code of an input."""
        emit, reader = self._reader.emit, self._reader
        fourth, byte = divmod(nth, 4)
        at = BYTE_BITS * byte
        if reader.low_bits == BYTE_BITS:
            return emit.shifted(self._low[fourth][part], at)
        low = emit.shifted(self._low[0][part], at + reader.low_bits * fourth)
        if not self._high:
            return low
        by = at + reader.high_bits * fourth - reader.low_bits
        return emit.merged(reader.low_mask, low, emit.shifted(self._high[part], by))


class ByteStep:
    """Codes of two inputs, each of which has a byte for each output of a block."""

    def __init__(self, reader: "CodeReader", address: Code):
        self._reader = reader
        self._address = address
        self.n_pairs = 1

    def numbers(self, pair: int) -> list[tuple[Code, Code]]:
        """The weights of both, without their scale, for each vector of outputs."""
        emit = self._reader.emit
        first, second = (
            emit.load_e4m3(emit.address(self._address, at), len(PARTS)) for at in (0, PACK)
        )
        return list(zip(first, second, strict=True))

    def pairs(self) -> list[Code]:
        """The same as bfloat16, side by side."""
        return self._reader.byte_lookup.pairs(self._address)


class CodeReader:
    """Reads the codes of a block."""

    def __init__(self, emit: NumberEmitter, quantized: QuantizedFormat) -> None:
        self.emit = emit
        self._quantized = quantized
        codebook = quantized.layout.codebook
        self._planes = quantized.planes
        self.low_bits, self.high_bits = quantized.planes.low_bits, quantized.planes.high_bits
        self.low_mask, self.high_mask = (1 << self.low_bits) - 1, (1 << self.high_bits) - 1
        if quantized.has_words:
            self.lookup = Lookup(emit, codebook)
        elif quantized.has_pairs:
            self.byte_lookup = BytePairLookup(emit, codebook)

    @property
    def number_unit(self) -> float:
        """The numbers that are not pairs have to be multiplied with it, beside their scale."""
        return 1.0 if self._quantized.has_words else E4M3_UNIT

    @contextmanager
    def steps(
        self, codes: Code, n_units: Code, fetch: Fetch | None, group: Code
    ) -> Iterator[tuple[Code, Code]]:
        """A loop over so many units from an address on: gives steps, and each one's first input.

        Where a group is half a unit, the unit is that of an even `group` and the next one.
        """
        emit, quantized, planes = self.emit, self._quantized, self._planes
        if quantized.is_half_unit:
            nth = emit.builder.and_(group, emit.whole(1))
            if fetch is not None:
                fetch.codes(emit, codes, planes.unit_bytes)
            yield self._step_within(codes, nth), emit.whole(0)
            return
        with emit.loop(n_units) as loop:
            unit = emit.address(codes, emit.times(loop.index, planes.unit_bytes))
            if fetch is not None:
                fetch.codes(emit, unit, planes.unit_bytes)
            first = emit.times(loop.index, planes.unit)
            if not quantized.has_words:
                yield ByteStep(self, unit), first
            elif not self.high_bits:
                words = [
                    self._words(emit.address(unit, 4 * PACK * nth))
                    for nth in range(planes.low_words)
                ]
                yield Step(self, words, []), first
            else:
                with emit.loop(emit.whole(planes.low_words)) as word:
                    at = emit.address(first, emit.times(word.index, planes.word_codes))
                    yield self._step_within(unit, word.index), at

    def _step_within(self, unit: Code, nth: Code) -> Step:
        """The nth word of the first plane in a unit, with its part of the second plane's."""
        emit, planes = self.emit, self._planes
        own = self._words(emit.address(unit, emit.times(nth, 4 * PACK)))
        by = emit.broadcast_int(emit.times(nth, planes.word_codes // 4 * self.high_bits))
        high = self._words(emit.address(unit, 4 * PACK * planes.low_words))
        return Step(self, [own], [emit.builder.lshr(word, by) for word in high])

    def _words(self, address: Code) -> list[Code]:
        emit = self.emit
        return [emit.load_int32(emit.address(address, 4 * LANES * part)) for part in PARTS]


class FactorReader:
    """Reads scales or least numbers of a group, for all outputs of a block."""

    def __init__(
        self,
        emit: NumberEmitter,
        quantized: QuantizedFormat,
        types: Sequence[FactorType],
        bases: Sequence[Code],
    ) -> None:
        self._emit = emit
        self._group = quantized.group
        self._types = types
        self._bases = bases
        self._rooms = [self._room(planes_of(factor)) for factor in types]

    def fetch(self, group: Code, fetch: Fetch) -> None:
        for factor, base in zip(self._types, self._bases, strict=True):
            size = PACK * factor.stored_bits // BYTE_BITS
            at = self._emit.address(base, self._emit.times(self._nth(factor, group), size))
            fetch.factors(self._emit, at, size)

    def unpack(self, group: Code) -> None:
        """Unpacks what `read` reads of a group, and of those behind it that share a unit: groups
        are read in order."""
        for factor, base, room in zip(self._types, self._bases, self._rooms, strict=True):
            planes = planes_of(factor)
            if planes is not None:
                self._unpack(planes, base, self._nth(factor, group), room)

    def read(self, group: Code) -> list[Code]:
        """A vector for each part of the block."""
        parts = [
            self._read(*factor, group)
            for factor in zip(self._types, self._bases, self._rooms, strict=True)
        ]
        if len(parts) == 1:
            return parts[0]
        multiply = self._emit.builder.fmul
        return [multiply(a, b, flags=STRICT) for a, b in zip(*parts, strict=True)]

    def _read(self, factor: FactorType, base: Code, room: Code, group: Code) -> list[Code]:
        emit, nth = self._emit, self._nth(factor, group)
        planes = planes_of(factor)
        if planes is not None:
            own = emit.times(emit.rest(nth, planes.unit), PACK)
            at = emit.address(room, own)
            return [
                emit.load_uint8(emit.address(at, LANES * part), factor.offset) for part in PARTS
            ]
        size = factor.dtype.itemsize
        at = emit.address(base, emit.times(nth, PACK * size))
        return [
            emit.load_factor(emit.address(at, LANES * size * part), factor.dtype) for part in PARTS
        ]

    def _room(self, planes: Planes | None) -> Code:
        """The address of memory for the codes of a unit, a byte each."""
        if planes is None:
            return None
        kind = ir.ArrayType(self._emit.words_of(PACK), planes.unit)
        return self._emit.builder.ptrtoint(cgutils.alloca_once(self._emit.builder, kind), WORD)

    def _unpack(self, planes: Planes, base: Code, nth: Code, room: Code) -> None:
        emit, build = self._emit, self._emit.builder
        own = emit.rest(nth, planes.unit)
        with build.if_then(build.icmp_unsigned("==", own, emit.whole(0))):
            unit = emit.address(base, emit.times(emit.over(nth, planes.unit), planes.unit_bytes))
            for number in range(planes.unit):
                emit.store(self._codes(planes, unit, number), emit.address(room, number * PACK))

    def _codes(self, planes: Planes, unit: Code, number: int) -> Code:
        """The codes of this number in a unit, of all outputs, a byte each."""
        emit, (word, within) = self._emit, divmod(number, planes.word_codes)
        low = emit.load(emit.address(unit, word * PACK), emit.words_of(PACK))
        codes = emit.fields(low, within * planes.low_bits, planes.low_bits)
        if planes.high_bits:
            at = emit.address(unit, planes.low_words * PACK)
            high = emit.load(at, emit.words_of(PACK))
            own = emit.fields(high, number * planes.high_bits, planes.high_bits, planes.low_bits)
            codes = emit.builder.or_(codes, own)
        return codes

    def _nth(self, factor: FactorType, group: Code) -> Code:
        """The number of the factor that a group has."""
        if not factor.group:
            return self._emit.whole(0)
        return self._emit.over(group, factor.group // self._group)

"""Codes of packed weights as numbers: LLVM IR for each kind of codebook."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from llvmlite import ir
from numba.core import cgutils

from deployments.engine.kernels.cpu.pack_format import OCTET, QuantizedFormat
from deployments.engine.kernels.cpu.simd import (
    HAS_AVX512,
    LANES,
    PACK,
    SHORT,
    STRICT,
    WORD,
    Code,
    Emitter,
)
from deployments.engine.quantized.layout import E4M3, INT8, Codebook, FactorType

CODES_AHEAD = 8192  # bytes: how far ahead they are fetched
E4M3_UNIT = 256.0  # what its bits are as float16 has to be multiplied with
HALF, BYTE, WORD_OF_PAIR = ir.HalfType(), ir.IntType(8), ir.IntType(32)
PARTS = range(PACK // LANES)  # vectors of a block's outputs
BITS_OF_HALF = 0xBF80  # which those of e4m3 become


class BFloatType(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, which llvmlite does not name."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloatType)

    def __hash__(self) -> int:
        return hash(BFloatType)


class NumberEmitter(Emitter):
    """Emits what makes numbers of bytes, halves and codes."""

    def call(self, name: str, kind: Code, *arguments: Code) -> Code:
        types = [argument.type for argument in arguments]
        function = cgutils.get_or_insert_function(
            self.builder.module, ir.FunctionType(kind, types), name
        )
        return self.builder.call(function, arguments)

    def load_half(self, address: Code) -> Code:
        return self.builder.fpext(self.load(address, ir.VectorType(HALF, self.lanes)), self.vector)

    def load_uint8(self, address: Code) -> Code:
        narrow = self.load(address, ir.VectorType(BYTE, self.lanes))
        return self.builder.sitofp(self.builder.zext(narrow, self.ints), self.vector)

    def load_e4m3(self, address: Code, n: int) -> list[Code]:
        """Loads n vectors of e4m3, and divides them by E4M3_UNIT."""
        build, wide = self.builder, ir.VectorType(SHORT, n * self.lanes)
        bits = build.sext(self.load(address, ir.VectorType(BYTE, n * self.lanes)), wide)
        bits = build.and_(
            build.shl(bits, ir.Constant(wide, [7] * n * self.lanes)),
            ir.Constant(wide, [BITS_OF_HALF] * n * self.lanes),
        )
        halves = build.bitcast(bits, ir.VectorType(HALF, n * self.lanes))
        kind = ir.VectorType(ir.IntType(32), self.lanes)
        return [
            build.fpext(
                build.shuffle_vector(
                    halves,
                    halves,
                    ir.Constant(kind, [nth * self.lanes + lane for lane in range(self.lanes)]),
                ),
                self.vector,
            )
            for nth in range(n)
        ]

    def load_factor(self, address: Code, dtype: torch.dtype) -> Code:
        """A vector of factors."""
        if dtype is torch.float32:
            return self.load(address, self.vector)
        if dtype is torch.float8_e4m3fn:
            return self.builder.fmul(self.load_e4m3(address, 1)[0], self.const(E4M3_UNIT))
        loads = {
            torch.float16: self.load_half,
            torch.bfloat16: self.load_bfloat16,
            torch.uint8: self.load_uint8,
            torch.int8: self.load_int8,
        }
        return loads[dtype](address)

    def pair_fma(self, total: Code, pairs: Code, address: Code) -> Code:
        """Adds the products of pairs of bfloat16 with the pair at the address."""
        both = self.broadcast_int(self.load(address, WORD_OF_PAIR))
        inputs = self.builder.bitcast(both, pairs.type)
        return self.call("llvm.x86.avx512bf16.dpbf16ps.512", self.vector, total, pairs, inputs)

    def shifted(self, ints: Code, right: int) -> Code:
        if right == 0:
            return ints
        shift = self.builder.lshr if right > 0 else self.builder.shl
        return shift(ints, self.all_ints(abs(right)))

    def merged(self, mask: int, a: Code, b: Code) -> Code:
        """The bits of `a` where the mask has them, else those of `b`."""
        build = self.builder
        return build.or_(
            build.and_(a, self.all_ints(mask)), build.and_(b, self.all_ints(~mask & 0xFFFFFFFF))
        )


class Lookup:
    """Numbers of codes, which are the lowest bits of 32; what is above them is anything."""

    def __init__(self, emit: NumberEmitter, codebook: Codebook) -> None:
        self._emit = emit
        self._bits = max(4, codebook.bits)
        self._offset = codebook.offset
        values = [*codebook.values] + [0.0] * ((1 << self._bits) - len(codebook.values))
        self._tables = [
            ir.Constant(emit.vector, values[at : at + LANES]) for at in range(0, len(values), LANES)
        ]

    def numbers(self, codes: Code) -> Code:
        emit, build, tables = self._emit, self._emit.builder, self._tables
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


class PairLookup:
    """Pairs of bfloat16 of the codes in the halves of 32 bits."""

    def __init__(self, emit: NumberEmitter, codebook: Codebook) -> None:
        self._emit = emit
        self._shorts = ir.VectorType(SHORT, 2 * LANES)
        bits = codebook.table.bfloat16().view(torch.int16).tolist()
        size = max(2 * LANES, len(bits))
        bits = [code & 0xFFFF for code in bits] + [0] * (-len(bits) % 16)
        bits *= -(-size // len(bits))
        self._tables = [
            ir.Constant(self._shorts, bits[at : at + 2 * LANES])
            for at in range(0, len(bits), 2 * LANES)
        ]

    def pairs(self, codes: Code) -> Code:
        emit, tables = self._emit, self._tables
        index = emit.builder.bitcast(codes, self._shorts)
        if len(tables) == 1:
            name = "llvm.x86.avx512.permvar.hi.512"
            found = emit.call(name, self._shorts, tables[0], index)
        else:
            name = "llvm.x86.avx512.vpermi2var.hi.512"
            found = emit.call(name, self._shorts, tables[0], index, tables[1])
        return emit.builder.bitcast(found, ir.VectorType(BFloatType(), 2 * LANES))


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
    """Codes of a few inputs, one after the other, for all outputs of a block.

    first: their first input in its unit, as an offset that is a constant or computed.
    """

    def __init__(self, reader: "CodeReader", address: Code, low: list[Code], high: list[Code]):
        self._reader = reader
        self._address = address
        self._low = low
        self._high = high

    @property
    def n_pairs(self) -> int:
        return OCTET // 2 if self._low else 1

    def numbers(self, pair: int) -> list[tuple[Code, Code]]:
        """The weights of a pair of inputs, without their scale, for each vector of outputs."""
        if not self._low:
            return self._reader.load_bytes(self._address)
        find = self._reader.lookup.numbers
        return [
            (find(self._codes(part, pair, 0)), find(self._codes(part, pair, 16))) for part in PARTS
        ]

    def pairs(self, pair: int) -> list[Code]:
        """The same as bfloat16, side by side."""
        if not self._low:
            return self._reader.byte_lookup.pairs(self._address)
        return [
            self._reader.pair_lookup.pairs(self._codes(part, pair, 0, of_both=True))
            for part in PARTS
        ]

    def _codes(self, part: int, pair: int, half: int, of_both: bool = False) -> Code:
        emit = self._reader.emit
        low = emit.shifted(self._low[part], 4 * pair + half)
        if not self._high:
            return low
        high = emit.shifted(self._high[part], self._reader.high_bits * pair + half - 4)
        return emit.merged(0x000F000F if of_both else 0xF, low, high)


class CodeReader:
    """Reads the codes of a block."""

    def __init__(self, emit: NumberEmitter, quantized: QuantizedFormat) -> None:
        self.emit = emit
        self._quantized = quantized
        self._codebook = quantized.layout.codebook
        self.high_bits = quantized.high_bits
        if quantized.planes[0] == 4:
            self.lookup = Lookup(emit, self._codebook)
            if quantized.has_pairs:
                self.pair_lookup = PairLookup(emit, self._codebook)
        elif quantized.has_pairs:
            self.byte_lookup = BytePairLookup(emit, self._codebook)

    @property
    def number_unit(self) -> float:
        """The numbers that are not pairs have to be multiplied with it, beside their scale."""
        is_e4m3 = self._quantized.planes == (8,) and self._codebook == E4M3
        return E4M3_UNIT if is_e4m3 else 1.0

    @contextmanager
    def steps(self, codes: Code, n_units: Code) -> Iterator[tuple[Step, Code]]:
        """A loop over so many units from an address on: gives steps, and each one's first input."""
        emit, quantized = self.emit, self._quantized
        octets = quantized.unit // OCTET
        with emit.loop(n_units) as loop:
            unit = emit.address(codes, emit.times(loop.index, quantized.unit_bytes))
            emit.prefetch_range(emit.address(unit, CODES_AHEAD), quantized.unit_bytes)
            first = emit.times(loop.index, quantized.unit)
            if quantized.planes == (8,):
                yield Step(self, unit, [], []), first
            elif not self.high_bits:
                yield Step(self, unit, self._words(unit), []), first
            else:
                high = self._words(emit.address(unit, octets * 4 * PACK))
                with emit.loop(ir.Constant(WORD, octets)) as octet:
                    own = emit.address(unit, emit.times(octet.index, 4 * PACK))
                    by = emit.broadcast_int(emit.times(octet.index, 4 * self.high_bits))
                    shifted = [emit.builder.lshr(word, by) for word in high]
                    at = emit.address(first, emit.times(octet.index, OCTET))
                    yield Step(self, own, self._words(own), shifted), at

    def load_bytes(self, address: Code) -> list[tuple[Code, Code]]:
        first, second = (
            self._byte_vectors(address),
            self._byte_vectors(self.emit.address(address, PACK)),
        )
        return list(zip(first, second, strict=True))

    def _byte_vectors(self, address: Code) -> list[Code]:
        """The numbers of one input, for each vector of outputs."""
        emit = self.emit
        if self._codebook == E4M3:
            return emit.load_e4m3(address, len(PARTS))
        addresses = [emit.address(address, LANES * part) for part in PARTS]
        if self._codebook == INT8:
            return [emit.load_int8(at) for at in addresses]
        offset = emit.const(self._codebook.offset or 0)
        return [emit.builder.fadd(emit.load_uint8(at), offset, flags=STRICT) for at in addresses]

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

    def read(self, group: Code) -> list[Code]:
        """A vector for each part of the block."""
        parts = [
            self._read(*factor, group) for factor in zip(self._types, self._bases, strict=True)
        ]
        if len(parts) == 1:
            return parts[0]
        multiply = self._emit.builder.fmul
        return [multiply(a, b, flags=STRICT) for a, b in zip(*parts, strict=True)]

    def _read(self, factor: FactorType, base: Code, group: Code) -> list[Code]:
        emit, size = self._emit, factor.dtype.itemsize
        if factor.group:
            shared = ir.Constant(WORD, factor.group // self._group)
            nth = emit.builder.udiv(group, shared)
            base = emit.address(base, emit.times(nth, PACK * size))
        addresses = [emit.address(base, LANES * size * part) for part in PARTS]
        return [emit.load_factor(at, factor.dtype) for at in addresses]

"""Packs a block of a row's codes and factors: LLVM IR for each form of blocks."""

from collections.abc import Iterator, Sequence

from llvmlite import ir
from numba import types
from numba.core.typing import Signature
from numba.extending import intrinsic

from deployments.engine.kernels.cpu.pack_format import (
    BYTE_BITS,
    FORMATS,
    OCTET,
    Planes,
    QuantizedFormat,
    factor_bytes,
    planes_of,
)
from deployments.engine.kernels.cpu.simd import LANES, PACK, SHORT, WORD, Code, Emitter
from deployments.engine.quantized.block_rows import (
    BitsInRow,
    BitsOfBytes,
    BlockForm,
    ByteFactors,
    Fields,
    HalfFactor,
)

BYTE, INT = ir.IntType(8), ir.IntType(32)
EACH_BYTE, EACH_OF_FOUR = 0x0101010101010101, 0x01010101
NTH_BIT_OF_NTH_BYTE = 0x8040201008040201
SIGN, HALF_BYTES = 0x8000, 2  # of a float16
FOUR = 4  # factors that are read at once

FORMS: dict[int, BlockForm] = {}  # by their numbers, for the code generator


class BlockPacker(Emitter):
    """Emits what packs one block of one output."""

    def __init__(
        self, builder: Code, form: BlockForm, quantized: QuantizedFormat, source: Code
    ) -> None:
        super().__init__(builder, LANES)
        self._form = form
        self._quantized = quantized
        self._source = source

    def pack_codes(self, packed: Code, block: Code, lane: Code) -> None:
        """Packs the codes of a block of a row, by its number."""
        planes = self._quantized.planes
        by_block = self.times(block, planes.n_bytes(self._form.n_weights))
        out = self.address(packed, by_block, self.times(lane, planes.word_bytes))
        if planes.low_bits == BYTE_BITS:
            self._pack_words(out)
        else:
            self._pack_planes(out, planes)

    def _pack_words(self, out: Code) -> None:
        """Packs codes that are bytes, 4 in a word."""
        (fields,) = self._form.codes
        for nth in range(self._form.n_weights // 4):
            word = self._load(fields.at + 4 * nth, INT)
            self.store(word, self.address(out, 4 * PACK * nth))

    def _pack_planes(self, out: Code, planes: Planes) -> None:
        for first in range(0, self._form.n_weights, planes.unit):
            octets = [self._octet(at) for at in range(first, first + planes.unit, OCTET)]
            below = 0  # bits of a code that are in planes before
            for bits in planes.bits:
                per_word = FOUR // bits  # octets
                fields = [self._word(self._down(octet, below), bits) for octet in octets]
                for begin in range(0, len(octets), per_word):
                    self.store(self._side_by_side(fields[begin : begin + per_word], 2 * bits), out)
                    out = self.address(out, planes.word_bytes * PACK)
                below += bits

    def _side_by_side(self, parts: Sequence[Code], bits: int) -> Code:
        """The first part, and each further one so many bits further up."""
        build, word = self.builder, parts[0]
        for nth, part in enumerate(parts[1:], 1):
            word = build.or_(word, build.shl(part, ir.Constant(INT, bits * nth)))
        return word

    def pack_factors(self, regions: Sequence[Code], block: Code, lane: Code) -> None:
        """Packs the factors of a block of a row, by its number, into the region of each kind."""
        kinds = zip(regions, self._form.factors, self._quantized.factors, strict=False)
        for region, factor, kind in kinds:
            by_block = self.times(block, factor_bytes(kind, factor.n))
            size = HALF_BYTES if isinstance(factor, HalfFactor) else 1
            out = self.address(region, by_block, self.times(lane, size))
            if isinstance(factor, HalfFactor):
                number = self._load(factor.at, SHORT)
                if factor.is_negated:
                    number = self.builder.xor(number, ir.Constant(SHORT, SIGN))
                self._store(number, out)
            else:
                self._pack_bytes(factor, planes_of(kind), out)

    def _pack_bytes(self, factor: ByteFactors, planes: Planes | None, out: Code) -> None:
        """Four numbers fill whole units of planes."""
        bits = (BYTE_BITS,) if planes is None else planes.bits
        assert planes is None or planes.unit == FOUR or len(bits) == 1
        for parts in factor.fours:
            four, below = ir.Constant(INT, 0), 0
            for part in parts:
                four = self.builder.or_(four, self._bits_of_bytes(part))
            for n in bits:
                for word in self._words_of(four, below, n):
                    self._store(word, out)
                    out = self.address(out, PACK)
                below += n

    def _words_of(self, four: Code, below: int, bits: int) -> Iterator[Code]:
        """The words of a plane that have some bits of four bytes: each is a byte."""
        build, per_word = self.builder, BYTE_BITS // bits
        mask = ir.Constant(INT, ((1 << bits) - 1) * EACH_OF_FOUR)
        fields = build.and_(build.lshr(four, ir.Constant(INT, below)), mask)
        joined = fields
        for nth in range(1, per_word):
            down = ir.Constant(INT, (BYTE_BITS - bits) * nth)
            joined = build.or_(joined, build.lshr(fields, down))
        for byte in range(0, FOUR, per_word):
            yield build.trunc(build.lshr(joined, ir.Constant(INT, BYTE_BITS * byte)), BYTE)

    def _bits_of_bytes(self, part: BitsOfBytes | BitsInRow) -> Code:
        """Bits of 4 numbers, a byte each."""
        if isinstance(part, BitsInRow):
            return self._bits_in_row(part)
        build, mask = self.builder, part.mask * EACH_OF_FOUR
        moved = build.lshr(self._load(part.at, INT), ir.Constant(INT, part.down))
        return build.shl(build.and_(moved, ir.Constant(INT, mask)), ir.Constant(INT, part.up))

    def _bits_in_row(self, part: BitsInRow) -> Code:
        build, word = self.builder, self._load(part.at, INT)
        four = ir.Constant(INT, 0)
        for nth in range(FOUR):
            own = build.lshr(word, ir.Constant(INT, part.bits * nth))
            own = build.and_(own, ir.Constant(INT, (1 << part.bits) - 1))
            own = build.shl(own, ir.Constant(INT, BYTE_BITS * nth + part.up))
            four = build.or_(four, own)
        return four

    def _octet(self, first: int) -> Code:
        """8 codes, a byte each."""
        octet, up = ir.Constant(WORD, 0), 0
        for fields in self._form.codes:
            own = self._fields(fields, first)
            octet = self.builder.or_(octet, self.builder.shl(own, self.whole(up)))
            up += fields.bits
        return octet

    def _fields(self, fields: Fields, first: int) -> Code:
        """The fields of 8 codes, a byte each."""
        build, run = self.builder, fields.run
        if run == 1:
            return self._bits_side_by_side(fields.at + first // OCTET)
        nth, within = divmod(first, run * BYTE_BITS // fields.bits)
        down, byte = divmod(within, run)
        word = self._load(fields.at + nth * run + byte, WORD)
        mask = ((1 << fields.bits) - 1) * EACH_BYTE
        return build.and_(self._down(word, down * fields.bits), self.whole(mask))

    def _bits_side_by_side(self, at: int) -> Code:
        """The bits of a byte, a byte each."""
        build = self.builder
        byte = build.zext(self._load(at, BYTE), WORD)
        bits = build.and_(build.mul(byte, self.whole(EACH_BYTE)), self.whole(NTH_BIT_OF_NTH_BYTE))
        # Any bit becomes the highest one of its byte.
        bits = build.or_(build.add(bits, self.whole(0x7F * EACH_BYTE)), bits)
        return build.and_(self._down(bits, 7), self.whole(EACH_BYTE))

    def _word(self, octet: Code, bits: int) -> Code:
        """Fields of so many bits of 8 codes: each byte holds that of a code, and of the fourth
        after it."""
        build, mask = self.builder, ((1 << bits) - 1) * EACH_BYTE
        fields = build.and_(octet, self.whole(mask))
        low = build.trunc(fields, INT)
        return build.or_(low, build.trunc(self._down(fields, 32 - bits), INT))

    def _down(self, value: Code, by: int) -> Code:
        return self.builder.lshr(value, self.whole(by)) if by else value

    def _load(self, at: int, kind: Code) -> Code:
        """Loads from a byte of the block, wherever in memory it lies."""
        address = self.address(self._source, at)
        return self.builder.load(self.builder.inttoptr(address, kind.as_pointer()), align=1)

    def _store(self, number: Code, address: Code) -> None:
        pointer = self.builder.inttoptr(address, number.type.as_pointer())
        self.builder.store(number, pointer, align=1)


@intrinsic(prefer_literal=True)
def pack_block(
    typing: Code,
    source: Code,
    packed: Code,
    first: Code,
    second: Code,
    third: Code,
    fourth: Code,
    block: Code,
    lane: Code,
    form: Code,
    quantized: Code,
) -> tuple[Signature, Code]:
    """Packs a block into a packed block of outputs.

    source: the address of the block, which is the one of this number of its row.
    packed, first, second, third, fourth: the addresses of codes and of each kind of factors.
    lane: the number of the row among those that are packed together.
    form, quantized: the numbers of the form of the block and of the packed format, as literals.
    """
    block_form, pack_format = FORMS[form.literal_value], FORMATS[quantized.literal_value]

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        source, packed, *regions, block, lane = arguments[:8]
        packer = BlockPacker(builder, block_form, pack_format, source)
        packer.pack_codes(packed, block, lane)
        packer.pack_factors(regions, block, lane)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 8, form, quantized), generate

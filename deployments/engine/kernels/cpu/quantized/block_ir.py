"""Packs a block of a row's codes and factors: LLVM IR for each form of blocks."""

from collections.abc import Sequence

from llvmlite import ir
from numba import types
from numba.core.typing import Signature
from numba.extending import intrinsic

from deployments.engine.kernels.cpu.pack_format import OCTET
from deployments.engine.kernels.cpu.simd import LANES, PACK, SHORT, WORD, Code, Emitter
from deployments.engine.quantized.block_rows import (
    BitsOfBytes,
    BlockForm,
    ByteFactors,
    Fields,
    HalfFactor,
)

BYTE, INT = ir.IntType(8), ir.IntType(32)
EACH_BYTE = 0x0101010101010101
NTH_BIT_OF_NTH_BYTE = 0x8040201008040201
SIGN, HALF_BYTES = 0x8000, 2  # of a float16
WHOLE_BYTE = 8  # bits
BITS_OF_LOW = 4  # of a code, which are in the first plane

FORMS: dict[int, BlockForm] = {}  # by their numbers, for the code generator


def code_bytes(form: BlockForm, high_bits: int) -> int:
    """Bytes that the codes of a block of PACK outputs take, packed as `pack_block` says."""
    bits = WHOLE_BYTE if high_bits == WHOLE_BYTE else BITS_OF_LOW + high_bits
    return form.n_weights * PACK * bits // 8


class BlockPacker(Emitter):
    """Emits what packs one block of one output."""

    def __init__(self, builder: Code, form: BlockForm, source: Code) -> None:
        super().__init__(builder, LANES)
        self._form = form
        self._source = source

    def pack_words(self, out: Code) -> None:
        """Packs codes that are bytes, 4 in a word."""
        (fields,) = self._form.codes
        for nth in range(self._form.n_weights // 4):
            word = self._load(fields.at + 4 * nth, INT)
            self.store(word, self.address(out, 4 * PACK * nth))

    def pack_planes(self, out: Code, high_bits: int) -> None:
        """Packs a plane of 4 bits, and one of `high_bits`, which may be none."""
        build, at = self.builder, out
        per_word = BITS_OF_LOW // (high_bits or BITS_OF_LOW)  # octets of a word of the second plane
        n_octets = self._form.n_weights // OCTET
        for first in range(0, n_octets, per_word):
            above = ir.Constant(INT, 0)
            for nth in range(per_word):
                octet = self._octet((first + nth) * OCTET)
                self.store(self._word(octet, BITS_OF_LOW), at)
                at = self.address(at, 4 * PACK)
                if high_bits:
                    own = self._word(self._down(octet, BITS_OF_LOW), high_bits)
                    by = ir.Constant(INT, 2 * high_bits * nth)
                    above = build.or_(above, build.shl(own, by))
            if high_bits:
                self.store(above, at)
                at = self.address(at, 4 * PACK)

    def pack_factors(self, regions: Sequence[Code], block: Code, lane: Code) -> None:
        """Packs the factors of a block of a row, by its number, into the region of each kind."""
        for region, factor in zip(regions, self._form.factors, strict=False):
            size = HALF_BYTES if isinstance(factor, HalfFactor) else 1
            by_block, by_lane = self.times(block, factor.n * PACK * size), self.times(lane, size)
            out = self.address(region, by_block, by_lane)
            if isinstance(factor, HalfFactor):
                number = self._load(factor.at, SHORT)
                if factor.is_negated:
                    number = self.builder.xor(number, ir.Constant(SHORT, SIGN))
                self._store(number, out)
            else:
                self._pack_bytes(factor, out)

    def _pack_bytes(self, factor: ByteFactors, out: Code) -> None:
        build = self.builder
        for nth, parts in enumerate(factor.fours):
            four = ir.Constant(INT, 0)
            for part in parts:
                four = build.or_(four, self._bits_of_bytes(part))
            for byte in range(4):
                number = build.trunc(build.lshr(four, ir.Constant(INT, 8 * byte)), BYTE)
                self._store(number, self.address(out, (4 * nth + byte) * PACK))

    def _bits_of_bytes(self, part: BitsOfBytes) -> Code:
        build, mask = self.builder, part.mask * (EACH_BYTE & 0xFFFFFFFF)
        moved = build.lshr(self._load(part.at, INT), ir.Constant(INT, part.down))
        return build.shl(build.and_(moved, ir.Constant(INT, mask)), ir.Constant(INT, part.up))

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
        nth, within = divmod(first, run * WHOLE_BYTE // fields.bits)
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
    high_bits: Code,
    number: Code,
) -> tuple[Signature, Code]:
    """Packs a block of the form that has this `number`, into a packed block of outputs.

    source: the address of the block, which is the one of this number of its row.
    packed, first, second, third, fourth: the addresses of codes and of each kind of factors.
    lane: the number of the row among those that are packed together.
    high_bits: of the second plane, or WHOLE_BYTE where codes are bytes. It and `number` are
        literals.
    """
    form, high = FORMS[number.literal_value], high_bits.literal_value

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        source, packed, *regions, block, lane = arguments[:8]
        packer = BlockPacker(builder, form, source)
        out = packer.address(
            packed, packer.times(block, code_bytes(form, high)), packer.times(lane, 4)
        )
        if high == WHOLE_BYTE:
            packer.pack_words(out)
        else:
            packer.pack_planes(out, high)
        packer.pack_factors(regions, block, lane)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 8, high_bits, number), generate

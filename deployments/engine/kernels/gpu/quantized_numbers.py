"""Numbers of quantized weights, made in registers of a Triton kernel.

Codes lie in slabs of 128 inputs. A slab of a row is 8 runs of 16 inputs. A word has the codes of
two inputs side by side of each run: one moves to its low half, the other one to its high half, and
both become numbers by the same operations, where a matrix instruction takes them from.

A matrix whose codes are natural has them byte by byte, as torch multiplies them. The runs of a slab
are then 4, each of every fourth pair of inputs.
"""

from dataclasses import dataclass

import triton
import triton.language as tl

SLAB = tl.constexpr(128)  # inputs whose codes lie side by side
PAIRS = tl.constexpr(8)  # of codes in a run
NATURAL_WORDS = tl.constexpr(16)  # of 8 codes, in a slab


@dataclass(frozen=True)
class Coding:
    """How codes are stored and read, known to the compiler.

    kind: "integers", "int8", "e4m3", "e2m1", or "table".
    low, high: bits of a code in each plane; high may be 0.
    offset: what is added to integers.
    factor: what numbers of e2m1 are multiplied by, a power of two.
    """

    kind: str
    low: int
    high: int = 0
    offset: int = 0
    factor: float = 1.0
    is_natural: bool = False

    @property
    def runs(self) -> int:
        """Runs of a slab."""
        return 4 if self.is_natural else 8

    @property
    def low_words(self) -> int:
        """Words of a slab's row in the plane of low bits."""
        return 16 if self.low == 8 else 8


@dataclass(frozen=True)
class Factor:
    """A factor of each group, known to the compiler. A slab's factors of a row share words.

    kind: a name of torch's: "float32", "float16", "bfloat16", "uint8", "int8", "float8_e4m3fn".
    size: inputs of a group; 0: all of a row.
    """

    kind: str
    size: int

    @property
    def bits(self) -> int:
        return 32 if self.kind == "float32" else 16 if self.kind.endswith("16") else 8

    @property
    def in_slab(self) -> int:
        """The groups of a slab, 1 at least."""
        return 1 if self.size == 0 else max(1, 128 // self.size)

    @property
    def in_word(self) -> int:
        return min(self.in_slab, 64 // self.bits)

    @property
    def words(self) -> int:
        """Words of a row and slab."""
        return self.in_slab // self.in_word


@dataclass(frozen=True)
class Scaling:
    """The factors of a group's sum, known to the compiler. `coarse` and `fine` are the factors of
    its scale, those of `least` are of what each weight has more.

    group: inputs whose sum is scaled at once, a slab at most; 0: all of a row.
    """

    coarse: Factor
    fine: Factor | None
    least: Factor | None
    fine_least: Factor | None
    group: int


@triton.jit
def inputs_of(slab, RUN: tl.constexpr, WIDE: tl.constexpr, CODING: tl.constexpr):
    """The numbers of the inputs of some runs side by side."""
    runs: tl.constexpr = CODING.runs
    lane = tl.arange(0, SLAB // runs * WIDE)
    within = lane // 2 * 8 + RUN * 2 + lane % 2 if CODING.is_natural else RUN * 16 + lane
    return slab * SLAB + within


@triton.jit
def _field(word, SHIFT: tl.constexpr, MASK: tl.constexpr):
    """Bits from SHIFT on of each half of 32-bit words; below 0: they move up by as many."""
    moved = word >> SHIFT if SHIFT >= 0 else word << -SHIFT
    both: tl.constexpr = MASK * 0x10001
    return moved & (both if both < 2**31 else both - 2**32)


@triton.jit
def _words(plane, RUN: tl.constexpr, BITS: tl.constexpr, IS_NATURAL: tl.constexpr):
    """32-bit words that have the codes of a run: its even ones in their low halves."""
    if IS_NATURAL:
        word = (plane >> (16 * RUN)).to(tl.int32)
        word = (word & 0xFFFF) | (word << 8)
    elif BITS == 8:
        word = (plane >> (32 * (RUN % 4 // 2))).to(tl.int32)
    elif BITS == 4:
        word = (plane >> (32 * (RUN // 4))).to(tl.int32)
    elif BITS == 2:
        word = plane
    else:
        word = plane.to(tl.int32)
        word = (word & 0xFFFF) | (word << 8)
    return word


@triton.jit
def _halves(pairs):
    """The halves [n, 2 m] of words [n, m]."""
    both = tl.join(pairs.to(tl.int16), (pairs >> 16).to(tl.int16))
    return both.reshape(pairs.shape[0], 2 * pairs.shape[1])


@triton.jit
def _floats(pairs, KIND: tl.constexpr, DOT: tl.constexpr):
    """The numbers of 16 bits that words are made of. Some are too small to be normal ones."""
    halves = _halves(pairs)
    if tl.float32 == DOT and tl.bfloat16 == KIND:
        numbers = (halves.to(tl.int32) << 16).to(tl.float32, bitcast=True)
    else:
        numbers = halves.to(KIND, bitcast=True).to(DOT)
    return numbers


@triton.constexpr_function
def base_of(coding: Coding, kind: tl.dtype) -> float:
    """How much larger integers are than those that codes stand for, where they have their base."""
    return (1024.0 if kind == tl.float16 else 128.0) - coding.offset


@triton.jit
def run_of_numbers(
    low, high, table, RUN: tl.constexpr, CODING: tl.constexpr, HAS_BASE: tl.constexpr,
    KIND: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """The numbers that a run of codes stands for: [outputs, inputs] of DOT.

    KIND is float16 or bfloat16. An integer becomes one as the last bits of a large number of that
    type, which is subtracted, unless it has its base.
    """
    word = _words(low, RUN, CODING.low, CODING.is_natural)
    bit: tl.constexpr = 0 if CODING.is_natural else CODING.low * RUN % 16
    is_half: tl.constexpr = tl.float16 == KIND
    if CODING.kind == "e4m3":
        # The exponent is moved to the larger one's place, and what it lacks is multiplied.
        up: tl.constexpr = 7 if is_half else 4
        pairs = _field(word, bit - up, 0x7F << up) | _field(word, bit - 8, 0x8000)
        factor: tl.constexpr = 256.0 if is_half else 2.0**120
        numbers = _floats(pairs, KIND, DOT) * tl.full((), factor, DOT)
    elif CODING.kind == "e2m1":
        moved: tl.constexpr = 9 if is_half else 6
        pairs = _field(word, bit - moved, 7 << moved) | _field(word, bit - 12, 0x8000)
        lacking: tl.constexpr = CODING.factor * (2.0**14 if is_half else 2.0**126)
        numbers = _floats(pairs, KIND, DOT) * tl.full((), lacking, DOT)
    elif CODING.kind == "int8" and is_half:
        pairs = _field(word, bit, 0xFF) ^ 0x64806480
        numbers = _floats(pairs, KIND, DOT) - tl.full((), 1152.0 - CODING.offset, DOT)
    elif CODING.kind == "int8":
        # bfloat16 holds 7 bits of the 8, and the sign is in what is subtracted.
        pairs = _field(word, bit, 0x7F) | 0x43004300
        signs = _field(word, bit, 0x80) | 0x43004300
        numbers = _floats(pairs, KIND, DOT) - _floats(signs, KIND, DOT)
        if CODING.offset != 0:
            numbers += tl.full((), CODING.offset, DOT)
    else:
        integers: tl.constexpr = 0x64006400 if is_half else 0x43004300
        large: tl.constexpr = 0 if CODING.kind == "table" else integers
        pairs = _field(word, bit, (1 << CODING.low) - 1) | large
        if CODING.high > 0:
            mask: tl.constexpr = ((1 << CODING.high) - 1) << CODING.low
            high_word = _words(high, RUN, CODING.high, False)
            pairs |= _field(high_word, CODING.high * RUN - CODING.low, mask)
        if CODING.kind == "table":
            numbers = tl.load(table + (_halves(pairs) & 0xFF)).to(DOT)
        else:
            numbers = _floats(pairs, KIND, DOT)
            if not HAS_BASE:
                numbers -= tl.full((), base_of(CODING, KIND), DOT)
    return numbers


@triton.jit
def _number(word, INDEX: tl.constexpr, FACTOR: tl.constexpr):
    """float32: one of the factors that words have side by side."""
    bit: tl.constexpr = INDEX * FACTOR.bits % 32
    half = word  # a byte of 64 bits takes more operations to become a number than one of 32
    if FACTOR.in_word * FACTOR.bits == 64:
        half = (word >> (INDEX * FACTOR.bits // 32 * 32)).to(tl.int32)
    if FACTOR.kind == "float32":
        number = half.to(tl.float32, bitcast=True)
    elif FACTOR.kind == "float16":
        number = (half >> bit).to(tl.int16).to(tl.float16, bitcast=True)
    elif FACTOR.kind == "bfloat16":
        number = (half >> bit).to(tl.int16).to(tl.bfloat16, bitcast=True)
    elif FACTOR.kind == "uint8":
        number = (half >> bit) & 0xFF
    elif FACTOR.kind == "int8":
        number = (half.to(tl.int32) << (24 - bit)) >> 24
    else:
        number = (half >> bit).to(tl.int8).to(tl.float8e4nv, bitcast=True)
    return number.to(tl.float32)


@triton.jit
def row_factor(words, slab, row, n_rows, RUN: tl.constexpr, FACTOR: tl.constexpr):
    """float32 [rows]: the factors of a run of a slab."""
    group: tl.constexpr = RUN * 16 * FACTOR.in_slab // SLAB
    at = words + group // FACTOR.in_word
    if FACTOR.size > 0:
        at += tl.full((), n_rows, tl.int64) * (slab * SLAB // max(FACTOR.size, SLAB)) * FACTOR.words
    word = tl.load(at + row * FACTOR.words)
    return _number(word, group % FACTOR.in_word, FACTOR)

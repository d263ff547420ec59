"""How packed weights lie in memory.

The outputs of a matrix are taken `pack` at a time, filled up with zeros: a block. Quantized weights
keep their codes and factors as they are, each kind in a region of its own in each block.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple
from zlib import crc32

import torch

from deployments.engine.kernels.cpu.simd import (
    HAS_AVX512,
    HAS_BYTE_PRODUCTS,
    HAS_F16C,
    HAS_PAIR_PRODUCTS,
    PACK,
)
from deployments.engine.quantized.layout import E4M3, INT8, Codebook, FactorType, Layout

BYTE_BITS = 8
OCTET = 8  # inputs whose lower four bits are a word
ALIGNMENT = 64  # bytes: a block begins with a cache line
MAX_CODEBOOK = 32  # numbers of a codebook that are looked up, where vectors have 16 lanes
SUMMED, MAX_SUMMED = 128, 256  # inputs whose products with bytes are summed as int32, and at most
WORD_BYTES = 4  # of a plane of weights' codes
# The bits of planes, by those of a code: the first ones whose units fit groups.
PLANES: dict[int, Sequence[tuple[int, ...]]] = {
    1: [(2,), (4,)],
    2: [(2,), (4,)],
    3: [(2, 1), (4,)],
    4: [(4,)],
    5: [(4, 1)],
    6: [(4, 2)],
}
FACTOR_PLANES: dict[int, tuple[int, ...]] = {4: (4,), 6: (4, 2)}  # the same of factors
MAX_FACTORS = 4  # two of scales, and two of least numbers
FACTOR_TYPES = frozenset(
    {torch.float32, torch.float16, torch.bfloat16, torch.uint8, torch.int8, torch.float8_e4m3fn}
)


class Planes(NamedTuple):
    """How codes lie in memory: a plane has some bits of each, side by side.

    bits: of each plane, from the lowest of a code on. There are one or two.
    word_bytes: a plane has words [PACK] for so many codes as fit in. Each byte of a word of n bytes
        holds every n-th of these, from its lowest bits on.
    unit: codes that begin with a word in each plane. Units follow each other: words of the first
        plane, then one of the second.
    """

    bits: tuple[int, ...]
    word_bytes: int
    unit: int

    @property
    def low_bits(self) -> int:
        """Bits of the first plane."""
        return self.bits[0]

    @property
    def high_bits(self) -> int:
        """Bits of the second plane, which may be none."""
        return self.bits[1] if len(self.bits) > 1 else 0

    @property
    def word_codes(self) -> int:
        """Codes of a word of the first plane."""
        return BYTE_BITS * self.word_bytes // self.low_bits

    @property
    def low_words(self) -> int:
        """Words of the first plane in a unit."""
        return self.unit // self.word_codes

    @property
    def unit_bytes(self) -> int:
        return self.n_bytes(self.unit)

    def n_bytes(self, n_codes: int) -> int:
        """Bytes of some codes, which are whole units, of PACK outputs."""
        return n_codes * PACK * sum(self.bits) // BYTE_BITS

    def filled(self, n_codes: int) -> int:
        """The number of codes of as many whole units as these take."""
        return n_codes + -n_codes % self.unit


def _in_words(bits: tuple[int, ...], word_bytes: int) -> Planes:
    return Planes(bits, word_bytes, BYTE_BITS * word_bytes // bits[-1])


class Integers(NamedTuple):
    """Numbers that are whole multiples of a unit: `unit * (byte + offset)`, for a byte of a code.

    flipped: bits of a code that are inverted, which gives its byte; or
    table: the bytes of all codes, of which there are 16. Empty: none are looked up.
    """

    unit: float
    offset: int
    flipped: int = 0
    table: tuple[int, ...] = ()


def _integers(codebook: Codebook) -> Integers | None:
    if codebook == INT8:  # its codes are in two's complement
        return Integers(1, -128, flipped=128)
    if codebook.offset is not None:
        return Integers(1, codebook.offset)
    for unit in (1, 0.5):
        numbers = [value / unit for value in codebook.values]
        least = min(numbers)
        is_whole = all(number.is_integer() for number in numbers)
        if is_whole and max(numbers) - least < 256 and len(numbers) == 16:
            return Integers(unit, int(least), table=tuple(int(n - least) for n in numbers))
    return None


class Regions(NamedTuple):
    """The sizes of a block. Its codes are at its begin.

    factors: the offset of each kind of factors: those of scales, then those of least numbers. There
        are always four; those of no kind are 0.
    n_totals: sums of inputs of each row of x, which least numbers are multiplied with.
    stride: bytes of a block.
    """

    n_inputs: int  # filled up with zeros
    n_totals: int
    factors: tuple[int, ...]
    stride: int


@dataclass(frozen=True, eq=False)
class QuantizedFormat:
    """How the rows of a layout are packed. There is one object of each layout.

    planes: of its codes.
    """

    layout: Layout
    planes: Planes

    @property
    def has_words(self) -> bool:
        """Whether codes are in words of 4; those of E4M3 are bytes [inputs, PACK]."""
        return self.planes.word_bytes == WORD_BYTES

    @property
    def is_half_unit(self) -> bool:
        """Whether two groups share a unit."""
        return 2 * self.group == self.planes.unit

    @property
    def group(self) -> int:
        """Inputs that share a scale; 0: all of a row."""
        return self.layout.scale[0].group

    @property
    def factors(self) -> tuple[FactorType, ...]:
        return self.layout.scale + self.layout.least

    @cached_property
    def has_pairs(self) -> bool:
        """Whether products are computed of pairs of bfloat16, which hold its numbers exactly."""
        return HAS_PAIR_PRODUCTS and not self.has_words

    @cached_property
    def integers(self) -> Integers | None:
        """Says what its codes are where products are computed of bytes; None: they are not."""
        is_summed = self.group <= MAX_SUMMED or self.group % SUMMED == 0
        return _integers(self.layout.codebook) if HAS_BYTE_PRODUCTS and is_summed else None

    @property
    def input_group(self) -> int:
        """Inputs that share a scale where they become integers."""
        return self.group if 0 < self.group <= MAX_SUMMED else SUMMED

    @cached_property
    def number(self) -> int:
        """Names the format where kernels are compiled, and where these are kept."""
        numbers = ",".join(map(str, self.layout.codebook.values))
        return crc32(f"{self.layout.codebook.name} {numbers} {self.factors} {self.planes}".encode())

    def n_groups(self, factor: FactorType, n_inputs: int) -> int:
        return n_inputs // factor.group if factor.group else 1

    def regions(self, n_inputs: int) -> Regions:
        filled = self.planes.filled(n_inputs)
        at, offsets = self.planes.n_bytes(filled), []
        for factor in self.factors:
            at += -at % ALIGNMENT
            offsets.append(at)
            at += factor_bytes(factor, self.n_groups(factor, n_inputs))
        offsets += [0] * (MAX_FACTORS - len(offsets))
        least = self.layout.least
        n_totals = self.n_groups(least[0], n_inputs) if least else 0
        return Regions(filled, n_totals, tuple(offsets), at + -at % ALIGNMENT)


@cache
def planes_of(factor: FactorType) -> Planes | None:
    """The planes of a factor, in words of a byte; None: its numbers lie [groups, PACK] as they
    are."""
    return _in_words(FACTOR_PLANES[factor.bits], 1) if factor.bits else None


def factor_bytes(factor: FactorType, n_groups: int) -> int:
    """Bytes that the factors of some groups of PACK outputs take."""
    planes = planes_of(factor)
    if planes is None:
        return n_groups * PACK * factor.dtype.itemsize
    return planes.n_bytes(planes.filled(n_groups))


class PackFormat(NamedTuple):
    """The layout of a packed matrix: its weights lie [out / pack, ...], filled up with zeros.

    quantized: None where the weights are bfloat16, [in / 2, pack, 2] in a block.
    """

    pack: int
    quantized: QuantizedFormat | None = None


FORMATS: dict[int, QuantizedFormat] = {}  # by their numbers, for the code generator


@cache
def format_of(layout: Layout) -> QuantizedFormat | None:
    """None: our kernels can't compute with it."""
    planes = _planes(layout)
    if planes is None or not HAS_F16C or not _has_known_factors(layout):
        return None
    made = QuantizedFormat(layout, planes)
    assert made.number not in FORMATS
    FORMATS[made.number] = made
    return made


def _has_known_factors(layout: Layout) -> bool:
    kinds = (layout.scale, layout.least) if layout.least else (layout.scale,)
    return all(
        len(kind) <= 2
        and kind[0].group == layout.scale[0].group
        and all(factor.dtype in FACTOR_TYPES for factor in kind)
        and all(factor.bits in FACTOR_PLANES for factor in kind if factor.bits)
        for kind in kinds
    )


def _planes(layout: Layout) -> Planes | None:
    codebook, group = layout.codebook, layout.scale[0].group
    for bits in PLANES.get(codebook.bits, ()):
        planes = _in_words(bits, WORD_BYTES)
        is_half = 2 * group == planes.unit == 2 * planes.word_codes
        if _is_decoded(layout) and (group % planes.unit == 0 or is_half):
            return planes
    if codebook == E4M3:
        return Planes((BYTE_BITS,), 1, 2)
    if codebook == INT8 or codebook.offset is not None:
        return Planes((BYTE_BITS,), WORD_BYTES, OCTET)
    return None


def _is_decoded(layout: Layout) -> bool:
    """Whether kernels can make numbers of codes in planes."""
    n = len(layout.codebook.values)
    return layout.codebook.offset is not None or n <= (MAX_CODEBOOK if HAS_AVX512 else 16)

"""Says where the codes and factors of GGUF's common types lie in a block.

Rows of these types are packed as they lie in the file. The codes and factors are those that
`unpacking.py` makes, bit for bit; whole numbers that are signed have 0 at the least one.
"""

from collections.abc import Mapping

from deployments.engine.quantized.block_rows import (
    BitsInRow,
    BitsOfBytes,
    BlockForm,
    ByteFactors,
    Fields,
    HalfFactor,
)

# Q4_K and Q5_K, as `unpacking.py` says: low bits at 4 and 8, the other ones of the last four of
# either kind at 12.
SCALES = ByteFactors(
    ((BitsOfBytes(4, 63),), (BitsOfBytes(12, 15), BitsOfBytes(4, 3, down=6, up=4)))
)
MINIMA = ByteFactors(
    ((BitsOfBytes(8, 63),), (BitsOfBytes(12, 15, down=4), BitsOfBytes(8, 3, down=6, up=4)))
)
WITH_MINIMA = (SCALES, HalfFactor(0), MINIMA, HalfFactor(2, is_negated=True))


def _fours(at: int, n: int, mask: int = 255, down: int = 0) -> ByteFactors:
    """The bits of n bytes side by side."""
    return ByteFactors(tuple((BitsOfBytes(at + i, mask, down),) for i in range(0, n, 4)))


# Q3_K: the low bits of 16 scales in 8 bytes, then their 2 other bits in 4.
SCALES_OF_3_BITS = ByteFactors(
    tuple(
        (
            BitsOfBytes(96 + 4 * (nth % 2), 15, down=4 * (nth // 2)),
            BitsOfBytes(104, 3, down=2 * nth, up=4),
        )
        for nth in range(4)
    )
)

# IQ4_XS: the low bits of 8 scales in 4 bytes, their 2 other bits in the 2 bytes before.
SCALES_IN_ROWS = ByteFactors(
    tuple((BitsInRow(4 + 2 * nth, 4), BitsInRow(2 + nth, 2, up=4)) for nth in range(2))
)

BLOCK_FORMS: Mapping[str, BlockForm] = {
    "Q4_0": BlockForm(32, 18, (Fields(2, 4, 16),), (HalfFactor(0),)),
    "Q4_1": BlockForm(32, 20, (Fields(4, 4, 16),), (HalfFactor(0), HalfFactor(2))),
    "Q5_0": BlockForm(32, 22, (Fields(6, 4, 16), Fields(2, 1, 1)), (HalfFactor(0),)),
    "Q5_1": BlockForm(32, 24, (Fields(8, 4, 16), Fields(4, 1, 1)), (HalfFactor(0), HalfFactor(2))),
    "Q8_0": BlockForm(32, 34, (Fields(2, 8, 1),), (HalfFactor(0),)),
    "Q2_K": BlockForm(
        256,
        84,
        (Fields(16, 2, 32),),
        (
            *(_fours(0, 16, 15), HalfFactor(80)),
            *(_fours(0, 16, 15, down=4), HalfFactor(82, is_negated=True)),
        ),
    ),
    "Q3_K": BlockForm(
        256, 110, (Fields(32, 2, 32), Fields(0, 1, 32)), (SCALES_OF_3_BITS, HalfFactor(108))
    ),
    "Q4_K": BlockForm(256, 144, (Fields(16, 4, 32),), WITH_MINIMA),
    "Q5_K": BlockForm(256, 176, (Fields(48, 4, 32), Fields(16, 1, 32)), WITH_MINIMA),
    "Q6_K": BlockForm(
        256, 210, (Fields(0, 4, 64), Fields(128, 2, 32)), (_fours(192, 16), HalfFactor(208))
    ),
    "IQ4_NL": BlockForm(32, 18, (Fields(2, 4, 16),), (HalfFactor(0),)),
    "IQ4_XS": BlockForm(256, 136, (Fields(8, 4, 16),), (SCALES_IN_ROWS, HalfFactor(0))),
}

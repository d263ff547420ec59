"""The types in which GGUF files store weights: blocks that lie side by side along a row.

Source: `ggml_type` in llama.cpp's ggml.h.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class BlockType:
    """How a block of weights is stored.

    id: of the type in files.
    n_weights, n_bytes: of a block.
    """

    id: int
    name: str
    n_weights: int
    n_bytes: int


BLOCK_TYPES: Mapping[int, BlockType] = {
    block_type.id: block_type
    for block_type in (
        BlockType(0, "F32", 1, 4),
        BlockType(1, "F16", 1, 2),
        BlockType(2, "Q4_0", 32, 18),
        BlockType(3, "Q4_1", 32, 20),
        BlockType(6, "Q5_0", 32, 22),
        BlockType(7, "Q5_1", 32, 24),
        BlockType(8, "Q8_0", 32, 34),
        BlockType(10, "Q2_K", 256, 84),
        BlockType(11, "Q3_K", 256, 110),
        BlockType(12, "Q4_K", 256, 144),
        BlockType(13, "Q5_K", 256, 176),
        BlockType(14, "Q6_K", 256, 210),
        BlockType(20, "IQ4_NL", 32, 18),
        BlockType(23, "IQ4_XS", 256, 136),
        BlockType(24, "I8", 1, 1),
        BlockType(25, "I16", 1, 2),
        BlockType(26, "I32", 1, 4),
        BlockType(28, "F64", 1, 8),
        BlockType(30, "BF16", 1, 2),
        BlockType(39, "MXFP4", 32, 17),
        BlockType(40, "NVFP4", 64, 36),
    )
}
# Types that are not read, so that an error can name them. IQ1 to IQ3 need codebooks.
OTHER_NAMES: Mapping[int, str] = {
    9: "Q8_1",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    21: "IQ3_S",
    22: "IQ2_S",
    27: "I64",
    29: "IQ1_M",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    34: "TQ1_0",
    35: "TQ2_0",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
    41: "Q1_0",
}


def type_name(type_id: int) -> str:
    known = BLOCK_TYPES.get(type_id)
    return known.name if known else OTHER_NAMES.get(type_id, f"of number {type_id}")

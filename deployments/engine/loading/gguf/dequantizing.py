"""Dequantizes the blocks that GGUF files hold, bit for bit as the package `gguf` does.

Each function takes uint8 [rows, blocks, bytes of a block] and returns float32 [rows, weights].
Products are rounded in the same order as there: a scale times its group's scale comes first.

Source: `dequantize_row_*` in llama.cpp's ggml-quants.c.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Dequantize = Callable[[Bytes], Floats]

# The values of IQ4_NL and IQ4_XS.
IQ4_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)
# The values of e2m1, doubled, as their scales are halved. Both zeros are positive in ggml.
TWICE_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


def _half_ue4m3() -> Floats:
    """Half of each value of e4m3 without a sign, whose bit is ignored; ggml takes NaN for 0."""
    codes = np.arange(256)
    exponents, mantissas = codes >> 3 & 15, codes & 7
    whole = np.where(exponents == 0, mantissas, mantissas + 8).astype(np.float32)
    halves: Floats = np.ldexp(whole, np.maximum(exponents, 1) - 11)
    halves[0x7F] = 0
    return halves


HALF_UE4M3 = _half_ue4m3()


def plain(dtype: str) -> Dequantize:
    """Returns the function for a type of numpy's, which is a block of its own."""

    def convert(blocks: Bytes) -> Floats:
        return _as_rows(blocks.view(dtype))

    return convert


def bf16(blocks: Bytes) -> Floats:
    return _as_rows((blocks.view("<u2").astype(np.uint32) << 16).view(np.float32))


def q4_0(blocks: Bytes) -> Floats:
    return _as_rows(_half(blocks, 0) * (_floats(_fields(blocks[..., 2:], 4, 16)) - 8))


def q4_1(blocks: Bytes) -> Floats:
    return _as_rows(_half(blocks, 0) * _floats(_fields(blocks[..., 4:], 4, 16)) + _half(blocks, 2))


def q5_0(blocks: Bytes) -> Floats:
    return _as_rows(_half(blocks, 0) * (_floats(_five_bits(blocks[..., 2:])) - 16))


def q5_1(blocks: Bytes) -> Floats:
    return _as_rows(_half(blocks, 0) * _floats(_five_bits(blocks[..., 4:])) + _half(blocks, 2))


def q8_0(blocks: Bytes) -> Floats:
    return _as_rows(_half(blocks, 0) * _floats(blocks[..., 2:].view(np.int8)))


def q2_k(blocks: Bytes) -> Floats:
    scales, minima = blocks[..., :16] & 15, blocks[..., :16] >> 4
    values = _groups(_fields(blocks[..., 16:80], 2, 32), 16)
    return _as_rows(_scales(blocks, 80, scales) * values - _scales(blocks, 82, minima))


def q3_k(blocks: Bytes) -> Floats:
    low, high = _fields(blocks[..., 96:104], 4, 8), _fields(blocks[..., 104:108], 2, 4)
    scales = _scales(blocks, 108, _floats(low | high << 4) - 32)
    values = _fields(blocks[..., 32:96], 2, 32) | _fields(blocks[..., :32], 1, 32) << 2
    return _as_rows(scales * (_groups(values, 16) - 4))


def q4_k(blocks: Bytes) -> Floats:
    scales, minima = _scales_and_minima(blocks)
    return _as_rows(scales * _groups(_fields(blocks[..., 16:], 4, 32), 8) - minima)


def q5_k(blocks: Bytes) -> Floats:
    scales, minima = _scales_and_minima(blocks)
    values = _fields(blocks[..., 48:], 4, 32) | _fields(blocks[..., 16:48], 1, 32) << 4
    return _as_rows(scales * _groups(values, 8) - minima)


def q6_k(blocks: Bytes) -> Floats:
    values = _fields(blocks[..., :128], 4, 64) | _fields(blocks[..., 128:192], 2, 32) << 4
    scales = _scales(blocks, 208, blocks[..., 192:208].view(np.int8))
    return _as_rows(scales * (_groups(values, 16) - 32))


def iq4_nl(blocks: Bytes) -> Floats:
    return _as_rows(_half(blocks, 0) * IQ4_VALUES[_fields(blocks[..., 2:], 4, 16)])


def iq4_xs(blocks: Bytes) -> Floats:
    low, high = _fields(blocks[..., 4:8], 4, 1), _fields(blocks[..., 2:4], 2, 1)
    scales = _scales(blocks, 0, _floats(low | high << 4) - 32)
    return _as_rows(scales * _groups(IQ4_VALUES[_fields(blocks[..., 8:], 4, 16)], 8))


def mxfp4(blocks: Bytes) -> Floats:
    half_scales = np.ldexp(np.float32(1), blocks[..., :1].astype(np.int32) - 128)
    return _as_rows(half_scales * TWICE_E2M1[_fields(blocks[..., 1:], 4, 16)])


def nvfp4(blocks: Bytes) -> Floats:
    """The weights without the scale of the whole tensor, which is a tensor of its own, `.scale`."""
    values = TWICE_E2M1[_fields(blocks[..., 4:], 4, 8)]
    return _as_rows(HALF_UE4M3[blocks[..., :4]][..., None] * _groups(values, 4))


def _fields(packed: Bytes, bits: int, run: int) -> Bytes:
    """The fields of `bits` bits in packed bytes [..., bytes], as uint8 [..., bytes * 8 / bits].

    Each `run` bytes give 8 / bits runs of fields: the lowest field of each of these bytes, then the
    next one of each.
    """
    shifts: Bytes = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    runs: Bytes = packed.reshape(*packed.shape[:-1], -1, 1, run) >> shifts & np.uint8(
        (1 << bits) - 1
    )
    return runs.reshape(*packed.shape[:-1], -1)


def _five_bits(packed: Bytes) -> Bytes:
    """The values of Q5: their fifth bits are in the first 4 bytes."""
    return _fields(packed[..., 4:], 4, 16) | _fields(packed[..., :4], 1, 1) << np.uint8(4)


def _scales_and_minima(blocks: Bytes) -> tuple[Floats, Floats]:
    """The scales and minima of the 8 groups of Q4_K and Q5_K, each [rows, blocks, 8, 1].

    Both have 6 bits. The first 4 bytes hold those of the first 4 scales, and the top bits of the
    last 4 scales. The next 4 bytes hold minima in the same way. The last 4 bytes have the low bits
    of the last 4 scales and minima.
    """
    first, second, last = (blocks[..., at : at + 4] for at in (4, 8, 12))
    scales = np.concatenate([first & 63, last & 15 | first >> 6 << 4], axis=-1)
    minima = np.concatenate([second & 63, last >> 4 | second >> 6 << 4], axis=-1)
    return _scales(blocks, 0, scales), _scales(blocks, 2, minima)


def _scales(blocks: Bytes, at: int, factors: NDArray[np.generic]) -> Floats:
    """The float16 at byte `at` of each block, times [rows, blocks, groups]: [..., groups, 1]."""
    return (_half(blocks, at) * _floats(factors))[..., None]


def _half(blocks: Bytes, at: int) -> Floats:
    """The float16 at byte `at` of each block: [rows, blocks, 1]."""
    return _floats(blocks[..., at : at + 2].view("<f2"))


def _groups(values: NDArray[np.generic], n: int) -> Floats:
    """Values [rows, blocks, weights] as [rows, blocks, n, weights / n]."""
    return _floats(values).reshape(*values.shape[:-1], n, -1)


def _floats(values: NDArray[np.generic]) -> Floats:
    return values.astype(np.float32)


def _as_rows(weights: NDArray[np.generic]) -> Floats:
    return _floats(weights).reshape(len(weights), -1)

"""Takes the blocks that GGUF files hold apart: into codes, and factors of their groups.

Each function takes uint8 [rows, blocks, bytes of a block]. What its rows are dequantized to equals
bit for bit what the package `gguf` makes of the blocks.

Source: `dequantize_row_*` in llama.cpp's ggml-quants.c.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from deployments.engine.quantized.layout import E2M1, INT8, IQ4, Codebook, integers
from deployments.engine.quantized.quantized_rows import Factors, QuantizedRows

Unpack = Callable[[Tensor], QuantizedRows]

# The values of e2m1, doubled, as their scales are halved: the largest scale, doubled, would be
# infinite.
TWICE_E2M1 = Codebook("twice e2m1", tuple(2 * value for value in E2M1.values))


EACH_BYTE = 0x0101010101010101
# Of each byte its bits, from the lowest on, as the fifth bits of 8 bytes.
FIFTH_BITS = (
    (torch.arange(256, dtype=torch.uint8)[:, None] >> torch.arange(8, dtype=torch.uint8) & 1) << 4
).view(torch.int64)[:, 0]


def q4_0(blocks: Tensor) -> QuantizedRows:
    return _rows(integers(4, -8), _fields(blocks[..., 2:], 4, 16), _half(blocks, 0))


def q4_1(blocks: Tensor) -> QuantizedRows:
    codes = _fields(blocks[..., 4:], 4, 16)
    return _rows(integers(4), codes, _half(blocks, 0), least=_half(blocks, 2))


def q5_0(blocks: Tensor) -> QuantizedRows:
    return _rows(integers(5, -16), _five_bits(blocks[..., 2:]), _half(blocks, 0))


def q5_1(blocks: Tensor) -> QuantizedRows:
    codes = _five_bits(blocks[..., 4:])
    return _rows(integers(5), codes, _half(blocks, 0), least=_half(blocks, 2))


def q8_0(blocks: Tensor) -> QuantizedRows:
    return _rows(INT8, blocks[..., 2:], _half(blocks, 0))


def q2_k(blocks: Tensor) -> QuantizedRows:
    codes, both = _fields(blocks[..., 16:80], 2, 32), blocks[..., :16]
    return _rows(
        integers(2),
        codes,
        _half(blocks, 80),
        both & 15,
        least=-_half(blocks, 82),
        fine_least=both >> 4,
        fine_bits=4,
    )


def q3_k(blocks: Tensor) -> QuantizedRows:
    low, high = _fields(blocks[..., 96:104], 4, 8), _fields(blocks[..., 104:108], 2, 4)
    scales = (low | high << 4).view(torch.int8) - 32
    codes = _fields(blocks[..., 32:96], 2, 32) | _fields(blocks[..., :32], 1, 32) << 2
    return _rows(integers(3, -4), codes, _half(blocks, 108), scales, fine_bits=6)


def q4_k(blocks: Tensor) -> QuantizedRows:
    return _with_minima(integers(4), _fields(blocks[..., 16:], 4, 32), blocks)


def q5_k(blocks: Tensor) -> QuantizedRows:
    codes = _fields(blocks[..., 48:], 4, 32) | _fields(blocks[..., 16:48], 1, 32) << 4
    return _with_minima(integers(5), codes, blocks)


def q6_k(blocks: Tensor) -> QuantizedRows:
    codes = _fields(blocks[..., :128], 4, 64) | _fields(blocks[..., 128:192], 2, 32) << 4
    scales = blocks[..., 192:208].view(torch.int8)
    return _rows(integers(6, -32), codes, _half(blocks, 208), scales)


def iq4_nl(blocks: Tensor) -> QuantizedRows:
    return _rows(IQ4, _fields(blocks[..., 2:], 4, 16), _half(blocks, 0))


def iq4_xs(blocks: Tensor) -> QuantizedRows:
    low, high = _fields(blocks[..., 4:8], 4, 1), _fields(blocks[..., 2:4], 2, 1)
    scales = (low | high << 4).view(torch.int8) - 32
    return _rows(IQ4, _fields(blocks[..., 8:], 4, 16), _half(blocks, 0), scales, fine_bits=6)


def mxfp4(blocks: Tensor) -> QuantizedRows:
    exponents = blocks[..., 0].short()  # those of half scales are lower by 1
    half_scales = torch.where(exponents > 1, exponents - 1 << 7, 1 << 5 + exponents)
    return _rows(
        TWICE_E2M1, _fields(blocks[..., 1:], 4, 16), half_scales.short().view(torch.bfloat16)
    )


def nvfp4(blocks: Tensor) -> QuantizedRows:
    """The weights without the scale of the whole tensor, which is a tensor of its own, `.scale`."""
    codes = blocks[..., :4] & 127  # the sign is ignored
    scales = codes.masked_fill(codes == 127, 0).view(torch.float8_e4m3fn)  # NaN is read as 0
    return _rows(E2M1, _fields(blocks[..., 4:], 4, 8), scales)


UNPACK: Mapping[str, Unpack] = {
    "Q4_0": q4_0,
    "Q4_1": q4_1,
    "Q5_0": q5_0,
    "Q5_1": q5_1,
    "Q8_0": q8_0,
    "Q2_K": q2_k,
    "Q3_K": q3_k,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
    "IQ4_NL": iq4_nl,
    "IQ4_XS": iq4_xs,
    "MXFP4": mxfp4,
    "NVFP4": nvfp4,
}
# Types of numbers, which are blocks of their own.
PLAIN: Mapping[str, torch.dtype] = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
# By numpy's names: no weights of a model are of these types.
OTHERS: Mapping[str, str] = {"F64": "<f8", "I8": "i1", "I16": "<i2", "I32": "<i4"}


def _rows(
    codebook: Codebook,
    codes: Tensor,
    coarse: Tensor,
    fine: Tensor | None = None,
    least: Tensor | None = None,
    fine_least: Tensor | None = None,
    fine_bits: int = 0,
) -> QuantizedRows:
    """The rows of blocks: all arguments are [rows, blocks, ...]."""
    return QuantizedRows(
        codebook,
        codes.reshape(len(codes), -1),
        _factors(coarse, fine, fine_bits),
        None if least is None else _factors(least, fine_least, fine_bits),
    )


def _factors(coarse: Tensor, fine: Tensor | None, fine_bits: int) -> Factors:
    rows = len(coarse)
    if fine is None:
        return Factors(coarse.reshape(rows, -1))
    return Factors(coarse.reshape(rows, -1), fine.reshape(rows, -1).contiguous(), fine_bits)


def _fields(packed: Tensor, bits: int, run: int) -> Tensor:
    """The fields of `bits` bits in packed bytes [..., bytes], as uint8 [..., bytes * 8 / bits].

    Each `run` bytes give 8 / bits runs of fields: the lowest field of each of these bytes, then the
    next one of each.
    """
    mask = (1 << bits) - 1
    if run % 8 == 0:  # 8 bytes at once
        packed = packed.clone(memory_format=torch.contiguous_format).view(torch.int64)
        mask, run = mask * EACH_BYTE, run // 8
    runs = packed.reshape(*packed.shape[:-1], -1, run)
    fields = torch.stack([runs >> shift & mask for shift in range(0, 8, bits)], -2)
    return fields.view(*packed.shape[:-1], -1).view(torch.uint8)


def _five_bits(packed: Tensor) -> Tensor:
    """The codes of Q5: their fifth bits are in the first 4 bytes."""
    fifth = FIFTH_BITS[packed[..., :4].int()].view(torch.uint8)
    return _fields(packed[..., 4:], 4, 16) | fifth


def _with_minima(codebook: Codebook, codes: Tensor, blocks: Tensor) -> QuantizedRows:
    """Q4_K and Q5_K have scales and minima of 6 bits for each of 8 groups.

    The first 4 bytes hold those of the first 4 scales, and the top bits of the last 4 scales. The
    next 4 bytes hold minima in the same way. The last 4 bytes have the low bits of the last 4
    scales and minima.
    """
    first, second, last = (blocks[..., at : at + 4] for at in (4, 8, 12))
    scales = torch.cat([first & 63, last & 15 | first >> 6 << 4], -1)
    minima = torch.cat([second & 63, last >> 4 | second >> 6 << 4], -1)
    d, least = _half(blocks, 0), -_half(blocks, 2)
    return _rows(codebook, codes, d, scales, least, minima, fine_bits=6)


def _half(blocks: Tensor, at: int) -> Tensor:
    """The float16 at byte `at` of each block: [rows, blocks]."""
    return blocks[..., at : at + 2].contiguous().view(torch.float16)[..., 0]

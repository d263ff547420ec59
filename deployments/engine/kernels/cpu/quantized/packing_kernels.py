"""Packs codes: a byte each in rows, they become planes of a packed matrix, or bytes of it."""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import carray, njit

from deployments.engine.kernels.cpu.dispatch import Kernel, reader_of
from deployments.engine.kernels.cpu.pack_format import OCTET
from deployments.engine.kernels.cpu.simd import PACK, Code, at_u8, at_u32, at_u64, next_task

INPUTS_AT_ONCE = 256  # of each output: what they are packed to stays in the L1 cache
NAN = np.uint8(127)  # the code of e4m3, beside its sign, that `Codebook` reads as 0


class PackArguments(NamedTuple):
    codes: int  # uint8 [outputs, inputs]
    row_stride: int  # bytes
    packed: int
    stride: int  # bytes of a block
    n_inputs: int  # a multiple of the format's unit
    n_outputs: int


_pack_arguments = reader_of(PackArguments)


@njit(inline="always")
def _word(octet: Code, bits: Code, mask: Code) -> Code:
    """Fields of so many bits of 8 codes: each byte holds that of a code, and of the fourth after
    it."""
    fields = octet & mask
    return np.uint32(fields & np.uint64(0xFFFFFFFF)) | np.uint32(fields >> np.uint64(32 - bits))


@cache
def pack_planes_kernel(low_bits: int, high_bits: int) -> Kernel:
    """Packs planes of 4 or 2 bits, and of `high_bits` more, which may be none."""
    high = high_bits or 1
    octets = 4 // (high_bits or low_bits)  # of a unit
    per_word = 4 // low_bits  # octets of a word of the first plane
    n_low = octets // per_word
    words = n_low + (1 if high_bits else 0)  # of a unit
    low_mask = sum(((1 << low_bits) - 1) << at for at in range(0, 64, 8))
    high_mask = sum(((1 << high) - 1) << at for at in range(0, 64, 8))
    at_once = INPUTS_AT_ONCE // OCTET // octets  # units

    def body(block: Code) -> None:
        args = _pack_arguments(block)
        n_units = args.n_inputs // (OCTET * octets)
        low, top = np.uint64(low_mask), np.uint64(high_mask)
        while True:
            nth = next_task(block)
            first = nth * PACK
            if first >= args.n_outputs:
                break
            out = carray(at_u32(args.packed + nth * args.stride), (n_units, words, PACK))
            for begin in range(0, n_units, at_once):
                end = min(begin + at_once, n_units)
                for j in range(min(PACK, args.n_outputs - first)):
                    row = args.codes + (first + j) * args.row_stride
                    codes = carray(at_u64(row), (n_units, octets))
                    for u in range(begin, end):
                        below, above = np.uint32(0), np.uint32(0)
                        for k in range(octets):
                            octet, at = codes[u, k], k % per_word
                            below |= _word(octet, low_bits, low) << np.uint32(2 * low_bits * at)
                            if at == per_word - 1:
                                out[u, k // per_word, j] = below
                                below = np.uint32(0)
                            if high_bits:
                                own = _word(octet >> np.uint64(low_bits), high, top)
                                above |= own << np.uint32(2 * high * k)
                        if high_bits:
                            out[u, n_low, j] = above

    return Kernel(body, PackArguments)


@cache
def pack_words_kernel() -> Kernel:
    """Packs bytes, of which a word has those of 4 inputs."""

    def body(block: Code) -> None:
        args = _pack_arguments(block)
        n_words = args.n_inputs // 4
        while True:
            nth = next_task(block)
            first = nth * PACK
            if first >= args.n_outputs:
                break
            out = carray(at_u32(args.packed + nth * args.stride), (n_words, PACK))
            for begin in range(0, n_words, INPUTS_AT_ONCE // 4):
                end = min(begin + INPUTS_AT_ONCE // 4, n_words)
                for j in range(min(PACK, args.n_outputs - first)):
                    words = carray(at_u32(args.codes + (first + j) * args.row_stride), (n_words,))
                    for i in range(begin, end):
                        out[i, j] = words[i]

    return Kernel(body, PackArguments)


@cache
def pack_bytes_kernel() -> Kernel:
    """Packs bytes of e4m3, an input after the other; NaN becomes 0."""

    def body(block: Code) -> None:
        args = _pack_arguments(block)
        n = args.n_inputs
        while True:
            nth = next_task(block)
            first = nth * PACK
            if first >= args.n_outputs:
                break
            out = carray(at_u8(args.packed + nth * args.stride), (n, PACK))
            for begin in range(0, n, INPUTS_AT_ONCE):
                end = min(begin + INPUTS_AT_ONCE, n)
                for j in range(min(PACK, args.n_outputs - first)):
                    codes = carray(at_u8(args.codes + (first + j) * args.row_stride), (n,))
                    for i in range(begin, end):
                        code = codes[i]
                        if code & NAN == NAN:
                            code = np.uint8(0)
                        out[i, j] = code

    return Kernel(body, PackArguments)

"""Checks the map of characters that SentencePiece normalizes with, before anything walks it.

It is a double array, in which each unit leads to others, and the texts that take the place of what
was found. The library that walks it ends the process's thread where a unit leads out of it.

Source: Darts-clone's darts.h, and `PrecompileCharsMap` in SentencePiece's builder.cc.
"""

import numpy as np
from numpy.typing import NDArray

from deployments.engine.loading.gguf.errors import GGUFError
from deployments.engine.loading.gguf.header import Value
from deployments.engine.loading.gguf.tokenizing.vocabulary import broken

# Of what takes the place of a character, which takes 33 in Unicode: a text must not grow beyond
# measure.
MAX_TEXT_BYTES = 256
BLOCK = 256  # units: a unit leads to all of a block
IS_VALUE, HAS_LEAF, IS_FAR = np.uint32(1 << 31), np.uint32(1 << 8), np.uint32(1 << 9)


def checked_charsmap(key: str, found: Value) -> bytes:
    """The map as its bytes. Raises GGUFError for one that leads out of itself."""
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "iu" or found.itemsize != 1:
        raise broken(key, "it is no list of bytes")
    data = found.tobytes()
    size = int.from_bytes(data[:4], "little")
    texts = data[4 + size :]
    if not size or size % (4 * BLOCK) or not texts:
        raise _no_map(key)
    units = np.frombuffer(data, "<u4", size // 4, 4)
    _check_units(key, units, texts)
    return data


def _check_units(key: str, units: NDArray[np.uint32], texts: bytes) -> None:
    offsets = (units >> 10) << ((units & IS_FAR) >> 6)
    bases = np.arange(len(units), dtype=np.uint32) ^ offsets
    leads = units & IS_VALUE == 0  # others hold a place in the texts
    if (bases[leads] >= len(units)).any():
        raise _no_map(key)
    values = units[bases[leads & (units & HAS_LEAF != 0)]] & ~IS_VALUE
    try:
        texts.decode()
    except UnicodeDecodeError as error:
        raise _no_map(key) from error
    codes = np.frombuffer(texts, np.uint8)
    if (values >= len(codes)).any() or (codes[values] & 0xC0 == 0x80).any():
        raise _no_map(key)
    lengths = np.diff(np.flatnonzero(codes == 0), prepend=-1)
    if codes[-1] or lengths.max() > MAX_TEXT_BYTES:
        raise _no_map(key)


def _no_map(key: str) -> GGUFError:
    return broken(key, "it is no map of characters")

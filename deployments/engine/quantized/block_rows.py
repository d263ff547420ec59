"""Rows whose codes and factors lie in blocks: each block has those of inputs side by side.

A kernel that is compiled for a form reads blocks where they lie. No tensor is made of them between.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol
from zlib import crc32

import torch
from torch import Tensor


class Fields(NamedTuple):
    """Bits of all codes of a block, the lowest ones of a code first.

    Each `run` bytes from `at` on give 8 / bits runs of fields: the lowest field of each of these
    bytes, then the next one of each. A run is 1 or a multiple of 8; of fields of 8 bits it is any.
    """

    at: int
    bits: int
    run: int


class BitsOfBytes(NamedTuple):
    """Some bits of each of 4 bytes from `at` on: `(byte >> down & mask) << up`."""

    at: int
    mask: int
    down: int = 0
    up: int = 0


class BitsInRow(NamedTuple):
    """Some bits of each of 4 numbers, side by side from the lowest of byte `at` on: `bits << up`.
    4 bytes are read."""

    at: int
    bits: int
    up: int = 0


class ByteFactors(NamedTuple):
    """The factors of a block that have a byte at most.

    fours: for each 4 of them their bits, which are put together.
    """

    fours: tuple[tuple[BitsOfBytes | BitsInRow, ...], ...]

    @property
    def n(self) -> int:
        return 4 * len(self.fours)


class HalfFactor(NamedTuple):
    """The factor of a whole block: a float16 from byte `at` on, perhaps times -1."""

    at: int
    is_negated: bool = False

    @property
    def n(self) -> int:
        return 1


@dataclass(frozen=True)
class BlockForm:
    """The form of a block.

    codes: their bits, the lowest ones first.
    factors: of scales, then of least numbers, each from the smallest groups on.
    """

    n_weights: int
    n_bytes: int
    codes: tuple[Fields, ...]
    factors: tuple[ByteFactors | HalfFactor, ...]

    @cached_property
    def number(self) -> int:
        """Names the form where kernels are compiled, and where these are kept."""
        return crc32(repr(self).encode())


class RowMemory(Protocol):
    """Memory that rows lie in, as long as it is referred to."""

    def let_go(self) -> None:
        """Gives it back. The rows can be read again."""


@dataclass(frozen=True)
class BlockRows:
    """Rows in memory.

    addresses: int64 [rows], of the first block of each.
    n_blocks: of each row.
    """

    form: BlockForm
    addresses: Tensor
    n_blocks: int
    memory: tuple[RowMemory, ...]

    def inputs(self, first: int, end: int) -> "BlockRows | None":
        """The weights of some inputs; None: these are no whole blocks."""
        n_weights = self.form.n_weights
        if first % n_weights or end % n_weights:
            return None
        addresses = self.addresses + first // n_weights * self.form.n_bytes
        return replace(self, addresses=addresses, n_blocks=(end - first) // n_weights)

    def let_go(self) -> None:
        for memory in self.memory:
            memory.let_go()


def joined_blocks(parts: Sequence[BlockRows]) -> BlockRows | None:
    """The rows of all parts; None: their forms differ."""
    first, *others = parts
    if any((part.form, part.n_blocks) != (first.form, first.n_blocks) for part in others):
        return None
    return replace(
        first,
        addresses=torch.cat([part.addresses for part in parts]),
        memory=tuple(memory for part in parts for memory in part.memory),
    )

"""How quantized weights are numbers: codes, what each code stands for, and groups with scales."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Codebook:
    """The numbers that codes stand for.

    name: by which kernels know it.
    values: of each code, exact in float32. There are 2, 4, 8, 16, 32, 64 or 256 of them.
    """

    name: str
    values: Numbers

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return (len(self.values) - 1).bit_length()

    @property
    def offset(self) -> int | None:
        """The number of code 0, where each further code stands for 1 more; None: it does not."""
        first = self.values[0]
        is_linear = self.values == tuple(first + code for code in range(len(self.values)))
        return int(first) if is_linear else None

    @cached_property
    def table(self) -> Tensor:
        """float32 [codes]"""
        return torch.tensor(self.values, dtype=torch.float32)


def integers(bits: int, offset: int = 0) -> Codebook:
    """Whole numbers: code 0 stands for `offset`, each further one for 1 more."""
    return Codebook(
        f"int{bits}{offset:+}", tuple(float(offset + code) for code in range(1 << bits))
    )


def _of_bytes(name: str, dtype: torch.dtype) -> Codebook:
    """The values of all bytes, as torch reads them. NaN is read as 0: no weight is one."""
    values = torch.arange(256, dtype=torch.uint8).view(dtype).float().nan_to_num(0)
    return Codebook(name, tuple(values.tolist()))


INT8 = _of_bytes("int8", torch.int8)  # in two's complement
E4M3 = _of_bytes("e4m3", torch.float8_e4m3fn)
E2M1 = Codebook(
    "e2m1", (0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6)
)  # both zeros are positive, as in ggml
IQ4 = Codebook("iq4", (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113))


class FactorType(NamedTuple):
    """The type of a factor.

    group: inputs side by side that share it; 0: all of a row.
    bits: of whole numbers, where these are fewer than a byte has. Numbers of uint8 then begin with
        0, those of int8 are as many below 0 as from it on. 0: numbers are any of the type.
    """

    dtype: torch.dtype
    group: int
    bits: int = 0

    @property
    def stored_bits(self) -> int:
        return self.bits or 8 * self.dtype.itemsize

    @property
    def offset(self) -> int:
        """The number that the code 0 of `bits` stands for."""
        return -(1 << self.bits - 1) if self.dtype.is_signed else 0


@dataclass(frozen=True)
class Layout:
    """The form of a matrix's quantized weights. Matrices of one layout can be joined by rows.

    codebook: of its codes.
    scale: the types of the factors whose product is a scale, from the smallest groups on. There are
        one or two. Each group holds whole groups of the type before it.
    least: the same of what is added to each weight of a group; empty: nothing is.
    """

    codebook: Codebook
    scale: tuple[FactorType, ...]
    least: tuple[FactorType, ...] = ()

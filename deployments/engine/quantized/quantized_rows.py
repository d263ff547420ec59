"""Rows of a quantized matrix, and the numbers that they stand for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd

import torch
from torch import Tensor

from deployments.engine.quantized.layout import Codebook, FactorType, Layout


@dataclass(frozen=True)
class Factors:
    """A number for each group of each row: `coarse` times `fine`, rounded to float32.

    coarse: [rows, n], each for as many groups side by side as there are for each.
    fine: [rows, groups]; None: `coarse` is [rows, groups], and the number itself.
    fine_bits: of the numbers of `fine`, as `FactorType` has them.
    """

    coarse: Tensor
    fine: Tensor | None = None
    fine_bits: int = 0

    @property
    def n_groups(self) -> int:
        return (self.coarse if self.fine is None else self.fine).shape[1]

    def types(self, n_inputs: int) -> tuple[FactorType, ...]:
        """The types of the factors of rows of so many inputs."""
        parts = [(self.coarse, 0)]
        if self.fine is not None:
            parts.insert(0, (self.fine, self.fine_bits))
        return tuple(
            FactorType(part.dtype, 0 if part.shape[1] == 1 else n_inputs // part.shape[1], bits)
            for part, bits in parts
        )

    def float32(self) -> Tensor:
        """float32 [rows, groups]"""
        coarse = self.coarse.float()
        if self.fine is None:
            return coarse
        return coarse.repeat_interleave(self.n_groups // coarse.shape[1], 1) * self.fine.float()

    def parted(self, n: int) -> "Factors":
        """The factors of n times as many groups, each the n-th part of one."""
        if n == 1:
            return self
        if self.fine is None:
            return Factors(self.coarse.repeat_interleave(n, 1))
        return replace(self, fine=self.fine.repeat_interleave(n, 1))

    def zeros(self) -> "Factors":
        return replace(self, coarse=torch.zeros_like(self.coarse))

    def at(self, index: Tensor) -> "Factors":
        """The factors of groups by their numbers."""
        if self.fine is None:
            return Factors(self.coarse[:, index])
        n = self.n_groups // self.coarse.shape[1]
        return replace(self, coarse=self.coarse[:, index // n], fine=self.fine[:, index])

    def groups(self, first: int, end: int) -> "Factors":
        """The factors of some groups."""
        if self.fine is None:
            return Factors(self.coarse[:, first:end])
        n = self.n_groups // self.coarse.shape[1]
        if first % n or end % n:  # a coarse factor is parted
            coarse = self.coarse.repeat_interleave(n, 1)[:, first:end]
        else:
            coarse = self.coarse[:, first // n : end // n]
        return replace(self, coarse=coarse, fine=self.fine[:, first:end])


@dataclass(frozen=True)
class QuantizedRows:
    """Rows of a matrix. A weight is what its code stands for, times its group's scale, plus its
    group's least. Each operation is rounded to float32.

    codes: uint8 [rows, inputs].
    """

    codebook: Codebook
    codes: Tensor
    scale: Factors
    least: Factors | None = None

    @property
    def layout(self) -> Layout:
        n_inputs = self.codes.shape[1]
        least = () if self.least is None else self.least.types(n_inputs)
        return Layout(self.codebook, self.scale.types(n_inputs), least)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors that it has, each with a row for each of its rows."""
        found = {
            "codes": self.codes,
            "scale": self.scale.coarse,
            "fine_scale": self.scale.fine,
            "least": None if self.least is None else self.least.coarse,
            "fine_least": None if self.least is None else self.least.fine,
        }
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> "QuantizedRows":
        """Rows of the same layout, with these in the place of `tensors`."""
        least = self.least
        if least is not None:
            least = replace(least, coarse=tensors["least"], fine=tensors.get("fine_least"))
        scale = replace(self.scale, coarse=tensors["scale"], fine=tensors.get("fine_scale"))
        return QuantizedRows(self.codebook, tensors["codes"], scale, least)

    def take(self, index: Tensor | slice) -> "QuantizedRows":
        """Some of the rows, by their numbers."""
        return self.with_tensors({name: tensor[index] for name, tensor in self.tensors().items()})

    def inputs(self, first: int, end: int) -> "QuantizedRows":
        """The weights of some inputs. Where a group is parted, each part becomes several groups."""
        codes, n = self.codes, self.codes.shape[1] // self.scale.n_groups
        parted = n // gcd(n, first, end)
        scale, least = self.scale.parted(parted), self.least and self.least.parted(parted)
        groups = first * parted // n, end * parted // n
        return QuantizedRows(
            self.codebook,
            codes[:, first:end],
            scale.groups(*groups),
            None if least is None else least.groups(*groups),
        )

    def columns(self, index: Tensor, group: int) -> "QuantizedRows":
        """Some columns by their numbers, of which each `group` side by side are of one group."""
        groups = index[::group] // (self.codes.shape[1] // self.scale.n_groups)
        return QuantizedRows(
            self.codebook,
            self.codes[:, index],
            self.scale.at(groups),
            None if self.least is None else self.least.at(groups),
        )

    def zeros(self) -> "QuantizedRows":
        """Returns as many rows in the same layout, whose weights are 0."""
        least = None if self.least is None else self.least.zeros()
        return QuantizedRows(self.codebook, self.codes, self.scale.zeros(), least)

    def dequantize(self) -> Tensor:
        """float32 [rows, inputs]"""
        values = self._table[self.codes.int()]
        groups = values.view(len(values), self.scale.n_groups, -1)
        groups = groups.mul_(self.scale.float32()[..., None])
        if self.least is not None:
            groups = groups.add_(self.least.float32()[..., None])
        return groups.view_as(values)

    @cached_property
    def _table(self) -> Tensor:
        return self.codebook.table.to(self.codes.device)


def joined(parts: Sequence[QuantizedRows]) -> QuantizedRows:
    """The rows of all parts, which have one layout."""
    of_parts = [part.tensors() for part in parts]
    names = of_parts[0]
    whole = {name: torch.cat([tensors[name] for tensors in of_parts]) for name in names}
    return parts[0].with_tensors(whole)

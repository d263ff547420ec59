"""Whole numbers with a scale and a zero for each group: what AWQ, GPTQ and packed
compressed-tensors have in common.

A weight is (code - zero) * scale. It is given as code * scale + (-zero * scale): with scales of 16
bits each operation is exact, so that both are the same number. Where all groups have one zero, its
codebook has it, and nothing is added.
"""

from abc import abstractmethod
from functools import cached_property

import torch
from torch import Tensor

from deployments.engine.loading.formats.groups import Groups
from deployments.engine.loading.formats.parts import PartsMatrix, WeightParts
from deployments.engine.quantized.layout import integers
from deployments.engine.quantized.quantized_rows import Factors, QuantizedRows

BITS = (2, 3, 4, 8)  # of codes that are read


class IntegerMatrix(PartsMatrix):
    """A matrix of whole numbers of `bits` bits."""

    def __init__(
        self, storage: str, parts: WeightParts, shape: tuple[int, int], bits: int, groups: Groups
    ) -> None:
        super().__init__(storage, parts, shape, groups.order)
        self.bits = bits
        self.groups = groups

    def rows(self, index: Tensor) -> QuantizedRows:
        codes = self.groups.codes(self._codes(index))
        scales = self.groups.factors(self._scales(index)).contiguous()
        if self._zero is not None:
            return QuantizedRows(integers(self.bits, -self._zero), codes, Factors(scales))
        zeros = self.groups.factors(self._zeros(index))
        least = zeros.float().neg_().mul_(scales.float())
        return QuantizedRows(integers(self.bits), codes, Factors(scales), Factors(least))

    @cached_property
    def _zero(self) -> int | None:
        """The zero that all groups have."""
        zeros = self._zeros(torch.arange(self.n_rows))
        first = int(zeros.flatten()[0])
        return first if bool((zeros == first).all()) else None

    @abstractmethod
    def _codes(self, index: Tensor) -> Tensor:
        """uint8 [rows, inputs], in the order of the inputs."""

    @abstractmethod
    def _scales(self, index: Tensor) -> Tensor:
        """[rows, columns of factors]"""

    @abstractmethod
    def _zeros(self, index: Tensor) -> Tensor:
        """Whole numbers [rows, columns of factors]."""


def n_bits(parts: WeightParts, end: str, n_packed: int, n: int, said: object) -> int:
    """The bits of each of n codes that are packed into so many words of 32 bits.

    said: by the config, which modules may deviate from. It counts where several sizes fit.

    Raises UnsupportedModelError if no size fits.
    """
    fitting = [bits for bits in BITS if n_packed == -(-n * bits // 32)]
    if parts[end].dtype != torch.int32 or not fitting:
        raise parts.refusal(end, f"codes of {', '.join(map(str, BITS))} bits are read")
    return next((bits for bits in fitting if bits == said), fitting[0])


def check_scales(parts: WeightParts, end: str, n_outputs: int, dim: int) -> None:
    """Raises UnsupportedModelError unless there are scales for so many outputs."""
    scales = parts[end]
    if not scales.is_floating_point() or scales.dim() != 2 or scales.shape[dim] != n_outputs:
        raise parts.refusal(end, f"there should be scales of {n_outputs} outputs")


def check_matrix(parts: WeightParts, *ends: str) -> None:
    """Raises UnsupportedModelError unless all these tensors are matrices."""
    for end in ends:
        if parts[end].dim() != 2:
            raise parts.refusal(end, "it should be a matrix")


def group_ids(parts: WeightParts, end: str, n_inputs: int, n_groups: int) -> Tensor | None:
    """The tensor that says the group of each input, if there is one.

    Raises UnsupportedModelError for groups that are not there.
    """
    found = parts.get(end)
    if found is None or bool((found < 0).any()):  # -1: nothing was written
        return None
    if found.shape != (n_inputs,) or int(found.max()) >= n_groups:
        raise parts.refusal(end, f"there are {n_inputs} inputs and {n_groups} groups")
    return found.long()

"""Makes the product of one matrix of quantized weights, for the device that it computes on."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from deployments.engine.forward.products.dequantized_linear import DequantizedLinear
from deployments.engine.forward.products.joined_linear import JoinedLinear
from deployments.engine.forward.products.resident_matrix import ResidentMatrix
from deployments.engine.forward.quantized_linear import packed_linear
from deployments.engine.quantized.stored_matrix import StoredMatrix
from deployments.engine.quantized.stored_weight import StoredWeight

if TYPE_CHECKING:  # it needs triton
    from deployments.engine.forward.products.slab_matrix import SlabMatrix


def held_matrices(
    stored: StoredWeight, device: torch.device
) -> tuple[nn.Module, list[StoredMatrix]]:
    """A module that holds all outputs of a weight in a device's memory, and its matrices in order,
    which rows are read out of."""
    if device.type == "cpu" and (packed := packed_linear(stored, None)) is not None:
        return packed, [*packed.matrices]
    matrices = _resident_matrices(stored, device)
    return nn.ModuleList(matrices), [*matrices]


def _resident_matrices(
    stored: StoredWeight, device: torch.device
) -> "list[ResidentMatrix | SlabMatrix]":
    """All outputs of a weight in order, in a device's memory."""
    return [_matrix(part, device) for part in stored.by_arrangement()]


def _matrix(part: StoredWeight, device: torch.device) -> "ResidentMatrix | SlabMatrix":
    if device.type == "cuda":
        from deployments.engine.forward.products.slab_matrix import SlabMatrix

        if SlabMatrix.can_hold(part):
            return SlabMatrix(part, device)
    return ResidentMatrix(part, device)


def _product(matrix: "ResidentMatrix | SlabMatrix", bias: Tensor | None) -> nn.Module:
    if isinstance(matrix, ResidentMatrix):
        return DequantizedLinear(matrix, bias)
    from deployments.engine.forward.products.slab_linear import SlabLinear

    return SlabLinear(matrix, bias)


def linear_product(
    stored: StoredWeight, bias: Tensor | None, device: torch.device
) -> tuple[nn.Module, list[StoredMatrix]]:
    """The product of a linear layer's weights, and its matrices."""
    bias = None if bias is None else bias.detach().to(device)
    if device.type == "cpu" and (packed := packed_linear(stored, bias)) is not None:
        return packed, [*packed.matrices]
    matrices = _resident_matrices(stored, device)
    ends = torch.tensor([matrix.n_rows for matrix in matrices]).cumsum(0).tolist()
    parts = [
        _product(matrix, None if bias is None else bias[end - matrix.n_rows : end])
        for matrix, end in zip(matrices, ends, strict=True)
    ]
    return parts[0] if len(parts) == 1 else JoinedLinear(parts), [*matrices]

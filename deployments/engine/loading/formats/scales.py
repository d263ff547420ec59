"""Says which scale each weight of a matrix has: one, one by output, by group of inputs, or by block
of outputs and inputs."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deployments.engine.loading.formats.groups import Groups, even_groups
from deployments.engine.loading.formats.packing import taken
from deployments.engine.loading.formats.parts import WeightParts
from deployments.engine.quantized.quantized_rows import Factors

Block = tuple[int, int]  # of outputs and inputs


@dataclass(frozen=True)
class Scales:
    """The scales of a matrix, or of the matrices of all experts.

    tensor: [rows of scales, columns of scales] of all experts.
    n_outputs: of an expert.
    n_scale_rows: of an expert.
    block_outputs: that share a row of scales.
    """

    tensor: Tensor
    groups: Groups
    n_outputs: int
    n_scale_rows: int
    block_outputs: int

    def factors(self, index: Tensor) -> Factors:
        """The scales of rows of all experts."""
        found = self.groups.factors(self.row_factors(self.tensor, index))
        return Factors(as_factor(found).contiguous())

    def row_factors(self, tensor: Tensor, index: Tensor) -> Tensor:
        """The entries of rows in a tensor of the form of the scales."""
        row = index // self.n_outputs * self.n_scale_rows
        return taken(tensor, row + index % self.n_outputs // self.block_outputs)


def find_scales(parts: WeightParts, codes: str, end: str, blocks: Sequence[Block]) -> Scales:
    """The scales of the codes [..., outputs, inputs].

    blocks: the sizes that the config says. A tensor of scales says what it is for by its shape.

    Raises UnsupportedModelError for scales of another shape.
    """
    *outer, n_outputs, n_inputs = parts[codes].shape
    scale = as_scale(parts[end])
    if scale.dim() == 4 and scale.shape[1::2] == (1, 1):  # modelopt's blocks
        scale = scale[:, 0, :, 0]
    if not scale.is_floating_point():
        raise parts.refusal(end, "it should be scales")
    n_experts = torch.Size(outer).numel()
    if scale.numel() in (1, n_experts) and scale.shape[-2:] != (n_outputs, 1):
        scale = scale.reshape(-1, 1, 1).expand(n_experts, 1, 1)
        block = n_outputs, n_inputs
    elif scale.shape == (*outer, n_outputs):
        scale, block = scale[..., None], (1, n_inputs)
    else:
        block = _block(scale, (n_outputs, n_inputs), blocks)
    if (scale.shape[:-2] != tuple(outer) and outer) or not all(block):
        raise parts.refusal(end, f"no scales of {parts.name}{codes} {[*parts[codes].shape]}")
    return Scales(
        scale.reshape(-1, scale.shape[-1]),
        even_groups(n_inputs, block[1]),
        n_outputs,
        scale.shape[-2],
        block[0],
    )


def _block(scale: Tensor, shape: Block, blocks: Sequence[Block]) -> Block:
    """The outputs and inputs that share a scale; 0: it is no such tensor."""
    n_outputs, n_inputs = shape
    if scale.dim() < 2:
        return 0, 0
    n_rows, n_columns = scale.shape[-2:]
    for block in blocks:
        if (n_rows, n_columns) == (-(-n_outputs // block[0]), -(-n_inputs // block[1])):
            return block
    is_group = n_rows == n_outputs and n_columns and n_inputs % n_columns == 0
    return (1, n_inputs // n_columns) if is_group else (0, 0)


def as_scale(scale: Tensor) -> Tensor:
    """Bytes are powers of 2, as in float8_e8m0fnu, which older torch did not have."""
    return scale.view(torch.float8_e8m0fnu) if scale.dtype == torch.uint8 else scale


def as_factor(scale: Tensor) -> Tensor:
    """Scales of a type that kernels read. bfloat16 has all powers of 2 of float8_e8m0fnu."""
    return scale.bfloat16() if scale.dtype is torch.float8_e8m0fnu else scale

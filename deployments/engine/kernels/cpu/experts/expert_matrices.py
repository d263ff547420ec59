"""Packed matrices of experts, which lie in one memory at equal distances."""

import mmap
from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor

from deployments.engine.kernels.cpu.dispatch import address_of, block_of
from deployments.engine.kernels.cpu.experts.expert_kernels import MatrixArguments
from deployments.engine.kernels.cpu.experts.tile_kernels import bfloat16_tile_kernel
from deployments.engine.kernels.cpu.matmul_ops import inputs_of
from deployments.engine.kernels.cpu.pack_format import QuantizedFormat, Regions
from deployments.engine.kernels.cpu.packed_weight import PackedWeight
from deployments.engine.kernels.cpu.quantized.quantized_kernels import tile_kernel
from deployments.engine.kernels.cpu.simd import PACK


class ExpertMatrices:
    """One matrix [parts * n_out, n_in] of each expert, all 0 until `fill` is called.

    weights: bfloat16 [experts, blocks, parts, in / 2, PACK, 2], or uint8 [experts, blocks, parts,
        bytes].
    arguments: `MatrixArguments` in memory.
    """

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        quantized: QuantizedFormat | None = None,
        bias: Tensor | None = None,
    ) -> None:
        """shape: experts, parts, outputs of a part, inputs. quantized: the format of weights; None:
        they are bfloat16. bias: bfloat16 [experts, parts, n_out]."""
        self.n_experts, self.n_parts, self.n_out, self.n_in = shape
        self.bias = bias
        blocks = self.n_experts, -(-self.n_out // PACK), self.n_parts
        if quantized is None:
            self.weights = _zeros((*blocks, -(-self.n_in // 2), PACK, 2), torch.bfloat16)
        else:
            self.weights = _zeros((*blocks, quantized.regions(self.n_in).stride), torch.uint8)
        self.arguments = block_of(self._arguments(quantized))

    def fill(self, expert: int, part: int, packed: PackedWeight) -> None:
        self.weights[expert, :, part] = packed.weights

    def _arguments(self, quantized: QuantizedFormat | None) -> MatrixArguments:
        if quantized is None:
            filled = self.n_in + self.n_in % 2
            tile, regions = bfloat16_tile_kernel(), Regions(filled, 0, (0, 0, 0, 0), 0)
        else:
            tile, regions = tile_kernel(quantized), quantized.regions(self.n_in)
        first, second, third, fourth = regions.factors
        size = self.weights.element_size()
        return MatrixArguments(
            tile=tile.address,
            **inputs_of(quantized),  # type: ignore[arg-type]  # one of them is a float
            weight=self.weights.data_ptr(),
            expert_stride=self.weights.stride(0) * size,
            stride=self.weights.stride(2) * size,
            first=first,
            second=second,
            third=third,
            fourth=fourth,
            bias=address_of(self.bias),
            n_parts=self.n_parts,
            n_inputs=self.n_in,
            filled_inputs=regions.n_inputs,
            n_totals=regions.n_totals,
            n_outputs=self.n_out,
        )


def _zeros(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Zeros on huge pages where there are any: experts are read here and there, and too many
    addresses of small pages would have to be looked up."""
    n_bytes = torch.Size(shape).numel() * dtype.itemsize
    memory = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(AttributeError, OSError):  # a system without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(*shape)

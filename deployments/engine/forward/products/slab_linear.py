"""Products of quantized weights on a GPU, for few tokens and for many.

Few tokens are multiplied with codes as they are: the time is that of reading them. For many, slices
of the weights become numbers of the inputs' type, which a cache holds until they are multiplied.
"""

import torch
from torch import Tensor

from deployments.engine.forward.linear import GpuProduct
from deployments.engine.forward.products.slab_matrix import SlabMatrix
from deployments.engine.forward.quantized_linear import to_float8
from deployments.engine.kernels.activations import GateActivation
from deployments.engine.kernels.gpu import layer_ops, quantized_ops
from deployments.engine.quantized.input_share import ordered

SLICE_BYTES = 16 << 20  # of weights that are dequantized at once
ROW_MULTIPLE = 64  # of a slice, so that the next one is aligned


class SlabLinear(GpuProduct):
    """A linear layer with the weights of a quantized matrix on a GPU.

    A token's result has the same bits with any other ones, up to MAX_TOKENS together. No call waits
    for the device, so that CUDA graphs can capture all of them.
    """

    bias: Tensor | None  # [out]
    arrivals: Tensor

    def __init__(self, matrix: SlabMatrix, bias: Tensor | None) -> None:
        super().__init__()
        self.matrix = matrix
        self.register_buffer("bias", bias)
        self.in_features, self.out_features = matrix.n_inputs, matrix.n_rows
        blocks, device = quantized_ops.n_blocks(matrix.n_rows), matrix.low.device
        self.register_buffer("arrivals", torch.zeros(blocks, dtype=torch.int32, device=device))

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]"""
        y = x.new_empty(*x.shape[:-1], self.out_features)
        self.write(x.reshape(-1, self.in_features), y.view(-1, self.out_features))
        return y

    def write(self, x: Tensor, out: Tensor) -> None:
        if len(x) <= quantized_ops.MAX_TOKENS:
            quantized_ops.product(x, self.matrix.slabs, self.arrivals, bias=self.bias, out=out)
            return
        self._multiply(x, out)
        if self.bias is not None:
            out += self.bias

    def add(self, x: Tensor, other: Tensor) -> Tensor:
        if len(x) > quantized_ops.MAX_TOKENS:
            return other.add_(self(x))
        slabs = self.matrix.slabs
        quantized_ops.product(x, slabs, self.arrivals, bias=self.bias, out=other, is_added=True)
        return other

    def gated(self, activation: GateActivation, x: Tensor) -> Tensor:
        if len(x) > quantized_ops.MAX_TOKENS or self.bias is not None:
            return layer_ops.gated(self(x), activation)
        out = x.new_empty(len(x), self.out_features // 2)
        quantized_ops.product(x, self.matrix.slabs, self.arrivals, out=out, gate=activation)
        return out

    def _multiply(self, x: Tensor, out: Tensor) -> None:
        matrix, slabs = self.matrix, self.matrix.slabs
        codes, row_scale = matrix.natural_codes, matrix.row_scale
        if x.is_cuda and codes is not None and row_scale is not None and x.dtype != torch.float32:
            rows, scale = to_float8(x.contiguous())
            product = torch._scaled_mm(
                rows, codes.t(), scale_a=scale, scale_b=row_scale, out_dtype=x.dtype
            )
            out.copy_(product)
            return
        x = ordered(x, slabs.order)
        fitting = SLICE_BYTES // (x.dtype.itemsize * slabs.n_columns)
        step = max(ROW_MULTIPLE, fitting - fitting % ROW_MULTIPLE)
        for at in range(0, self.out_features, step):
            n = min(step, self.out_features - at)
            weight = quantized_ops.dequantize(slabs, x.dtype, first=at, n=n)
            torch.mm(x, weight.t(), out=out[:, at : at + n])

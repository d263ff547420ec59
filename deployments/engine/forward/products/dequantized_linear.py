"""Products of quantized weights that have no kernel: they are dequantized, some outputs at once."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deployments.engine.forward.products.resident_matrix import ResidentMatrix
from deployments.engine.quantized.input_share import ordered

WEIGHTS_AT_ONCE = 1 << 22  # that are dequantized


class DequantizedLinear(nn.Module):
    """A linear layer with the weights of a quantized matrix, of which some are dequantized at once,
    to the type of its inputs."""

    bias: Tensor | None  # [out]
    input_order: Tensor | None  # [columns]

    def __init__(self, matrix: ResidentMatrix, bias: Tensor | None) -> None:
        super().__init__()
        self.matrix = matrix
        self.register_buffer("bias", bias)
        self.register_buffer("input_order", matrix.input_order)
        self.in_features, self.out_features = matrix.n_inputs, matrix.n_rows

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]"""
        x = ordered(x, self.input_order)
        step = max(1, WEIGHTS_AT_ONCE // self.matrix.n_columns)
        parts = [
            F.linear(x, self.matrix.span(at, at + step).dequantize().to(x.dtype))
            for at in range(0, self.out_features, step)
        ]
        y = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        return y if self.bias is None else y + self.bias

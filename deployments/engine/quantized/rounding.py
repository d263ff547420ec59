"""Rounds plain weights to quantized ones, as many rows at once as are asked for."""

from collections.abc import Callable

import torch
from torch import Tensor

from deployments.engine.quantized.layout import E4M3, INT8, integers
from deployments.engine.quantized.quantized_rows import Factors, QuantizedRows
from deployments.engine.quantized.stored_matrix import StoredMatrix

Round = Callable[[Tensor], QuantizedRows]  # of float32 [rows, inputs]

# Inputs that share a scale of int4: the first size that divides the layer's inputs.
INT4_GROUPS = (64, 32)
INT4 = integers(4)
MAX_INT8, MAX_INT4 = 127, 15
MAX_E4M3 = torch.finfo(torch.float8_e4m3fn).max
LEAST_SCALE = 1e-12  # so that no row is divided by 0


class RoundedMatrix(StoredMatrix):
    """A plain matrix [..., inputs] that is rounded whenever its rows are read."""

    def __init__(self, name: str, weight: Tensor, round_rows: Round) -> None:
        self._weight = weight.detach().view(-1, weight.shape[-1])
        self._round = round_rows
        first = round_rows(self._weight[:1].float())
        row_bits = first.codes.shape[1] * first.codebook.bits
        factors = (tensor for key, tensor in first.tensors().items() if key != "codes")
        row_bits += sum(8 * tensor.nbytes for tensor in factors)
        n_rows, n_inputs = self._weight.shape
        super().__init__(name, n_rows, n_inputs, n_rows * row_bits // 8)

    def rows(self, index: Tensor) -> QuantizedRows:
        return self._round(self._weight[index.to(self._weight.device)].float())


def to_int8(rows: Tensor) -> QuantizedRows:
    """A scale for each row, and no least."""
    scale = _largest(rows).div_(MAX_INT8)
    codes = (rows / scale).round_().clamp_(-MAX_INT8, MAX_INT8).to(torch.int8)
    return QuantizedRows(INT8, codes.view(torch.uint8), Factors(scale))


def to_float8(rows: Tensor) -> QuantizedRows:
    """A scale for each row."""
    scale = _largest(rows).div_(MAX_E4M3)
    codes = (rows / scale).clamp_(-MAX_E4M3, MAX_E4M3).to(torch.float8_e4m3fn)
    return QuantizedRows(E4M3, codes.view(torch.uint8), Factors(scale))


def int4_group(n_inputs: int) -> int | None:
    """Inputs that share a scale of int4; None: so many inputs can't be parted."""
    return next((size for size in INT4_GROUPS if n_inputs % size == 0), None)


def to_int4(rows: Tensor) -> QuantizedRows:
    """A scale and a least for each group, in half precision, by which codes are chosen."""
    groups = rows.view(len(rows), -1, int4_group(rows.shape[1]) or rows.shape[1])
    least = groups.amin(-1).half()
    scale = ((groups.amax(-1) - least.float()) / MAX_INT4).clamp_(min=LEAST_SCALE).half()
    steps = scale.float().clamp_(min=LEAST_SCALE)[..., None]
    codes = ((groups - least.float()[..., None]) / steps).round_().clamp_(0, MAX_INT4)
    return QuantizedRows(
        INT4, codes.to(torch.uint8).view(rows.shape), Factors(scale), Factors(least)
    )


def _largest(rows: Tensor) -> Tensor:
    """The largest weight of each row, without its sign: [rows, 1]."""
    return rows.abs().amax(1, keepdim=True).clamp_(min=LEAST_SCALE)

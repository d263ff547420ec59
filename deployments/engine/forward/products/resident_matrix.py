"""A quantized matrix in memory: its codes side by side in bytes, its factors as they are."""

import torch
from torch import Tensor, nn

from deployments.engine.quantized.quantized_rows import QuantizedRows
from deployments.engine.quantized.stored_matrix import StoredMatrix
from deployments.engine.quantized.stored_weight import StoredWeight

WEIGHTS_AT_ONCE = 1 << 22  # that are read from a file
HALF_BYTE = 4  # bits


class ResidentMatrix(nn.Module, StoredMatrix):
    """All outputs of a stored weight whose matrices have one arrangement. Two codes of at most 4
    bits share a byte."""

    def __init__(self, weight: StoredWeight, device: torch.device) -> None:
        nn.Module.__init__(self)
        n_outputs, n_inputs = weight.n_outputs, weight.n_inputs
        StoredMatrix.__init__(
            self, weight.storage_format, n_outputs, n_inputs, weight.nbytes, weight.input_order
        )
        first = weight.read(0, 1)
        self._none = first.take(slice(0, 0))  # of its rows: it says their layout
        self._pairs = first.codebook.bits <= HALF_BYTE and self.n_columns % 2 == 0
        for name, row in self._packed(first).items():
            self.register_buffer(name, row.new_empty(n_outputs, row.shape[1], device=device))
        step = max(1, WEIGHTS_AT_ONCE // self.n_columns)
        for at in range(0, n_outputs, step):
            rows = weight.read(at, min(at + step, n_outputs))
            for name, part in self._packed(rows).items():
                self.get_buffer(name)[at : at + step] = part

    def rows(self, index: Tensor) -> QuantizedRows:
        return self._unpacked({name: buffer[index] for name, buffer in self.named_buffers()})

    def span(self, first: int, end: int) -> QuantizedRows:
        """Rows that lie side by side, of which nothing but codes is copied."""
        return self._unpacked({name: buffer[first:end] for name, buffer in self.named_buffers()})

    def _packed(self, rows: QuantizedRows) -> dict[str, Tensor]:
        tensors = rows.tensors()
        if self._pairs:
            codes = tensors["codes"]
            tensors["codes"] = codes[:, ::2] | codes[:, 1::2] << HALF_BYTE
        return tensors

    def _unpacked(self, tensors: dict[str, Tensor]) -> QuantizedRows:
        if self._pairs:
            codes = tensors["codes"]
            tensors["codes"] = torch.stack([codes & 15, codes >> HALF_BYTE], -1).flatten(1)
        return self._none.with_tensors(tensors)

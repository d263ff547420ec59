"""The tensors of GGUF files as quantized rows, or as float32."""

import numpy as np
import torch
from torch import Tensor

from deployments.engine.loading.gguf.block_forms import BLOCK_FORMS
from deployments.engine.loading.gguf.block_types import Bytes
from deployments.engine.loading.gguf.tensors import GGUFTensor
from deployments.engine.loading.gguf.unpacking import OTHERS, PLAIN, UNPACK
from deployments.engine.quantized.block_rows import BlockRows
from deployments.engine.quantized.quantized_rows import QuantizedRows
from deployments.engine.quantized.stored_matrix import StoredMatrix

MAX_WEIGHTS_AT_ONCE = 1 << 18  # that are dequantized: what is computed between fits into a cache


def is_quantized(tensor: GGUFTensor) -> bool:
    """Raises GGUFError for a type that is not read here."""
    return tensor.block_type.name in UNPACK


def is_plain(tensor: GGUFTensor) -> bool:
    """Whether its weights are numbers of a type that models compute in."""
    return tensor.block_type.name in PLAIN


def plain_rows(tensor: GGUFTensor) -> Tensor:
    """The rows of a plain tensor in the type of the file: [rows, row_weights]. They are not copied.

    Raises OSError.
    """
    numbers = torch.from_numpy(tensor.rows()).view(PLAIN[tensor.block_type.name])
    return numbers.view(tensor.n_rows, tensor.row_weights)


def unpack(tensor: GGUFTensor, rows: Bytes) -> QuantizedRows:
    """Rows of a quantized tensor, uint8 [rows, row_bytes]."""
    block_type = tensor.block_type
    blocks = torch.from_numpy(rows).view(len(rows), -1, block_type.n_bytes)
    return UNPACK[block_type.name](blocks)


class GGUFMatrix(StoredMatrix):
    """A quantized tensor. Matrices of experts follow each other."""

    def __init__(self, tensor: GGUFTensor, input_order: Tensor | None = None) -> None:
        super().__init__(
            tensor.block_type.name,
            tensor.n_rows,
            tensor.row_weights,
            tensor.n_rows * tensor.row_bytes,
            input_order,
        )
        self._tensor = tensor

    def rows(self, index: Tensor) -> QuantizedRows:
        first, end = int(index[0]), int(index[-1]) + 1
        if len(index) != end - first or not torch.equal(index, torch.arange(first, end)):
            return unpack(self._tensor, self._tensor.rows()[index.numpy()])
        found = unpack(self._tensor, self._tensor.rows(first, end))
        self._tensor.span(first, end).let_go()  # at once: a matrix may be larger than a layer
        return found

    def block_rows(self, index: Tensor) -> BlockRows | None:
        tensor = self._tensor
        form = BLOCK_FORMS.get(tensor.block_type.name)
        if form is None:
            return None
        addresses = index * tensor.row_bytes + tensor.rows().ctypes.data
        span = tensor.span(int(index.min()), int(index.max()) + 1)
        return BlockRows(form, addresses, tensor.row_weights // form.n_weights, (span,))

    def let_go(self) -> None:
        self._tensor.span().let_go()


def dequantize(tensor: GGUFTensor, start: int | None = None, stop: int | None = None) -> Tensor:
    """The weights of rows start:stop: float32 [rows, row_weights].

    A tensor of NVFP4 has a further scale in the tensor `.scale`, which is not applied.

    Raises GGUFError for a type that is not read here, or OSError.
    """
    rows = tensor.rows(start, stop)
    if is_plain(tensor):
        return plain_rows(tensor)[start:stop].float()
    if not is_quantized(tensor):
        numbers = rows.view(OTHERS[tensor.block_type.name]).astype(np.float32)
        return torch.from_numpy(numbers).view(len(rows), tensor.row_weights)
    weights = torch.empty(len(rows), tensor.row_weights)
    step = max(1, MAX_WEIGHTS_AT_ONCE // tensor.row_weights)
    for at in range(0, len(rows), step):
        weights[at : at + step] = unpack(tensor, rows[at : at + step]).dequantize()
    return weights

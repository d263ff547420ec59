"""Says which rows of which tensors a parameter of a model has.

Rows are moved as they are, packed or not, since the blocks of a row lie along its inputs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deployments.engine.loading.gguf.block_types import Floats
from deployments.engine.loading.gguf.stored_tensor import (
    GGUFMatrix,
    dequantize,
    is_plain,
    is_quantized,
    plain_rows,
)
from deployments.engine.loading.gguf.tensors import GGUFTensor
from deployments.engine.quantized.place import Place
from deployments.engine.quantized.stored_weight import StoredWeight

RowNumbers: TypeAlias = NDArray[np.int64]
Shape: TypeAlias = tuple[int, ...]
Undo: TypeAlias = Callable[[Floats], Floats]
# Makes a parameter of tensors, each in its own shape.
Merge: TypeAlias = Callable[[Sequence[Floats]], Floats]


@dataclass(frozen=True)
class WeightSource:
    """The place of a parameter's weights in a file.

    shape: of the parameter.
    tensors: whose rows are joined, in this order.
    rows: the numbers of the joined rows that it has, in its own order; None: all as they are.
    undo: what is to be done to the numbers of the file; None: nothing.
    by_weight: each weight of the tensors is a row of its own, as in vectors.
    is_transposed: the parameter has inputs before outputs, and the file has a row for each output.
    inputs: the numbers of the weights of a row, in the parameter's order; None: as they are. Rows
        that stay quantized can't follow it, as it parts blocks: what they are multiplied with does.
    merge: makes the parameter of the tensors where joining rows can't do it. No other field changes
        anything then, and it is dequantized; None: rows are joined.
    """

    shape: Shape
    tensors: tuple[GGUFTensor, ...]
    rows: RowNumbers | None = None
    undo: Undo | None = None
    by_weight: bool = False
    is_transposed: bool = False
    inputs: RowNumbers | None = None
    merge: Merge | None = None

    @property
    def stays_quantized(self) -> bool:
        """Whether it is a matrix whose weights the model has as the file does.

        Raises GGUFError for a type that is not read here.
        """
        is_changed = self.by_weight or self.undo is not None or self.merge is not None
        return not is_changed and all(is_quantized(tensor) for tensor in self.tensors)

    def weight(self, dtype: torch.dtype) -> Tensor:
        """The parameter, in its shape and of a type that a model computes in. It stays quantized
        if it can.

        Raises GGUFError for a type that is not read here, or OSError.
        """
        if self._is_as_in_file or not self.stays_quantized:
            plain = self._plain() if self._is_as_in_file else torch.from_numpy(self.float32())
            weight = plain.to(dtype)
            for tensor in self.tensors:  # which was copied, or not read yet
                tensor.span().let_go()
            return weight
        order = None if self.inputs is None else torch.from_numpy(np.argsort(self.inputs))
        matrices = tuple(GGUFMatrix(tensor, order) for tensor in self.tensors)
        index = torch.arange(sum(matrix.n_rows for matrix in matrices))
        if self.rows is not None:
            index = torch.from_numpy(self.rows)
        *outer, n_outputs, n_inputs = self.shape
        if self.is_transposed:
            n_outputs, n_inputs = n_inputs, n_outputs
        place = Place(
            matrices, index.view(*outer, n_outputs), 0, n_inputs, is_transposed=self.is_transposed
        )
        return StoredWeight(place, dtype)

    @property
    def _is_as_in_file(self) -> bool:
        """Whether it is a matrix of numbers that nothing is done to."""
        is_changed = self.by_weight or self.undo or self.merge or self.inputs is not None
        return not is_changed and all(is_plain(tensor) for tensor in self.tensors)

    def _plain(self) -> Tensor:
        """The weights in the type of the file. They are not copied where it has them like this."""
        parts = [plain_rows(tensor) for tensor in self.tensors]
        joined = parts[0] if len(parts) == 1 else torch.cat(parts)
        if self.rows is not None:
            joined = joined[torch.from_numpy(self.rows)]
        if not self.is_transposed:
            return joined.view(self.shape)
        *outer, n_inputs, n_outputs = self.shape
        return joined.view(*outer, n_outputs, n_inputs).mT

    def float32(self) -> Floats:
        """The weights in the shape of the parameter.

        Raises GGUFError for a type that is not read here, or OSError.
        """
        parts = [dequantize(tensor).numpy() for tensor in self.tensors]
        if self.merge is not None:
            shaped = [
                part.reshape(tensor.shape) for part, tensor in zip(parts, self.tensors, strict=True)
            ]
            return self.merge(shaped).reshape(self.shape)
        joined = _joined([part.reshape(-1, 1) for part in parts] if self.by_weight else parts)
        if self.rows is not None:
            joined = joined[self.rows]
        if self.inputs is not None:
            joined = joined[:, self.inputs]
        if self.undo is not None:
            joined = self.undo(joined)
        if not self.is_transposed:
            return joined.reshape(self.shape)
        *outer, n_inputs, n_outputs = self.shape
        return joined.reshape(*outer, n_outputs, n_inputs).swapaxes(-1, -2)


def _joined(parts: list[Floats]) -> Floats:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)

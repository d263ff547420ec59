"""Says which rows of which tensors a parameter of a model has. Free of torch.

Rows are moved as they are, packed or not, since the blocks of a row lie along its inputs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from deployments.engine.loading.gguf.dequantizing import Bytes, Floats
from deployments.engine.loading.gguf.tensors import GGUFTensor

RowNumbers: TypeAlias = NDArray[np.int64]
Shape: TypeAlias = tuple[int, ...]
Undo: TypeAlias = Callable[[Floats], Floats]
Rows = TypeVar("Rows", Bytes, Floats)


@dataclass(frozen=True)
class WeightSource:
    """The place of a parameter's weights in a file.

    shape: of the parameter.
    tensors: whose rows are joined, in this order.
    rows: the numbers of the joined rows that it has, in its own order; None: all as they are.
    undo: what is to be done to the numbers of the file; None: nothing.
    by_weight: each weight of the tensors is a row of its own, as in vectors.
    is_transposed: the parameter has inputs before outputs, and the file has a row for each output.
    inputs: the numbers of the weights of a row, in the parameter's order; None: as they are. Packed
        rows can't follow it, as it parts blocks: what they are multiplied with has to.
    """

    shape: Shape
    tensors: tuple[GGUFTensor, ...]
    rows: RowNumbers | None = None
    undo: Undo | None = None
    by_weight: bool = False
    is_transposed: bool = False
    inputs: RowNumbers | None = None

    @property
    def is_packable(self) -> bool:
        """Whether `packed` can have it: as a matrix of one type, whose weights stay as they are.

        Raises GGUFError for a type that is not read here.
        """
        types = {tensor.block_type.id for tensor in self.tensors}
        return not self.by_weight and self.undo is None and len(types) == 1

    def packed(self) -> Bytes:
        """The bytes of its rows in the order of its outputs: uint8 [rows, row_bytes]. Those of
        experts follow each other. They are not copied where the file has them in this order. Row r
        is to be multiplied with x[..., argsort(inputs)].

        Raises GGUFError for a type that is not read here, or OSError.
        """
        assert self.is_packable
        joined = _joined([tensor.rows() for tensor in self.tensors])
        return joined if self.rows is None else joined[self.rows]

    def float32(self) -> Floats:
        """The weights in the shape of the parameter.

        Raises GGUFError for a type that is not read here, or OSError.
        """
        parts = [tensor.dequantize() for tensor in self.tensors]
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


def _joined(parts: list[Rows]) -> Rows:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)

"""Shares of matrices whose inputs are stored in another order: each rank takes some inputs.

The columns of these inputs are anywhere. They stay in the order of the matrix, so that groups stay
together, and a rank has the factors of all groups. As groups must have one size, each is filled up
with columns of no input.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from deployments.engine.quantized.quantized_rows import QuantizedRows
from deployments.engine.quantized.stored_matrix import StoredMatrix

# Columns of a group, which all kernels read: more would be filled up, fewer need more factors.
GROUP = 16


class InputShare(StoredMatrix):
    """Some inputs of a matrix."""

    def __init__(self, whole: StoredMatrix, columns: Tensor, order: Tensor, n_inputs: int) -> None:
        """columns: int64 [n], of the matrix. order: of its inputs, as `input_order` is."""
        n_bytes = whole.n_bytes * n_inputs // whole.n_inputs
        super().__init__(whole.storage, whole.n_rows, n_inputs, n_bytes, order)
        self._whole = whole
        self._columns = columns
        self._group = GROUP if has_groups(whole) else len(columns)

    def rows(self, index: Tensor) -> QuantizedRows:
        return self._whole.rows(index).columns(self._columns, self._group)

    def let_go(self) -> None:
        self._whole.let_go()


def bits_of_weight(matrix: StoredMatrix) -> float:
    """Bits that each of its weights takes on average, with its share of all factors."""
    layout, n_columns = matrix.layout, matrix.n_columns
    factors = layout.scale + layout.least
    bits = sum(part.stored_bits / (part.group or n_columns) for part in factors)
    return (layout.codebook.bits + bits) * n_columns / matrix.n_inputs


def has_groups(matrix: StoredMatrix) -> bool:
    """Whether not all columns of a row share a scale."""
    return matrix.layout.scale[0].group > 0


def input_shares(
    matrices: Sequence[StoredMatrix], first: int, end: int
) -> tuple[StoredMatrix, ...]:
    """The inputs from the first to the end of each matrix. All have as many columns."""
    n_inputs = end - first
    found = [_columns(matrix, first, end) for matrix in matrices]
    n_columns = max(len(columns) for columns, _ in found)
    shares = []
    for matrix, (columns, order) in zip(matrices, found, strict=True):
        behind = 0, n_columns - len(columns)
        order = F.pad(order, behind, value=n_inputs)
        shares.append(InputShare(matrix, F.pad(columns, behind), order, n_inputs))
    return tuple(shares)


def _columns(matrix: StoredMatrix, first: int, end: int) -> tuple[Tensor, Tensor]:
    """The columns of some inputs, and the number of each one's input among these."""
    order = matrix.input_order
    if order is None:
        order = torch.arange(matrix.n_inputs)
    own = torch.nonzero((order >= first) & (order < end)).flatten()
    if not has_groups(matrix):
        return own, order[own] - first
    size = matrix.layout.scale[0].group
    group = own // size
    counts = torch.bincount(group, minlength=matrix.n_columns // size)
    filled = counts + -counts % GROUP
    columns = torch.repeat_interleave(torch.arange(len(counts)) * size, filled)
    inputs = torch.full_like(columns, end - first)
    behind = filled.cumsum(0) - filled - (counts.cumsum(0) - counts)  # columns of no input before
    places = torch.arange(len(own)) + behind[group]
    columns[places], inputs[places] = own, order[own] - first
    return columns, inputs


def ordered(x: Tensor, order: Tensor | None) -> Tensor:
    """Inputs [..., inputs] in the order of the columns that they are multiplied with."""
    if order is None:
        return x
    if len(order) > x.shape[-1]:
        x = F.pad(x, (0, 1))  # for columns of no input
    return x.index_select(-1, order)

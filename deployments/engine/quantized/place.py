"""Which rows of which matrices outputs are, and which of their inputs."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from deployments.engine.quantized.quantized_rows import QuantizedRows
from deployments.engine.quantized.stored_matrix import StoredMatrix

ZEROS = -1  # the number of a row that is in no matrix


class Place(NamedTuple):
    """The place of weights in files.

    matrices: whose rows are numbered on from each to the next. All have one order of inputs.
    rows: int64 [..., outputs], the number of the row of each output, or ZEROS.
    first, end: which inputs of the rows.
    is_transposed: the parameter has inputs before outputs.
    """

    matrices: tuple[StoredMatrix, ...]
    rows: Tensor
    first: int
    end: int
    is_transposed: bool = False


class RowRun(NamedTuple):
    """Rows of one matrix that outputs side by side have.

    rows: int64 [n], their numbers in it; all are ZEROS where its outputs are rows of zeros.
    """

    matrix: StoredMatrix
    rows: Tensor


def runs_of(matrices: tuple[StoredMatrix, ...], index: Tensor) -> Iterator[RowRun]:
    ends = torch.tensor([matrix.n_rows for matrix in matrices]).cumsum(0)
    owner = torch.bucketize(index, ends, right=True)
    owner = owner.masked_fill_(index == ZEROS, ZEROS)
    owners, counts = torch.unique_consecutive(owner, return_counts=True)
    for number, rows in zip(owners.tolist(), torch.split(index, counts.tolist()), strict=True):
        if number == ZEROS:
            yield RowRun(matrices[0], rows)
        else:
            yield RowRun(matrices[number], rows - (int(ends[number]) - matrices[number].n_rows))


def read_run(run: RowRun, place: Place) -> QuantizedRows:
    """The inputs of the place of some rows."""
    is_zero = bool(len(run.rows)) and int(run.rows[0]) == ZEROS
    rows = run.matrix.rows(run.rows.clamp(min=0))
    if is_zero:
        rows = rows.zeros()
    if (place.first, place.end) == (0, run.matrix.n_inputs):
        return rows
    return rows.inputs(place.first, place.end)

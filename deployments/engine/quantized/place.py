"""Which rows of which matrices outputs are, and which of their inputs."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from deployments.engine.quantized.block_rows import BlockRows
from deployments.engine.quantized.quantized_rows import QuantizedRows
from deployments.engine.quantized.stored_matrix import StoredMatrix

ZEROS = -1  # the number of a row that is in no matrix


class Place(NamedTuple):
    """The place of weights in files.

    matrices: whose rows are numbered on from each to the next. All have as many columns.
    rows: int64 [..., outputs], the number of the row of each output, or ZEROS.
    first, end: which inputs of the rows. All, where one of the matrices has an order of its own.
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

    @property
    def is_zero(self) -> bool:
        return bool(len(self.rows)) and int(self.rows[0]) == ZEROS


def runs_of(matrices: tuple[StoredMatrix, ...], index: Tensor) -> Iterator[RowRun]:
    ends = _ends(matrices)
    owner = _owner(ends, index)
    owners, counts = torch.unique_consecutive(owner, return_counts=True)
    for number, rows in zip(owners.tolist(), torch.split(index, counts.tolist()), strict=True):
        if number == ZEROS:
            yield RowRun(matrices[0], rows)
        else:
            yield RowRun(matrices[number], rows - (int(ends[number]) - matrices[number].n_rows))


def _ends(matrices: tuple[StoredMatrix, ...]) -> Tensor:
    """The number behind the last row of each."""
    return torch.tensor([matrix.n_rows for matrix in matrices]).cumsum(0)


def _owner(ends: Tensor, rows: Tensor) -> Tensor:
    """The number of the matrix that each row is in, or ZEROS."""
    owner = torch.bucketize(rows.contiguous(), ends, right=True)
    return owner.masked_fill_(rows == ZEROS, ZEROS)


def numbered_on(
    parts: Sequence[tuple[tuple[StoredMatrix, ...], Tensor]],
) -> tuple[tuple[StoredMatrix, ...], list[Tensor]]:
    """Rows of matrices as rows of all those together that they are in, each once."""
    starts: dict[StoredMatrix, int] = {}
    n_rows, moved = 0, []
    for matrices, rows in parts:
        ends = _ends(matrices)
        owner = _owner(ends, rows)
        moves = torch.zeros_like(ends)
        used = torch.unique(owner[owner != ZEROS]).tolist()
        for number in used or [0]:
            matrix = matrices[number]
            if matrix not in starts:
                starts[matrix] = n_rows
                n_rows += matrix.n_rows
            moves[number] = starts[matrix] + matrix.n_rows - ends[number]
        moved.append((rows + moves[owner]).masked_fill_(owner == ZEROS, ZEROS))
    return tuple(starts), moved


def read_run(run: RowRun, place: Place) -> QuantizedRows:
    """The inputs of the place of some rows."""
    rows = run.matrix.rows(run.rows.clamp(min=0))
    if run.is_zero:
        rows = rows.zeros()
    if (place.first, place.end) == (0, run.matrix.n_inputs):
        return rows
    return rows.inputs(place.first, place.end)


def blocks_of_run(run: RowRun, place: Place) -> BlockRows | None:
    """Returns what `read_run` reads, where it lies; None: it has to be read."""
    rows = None if run.is_zero else run.matrix.block_rows(run.rows)
    if rows is None or (place.first, place.end) == (0, run.matrix.n_inputs):
        return rows
    return rows.inputs(place.first, place.end)

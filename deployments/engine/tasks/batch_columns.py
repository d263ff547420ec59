"""Columns of a step's inputs that are read from the tasks of its batch."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from torch import Tensor

from deployments.engine.tasks.batch import Batch
from kv.arrays import IntArray


def n_drafted_before(sampled_rows: Sequence[int]) -> IntArray:
    """How many drafted tokens stand before each sample in its row. [sampled rows]"""
    rows = np.array(sampled_rows, dtype=np.int64)
    return np.arange(len(rows)) - np.searchsorted(rows, rows)


def unknown_rows(batch: Batch) -> list[int]:
    """The rows whose newest token the step in progress samples."""
    return [row for row, n in enumerate(batch.n_unknown()) if n]


def newest_ids(batch: Batch) -> IntArray:
    """The token ids of a batch whose rows are each their task's newest token. [rows]"""
    return np.array([task.newest for task in batch.tasks], dtype=np.int64)


def token_ids(batch: Batch) -> IntArray:
    """[tokens]"""
    return np.concatenate(
        [
            task.tokens[start : start + n]
            for task, start, n in zip(batch.tasks, batch.starts, batch.new_len, strict=True)
        ]
    )


def scored_indices(
    batch: Batch, n_scored: Mapping[int, int], offsets: IntArray
) -> Iterator[IntArray]:
    """Yields where the positions to score are in the flat batch, row by row."""
    for row, n in n_scored.items():
        first = len(batch.tasks[row].prompt_logprobs)
        yield np.arange(first, first + n) - offsets[row]


def bidirectional_spans(batch: Batch) -> IntArray:
    """Returns the spans of the batch, as `StepInputs.spans` has them."""
    columns = zip(batch.tasks, batch.starts, batch.new_len, strict=True)
    spans = [
        (row, max(begin - start, 0), end - start, medium.in_windows)
        for row, (task, start, n) in enumerate(columns)
        for medium in task.media_vectors
        for begin, end in medium.spans
        if start < end <= start + n
    ]
    return np.array(spans, dtype=np.int64).reshape(-1, 4)


def media_vectors(batch: Batch, offsets: IntArray) -> tuple[list[IntArray], list[Tensor]]:
    """Returns where tokens of media are in the flat batch, and their vectors, medium by medium."""
    indices, vectors = [], []
    columns = zip(batch.tasks, batch.starts, batch.new_len, strict=True)
    for row, (task, first, n) in enumerate(columns):
        for medium in task.media_vectors:
            positions, of_positions = medium.within(first, first + n)
            if len(positions):
                indices.append(positions - offsets[row])
                vectors.append(of_positions)
    return indices, vectors


def rotary_positions(batch: Batch, positions: IntArray) -> IntArray:
    """Returns what the rotary embedding goes by, for `positions` [tokens] of tokens in their rows.
    [3, tokens], or [tokens] where all stand behind the images of their rows."""
    grids, starts = [task.grid for task in batch.tasks], batch.starts
    shifts = [0 if grid is None else grid.shift for grid in grids]
    rotary: IntArray = positions + np.repeat(shifts, batch.new_len)
    if all(grid is None or start >= grid.end for grid, start in zip(grids, starts, strict=True)):
        return rotary
    rotary, begin = np.tile(rotary, (3, 1)), 0
    for grid, start, n in zip(grids, starts, batch.new_len, strict=True):
        if grid is not None:
            rotary[:, begin : begin + n] = grid.within(start, start + n)
        begin += n
    return rotary

"""Columns of a step's inputs that are read from the tasks of its batch."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from deployments.engine.tasks.batch import Batch
from kv.arrays import IntArray


def n_drafted_before(sampled_rows: Sequence[int]) -> IntArray:
    """How many drafted tokens stand before each sample in its row. [sampled rows]"""
    if len({*sampled_rows}) == len(sampled_rows):  # none is drafted
        return np.zeros(len(sampled_rows), dtype=np.int64)
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

"""Vectors are normalised as llama-server's embd_normalize says, and travel in parts."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.contract.outputs import PoolParams, join_vectors
from deployments.engine.outputs.vectors import (
    MAX_EVENT_BYTES,
    finish_vectors,
    normalized,
    pack,
    split,
    unpack,
)

ROWS = np.array([[3, -4, 0], [0, 0, 0], [0.5, 2e30, -2e30]], dtype=np.float32)


@pytest.mark.parametrize("kind", [-1, 0, 1, 2, 3, 64])
def test_each_kind_is_as_defined_and_zeros_stay(kind: int) -> None:
    found = normalized(ROWS, kind).astype(np.float64)
    assert not found[1].any()
    wide = ROWS.astype(np.float64)[[0, 2]]
    if kind == 0:
        norms = np.abs(wide).max(1) / 32760
    else:
        norms = np.ones(2) if kind < 0 else [norm_of(row, kind) for row in wide]
    np.testing.assert_allclose(
        found[[0, 2]], wide / np.reshape(norms, (2, 1)), rtol=1e-6, atol=1e-30
    )


def norm_of(row: Sequence[float], power: int) -> float:
    """Computes the norm relative to the largest number, so that no power overflows."""
    peak = max(map(abs, row))
    return float(peak * sum((abs(value) / peak) ** power for value in row) ** (1 / power))


def test_a_cut_vector_is_as_long_as_a_whole_one() -> None:
    [cut] = finish_vectors(ROWS[:1], PoolParams(dimensions=1), normalizes=True)
    assert cut.tolist() == [1.0]
    [cut] = finish_vectors(ROWS[:1], PoolParams(dimensions=2), normalizes=False)
    assert cut.tolist() == [3.0, -4.0]


@given(st.integers(1, 40), st.sampled_from([1, 7, MAX_EVENT_BYTES // 16, MAX_EVENT_BYTES // 2]))
def test_parts_are_small_and_come_to_the_whole(n: int, size: int) -> None:
    whole = pack(np.arange(n, dtype=np.float32)[:, None].repeat(size, 1))
    parts = [*split(whole)]
    assert join_vectors(parts) == whole
    assert all(len(part.data) <= MAX_EVENT_BYTES or part.n == 1 for part in parts)
    assert unpack(whole)[:, 0].tolist() == [*range(n)]

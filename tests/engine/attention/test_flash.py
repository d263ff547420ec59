"""FlashAttention computes the chunks that it supports, once it has passed a check."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from deployments.engine.attention.flash import FlashAttention, flash_version
from deployments.engine.attention.gpu import plan_triton_attention
from kv.layout import alike
from kv.storage import Storage
from tests.effort import tries
from tests.engine.attention.flash_stand_in import attend_with_stand_in
from tests.engine.kernels.gpu.interpreter import Interpreter, needs_triton
from tests.engine.kernels.gpu.paged import DTYPES, Case


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_there_is_none_without_a_gpu() -> None:
    assert flash_version() is None


def test_decodes_have_no_keys_for_it() -> None:
    table, total, new = np.arange(12).reshape(3, 4), np.array([9, 5, 16]), np.array([1, 5, 3])
    step = FlashAttention.from_triton(
        plan_triton_attention(Storage(alike(1, 1, 8), 12, 4), table, total, new)
    )
    assert step._seqused_k().tolist() == [0, 5, 16]
    assert step.max_decode_len == 9


CHUNK = Case(((0, 34), (40, 9)), dtype="bfloat16", head_dim=32)


@needs_triton
def test_it_is_used_once_it_has_passed_the_check(interpreted: Interpreter) -> None:
    n_calls_made, error = interpreted(attend_with_stand_in, CHUNK)
    assert n_calls_made == 1 + 3
    assert error < DTYPES["bfloat16"]


@needs_triton
def test_small_chunks_stay_with_our_kernel_which_splits_their_contexts(
    interpreted: Interpreter,
) -> None:
    small = ((90, 9), (0, 32), (40, 1))
    n_calls_made, error = interpreted(attend_with_stand_in, replace(CHUNK, rows=small))
    assert n_calls_made == 0
    assert error < DTYPES["bfloat16"]
    both = (*small, (7, 33))
    n_calls_made, error = interpreted(attend_with_stand_in, replace(CHUNK, rows=both))
    assert n_calls_made == 1 + 3
    assert error < DTYPES["bfloat16"]


@needs_triton
@pytest.mark.parametrize("wrong_by", tries([float("nan")], [0.05, float("nan")]))
def test_it_is_not_used_where_it_is_wrong(interpreted: Interpreter, wrong_by: float) -> None:
    n_calls_made, error = interpreted(attend_with_stand_in, CHUNK, wrong_by)
    assert n_calls_made == 1
    assert error < DTYPES["bfloat16"]


@needs_triton
@pytest.mark.parametrize("n_calls", tries([1], [0, 1, 2]))
def test_it_is_not_used_any_more_where_it_failed(interpreted: Interpreter, n_calls: int) -> None:
    n_calls_made, error = interpreted(
        attend_with_stand_in, CHUNK, 0.0, [None] * n_calls + [RuntimeError("no kernel")]
    )
    assert n_calls_made == n_calls + 1
    assert error < DTYPES["bfloat16"]


@needs_triton
@pytest.mark.parametrize(
    "unsupported",
    [
        {"dtype": "float32"},
        *tries([], [{"softcap": 3.0}, {"sinks": True}, {"fp8_pages": True}, {"page_size": 64}]),
    ],
)
def test_it_is_not_used_for_what_it_does_not_support(
    interpreted: Interpreter, unsupported: dict[str, Any]
) -> None:
    assert interpreted(attend_with_stand_in, replace(CHUNK, **unsupported))[0] == 0

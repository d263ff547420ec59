"""FlashAttention is asked for by what is there, and only for what it can do."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from deployments.engine.attention.flash import FlashAttention, flash_version
from deployments.engine.attention.gpu import plan_triton_attention
from kv.storage import Storage
from tests.engine.attention.tried_flash import tried
from tests.engine.kernels.gpu.interpreter import Interpreter, interpreter, needs_triton
from tests.engine.kernels.gpu.paged import DTYPES, Case


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_there_is_none_without_a_gpu() -> None:
    assert flash_version() is None


def test_decodes_have_no_keys_for_it() -> None:
    table, total, new = np.arange(12).reshape(3, 4), np.array([9, 5, 16]), np.array([1, 5, 3])
    step = FlashAttention.of(plan_triton_attention(Storage(1, 12, 4, 1, 8), table, total, new))
    assert step._seen().tolist() == [0, 5, 16]
    assert step.longest_decode == 9


CHUNK = Case(((0, 64), (40, 9)), dtype="bfloat16", head_dim=32)


@pytest.fixture(scope="module")
def interpreted() -> Iterator[Interpreter]:
    with interpreter() as running:
        yield running


@needs_triton
def test_it_is_used_when_it_was_tried(interpreted: Interpreter) -> None:
    asked, error = interpreted(tried, CHUNK)
    assert asked == 1 + 3
    assert error < DTYPES["bfloat16"]


@needs_triton
@pytest.mark.parametrize("wrong_by", [0.05, float("nan")])
def test_it_is_not_used_where_it_is_wrong(interpreted: Interpreter, wrong_by: float) -> None:
    asked, error = interpreted(tried, CHUNK, wrong_by)
    assert asked == 1
    assert error < DTYPES["bfloat16"]


@needs_triton
@pytest.mark.parametrize("n_calls", [0, 1, 2])
def test_it_is_not_used_any_more_where_it_failed(interpreted: Interpreter, n_calls: int) -> None:
    asked, error = interpreted(tried, CHUNK, 0.0, [None] * n_calls + [RuntimeError("no kernel")])
    assert asked == n_calls + 1
    assert error < DTYPES["bfloat16"]


@needs_triton
@pytest.mark.parametrize(
    "lacking",
    [
        {"dtype": "float32"},
        {"softcap": 3.0},
        {"sinks": True},
        {"fp8_pages": True},
        {"page_size": 64},
    ],
)
def test_what_it_lacks_is_not_asked_of_it(
    interpreted: Interpreter, lacking: dict[str, Any]
) -> None:
    assert interpreted(tried, replace(CHUNK, **lacking))[0] == 0

"""The attention kernels, interpreted, against the same written out: any batch, exact laws."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tries
from tests.engine.kernels.gpu.interpreter import Interpreter, needs_triton
from tests.engine.kernels.gpu.paged import (
    DTYPES,
    Case,
    error,
    output,
    rows_that_differ_alone,
    slots_written,
    whole_and_chunked,
)

pytestmark = needs_triton
# A decode over several splits, chunks over several tiles, first tokens, and a row without any.
MIXED = ((99, 1), (13, 7), (0, 1), (0, 0), (31, 19), (16, 1))
# Longer than a tile, at the ends of a row and within it, beside rows without any.
SPANS = ((1, 0, 3, 0), (1, 3, 7, 0), (4, 2, 19, 0))
IN_WINDOWS = ((1, 0, 3, 1), (4, 2, 19, 1))
VARIANTS = {
    "plain": Case(MIXED),
    "windowed": Case(MIXED, window=20),
    "narrow window": Case(MIXED, window=1),
    "capped": Case(MIXED, softcap=2.0),
    "with sinks": Case(MIXED, sinks=True),
    "all of it": Case(MIXED, window=9, softcap=3.0, sinks=True, slopes=True),
    "with slopes": Case(MIXED, slopes=True),
    "one key head": Case(MIXED, heads=3, kv_heads=1, head_dim=8),
    "no sharing": Case(MIXED, heads=2),
    "pages of 1": Case(MIXED, page_size=1),
    "pages longer than a block": Case(MIXED, page_size=32),
    "chunks without splits": Case(MIXED, multiprocessors=1, sinks=True),
    "tiles of a device": Case(MIXED, small_tiles=False),
    "latents": Case(MIXED, heads=5, kv_heads=1, head_dim=24, value_dim=16),
    "latents of many heads": Case(
        MIXED, heads=40, kv_heads=1, head_dim=40, value_dim=32, window=20
    ),
    "both ways": Case(MIXED, spans=SPANS, sinks=True),
    "both ways in a window": Case(MIXED, spans=SPANS, window=5),
    "both ways where there is a window": Case(MIXED, spans=IN_WINDOWS, window=5),
    "both ways where there is none": Case(MIXED, spans=IN_WINDOWS),
    "both ways without splits": Case(MIXED, spans=SPANS, multiprocessors=1, window=40),
    "both ways in tiles of a device": Case(MIXED, spans=SPANS, small_tiles=False),
    "values that are keys": Case(MIXED, value_dim=16),
    "the latents of DeepSeek": Case(
        ((70, 1), (3, 4)), heads=20, kv_heads=1, head_dim=576, value_dim=512, small_tiles=False
    ),
}

# The check tries those that others do not say.
RARE = frozenset(
    {
        *("narrow window", "no sharing", "pages longer than a block", "latents", "capped"),
        "with slopes",
        *("both ways in a window", "both ways where there is none", "both ways without splits"),
        *("both ways in tiles of a device", "values that are keys", "with sinks"),
    }
)


@pytest.mark.parametrize("variant", tries(sorted({*VARIANTS} - RARE), [*VARIANTS]))
def test_every_variant_is_what_it_should_be(interpreted: Interpreter, variant: str) -> None:
    assert interpreted(error, VARIANTS[variant]) < DTYPES["float32"]


@pytest.mark.parametrize("head_dim", tries([80, 256], [64, 80, 96, 128, 256]))
def test_every_head_size_is_served(interpreted: Interpreter, head_dim: int) -> None:
    case = Case(((37, 1), (5, 4)), head_dim=head_dim, sinks=True)
    assert interpreted(error, case) < DTYPES["float32"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("fp8_pages", [False, True])
def test_narrow_numbers_err_by_their_own_rounding(
    interpreted: Interpreter, dtype: str, fp8_pages: bool
) -> None:
    case = Case(MIXED, dtype=dtype, fp8_pages=fp8_pages, window=30)
    assert interpreted(error, case) < DTYPES[dtype]


batches = st.lists(
    st.tuples(st.integers(0, 70), st.integers(0, 12)), min_size=1, max_size=4
).filter(lambda rows: any(new for _, new in rows))
cases = st.builds(
    Case,
    rows=batches.map(tuple),
    heads=st.sampled_from([4, 6]),
    page_size=st.sampled_from([2, 8, 16]),
    window=st.none() | st.integers(1, 80),
    softcap=st.none() | st.just(4.0),
    sinks=st.booleans(),
    multiprocessors=st.sampled_from([1, 6, 100]),
    seed=st.integers(0, 1000),
)


@settings(max_examples=tries(8, 15), deadline=None)
@given(case=cases)
def test_any_batch_is_what_it_should_be(interpreted: Interpreter, case: Case) -> None:
    assert interpreted(error, case) < DTYPES["float32"]


@settings(max_examples=tries(4, 6), deadline=None)
@given(case=cases)
def test_batched_equals_alone_to_the_last_bit(interpreted: Interpreter, case: Case) -> None:
    assert interpreted(rows_that_differ_alone, case) == []


@settings(max_examples=tries(4, 8), deadline=None)
@given(case=cases, before=st.integers(0, 40), data=st.data())
def test_chunked_equals_whole_to_the_last_bit(
    interpreted: Interpreter, case: Case, before: int, data: st.DataObject
) -> None:
    # A chunk of one token is a decode, whose sums are cut by the length of its context.
    first, second = data.draw(st.integers(2, 20)), data.draw(st.integers(2, 20))
    one_row = replace(case, rows=((before, first + second),))
    whole, chunked = interpreted(whole_and_chunked, one_row, [before + first])
    assert torch.equal(whole, chunked)


@pytest.mark.parametrize("window", [None, 5])
def test_a_span_changes_no_bit_of_other_rows(interpreted: Interpreter, window: int | None) -> None:
    case = Case(MIXED, spans=SPANS, window=window)
    assert interpreted(rows_that_differ_alone, case) == []


SHARED = Case(((110, 19), (31, 2), (40, 3)), heads=6, sinks=True)
LATENTS = replace(SHARED, rows=((70, 5),), heads=40, kv_heads=1, head_dim=24, value_dim=16)


@pytest.mark.parametrize(
    "case",
    [
        replace(SHARED, window=50),
        *tries([], [SHARED, replace(SHARED, window=9), LATENTS]),
    ],
)
def test_a_chunk_has_the_same_bits_from_one_program_and_from_one_for_each_split(
    interpreted: Interpreter, case: Case
) -> None:
    assert interpreted(error, case) < DTYPES["float32"]
    alone, *shared = (interpreted(output, replace(case, multiprocessors=n)) for n in (1, 12, 1000))
    assert all(torch.equal(alone, result) for result in shared)


def test_tiles_are_split_that_are_longer_than_a_multiprocessors_share() -> None:
    from deployments.engine.kernels.gpu.attention_ops import tiles_to_split

    follow_up, prompt = np.array([32_800]), np.arange(8192, 0, -32)
    many = np.full(17, 32_800)
    beside = np.concatenate([follow_up, np.full(40, 100)])
    split = [tiles_to_split(keys, 2048, 8, 132) for keys in (follow_up, prompt, many, beside)]
    assert split == [1, 0, 0, 1]
    assert tiles_to_split(np.array([2048]), 2048, 8, 132) == 0


def test_only_the_new_tokens_are_written(interpreted: Interpreter) -> None:
    changed, new = interpreted(slots_written, Case(MIXED))
    assert changed == new

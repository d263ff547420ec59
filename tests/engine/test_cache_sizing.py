"""How many pages an engine makes, from its limits and from what a device has left."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedModel

from deployments.engine.build import find_execution
from deployments.engine.cache_sizing import (
    GIB,
    DeviceMemory,
    cache_shape,
    graph_bytes,
    kv_budget,
    largest_step,
    with_room_for_states,
)
from deployments.engine.forward.cross_attention import cross_attention_bytes
from deployments.engine.limits import CPU_KV_GIB, MAX_DRAFTED_STEP_GPU, EngineLimits
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.media.speech import split_speech
from kv.layout import alike
from kv.shape import CacheShape
from kv.states import SLOTS_PER_TASK
from kv.storage import Storage
from tests.engine.drive import loaded
from tests.engine.speech.tiny_whisper import MAX_TOKENS, WINDOW, tiny_whisper
from tests.models import tiny_model

SHAPE = CacheShape(layout=alike(1, 1, 8), n_pages=0, page_size=4, max_tasks=8, max_tokens=64)
ALONE = DeviceMemory(total=100 * GIB, free=80 * GIB, weights=16 * GIB, peak=19 * GIB)


def sized(model: PreTrainedModel | LoadedModel, limits: EngineLimits) -> CacheShape:
    ready = loaded(model)
    return cache_shape(ready, find_execution(ready), limits)


def test_weights_step_and_pages_stay_within_the_share_of_the_device() -> None:
    roomy = replace(ALONE, free=83 * GIB)
    assert kv_budget(roomy, 0.5) == 50 * GIB - 19 * GIB


def test_a_share_that_weights_and_step_fill_leaves_nothing() -> None:
    assert kv_budget(ALONE, 0.19) == 0
    assert kv_budget(ALONE, 0.1) == 0


def test_what_others_hold_on_the_same_device_is_not_taken() -> None:
    crowded = replace(ALONE, free=10 * GIB)
    assert kv_budget(crowded, 0.9) == 9 * GIB - 3 * GIB
    assert kv_budget(replace(ALONE, free=GIB), 0.9) == 0


def test_the_graphs_of_decodes_have_their_memory_beside_the_pages() -> None:
    graphs = replace(ALONE, graphs=2 * GIB)
    assert kv_budget(graphs, 0.5) == kv_budget(ALONE, 0.5) - 2 * GIB
    crowded = replace(ALONE, free=10 * GIB)
    assert kv_budget(replace(crowded, graphs=2 * GIB), 0.9) == kv_budget(crowded, 0.9) - 2 * GIB


def test_graphs_take_what_a_decode_of_all_rows_takes() -> None:
    limits = EngineLimits(max_running=64, max_batch_tokens=512)
    table = 64 * (SHAPE.max_tokens // SHAPE.page_size) * 4
    assert graph_bytes(limits, SHAPE, 800, 1000) == 100 + 2000 + table
    few = replace(limits, max_batch_tokens=64)
    assert graph_bytes(few, SHAPE, 800, 1000) == 800 + 2000 + table


@given(
    total=st.integers(0, 200),
    free=st.integers(0, 200),
    weights=st.integers(0, 100),
    step=st.integers(0, 50),
    utilization=st.floats(0.01, 1),
)
def test_no_budget_exceeds_the_share_or_what_is_free(
    total: int, free: int, weights: int, step: int, utilization: float
) -> None:
    memory = DeviceMemory(total=total, free=free, weights=weights, peak=weights + step)
    budget = kv_budget(memory, utilization)
    assert budget >= 0
    if budget:
        assert budget + weights + step <= total * utilization
        assert budget + step <= free


def test_pages_on_a_cpu_take_a_gibibyte_unless_something_else_is_said() -> None:
    model, limits = tiny_model(), EngineLimits(max_running=10**6)
    page = Storage.page_bytes(alike(3, 2, 8), limits.page_size, model.dtype)
    assert sized(model, limits).n_pages == int(CPU_KV_GIB * GIB) // page
    assert sized(model, replace(limits, kv_gib=0.5)).n_pages == GIB // 2 // page
    assert sized(model, replace(limits, n_pages=70)).n_pages == 70


def test_states_on_a_cpu_have_as_much_memory_as_pages() -> None:
    """Else a busy server with large states would fill the machine."""
    shape = sized(tiny_model("mamba2"), EngineLimits())
    assert shape.max_tasks == EngineLimits().max_running
    few = EngineLimits(kv_gib=3 * SLOTS_PER_TASK * shape.state_bytes / GIB)
    assert sized(tiny_model("mamba2"), few).max_tasks == 3


def test_checkpoints_without_a_limit_leave_half_of_a_gpu_to_all_else() -> None:
    shape = replace(SHAPE, has_states=True, state_bytes=1000, max_checkpoints=10**9)
    found, left = with_room_for_states(shape, 200_000)
    assert (found.max_checkpoints, found.max_tasks, left) == (100, 8, 68_000)
    found, left = with_room_for_states(replace(shape, max_tasks=50), 200_000)
    assert (found.max_tasks, left) == (12, 52_000)


def test_no_more_pages_are_made_than_could_ever_be_used() -> None:
    shape = sized(tiny_model(), EngineLimits(max_running=3, context_length=40))
    assert (shape.n_pages, shape.max_tokens) == (9, 40)


def test_sounds_have_their_memory_beside_the_pages() -> None:
    model, limits = split_speech(LoadedModel(tiny_whisper())), EngineLimits(max_running=64)
    one = 2 * 2 * (WINDOW // 320) * 32 * 4  # keys and values of 2 layers
    assert cross_attention_bytes(model.model) == one
    page = Storage.page_bytes(alike(2, 4, 8), limits.page_size, model.dtype)
    each = 2 * one + MAX_TOKENS // limits.page_size * page
    few = sized(model, replace(limits, kv_gib=(3 * each + 1) / GIB))
    assert few.max_tasks == 3
    assert few.max_tokens == MAX_TOKENS
    assert few.n_pages * page <= 3 * each - 3 * 2 * one + 1
    with pytest.raises(ValueError, match=r"kv_gib: .* a sound with its transcript takes"):
        sized(model, replace(limits, kv_gib=(each - 1) / GIB))
    assert sized(model, limits).max_tasks == 64


@given(
    max_running=st.integers(1, 12),
    max_batch_tokens=st.integers(1, 200),
    draft_tokens=st.sampled_from([0, 1, 64]),
)
def test_the_step_that_is_tried_is_the_largest_that_there_can_be(
    max_running: int, max_batch_tokens: int, draft_tokens: int
) -> None:
    limits = EngineLimits(
        max_running=max_running, max_batch_tokens=max_batch_tokens, draft_tokens=draft_tokens
    )
    step = largest_step(limits, SHAPE)
    fits = max_running * SHAPE.max_tokens
    assert len(step.new_len) == max_running
    assert len(step.logit_indices) == min(max_running * (1 + draft_tokens), MAX_DRAFTED_STEP_GPU)
    assert len(step.token_ids) == min(max(max_batch_tokens, max_running), fits)
    assert step.new_len.sum() == len(step.token_ids) == len(step.positions)
    assert np.array_equal(step.positions[step.logit_indices[:max_running]], step.new_len - 1)
    assert step.positions.max() < SHAPE.max_tokens
    assert len(np.unique(step.page_table)) == step.page_table.size
    assert step.page_table.shape[2] * SHAPE.page_size >= step.total_len.max()

"""Models compute the same through the Triton kernels, and through graphs of padded steps."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from deployments.engine.attention.gpu import (
    NO_SLOT,
    TritonAttention,
    attention_at,
    plan_triton_attention,
)
from deployments.engine.attention.interface import FusedStepAttention
from deployments.engine.attention.tiles import tile
from deployments.engine.forward.adapters.slots import AdapterSlots
from deployments.engine.forward.cuda_graphs import Capture, StepGraphs, capture_sizes
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.forward.static_inputs import CapturedAttention, GraphKey, StaticInputs
from kv.layout import alike
from kv.storage import Storage
from tests.engine.forward.paged_models import (
    N_STORED_PAGES,
    ROWS,
    captured_and_eager_logits,
    captured_and_eager_taps,
    inputs,
    max_logit_error,
)
from tests.engine.kernels.gpu.interpreter import Interpreter, needs_triton
from tests.models import CONFIGS, tiny_model

DECODES = inputs(ROWS[2])
CHUNKS = inputs(ROWS[1])


@needs_triton
@pytest.mark.parametrize("architecture", ["llama", "llama4", "gemma2", "gpt_oss", "deepseek_v3"])
def test_a_model_has_the_same_logits_through_the_kernels(
    interpreted: Interpreter, architecture: str
) -> None:
    assert interpreted(max_logit_error, architecture) < 1e-4


@needs_triton
@pytest.mark.parametrize("architecture", ["llama", "llama4"])
def test_padded_steps_have_the_logits_of_unpadded_ones(
    interpreted: Interpreter, architecture: str
) -> None:
    for padded, unpadded in interpreted(captured_and_eager_logits, architecture):
        # The two models' weights have different addresses, which changes rounding on some CPUs.
        torch.testing.assert_close(padded, unpadded, rtol=1e-4, atol=1e-4)


@needs_triton
@pytest.mark.parametrize("architecture", ["llama", "gpt_oss"])
def test_padded_steps_leave_what_layers_read(interpreted: Interpreter, architecture: str) -> None:
    for padded, unpadded in interpreted(captured_and_eager_taps, architecture):
        torch.testing.assert_close(padded, unpadded, rtol=1e-4, atol=1e-4)


def test_the_architectures_above_use_all_options_of_the_kernels() -> None:
    assert CONFIGS["gemma2"]().attn_logit_softcapping
    assert CONFIGS["gpt_oss"]().sliding_window


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def small_storage() -> Storage:
    return Storage(alike(1, 1, 8), N_STORED_PAGES, 4)


class RecordingDecode:
    """A decode whose logits are each token's index. It keeps its arguments."""

    def __init__(self) -> None:
        self.steps: list[tuple[list[int], TritonAttention]] = []

    def __call__(
        self, ids: Tensor, positions: Tensor, logit_indices: Tensor, step: FusedStepAttention
    ) -> Tensor:
        assert isinstance(step, TritonAttention)
        self.steps.append((ids.tolist(), step))
        return logit_indices.float()[:, None]


def run_now(run: Callable[[], None]) -> Callable[[], None]:
    run()
    return run


def graphs(capture: Capture = run_now, max_rows: int = 6) -> StepGraphs:
    step_graphs = StepGraphs(
        RecordingDecode(), StaticInputs(small_storage(), max_rows, 48), capture
    )
    step_graphs.capture()
    return step_graphs


def test_capture_sizes_end_with_the_most_rows() -> None:
    assert capture_sizes(1) == [1]
    assert capture_sizes(6) == [1, 2, 4, 6]
    assert capture_sizes(32) == [1, 2, 4, 8, 16, 24, 32]
    assert all(
        b - a <= 64 for a, b in zip(capture_sizes(600), capture_sizes(600)[1:], strict=False)
    )


def test_steps_with_adapters_have_graphs_of_their_own() -> None:
    slots = AdapterSlots(tiny_model(), 2, 4)
    seen: list[tuple[list[int], list[int]]] = []

    def decode(_: Tensor, __: Tensor, indices: Tensor, ___: FusedStepAttention) -> Tensor:
        rows = slots.rows
        seen.append(([], []) if rows is None else (rows.tokens.tolist(), rows.begins.tolist()))
        return indices.float()[:, None]

    static = StaticInputs(small_storage(), 6, 48)
    step_graphs = StepGraphs(decode, static, run_now, adapters=slots)
    step_graphs.capture()
    seen.clear()
    for step in (replace(DECODES, adapter_slots=np.array([2, 0, 1])), DECODES):
        assert step_graphs.logits(step) is not None
    (tokens, begins), none = seen
    assert (tokens[:2], begins) == ([2, 0], [0, 1, 2])
    assert none == ([], [])


def test_rows_without_a_task_are_written_nowhere_and_have_no_context() -> None:
    static = StaticInputs(small_storage(), 6, 48)
    static.load(DECODES, 4)
    token_ids, positions, logit_indices, step = static.views(GraphKey(4, 48, has_chunks=False))
    assert isinstance(step, TritonAttention)
    assert logit_indices.tolist() == [0, 1, 2, 0]
    assert token_ids.tolist() == [*DECODES.token_ids.tolist(), 0]
    assert positions.tolist() == [*DECODES.positions.tolist(), 0]
    assert step.total_len.tolist() == [*DECODES.total_len.tolist(), 0]
    assert step.starts.tolist() == [0, 1, 2, 3, 4]
    assert step.slots.tolist()[3] == NO_SLOT
    assert (step.slots[:3] >= 0).all()
    assert step.page_table[:3, :8].tolist() == DECODES.page_table[0].tolist()


@pytest.mark.parametrize("step", [DECODES, CHUNKS], ids=["decodes", "chunks"])
def test_a_page_table_on_the_device_says_what_one_on_the_host_says(step: StepInputs) -> None:
    storage, nothing = small_storage(), np.empty((0, 0, 0), dtype=np.int64)
    table = torch.from_numpy(step.page_table.astype(np.int32))
    pages = step.find_new_pages(storage.page_size)
    shared = replace(step, page_table=nothing, device_table=table, new_pages=pages)
    static, same = StaticInputs(storage, 8, 48), StaticInputs(storage, 8, 48)
    static.load(step, 8)
    same.load(shared, 8)
    for key in (GraphKey(8, 48, has_chunks=False), GraphKey(8, 48, has_chunks=True)):
        expected, found = static.views(key)[-1], same.views(key)[-1]
        assert isinstance(expected, TritonAttention)
        assert isinstance(found, TritonAttention)
        assert torch.equal(found.page_table, expected.page_table)
        assert torch.equal(found.slots, expected.slots)
    lengths = step.total_len, step.new_len
    eager = attention_at(storage, shared.table_of(0), shared.slots(storage, 0), *lengths)
    planned = plan_triton_attention(storage, step.page_table[0], *lengths)
    assert torch.equal(eager.page_table, planned.page_table)
    assert torch.equal(eager.slots, planned.slots)
    assert torch.equal(eager.starts, planned.starts)
    assert torch.equal(eager.total_len, planned.total_len)


def test_a_smaller_step_leaves_nothing_of_the_one_before() -> None:
    static = StaticInputs(small_storage(), 6, 48)
    static.load(DECODES, 4)
    static.load(inputs([(7, 1)]), 4)
    *_, step = static.views(GraphKey(4, 48, has_chunks=False))
    assert isinstance(step, TritonAttention)
    assert step.total_len.tolist() == [8, 0, 0, 0]
    assert step.slots.tolist()[1:] == [NO_SLOT] * 3


def test_padding_tokens_of_a_step_with_chunks_are_rows_without_a_context() -> None:
    static = StaticInputs(small_storage(), 6, 48)
    *_, step = static.views(GraphKey(8, 48, has_chunks=True))
    assert isinstance(step, CapturedAttention)
    assert step.static_tiles is not None
    step.static_tiles(3)
    static.load(CHUNKS, 8)  # rows of 1, 4 and 1 tokens
    assert step.starts.tolist() == [0, 1, 5, 6, 7, 8, 8, 8, 8]
    assert step.total_len.tolist() == [*CHUNKS.total_len.tolist(), 0, 0, 0, 0, 0]
    assert step.slots.tolist()[6:] == [NO_SLOT] * 2
    assert step.static_tiles(3).tolist() == [[1, 3], [1, 0], *[[7, 1]] * 6]


def test_only_steps_as_small_as_those_captured_are_replayed() -> None:
    step_graphs = graphs()
    assert step_graphs.logits(CHUNKS) is not None
    assert step_graphs.logits(inputs([(0, 16), (0, 16)])) is not None
    assert step_graphs.logits(inputs([(0, 17), (0, 16)])) is None
    assert step_graphs.logits(inputs([(3, 1)] * 6)) is not None
    assert graphs(max_rows=2).logits(DECODES) is None


def test_chunks_that_may_be_split_among_programs_are_not_replayed() -> None:
    static = StaticInputs(Storage(alike(1, 1, 8), 8, 2048), 6, 8192)
    step_graphs = StepGraphs(RecordingDecode(), static, run_now)
    step_graphs.capture()
    step = replace(CHUNKS, page_table=CHUNKS.page_table[..., :4])
    assert step_graphs.logits(replace(step, total_len=np.array([5000, 7, 7]))) is not None
    assert step_graphs.logits(replace(step, total_len=np.array([20, 5000, 7]))) is None


def test_logits_are_of_the_indices_asked_for() -> None:
    step = inputs(ROWS[2])
    logits = graphs().logits(step)
    assert logits is not None
    assert logits.flatten().tolist() == [0, 1, 2]
    logits = graphs().logits(replace(step, logit_indices=np.array([2, 0])))
    assert logits is not None
    assert logits.flatten().tolist() == [2, 0]


def test_long_contexts_have_graphs_of_their_own_where_rows_are_many() -> None:
    decode = RecordingDecode()
    step_graphs = StepGraphs(
        decode, StaticInputs(Storage(alike(1, 1, 8), 8, 16), 16, 8192), run_now
    )
    step_graphs.capture()
    captured = [(len(ids), step.max_decode_len) for ids, step in decode.steps]
    decodes = [(16, 8192), (16, 2048), (8, 8192), (4, 8192), (2, 8192), (1, 8192)]
    chunks = [(32, 8192), (32, 2048), (16, 8192), (16, 2048), (8, 8192)]
    assert captured == decodes + chunks


def test_a_model_that_can_not_be_captured_runs_as_it_did(caplog: pytest.LogCaptureFixture) -> None:
    calls = []

    def refuse(run: Callable[[], None]) -> Callable[[], None]:
        calls.append(run)
        if len(calls) == 3:
            raise RuntimeError("operation not permitted when stream is capturing")
        return run

    step_graphs = graphs(refuse)
    assert len(step_graphs) == 0
    assert step_graphs.logits(DECODES) is None
    assert "not permitted" in caplog.text


def test_graphs_that_the_memory_does_not_hold_are_dropped_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = []

    def run_out(run: Callable[[], None]) -> Callable[[], None]:
        calls.append(run)
        run()
        if len(calls) == 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return run

    step_graphs = graphs(run_out)
    assert len(step_graphs) == 0
    assert step_graphs.logits(DECODES) is None
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "no memory for CUDA graphs: of 7 only 2 could be captured" in record.message
    assert "Lower gpu_memory_utilization" in record.message
    assert "can't be captured" not in caplog.text


def test_tiles_cover_every_new_token_once_and_the_longest_context_comes_first() -> None:
    rows, new, total = np.array([1, 4]), np.array([5, 3]), np.array([5, 90])
    assert tile(rows, new, total, 2).tolist() == [[4, 2], [4, 0], [1, 4], [1, 2], [1, 0]]

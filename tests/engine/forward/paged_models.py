"""Whole models over the paged attention kernels, interpreted or on a device."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.attention.gpu import TritonAttention, plan_triton_attention
from deployments.engine.attention.grouped import plan_by_layer
from deployments.engine.attention.tumbling import Rows, rows_of_layer
from deployments.engine.build import find_execution
from deployments.engine.cache_sizing import cache_shape
from deployments.engine.forward.cuda_graphs import Capture, Decode, StepGraphs, capture_sizes
from deployments.engine.forward.decoder import decoder
from deployments.engine.forward.execution import Execution
from deployments.engine.forward.forward import DecoderForward, make_forward
from deployments.engine.forward.fused.fusing import fuse_projections
from deployments.engine.forward.head import head
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.forward.static_inputs import StaticInputs
from deployments.engine.forward.taps import LAST_NORM, StaticTaps
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import replace_attention
from deployments.engine.transfer import to_device
from kv.arrays import IntArray
from kv.storage import Storage
from tests.models import VOCAB, tiny_model

N_STORED_PAGES = 200
# (tokens before, new tokens) of each row, in three steps.
ROWS = [[(0, 19), (0, 3), (0, 6)], [(19, 1), (3, 4), (6, 1)], [(20, 1), (7, 1), (7, 1)]]
PAGES_PER_ROW = 8


def token_ids(row: IntArray, positions: IntArray) -> IntArray:
    return (positions * 31 + row * 7 + positions**2) % VOCAB


def inputs(rows: list[tuple[int, int]], groups: int = 1) -> StepInputs:
    """The next step of some rows. A token is a function of its row and position."""
    before, new = np.array(rows, dtype=np.int64).T
    positions = np.concatenate([np.arange(b, b + n) for b, n in rows])
    row = np.repeat(np.arange(len(rows)), new)
    n_pages = groups * len(rows) * PAGES_PER_ROW
    pages = np.random.default_rng(0).permutation(N_STORED_PAGES)[:n_pages]
    return StepInputs(
        token_ids=token_ids(row, positions),
        positions=positions,
        total_len=before + new,
        new_len=new,
        page_table=pages.reshape(len(rows), groups, PAGES_PER_ROW).swapaxes(0, 1),
        logit_indices=new.cumsum() - 1,
        stale_tails=np.empty((0, 3), dtype=np.int64),
    )


@dataclass(frozen=True)
class PagedModel:
    """A tiny model with pages of its own, computed by the Triton kernels."""

    decode: Decode
    storage: Storage

    def eager_logits(self, step: StepInputs) -> Tensor:
        def plan_layer(layer: int) -> TritonAttention:
            table = step.page_table[self.storage.group_of[layer]]
            rows = Rows(table, step.total_len, step.new_len)
            own, total_len, new_len = rows_of_layer(self.storage, layer, rows)
            assert isinstance(own, np.ndarray)
            return plan_triton_attention(self.storage, own, total_len, new_len, layer=layer)

        plan = plan_by_layer(self.storage, plan_layer)
        ids, positions, logit_indices = (
            to_device(x, self.storage.device)
            for x in (step.token_ids, step.positions, step.logit_indices)
        )
        return self.decode(ids, positions, logit_indices, plan)


def made_model(
    architecture: str, device: str = "cpu"
) -> tuple[PreTrainedModel, Execution, Storage]:
    model = tiny_model(architecture).to(device)
    fuse_projections(model, "cuda")
    loaded = LoadedModel(model)
    execution = find_execution(loaded)
    shape = cache_shape(loaded, execution, EngineLimits(context_length=64))
    replace_attention(model, execution, shape.max_tokens)
    return model, execution, Storage(shape.layout, N_STORED_PAGES, 4, device=device)


def paged_model(architecture: str, device: str = "cpu") -> PagedModel:
    model, _, storage = made_model(architecture, device)
    decode, to_logits = decoder(model), head(model)
    return PagedModel(lambda *arguments: to_logits(decode(*arguments)), storage)


def reference_logits(model: PreTrainedModel, row: int, n_tokens: int) -> Tensor:
    """Logits of the last of a row's first `n_tokens`, from transformers alone. [vocab]"""
    ids = token_ids(np.array(row), np.arange(n_tokens))
    logits: Tensor = model(input_ids=torch.from_numpy(ids)[None], use_cache=False).logits
    return logits[0, -1]


@torch.inference_mode()
def max_logit_error(architecture: str, device: str = "cpu") -> float:
    """The largest relative error of logits through the kernels, against transformers alone."""
    ours, plain = paged_model(architecture, device), tiny_model(architecture)
    plain.set_attn_implementation("eager")
    largest = 0.0
    for rows in ROWS:
        logits = ours.eager_logits(inputs(rows, len(ours.storage.groups))).cpu()
        for row, (before, new) in enumerate(rows):
            expected = reference_logits(plain, row, before + new)
            error = float((logits[row] - expected).abs().max() / expected.abs().max())
            largest = max(largest, error)
    return largest


def repeat(run: Callable[[], None]) -> Callable[[], None]:
    """Stands in for a capture, which runs the function once before: the replay runs it."""
    run()
    return run


def with_real_padding(rows: list[tuple[int, int]], max_rows: int) -> list[tuple[int, int]]:
    """Decodes, and as many further rows of one token as the graph would have padding rows."""
    if any(new != 1 for _, new in rows):
        return rows
    n = next(size for size in capture_sizes(max_rows) if size >= len(rows))
    return rows + [(0, 1)] * (n - len(rows))


@torch.inference_mode()
def captured_and_eager_taps(architecture: str) -> list[tuple[Tensor, Tensor]]:
    """Logits of decodes and tapped states of all their tokens, from a graph and without."""
    model, execution, storage = made_model(architecture)
    forward = make_forward(model, execution, storage)
    tapped = np.array([2, LAST_NORM, 0])
    assert isinstance(forward, DecoderForward)
    groups = len(storage.groups)
    forward.logits(inputs([(0, 19), (0, 6)], groups))
    step = replace(inputs([(19, 1), (6, 1)], groups), hidden_indices=np.arange(2), taps=tapped)
    forward._static_taps = StaticTaps(tapped.tolist(), 32)
    static = StaticInputs(storage, 2, 32)
    forward._graphs = StepGraphs(forward._static_logits, static, repeat, has_chunks=False)
    forward._graphs.capture()
    captured = [tensor.clone() for tensor in forward.compute(step)]
    forward._static_taps._states = None  # nothing reads them any more
    forward.drop_graphs()
    return [*zip(captured, forward.compute(step), strict=True)]


@torch.inference_mode()
def captured_and_eager_logits(
    architecture: str,
    capture: Capture = repeat,
    device: str = "cpu",
    max_rows: int = 4,
    replays_chunks: bool = True,
) -> list[tuple[Tensor, Tensor]]:
    """Logits of chunks, of chunks beside decodes, and of decodes, from graphs and without.

    Without a graph, real rows stand where the graph of decodes has padding rows. The number of rows
    is then the same in both, and libraries choose the same matrix products.
    """
    captured, eager = paged_model(architecture, device), paged_model(architecture, device)
    graphs = StepGraphs(captured.decode, StaticInputs(captured.storage, max_rows, 32), capture)
    graphs.capture()
    assert len(graphs) > 0
    results = []
    for rows in (*ROWS, [(21, 1)]):
        groups = len(captured.storage.groups)
        step, filled = inputs(rows, groups), inputs(with_real_padding(rows, max_rows), groups)
        is_replayed = replays_chunks or bool((step.new_len == 1).all())
        is_replayed &= graphs._inputs.can_load(step)
        logits = graphs.logits(step) if is_replayed else captured.eager_logits(step)
        assert logits is not None
        results.append((logits.clone().cpu(), eager.eager_logits(filled)[: len(rows)].cpu()))
        # A padding row writes nothing, but a real row in its place has.
        for group, pages in enumerate(filled.page_table[:, len(rows) :]):
            for page in pages.ravel().tolist():
                eager.storage.clear_tail(group, page, 0)
    # If a padding row wrote anything, the difference would be large.
    torch.testing.assert_close(captured.storage.k, eager.storage.k, rtol=1e-4, atol=1e-4)
    return results

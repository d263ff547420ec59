"""Whole models over the paged attention kernels, interpreted or on a device."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.attention.gpu import plan_triton_attention
from deployments.engine.cache_sizing import cache_shape
from deployments.engine.forward.cuda_graphs import (
    Capture,
    Decode,
    DecodeGraphs,
    StaticInputs,
    capture_sizes,
)
from deployments.engine.forward.decoder import decoder
from deployments.engine.forward.fusing import fuse_projections
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.loader import attach
from deployments.engine.transfer import to_device
from kv.arrays import IntArray
from kv.storage import Storage
from tests.models import VOCAB, tiny_model

N_STORED = 48  # pages
# Chunks and decodes side by side; then all rows decode.
ROWS = [[(0, 19), (0, 3), (0, 6)], [(19, 1), (3, 4), (6, 1)], [(20, 1), (7, 1), (7, 1)]]
N_PAGES = 8  # of a row


def token_ids(row: IntArray, positions: IntArray) -> IntArray:
    return (positions * 31 + row * 7 + positions**2) % VOCAB


def inputs(rows: list[tuple[int, int]]) -> StepInputs:
    """The next step of some rows. A token is a function of its row and position."""
    before, new = np.array(rows, dtype=np.int64).T
    positions = np.concatenate([np.arange(b, b + n) for b, n in rows])
    row = np.repeat(np.arange(len(rows)), new)
    pages = np.random.default_rng(0).permutation(N_STORED)[: len(rows) * N_PAGES]
    return StepInputs(
        token_ids=token_ids(row, positions),
        positions=positions,
        total_len=before + new,
        new_len=new,
        page_table=pages.reshape(len(rows), N_PAGES),
        logit_indices=new.cumsum() - 1,
        stale_tails=np.empty((0, 2), dtype=np.int64),
    )


@dataclass(frozen=True)
class Computing:
    """A tiny model over pages of its own, through the kernels alone."""

    decode: Decode
    storage: Storage

    def eagerly(self, step: StepInputs) -> Tensor:
        plan = plan_triton_attention(self.storage, step.page_table, step.total_len, step.new_len)
        ids, positions, logit_indices = (
            to_device(x, self.storage.k.device)
            for x in (step.token_ids, step.positions, step.logit_indices)
        )
        return self.decode(ids, positions, logit_indices, plan)


def kernels(architecture: str, device: str = "cpu") -> Computing:
    model = tiny_model(architecture).to(device)
    fuse_projections(model, "cuda")
    attach(model, cache_shape(model, EngineLimits(context_length=64)))
    config = model.config
    sizes = (config.num_hidden_layers, N_STORED, 4, config.num_key_value_heads, config.head_dim)
    return Computing(decoder(model), Storage(*sizes, device=device))


def plain_logits(model: PreTrainedModel, row: int, n_tokens: int) -> Tensor:
    """Behind the last of a row's first tokens, by transformers alone. [vocab]"""
    ids = token_ids(np.array(row), np.arange(n_tokens))
    logits: Tensor = model(input_ids=torch.from_numpy(ids)[None], use_cache=False).logits
    return logits[0, -1]


@torch.inference_mode()
def difference(architecture: str, device: str = "cpu") -> float:
    """Largest, of logits after three steps through the kernels and by transformers alone."""
    ours, plain = kernels(architecture, device), tiny_model(architecture)
    plain.set_attn_implementation("eager")
    found = 0.0
    for rows in ROWS:
        logits = ours.eagerly(inputs(rows)).cpu()
        for row, (before, new) in enumerate(rows):
            expected = plain_logits(plain, row, before + new)
            found = max(found, float((logits[row] - expected).abs().max() / expected.abs().max()))
    return found


def repeat(run: Callable[[], None]) -> Callable[[], None]:
    """In the place of a capture: the replay runs the function."""
    return run


def filled_up(rows: list[tuple[int, int]], max_rows: int) -> list[tuple[int, int]]:
    """Decodes with first tokens of further rows, as many as the graph that replays them pads."""
    if any(new != 1 for _, new in rows):
        return rows
    n = next(size for size in capture_sizes(max_rows) if size >= len(rows))
    return rows + [(0, 1)] * (n - len(rows))


@torch.inference_mode()
def padded_and_not(
    architecture: str, capture: Capture = repeat, device: str = "cpu", max_rows: int = 4
) -> list[tuple[Tensor, Tensor]]:
    """Logits of decodes of three rows and of one: from graphs, and without.

    Beside the rows that are computed without a graph are real rows where the graph has padding.
    Libraries choose their matrix products by the number of rows, which is then the same in both.
    """
    captured, eager = kernels(architecture, device), kernels(architecture, device)
    graphs = DecodeGraphs(captured.decode, StaticInputs(captured.storage, max_rows, 32), capture)
    graphs.capture()
    assert len(graphs) > 0
    found = []
    for rows in (*ROWS, [(21, 1)]):
        step, filled = inputs(rows), inputs(filled_up(rows, max_rows))
        logits = graphs.logits(step)
        if logits is None:
            logits = captured.eagerly(step)
        found.append((logits.clone().cpu(), eager.eagerly(filled)[: len(rows)].cpu()))
        eager.storage.k[:, filled.page_table[len(rows) :]] = 0  # where padding writes nothing
    # What a padding row wrote would be far away.
    torch.testing.assert_close(captured.storage.k, eager.storage.k, rtol=1e-4, atol=1e-4)
    return found

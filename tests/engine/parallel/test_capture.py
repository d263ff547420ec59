"""Ranks capture the same graphs, or none has any, whatever happens to one of them."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from torch import Tensor

from deployments.engine.attention.interface import FusedStepAttention
from deployments.engine.forward.cuda_graphs import StepGraphs
from deployments.engine.forward.static_inputs import StaticInputs
from deployments.engine.parallel.ranks import Ranks, connect_store, open_store
from kv.layout import alike
from kv.storage import Storage
from tests.engine.forward.paged_models import N_STORED_PAGES, ROWS, inputs
from tests.engine.parallel.two_ranks import CPU, HOST, JOIN_S, WORLD_SIZE
from tests.forking import FORKING

GRAPH_BYTES = 256 << 20  # each graph takes this much memory, and the third one finds none
SPARE_BYTES = 2 * GRAPH_BYTES + GRAPH_BYTES // 2
DECODES, CHUNKS = inputs(ROWS[2]), inputs(ROWS[1])


class SummedDecode:
    """A decode whose logits are the sum over ranks of each token's index and a rank's number."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def __call__(
        self, ids: Tensor, positions: Tensor, logit_indices: Tensor, step: FusedStepAttention
    ) -> Tensor:
        return self._ranks.all_reduce(logit_indices.float()[:, None] + self._ranks.rank)


class AllocatingCapture:
    """A stand-in for CUDA's capture.

    It runs a function apart from the other ranks, and allocates memory for it.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._buffers: list[Tensor] = []

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        with self._ranks.apart():
            run()
        self._buffers.append(torch.empty(GRAPH_BYTES, dtype=torch.uint8))
        return run


@torch.inference_mode()
def capture_and_replay(ranks: Ranks) -> tuple[int, list[float], float]:
    """How many graphs there are, the logits of two steps by them, and a sum of all ranks that
    follows."""
    static = StaticInputs(Storage(alike(1, 1, 8), N_STORED_PAGES, 4), 6, 48)
    graphs = StepGraphs(SummedDecode(ranks), static, AllocatingCapture(ranks), peers=ranks)
    graphs.capture()
    replayed: list[float] = []
    for step in (DECODES, CHUNKS):
        if (logits := graphs.logits(step)) is not None:
            replayed += logits.flatten().tolist()
    return len(graphs), replayed, float(ranks.all_reduce(torch.ones(1)))


JOINED = "rank 0 has joined"  # else it might find that rank 1 has ended, while it joins


def unhindered() -> None:
    pass


def run_out_of_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def end() -> None:
    os._exit(1)


def be_rank_1(port: int, before: Callable[[], None], results: Connection) -> None:
    torch.set_num_threads(1)
    store = connect_store(HOST, port, WORLD_SIZE, JOIN_S)
    ranks = Ranks(store, 1, WORLD_SIZE, CPU)
    store.wait([JOINED])
    before()
    results.send(capture_and_replay(ranks))
    ranks.receive()
    ranks.stop()


@contextmanager
def beside_rank_1(before: Callable[[], None]) -> Iterator[tuple[Ranks, Connection]]:
    """This process as rank 0. Rank 1 captures the same graphs, once it has called `before`."""
    ours, theirs = FORKING.Pipe(duplex=False)
    store = open_store(HOST, WORLD_SIZE, JOIN_S)
    process = FORKING.Process(target=be_rank_1, args=(store.port, before, theirs), daemon=True)
    process.start()
    try:
        ranks = Ranks(store, 0, WORLD_SIZE, CPU)
        store.set(JOINED, "")
        try:
            yield ranks, ours
        finally:
            ranks.stop()
    finally:
        process.kill()
        process.join()


def test_ranks_that_capture_all_graphs_replay_the_same_ones() -> None:
    with beside_rank_1(unhindered) as (ranks, other):
        here = capture_and_replay(ranks)
        assert here == other.recv() == (7, [1, 3, 5, 1, 9, 11], 2)


def test_a_rank_without_memory_for_its_graphs_leaves_all_without_and_hangs_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with beside_rank_1(run_out_of_memory) as (ranks, other):
        here = capture_and_replay(ranks)
        assert here == other.recv() == (0, [], 2)
    assert "another one could not capture them" in caplog.text


def test_a_rank_that_ends_before_it_captures_hangs_none() -> None:
    with beside_rank_1(end) as (ranks, _), pytest.raises(RuntimeError, match=r"[Cc]onnection"):
        capture_and_replay(ranks)

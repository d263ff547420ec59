"""Engines over two ranks on one machine: this process is rank 0, a child process is rank 1."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from deployments.engine.core import EngineCore
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.quantization import Quantization
from deployments.engine.parallel.follower import follow
from deployments.engine.parallel.ranks import Ranks, connect_store, open_store
from deployments.engine.parallel.sharding import load_shard
from tests.engine.drive import Engine, Gate, roomy
from tests.forking import FORKING

WORLD_SIZE = 2
HOST = "127.0.0.1"
JOIN_S = 120.0
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Follower:
    """A process that is rank 1 of one group after another."""

    process: BaseProcess
    groups: Connection  # receives what `_follow` takes

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


@contextmanager
def start_follower() -> Iterator[Follower]:
    ours, theirs = FORKING.Pipe()
    process = FORKING.Process(target=_follow_all, args=(theirs,), daemon=True)
    process.start()
    try:
        yield Follower(process, ours)
    finally:
        process.kill()
        process.join()
        process.close()


def _follow_all(groups: Connection) -> None:
    torch.set_num_threads(1)
    with suppress(EOFError):
        while True:
            _follow(*groups.recv())


def _follow(
    path: str, adapters: Sequence[tuple[str, float]], quantization: Quantization, port: int
) -> None:
    ranks = Ranks(connect_store(HOST, port, WORLD_SIZE, JOIN_S), 1, WORLD_SIZE, CPU)
    try:
        follow(_share(path, ranks, adapters, quantization).model, ranks)
    except Exception as error:
        ranks.report_failure(error)
        raise


def _share(
    path: str, ranks: Ranks, adapters: Sequence[tuple[str, float]], quantization: Quantization
) -> LoadedModel:
    return load_shard(
        path, ranks, dtype=torch.float32, adapters=adapters, quantization=quantization
    )


@contextmanager
def join_group(
    follower: Follower,
    path: Path | str,
    adapters: Sequence[tuple[str, float]] = (),
    quantization: Quantization = "none",
) -> Iterator[Ranks]:
    """Rank 0 of a new group. The follower loads the model at `path`."""
    store = open_store(HOST, WORLD_SIZE, JOIN_S)
    follower.groups.send((str(path), adapters, quantization, store.port))
    ranks = Ranks(store, 0, WORLD_SIZE, CPU)
    try:
        yield ranks
    finally:
        ranks.stop()


@contextmanager
def two_rank_engine(
    follower: Follower,
    path: Path,
    limits: EngineLimits | None = None,
    adapters: Sequence[tuple[str, float]] = (),
    quantization: Quantization = "none",
) -> Iterator[Engine]:
    """An engine over both ranks, which is shut down when the block is left."""
    with join_group(follower, path, adapters, quantization) as ranks:
        model = _share(str(path), ranks, adapters, quantization)
        gate = Gate(model.model)
        core = EngineCore(model, frozenset(), limits or roomy(), ranks=ranks)
        running = Engine(core, gate, model.model)
        try:
            yield running
        finally:
            gate.open()
            core.shutdown()

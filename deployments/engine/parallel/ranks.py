"""Ranks that compute every step of one model together: rank 0 says what, all do the same in turn.

A rank that fails ends the group: the others would wait for it, or take its next word for an answer.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # absent where torch lacks it

log = logging.getLogger(__name__)

# A group waits for its next step as long as nobody asks for one: only the end of a peer's process,
# which closes its connections, may end the wait. Whoever drives rank 0 watches its steps.
FOREVER = timedelta(days=3650)
FIRST = 1024  # numbers in a message's first part, which is all of it in most steps


class RanksLostError(RuntimeError):
    """A rank has ended or is out of step; the others can't go on without it."""


class Ranks:
    """One process's place among the ranks of a model. Closing it lets it join again.

    Collectives of one rank must come from one thread at a time, on every rank in the same order.
    """

    def __init__(self, store: TCPStore, rank: int, size: int, device: torch.device) -> None:
        """Returns when all ranks have come. Raises RanksLostError when one does not in time."""
        self.rank = rank
        self.size = size
        self.device = device
        self._store = store
        self._lost: str | None = None
        self._await_all()
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=FOREVER)

    @property
    def lost(self) -> str | None:
        """Why the group can't go on, if it can't."""
        return self._lost

    def lose(self, reason: str) -> None:
        """For those who see a rank end before a step does; from any thread.

        What the rank itself has left word of is a better reason.
        """
        self._lost = self._lost or self._reported() or reason

    def send(self, message: NDArray[np.int64]) -> None:
        """From rank 0 to all others, which `receive` it."""
        first = torch.zeros(FIRST, dtype=torch.int64)
        first[0] = len(message)
        body = torch.from_numpy(message)
        first[1 : 1 + len(message)] = body[: FIRST - 1]
        dist.broadcast(first, 0)
        if len(message) > FIRST - 1:
            dist.broadcast(body[FIRST - 1 :].contiguous(), 0)

    def receive(self) -> NDArray[np.int64]:
        """Waits for rank 0 as long as it takes. Raises RuntimeError when that has ended."""
        first = torch.empty(FIRST, dtype=torch.int64)
        dist.broadcast(first, 0)
        n = int(first[0])
        if n < FIRST:
            return first[1 : 1 + n].numpy()
        rest = torch.empty(n - (FIRST - 1), dtype=torch.int64)
        dist.broadcast(rest, 0)
        return torch.cat([first[1:], rest]).numpy()

    @contextmanager
    def in_step(self, message: NDArray[np.int64]) -> Iterator[None]:
        """Around what rank 0 computes while the others do the same with its message.

        Raises RanksLostError for any failure: the others may be at any point of the step.
        """
        try:
            self.send(message)
            yield
        except Exception as error:
            self.lose(f"{type(error).__name__}: {error}")
            raise RanksLostError(f"the ranks of the model are out of step: {self._lost}") from error

    def sum(self, part: Tensor) -> Tensor:
        """The sum of all ranks' parts, the same on each, as a rule in the place of this one.

        More than two are added in an order that may change with their place in the batch.
        """
        part = part.contiguous()
        dist.all_reduce(part)
        return part

    def gather(self, part: Tensor, n: int) -> Tensor:
        """All ranks' parts of a last dimension of `n`, cut as `share` cuts it."""
        widest = share(n, 0, self.size)[1]
        padded = torch.nn.functional.pad(part, (0, widest - part.shape[-1])).contiguous()
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(parts, padded)
        return torch.cat(parts, -1)[..., :n]

    def report(self, error: BaseException) -> None:
        """Leaves word for rank 0 of why this one ends."""
        with suppress(RuntimeError):  # it may be the one that has ended
            self._store.set(_failed(self.rank), f"{type(error).__name__}: {error}")

    def stop(self) -> None:
        """Tells the others that no step will come, and leaves the group; idempotent."""
        if not dist.is_initialized():
            return
        if self.rank == 0 and self._lost is None:
            try:
                self.send(np.empty(0, dtype=np.int64))
            except RuntimeError as error:
                log.warning("the other ranks could not be stopped: %s", error)
        dist.destroy_process_group()

    def _await_all(self) -> None:
        self._store.set(_joined(self.rank), "")
        try:
            self._store.wait([_joined(rank) for rank in range(self.size)])
        except RuntimeError as error:
            raise RanksLostError(f"not all of {self.size} ranks have come: {error}") from error

    def _reported(self) -> str | None:
        for rank in range(1, self.size):
            with suppress(RuntimeError):
                if self._store.check([_failed(rank)]):
                    return f"rank {rank} failed: {self._store.get(_failed(rank)).decode()}"
        return None


def open_store(host: str, size: int, wait_s: float) -> TCPStore:
    """Where ranks meet, kept by rank 0 at a port of the system's choice (`store.port`)."""
    wait = timedelta(seconds=wait_s)
    return TCPStore(host, 0, size, is_master=True, timeout=wait, wait_for_workers=False)


def find_store(host: str, port: int, size: int, wait_s: float) -> TCPStore:
    """The same for another rank."""
    return TCPStore(host, port, size, is_master=False, timeout=timedelta(seconds=wait_s))


def share(n: int, rank: int, size: int) -> tuple[int, int]:
    """A rank's part of `n` things, as (first, how many): the last ones may get fewer."""
    widest = -(-n // size)
    first = min(rank * widest, n)
    return first, min(widest, n - first)


def _joined(rank: int) -> str:
    return f"joined/{rank}"


def _failed(rank: int) -> str:
    return f"failed/{rank}"

"""Connects the ranks of one model: rank 0 sends each step to all others, and all compute it.

A rank that fails ends the group. The others would wait for it forever, or would take its next
message for the result of this step.
"""

import logging
import os
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

# An idle group waits for its next step without a limit. Only the end of a peer's process, which
# closes its connections, ends the wait. The health check of rank 0 watches the time of a step.
NO_TIMEOUT = timedelta(days=3650)
# Numbers in the first part of a message, with its tag and its length. Most messages have no second
# part.
FIRST_PART_SIZE, HEADER_SIZE = 1024, 2
FIRST_BODY_SIZE = FIRST_PART_SIZE - HEADER_SIZE
NO_NUMBERS = np.empty(0, dtype=np.int64)
STOP = 0  # the tag of the last message


class RanksLostError(RuntimeError):
    """A rank has ended or has lost step with the others. They can't go on without it."""


class Ranks:
    """This process as one rank of a model's group. After `stop` it may join another group.

    Collectives of a rank must come from one thread at a time, and in the same order on every rank.
    """

    def __init__(self, store: TCPStore, rank: int, world_size: int, device: torch.device) -> None:
        """Waits until all ranks have joined.

        Raises RanksLostError if a rank does not join within the timeout of the store.
        """
        self.rank = rank
        self.world_size = world_size
        self.device = device
        self._store = store
        self._lost_reason: str | None = None
        self._is_apart = False
        self._await_all()
        # All connections at once, while all wait for each other: else one that is first needed as
        # a CUDA graph is captured would wait for a rank whose capture has failed before.
        os.environ.setdefault("NCCL_RUNTIME_CONNECT", "0")
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=world_size, timeout=NO_TIMEOUT
        )

    @property
    def lost_reason(self) -> str | None:
        """Why the group can't go on. None: it can."""
        return self._lost_reason

    def mark_lost(self, reason: str) -> None:
        """Records that a rank has ended. It may be called from any thread.

        A failure that the rank itself has reported takes the place of `reason`.
        """
        self._lost_reason = self._lost_reason or self._reported_failure() or reason

    def broadcast(self, tag: int, message: NDArray[np.int64] = NO_NUMBERS) -> None:
        """Sends a message [n] from rank 0 to all others, which `receive` it. The tag says what it
        is.

        Raises RuntimeError if a connection is closed.
        """
        first = torch.zeros(FIRST_PART_SIZE, dtype=torch.int64)
        first[0], first[1] = tag, len(message)
        body = torch.from_numpy(message)
        first[HEADER_SIZE : HEADER_SIZE + len(message)] = body[:FIRST_BODY_SIZE]
        dist.broadcast(first, 0)
        if len(message) > FIRST_BODY_SIZE:
            dist.broadcast(body[FIRST_BODY_SIZE:].contiguous(), 0)

    def receive(self) -> tuple[int, NDArray[np.int64]]:
        """Waits for the next tag and message [n] of rank 0, without a limit.

        Raises RuntimeError if rank 0 has ended.
        """
        first = torch.empty(FIRST_PART_SIZE, dtype=torch.int64)
        dist.broadcast(first, 0)
        tag, n = first[:HEADER_SIZE].tolist()
        if n <= FIRST_BODY_SIZE:
            return tag, first[HEADER_SIZE : HEADER_SIZE + n].numpy()
        rest = torch.empty(n - FIRST_BODY_SIZE, dtype=torch.int64)
        dist.broadcast(rest, 0)
        return tag, torch.cat([first[HEADER_SIZE:], rest]).numpy()

    def share(self, tensor: Tensor) -> Tensor:
        """Rank 0's tensor, on all ranks: theirs has its shape and type, and is overwritten.

        On GPUs it goes from one to the other, and no host waits for it.
        """
        tensor = tensor.contiguous()
        dist.broadcast(tensor, 0)
        return tensor

    @contextmanager
    def in_step(self, tag: int, message: NDArray[np.int64] = NO_NUMBERS) -> Iterator[None]:
        """Sends a message from rank 0, whose block then computes what the others compute.

        Raises RanksLostError for any failure: the other ranks may be at any point of the step.
        """
        try:
            self.broadcast(tag, message)
            yield
        except Exception as error:
            self.mark_lost(f"{type(error).__name__}: {error}")
            raise RanksLostError(
                f"the ranks of the model are out of step: {self._lost_reason}"
            ) from error

    def all_reduce(self, part: Tensor) -> Tensor:
        """The sum of all ranks' tensors, the same on each rank. A contiguous `part` is overwritten.

        With more than two ranks, the order of the additions may depend on an element's position.
        """
        part = part.contiguous()
        if not self._is_apart:
            dist.all_reduce(part)
        return part

    def all_gather(self, part: Tensor, n: int) -> Tensor:
        """All ranks' tensors [..., shard], joined to [..., n]. `shard_range` gives the shards."""
        longest = shard_range(n, 0, self.world_size)[1]
        padded = torch.nn.functional.pad(part, (0, longest - part.shape[-1])).contiguous()
        parts = [torch.zeros_like(padded) for _ in range(self.world_size)]
        if not self._is_apart:
            dist.all_gather(parts, padded)
        return torch.cat(parts, -1)[..., :n]

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Waits for no rank within the block: results have the shapes that they have else, and are
        made of this rank's tensors alone."""
        self._is_apart = True
        try:
            yield
        finally:
            self._is_apart = False

    def agree(self, is_done: bool) -> bool:
        """Whether it is done on all ranks. They all must ask, and the hosts wait for each other.

        Raises RuntimeError if a rank has ended.
        """
        answers = torch.tensor([is_done], dtype=torch.int32)
        dist.all_reduce(answers, dist.ReduceOp.MIN)
        return bool(answers)

    def report_failure(self, error: BaseException) -> None:
        """Stores for rank 0 why this rank ends."""
        with suppress(RuntimeError):  # rank 0, which keeps the store, may have ended
            self._store.set(_failed_key(self.rank), f"{type(error).__name__}: {error}")

    def stop(self) -> None:
        """Leaves the group. Rank 0 tells the others before that no step will come. Idempotent."""
        if not dist.is_initialized():
            return
        if self.rank == 0 and self._lost_reason is None:
            try:
                self.broadcast(STOP)
            except RuntimeError as error:
                log.warning("the other ranks could not be stopped: %s", error)
        dist.destroy_process_group()

    def _await_all(self) -> None:
        self._store.set(_joined_key(self.rank), "")
        try:
            self._store.wait([_joined_key(rank) for rank in range(self.world_size)])
        except RuntimeError as error:
            raise RanksLostError(
                f"not all of {self.world_size} ranks have joined: {error}"
            ) from error

    def _reported_failure(self) -> str | None:
        for rank in range(1, self.world_size):
            with suppress(RuntimeError):
                if self._store.check([_failed_key(rank)]):
                    return f"rank {rank} failed: {self._store.get(_failed_key(rank)).decode()}"
        return None


def open_store(host: str, world_size: int, timeout_s: float) -> TCPStore:
    """The store through which the ranks find each other. Rank 0 keeps it.

    The operating system chooses its port (`store.port`). `timeout_s` limits the wait for a rank.
    """
    timeout = timedelta(seconds=timeout_s)
    return TCPStore(host, 0, world_size, is_master=True, timeout=timeout, wait_for_workers=False)


def connect_store(host: str, port: int, world_size: int, timeout_s: float) -> TCPStore:
    """Rank 0's store, for another rank. `timeout_s` limits each wait."""
    timeout = timedelta(seconds=timeout_s)
    return TCPStore(host, port, world_size, is_master=False, timeout=timeout)


def shard_range(n: int, rank: int, world_size: int) -> tuple[int, int]:
    """A rank's part of `n` elements, as start and length. The last ranks may have fewer or none."""
    longest = -(-n // world_size)
    start = min(rank * longest, n)
    return start, min(longest, n - start)


def _joined_key(rank: int) -> str:
    return f"joined/{rank}"


def _failed_key(rank: int) -> str:
    return f"failed/{rank}"

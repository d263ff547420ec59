"""Reads adapters on threads of its own, and keeps some of them in the host's memory.

The least recently used ones go first when the cache is full.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from deployments.adapter_files import AdapterError, AdapterInfo, read_adapter_files
from deployments.engine.forward.adapters.slots import Matrices
from deployments.engine.loading.lora import load_matrices
from kv.content import Adapter

log = logging.getLogger(__name__)

THREADS = 2  # one slow folder does not hold up all others


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """rank: the largest of a module."""

    matrices: Matrices
    rank: int
    n_bytes: int


class AdapterLoader:
    """`load` is called on one thread."""

    def __init__(self, misfit: Callable[[AdapterInfo], str], max_bytes: int) -> None:
        """`misfit` says why an adapter can't be served, or "". The cache holds `max_bytes`."""
        self._misfit = misfit
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._cached: OrderedDict[bytes, LoadedAdapter] = OrderedDict()  # by digest, oldest first
        self._n_bytes = 0
        self._pool = ThreadPoolExecutor(
            THREADS, "adapters", initializer=lambda: torch.set_num_threads(1)
        )

    def load(self, adapter: Adapter) -> "Future[LoadedAdapter]":
        """The adapter, once it is read. The future raises AdapterError for files that can't be
        read, that are not those of its digest or that do not fit the model."""
        with self._lock:
            if (found := self._cached.get(adapter.digest)) is not None:
                self._cached.move_to_end(adapter.digest)
                done: Future[LoadedAdapter] = Future()
                done.set_result(found)
                return done
        return self._pool.submit(self._read, adapter)

    def stop(self) -> None:
        """Waits for no thread. What is not read yet never will be."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, adapter: Adapter) -> LoadedAdapter:
        try:
            return self._read_files(adapter)
        except AdapterError as error:  # clients are not told where the operator's files are
            log.warning("an adapter can't be served: %s", error)
            raise AdapterError(str(error).replace(adapter.path, adapter.label)) from error

    def _read_files(self, adapter: Adapter) -> LoadedAdapter:
        path = adapter.path
        info, weights = read_adapter_files(path, self._max_bytes)
        if info.digest != adapter.digest:
            raise AdapterError(f"{path}: its files are not those that were asked for any more")
        if reason := self._misfit(info):
            raise AdapterError(f"{path}: {reason}")
        loaded = LoadedAdapter(load_matrices(Path(path), info, weights), info.rank, info.n_bytes)
        self._keep(adapter.digest, loaded)
        return loaded

    def _keep(self, digest: bytes, loaded: LoadedAdapter) -> None:
        with self._lock:
            if digest in self._cached:
                return
            self._cached[digest] = loaded
            self._n_bytes += loaded.n_bytes
            while self._n_bytes > self._max_bytes:
                self._n_bytes -= self._cached.popitem(last=False)[1].n_bytes

"""The tier on a disk: one thread writes what tasks leave behind, one reads what others need.

Whatever fails is a miss. A disk that hangs holds up its own threads, and nobody else.
"""

import errno
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray

from kv.arrivals import STATE, Arrival, PageKey, PrefixHolder
from kv.pool import PrefixCache
from kv.states import StateSlots
from kv.storage import Storage
from kv.tiers.bundle import ALIGNMENT, aligned, make_header
from kv.tiers.fetches import FetchMeter, TierFetch
from kv.tiers.folder import BundleFolder
from kv.tiers.tier import Tier
from kv.tiers.write_behind import N_IMAGES, Draft, Image, WriteBehind

log = logging.getLogger(__name__)

REFRESH_S = 30.0  # for changes that other processes make
PAUSE_S = 60.0  # without writes, after one that failed
KEPT_OF_A_FULL_DISK = 0.9  # of what was there
LATENCY_S = 0.001  # of a read
NICER = 10  # than others is the thread that writes
# By type: the bits of an exponent that are all set where a number is not finite.
EXPONENTS: dict[torch.dtype, tuple[type[np.unsignedinteger[Any]], int]] = {
    torch.float32: (np.uint32, 0x7F800000),
    torch.float16: (np.uint16, 0x7C00),
    torch.bfloat16: (np.uint16, 0x7F80),
    torch.float64: (np.uint64, 0x7FF << 52),
}


class DiskTier(WriteBehind):
    """Keeps pages of a cache in a folder. The cache's thread calls all methods. `bytes_per_s` may
    be written on average."""

    name = "disk"

    def __init__(
        self,
        known: PrefixCache,
        storage: Storage,
        folder: BundleFolder,
        bytes_per_s: float,
        clock: Callable[[], float] = time.monotonic,
        states: StateSlots | None = None,
        state_bytes: int = 0,
    ) -> None:
        self._folder = folder
        self._index = folder.index
        self._jobs: queue.SimpleQueue[Draft | str | None] = queue.SimpleQueue()
        keeping = known, storage, self._index.__contains__, self._jobs.put
        super().__init__(*keeping, bytes_per_s, clock, states, state_bytes)
        self._dtype = storage.dtype
        self._fetches: queue.SimpleQueue[TierFetch | None] = queue.SimpleQueue()
        self._meter = FetchMeter(LATENCY_S, clock)
        self._wake: Callable[[], None] = lambda: None
        self._paused_until = 0.0
        self._to_remove: list[str] = []
        self.is_open = threading.Event()  # once it is known what the folder holds
        self.n_read = self.n_written = 0  # bytes

    def start(self, wake: Callable[[], None]) -> None:
        """Begins. `wake` is called, on other threads, when a fetch is done or a bundle written."""
        self._wake = wake
        for work in (self._write_all, self._read_all):
            threading.Thread(target=work, name="kv disk", daemon=True).start()

    @property
    def n_bytes(self) -> int:
        """Bytes in the folder, those of other models counted."""
        return self._index.n_bytes

    @property
    def n_corrupt(self) -> int:
        """Files that were not what they should be."""
        return self._folder.n_corrupt

    def forget(self, hashes: Sequence[bytes]) -> None:
        """Forgets what is being written, too."""
        super().forget(hashes)
        for name in self._folder.forget(hashes):
            self._jobs.put(name)

    def size_of(self, keys: Sequence[PageKey]) -> int:
        """Bytes of some pages."""
        return sum(self._lengths[key.group] for key in keys)

    @property
    def rate(self) -> float:
        """Bytes a second that are read, as measured."""
        return self._meter.rate

    def holding(self, hashes: Sequence[bytes], holder: PrefixHolder | None) -> Tier:
        """Returns what tells which pages lie there."""
        return self

    def estimate_s(self, n_bytes: int) -> float | None:
        """Seconds in which so many bytes would be read, by what was measured; None: nothing is read
        now, because a read before hangs."""
        return self._meter.estimate_s(n_bytes)

    def fetch(self, arrival: Arrival, holder: PrefixHolder | None = None) -> TierFetch:
        """Begins to read an arrival's pages. The arrival may end at any time."""
        fetch = self._meter.begin(arrival, self.size_of(arrival.keys))
        self._fetches.put(fetch)
        return fetch

    def give_up(self, fetch: TierFetch) -> None:
        """Notes that a fetch took too long: the next ones will be expected to."""
        self._meter.give_up(fetch)

    def stats(self) -> Mapping[str, int]:
        """Bytes that lie there, that were written, and that were not."""
        return {
            "bytes": self.n_bytes,
            "written_bytes": self.n_written,
            "dropped_bytes": self.n_dropped,
        }

    def flush(self, seconds: float) -> None:
        """Writes all that is dirty, and waits for it, `seconds` at most."""
        end = self._clock() + seconds
        with suppress(queue.Empty):
            while self.copy(1 << 40, is_hurried=True) or self.is_dirty:
                self.images.put(self._next_image(end))
            for _ in range(N_IMAGES):
                self._next_image(end)

    def close(self) -> None:
        """Ends the threads, and waits for none of them."""
        self._jobs.put(None)
        self._fetches.put(None)

    def _next_image(self, end: float) -> Image:
        return self.images.get(timeout=max(0.0, end - self._clock()))

    # On the thread that writes

    def _write_all(self) -> None:
        yield_cores()
        self._refresh()
        self.is_open.set()
        self._wake()
        while True:
            try:
                job = self._jobs.get(timeout=REFRESH_S)
            except queue.Empty:
                self._refresh()
                continue
            if job is None:
                self._folder.close()
                return
            if isinstance(job, str):
                self._to_remove.append(job)
                self._remove()
                continue
            if not self._keep(job):
                self.n_dropped += job.n_bytes
            self.images.put(job.image)
            self._wake()

    def _refresh(self) -> None:
        self._remove()
        try:
            self._folder.refresh()
        except OSError as error:
            self._pause(error)

    def _remove(self) -> None:
        """Removes what can't be trusted, as soon as that works."""
        try:
            while self._to_remove:
                self._folder.remove(self._to_remove[-1])
                self._to_remove.pop()
        except OSError as error:
            self._pause(error)

    def _keep(self, draft: Draft) -> bool:
        """Whether a bundle is written."""
        if self._clock() < self._paused_until:
            return False
        try:
            return self._write(draft)
        except OSError as error:
            self._pause(error)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                with suppress(OSError):
                    self._folder.evict(int(self._index.n_bytes * KEPT_OF_A_FULL_DISK))
        return False

    def _pause(self, error: OSError) -> None:
        if self._clock() >= self._paused_until:
            log.warning("prefixes are not kept on the disk for %.0f s: %s", PAUSE_S, error)
        self._paused_until = self._clock() + PAUSE_S

    def _write(self, draft: Draft) -> bool:
        """Writes a bundle. False if its numbers are not all finite: they would outlive restarts."""
        offset, pages = ALIGNMENT, []
        for key, length in draft.pages:
            page = draft.image[offset : offset + length]
            if not are_finite(page, self._parts_of(key, length)):
                return False
            pages.append((key, length, crc32(page.data)))
            offset = aligned(offset + length)
        namespace = self._folder.namespace
        header = make_header(namespace, draft.owner, draft.parent, draft.first_page, pages)
        draft.image[:ALIGNMENT] = np.frombuffer(header.encode(), dtype=np.uint8)
        is_written = self._folder.write(header, draft.image.data, lambda: draft.is_wanted)
        self.n_written += draft.n_bytes * is_written
        return is_written

    def _parts_of(self, key: PageKey, length: int) -> Sequence[tuple[torch.dtype, int]]:
        if key.group != STATE:
            return [(self._dtype, length)]
        assert self._states is not None
        assert self._states.memory is not None, "the memory of states is not known"
        return self._states.memory.parts

    # On the thread that reads

    def _read_all(self) -> None:
        buffer = memoryview(bytearray(max(self._lengths.values())))
        while (fetch := self._fetches.get()) is not None:
            began = self._clock()
            try:
                self._read(fetch, buffer)
            except Exception:  # whatever it is, it is a miss
                log.exception("prefixes could not be read from the disk")
            self.n_read += fetch.n_read
            self._meter.end(fetch, began)
            self._wake()

    def _read(self, fetch: TierFetch, buffer: memoryview) -> None:
        def take(key: PageKey, content: memoryview) -> bool:
            fetch.n_read += len(content)
            if key.group == STATE:
                return fetch.arrival.take_state(bytes(content))
            raw = np.frombuffer(content, dtype=np.uint8)

            def copy(page: int) -> None:
                self._pages[page, : len(raw)] = raw

            return fetch.arrival.write(key, copy)

        keys = fetch.arrival.keys
        for key in [key for key in keys if not self._lengths[key.group]]:
            fetch.arrival.write(key, lambda page: None)
        self._folder.read([key for key in keys if self._lengths[key.group]], buffer, take)


def yield_cores() -> None:
    """Has this thread run where others leave cores: what computes on all of them waits for the
    slowest one."""
    with suppress(OSError):
        niceness = os.getpriority(os.PRIO_PROCESS, 0) + NICER
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)


def are_finite(raw: NDArray[np.uint8], parts: Iterable[tuple[torch.dtype, int]]) -> bool:
    """Whether all numbers are finite of parts that lie behind each other: types and bytes."""
    begin = 0
    for dtype, n_bytes in parts:
        if dtype.is_floating_point:
            kind, exponent = EXPONENTS[dtype]
            numbers = raw[begin : begin + n_bytes].view(kind)
            if ((numbers & exponent) == exponent).any():
                return False
        begin += n_bytes
    return True

"""The source of pages that another replica of the model has: they are pulled for a parked task.

Whatever fails is a miss: a replica that is gone, a gap, a checksum. What comes behind it is not
asked for.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from kv.arrivals import Arrival, PageKey, PrefixHolder
from kv.storage import Storage
from kv.tiers.fetches import FetchMeter, TierFetch
from kv.tiers.parcel import CorruptParcelError, Parcel, fitting, unpack
from kv.tiers.source import PageSource
from kv.tiers.tier import Tier

log = logging.getLogger(__name__)

LATENCY_S = 0.02  # of a call to another replica


class PullPages(Protocol):
    def __call__(
        self,
        replica_id: str,
        namespace: bytes,
        pieces: Sequence[Sequence[PageKey]],
        take: Callable[[int, Parcel], bool],
        done: Callable[[], object],
    ) -> None:
        """Has a replica send a parcel for each of some pieces, and returns at once.

        `take` gets the number of a piece and its parcel, in any order, on another thread, and says
        whether more are of use. Then, or when nothing more comes, `done` is called once.
        """
        ...


class _HeldPages(Tier):
    def __init__(self, hashes: Sequence[bytes]) -> None:
        self._hashes = frozenset(hashes)

    def holds(self, key: PageKey) -> bool:
        return key.page_hash in self._hashes


class RemotePages(PageSource):
    """Brings pages of one namespace, which both replicas have to agree in."""

    name = "remote"

    def __init__(
        self,
        storage: Storage,
        namespace: bytes,
        pull: PullPages,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._namespace, self._pull, self._clock = namespace, pull, clock
        self._pages = storage.raw_pages()
        self._lengths = [storage.group_bytes(group) for group in range(len(storage.groups))]
        self._meter = FetchMeter(LATENCY_S, clock)
        self._wake: Callable[[], None] = lambda: None
        self.is_open = threading.Event()
        self.is_open.set()
        self.n_read = self._n_corrupt = 0

    @property
    def n_corrupt(self) -> int:
        """Parcels that were not what was sent."""
        return self._n_corrupt

    @property
    def rate(self) -> float:
        return self._meter.rate

    def start(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def holding(self, hashes: Sequence[bytes], holder: PrefixHolder | None) -> Tier | None:
        return None if holder is None else _HeldPages(hashes[: holder.n_pages])

    def size_of(self, keys: Sequence[PageKey]) -> int:
        return sum(self._lengths[key.group] for key in keys)

    def estimate_s(self, n_bytes: int) -> float | None:
        return self._meter.estimate_s(n_bytes)

    def fetch(self, arrival: Arrival, holder: PrefixHolder | None) -> TierFetch:
        assert holder is not None, "nobody is known to have these pages"
        keys = [*arrival.pages]
        pieces = self._cut(keys)
        fetch = self._meter.begin(arrival, self.size_of(keys))

        def take(number: int, parcel: Parcel) -> bool:
            return self._take(fetch, pieces[number], parcel)

        def done() -> None:
            self.n_read += fetch.n_read
            self._meter.end(fetch, fetch.began)
            self._wake()

        self._pull(holder.replica_id, self._namespace, pieces, take, done)
        return fetch

    def give_up(self, fetch: TierFetch) -> None:
        self._meter.give_up(fetch)

    def _cut(self, keys: Sequence[PageKey]) -> list[Sequence[PageKey]]:
        """Cuts pages into pieces that fit into a parcel each."""
        lengths, pieces, begin = [self._lengths[group] for _, group in keys], [], 0
        while begin < len(keys):
            end = begin + fitting(lengths[begin:])
            pieces.append(keys[begin:end])
            begin = end
        return pieces

    def _take(self, fetch: TierFetch, keys: Sequence[PageKey], parcel: Parcel) -> bool:
        """Writes what has come. Whether all of it did, and was wanted."""

        def write(index: int, content: Parcel) -> bool:
            def copy(page: int) -> None:
                self._pages[page, : len(content)] = content

            fetch.n_read += len(content)
            return fetch.arrival.write(keys[index], copy)

        try:
            return unpack(parcel, [self._lengths[group] for _, group in keys], write) == len(keys)
        except CorruptParcelError as error:
            self._n_corrupt += 1
            log.warning("pages of another replica are computed: %s", error)
            return False

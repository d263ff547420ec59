"""Does to the cache what actions on slots need: each call is a bounded piece between two steps."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deployments.contract.errors import ErrorKind, Refused, refused
from deployments.contract.slots import SlotAction
from deployments.engine.needs.slots.slot_table import SlotTable
from kv.arrivals import Arrival, PageKey
from kv.cache import KVCache
from kv.tiers.bundle import aligned
from kv.tiers.slot_file import CachedSequence

COPIED_BETWEEN_STEPS, COPIED_WHEN_IDLE = 1 << 20, 8 << 20  # bytes
ERASED_BETWEEN_STEPS = 512  # pages


class SavedPages(NamedTuple):
    """A sequence that is to be saved, and what is: the pages that a hit of it needs."""

    sequence: CachedSequence
    keys: Sequence[PageKey]


class SlotCache:
    """The scheduler's thread calls all methods but `fill`. `is_idle`: no task runs."""

    def __init__(self, cache: KVCache, table: SlotTable) -> None:
        self._cache, self._table = cache, table
        self.page_size = cache.shape.page_size
        self.max_tokens = cache.shape.max_tokens
        self.dtype = cache.storage.dtype
        groups = range(len(cache.groups))
        self.lengths = [cache.storage.group_bytes(group) for group in groups]  # of pages
        self._pages = cache.storage.raw_pages()
        self._arrival: Arrival | None = None

    def find_saved(self, action: SlotAction) -> SavedPages:
        """Returns what can be saved of a slot. Raises Refused."""
        slot = self._table.get(action.owner, action.id_slot)
        if slot is None:
            why = f"no request with `id_slot` {action.id_slot} has ended here"
        elif not slot.is_kept:
            why = "its request had `cache_prompt` false"
        elif not (hashes := slot.sequence.hashes):
            why = f"its {slot.n_tokens} tokens are less than a page of {self.page_size}"
        elif not (n := self._cache.sequences.longest(hashes)):
            why = "its pages are no longer in memory"
        else:
            self._cache.sequences.touch(hashes[:n])
            keys = self._cache.sequences.needed(hashes[:n])
            return SavedPages(slot.sequence.first(n, self.page_size), keys)
        raise refused(f"Unable to save slot: {why}")

    def copy(
        self, keys: Sequence[PageKey], begin: int, buffer: NDArray[np.uint8], *, is_idle: bool
    ) -> int:
        """Copies pages from number `begin` on, as many as a piece has, each to the next multiple of
        ALIGNMENT. Returns the number of the next page. Raises Refused where one is gone."""
        most = COPIED_WHEN_IDLE if is_idle else COPIED_BETWEEN_STEPS
        at, end = 0, begin
        for index in range(begin, len(keys)):
            key = keys[index]
            length = self.lengths[key.group]
            if at and at + aligned(length) > min(most, len(buffer)):
                break
            page = self._cache.pool.prefix_cache.lookup(*key)
            if page is None:
                message = "Unable to save slot: others took the memory of its pages; try again"
                raise Refused.of_kind(ErrorKind.UNAVAILABLE, message)
            buffer[at : at + length] = self._pages[page, :length]
            at, end = at + aligned(length), index + 1
        return end

    def forget(self, action: SlotAction) -> tuple[int, Sequence[bytes]]:
        """Forgets a sequence. Returns how many tokens it had, and its pages that no other slot
        has."""
        slot = self._table.pop(action.owner, action.id_slot)
        if slot is None:
            return 0, ()
        hashes = slot.sequence.hashes
        return slot.n_tokens, hashes[self._table.n_shared(hashes) :]

    def discard(self, hashes: Sequence[bytes]) -> None:
        """Makes pages unfindable that no task has."""
        self._cache.sequences.discard(hashes)

    def begin_arrival(self, hashes: Sequence[bytes]) -> Arrival:
        """Pages for what is not cached of a sequence, as many as there is room for."""
        keys = self._cache.sequences.lacking(hashes)
        self._arrival = self._cache.begin_arrival(hashes, keys)
        return self._arrival

    def fill(self, raw: NDArray[np.uint8], page: int) -> None:
        """Writes to a page that is arriving; called by its arrival."""
        self._pages[page, : len(raw)] = raw

    def give_up_arrival(self) -> None:
        """Nothing of what has arrived can be trusted."""
        arrival, self._arrival = self._arrival, None
        if arrival is not None:
            arrival.forget([*arrival.pages])
            self._cache.end_arrival(arrival)

    def end_arrival(self, action: SlotAction, sequence: CachedSequence) -> int:
        """The slot has the sequence from now on. Returns how many of its tokens the next request
        finds. Raises Refused where that is none."""
        arrival, self._arrival = self._arrival, None
        assert arrival is not None, "no arrival has begun"
        self._cache.end_arrival(arrival)
        n = self._cache.sequences.announce(sequence.hashes) * self.page_size
        if not n:
            message = "Unable to restore slot: there is no room in memory for its pages"
            raise refused(message, "filename")
        self._table.put(action.owner, action.id_slot, sequence)
        return n

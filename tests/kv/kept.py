"""A tier that forgets nothing, and states that are known by what they were computed from."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from kv.arrivals import STATE, PageKey
from kv.cache import KVCache
from kv.tiers.bundle import ALIGNMENT, NO_PARENT, aligned
from kv.tiers.write_behind import Draft, WriteBehind
from tests.kv.caches import STATE_BYTES


class ModelledStates:
    """The contents of slots of states, whose bytes are their numbers."""

    parts = ((torch.uint8, STATE_BYTES),)

    def __init__(self, slots: dict[int, object]) -> None:
        self._slots = slots
        self._contents: list[object] = []

    def encode(self, content: Sequence[object]) -> bytes:
        """The bytes of a state; those of none are of no use."""
        self._contents += content[:1] or [None]
        return np.array([len(self._contents) - 1], dtype=np.int64).tobytes()

    def decode(self, state: NDArray[np.uint8]) -> object:
        return self._contents[state.view(np.int64)[0]]

    def read(self, slot: int, state: NDArray[np.uint8]) -> None:
        state[:] = np.frombuffer(self.encode([self._slots[slot]]), dtype=np.uint8)

    def write(self, slot: int, state: NDArray[np.uint8]) -> None:
        self._slots[slot] = self.decode(state)


class KeptPages(WriteBehind):
    """A tier that has all pages and states that were ever found, but for those that it has to
    forget. What it would write is not there yet, for all that it knows."""

    def __init__(
        self, cache: KVCache, kept: dict[PageKey, list[object]], memory: ModelledStates
    ) -> None:
        self._kept, self._memory = kept, memory
        known = cache.pool.prefix_cache
        keeping = known, cache.storage, lambda key: False, self._take, 1e9
        super().__init__(*keeping, states=cache.states, state_bytes=STATE_BYTES)

    def _take(self, draft: Draft) -> None:
        offset = ALIGNMENT
        for key, length in draft.pages:
            assert length == self._lengths[key.group]
            assert key in self._kept
            if key.group == STATE and (kept := self._kept[key]):
                assert self._memory.decode(draft.image[offset : offset + length]) == kept[0]
            offset += aligned(length)
        is_first = draft.first_page == 0 and draft.pages[0][0].group != STATE
        assert (draft.parent == NO_PARENT) == is_first
        self.images.put(draft.image)

    def holds(self, key: PageKey) -> bool:
        return bool(self._kept.get(key))

    def is_dirty_at(self, key: PageKey) -> bool:
        return key in self._dirty

    def forget(self, hashes: Sequence[bytes]) -> None:
        super().forget(hashes)
        gone = {*hashes}
        for key in [key for key in self._kept if key.page_hash in gone]:
            self._kept[key] = []  # an arrival that has begun brings what is of no use

"""Keeps what tasks leave behind: their pages are copied between steps, and written behind them.

Nothing waits for a page to be written. One that is taken for new content before it was copied is
lost to the tier, and counted.
"""

import queue
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kv.arrivals import PageKey
from kv.pool import PrefixCache
from kv.storage import Storage
from kv.tiers.bundle import ALIGNMENT, MAX_RECORDS, NO_PARENT, aligned, owner_tag
from kv.tiers.tier import Tier

MAX_IMAGE_BYTES = 32 << 20  # unless a single page has more
N_IMAGES = 2  # one is filled while another one is written
MAX_RUNS = 4096  # that wait, where a disk hangs: what tasks leave behind then is lost
BURST_S = 10.0  # for so long more may be written than the rate allows on average

Image = NDArray[np.uint8]


class _Chain(NamedTuple):
    """A sequence of full pages, by their hashes, and whose they are."""

    owner: bytes
    hashes: list[bytes]


class _Run(NamedTuple):
    """Pages of a chain that are to be written, in so far as they are dirty still."""

    chain: _Chain
    begin: int
    end: int


@dataclass(eq=False, slots=True)
class Draft:
    """The file of a bundle that is being made: pages in `image` behind the room of the header.

    pages: key and length of each. is_wanted: False from when one of them can't be trusted.
    """

    owner: bytes
    parent: bytes
    first_page: int
    image: Image
    n_bytes: int = ALIGNMENT
    pages: list[tuple[PageKey, int]] = field(default_factory=list)
    is_wanted: bool = True


class WriteBehind(Tier):
    """Is used on the cache's thread. `submit` gets each bundle, and puts its image back into
    `images` when it is written; `written` says what the tier has already."""

    def __init__(
        self,
        known: PrefixCache,
        storage: Storage,
        written: Callable[[PageKey], bool],
        submit: Callable[[Draft], None],
        bytes_per_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._known, self._written, self._submit = known, written, submit
        self._pages = storage.raw_pages()
        self._lengths = [storage.group_bytes(group) for group in range(len(storage.groups))]
        largest = aligned(max(self._lengths))
        n_records = max(1, min(MAX_RECORDS, MAX_IMAGE_BYTES // largest))
        self._image_bytes = ALIGNMENT + n_records * largest
        self._n_records = n_records
        self.images: queue.SimpleQueue[Image] = queue.SimpleQueue()
        for _ in range(N_IMAGES):
            self.images.put(np.empty(self._image_bytes, dtype=np.uint8))
        self.n_dropped = 0  # bytes that were lost before they were copied
        self._owners: dict[str, bytes | None] = {}  # by task; None: nothing of it is kept
        self._chains: dict[str, _Chain] = {}
        self._runs: deque[_Run] = deque()
        self._dirty: set[PageKey] = set()
        self._draft: Draft | None = None
        self._clock, self._rate = clock, bytes_per_s
        self._allowed = self._most = max(bytes_per_s * BURST_S, self._image_bytes)
        self._counted_at = clock()

    @property
    def is_dirty(self) -> bool:
        """Whether there is something to copy."""
        return bool(self._dirty)

    def holds(self, key: PageKey) -> bool:
        """Whether a page is written, so that it can be brought."""
        return self._written(key)

    def charge(self, task_id: str, owner: str | None) -> None:
        """Says whose the pages of a task are; None: they are not to be kept."""
        self._owners[task_id] = None if owner is None else owner_tag(owner)

    def extend(self, task_id: str, first_page: int, hashes: Sequence[bytes]) -> None:
        """Notes the pages of a task."""
        chain = self._chains.get(task_id)
        if chain is None:
            chain = self._chains[task_id] = _Chain(b"", [])
        if first_page <= len(chain.hashes):  # else there are forgotten ones between
            chain.hashes[first_page:] = hashes

    def leave(self, task_id: str) -> None:
        """Makes the pages of a task dirty, until they are copied or taken."""
        owner = self._owners.pop(task_id, owner_tag(""))
        chain = self._chains.pop(task_id, None)
        if chain is None or owner is None:
            return
        if len(self._runs) >= MAX_RUNS:
            self.n_dropped += sum(map(self._unwritten_bytes, chain.hashes))
            return
        new = [index for index, page_hash in enumerate(chain.hashes) if self._make_dirty(page_hash)]
        if new:
            self._runs.append(_Run(_Chain(owner, chain.hashes), new[0], new[-1] + 1))

    def lose(self, key: PageKey) -> None:
        """Counts a page that was not copied in time."""
        if key in self._dirty:
            self._dirty.remove(key)
            self.n_dropped += self._lengths[key.group]

    def forget(self, hashes: Sequence[bytes]) -> None:
        """Drops pages that can't be trusted, from what is being made, too."""
        gone = {*hashes}
        self._dirty = {key for key in self._dirty if key.page_hash not in gone}
        for chain in self._chains.values():
            n = next((n for n, page in enumerate(chain.hashes) if page in gone), None)
            if n is not None:
                del chain.hashes[n:]
        draft = self._draft
        if draft is not None and not gone.isdisjoint(key.page_hash for key, _ in draft.pages):
            draft.is_wanted = False

    def copy(self, max_bytes: int, *, is_hurried: bool = False) -> bool:
        """Copies dirty pages of about `max_bytes`. Whether there is more to copy, and a place for
        it. `is_hurried`: as fast as it goes, whatever the rate."""
        while self._runs or self._draft is not None:
            if max_bytes <= 0:
                return True
            if self._draft is None and not self._begin(is_hurried):
                return False
            max_bytes -= self._copy_page()
        return False

    def check(self) -> None:
        """Asserts that what is dirty is cached."""
        for key in self._dirty:
            assert self._known.lookup(*key) is not None, "a dirty page that is gone"
        in_runs = {page for run in self._runs for page in run.chain.hashes[run.begin : run.end]}
        assert {key.page_hash for key in self._dirty} <= in_runs, "a dirty page of no run"

    def _unwritten_bytes(self, page_hash: bytes) -> int:
        """Bytes of a page that the tier will not have."""
        keys = (PageKey(page_hash, group) for group in range(len(self._lengths)))
        lost = (key for key in keys if key not in self._dirty and not self._written(key))
        return sum(self._lengths[key.group] for key in lost)

    def _make_dirty(self, page_hash: bytes) -> bool:
        """Whether a page of some group is dirty."""
        is_dirty = False
        for group in range(len(self._lengths)):
            key = PageKey(page_hash, group)
            if key in self._dirty:
                is_dirty = True
            elif self._known.lookup(*key) is not None and not self._written(key):
                self._dirty.add(key)
                is_dirty = True
        return is_dirty

    def _begin(self, is_hurried: bool) -> bool:
        """Begins a draft with the first dirty pages. False: there is none, or no place for it."""
        while self._runs:
            run = self._runs[0]
            index = next((i for i in range(run.begin, run.end) if self._keys_at(run, i)), None)
            if index is None:
                self._runs.popleft()
                continue
            if not is_hurried and not self._may_write():
                return False
            try:
                image = self.images.get_nowait()
            except queue.Empty:
                return False
            hashes = run.chain.hashes
            parent = hashes[index - 1] if index else NO_PARENT
            self._runs[0] = _Run(run.chain, index, run.end)
            self._draft = Draft(run.chain.owner, parent, index, image)
            return True
        return False

    def _may_write(self) -> bool:
        now = self._clock()
        self._allowed = min(self._most, self._allowed + self._rate * (now - self._counted_at))
        self._counted_at = now
        return self._allowed > 0

    def _keys_at(self, run: _Run, index: int) -> list[PageKey]:
        """Returns what is dirty of a page, in all groups."""
        page_hash = run.chain.hashes[index]
        keys = (PageKey(page_hash, group) for group in range(len(self._lengths)))
        return [key for key in keys if key in self._dirty]

    def _copy_page(self) -> int:
        """Copies the next dirty page into the draft; submits this where there is no such page, or
        no room. Returns how many bytes were copied."""
        draft = self._draft
        assert draft is not None
        run = self._runs[0]
        keys = self._keys_at(run, run.begin) if run.begin < run.end else []
        if not keys or len(draft.pages) == self._n_records:
            self._end(draft)
            return 0
        if len(keys) == 1:  # the last one of its groups
            self._runs[0] = _Run(run.chain, run.begin + 1, run.end)
        key = keys[0]
        page, length = self._known.lookup(*key), self._lengths[key.group]
        assert page is not None, "a dirty page that is gone"
        draft.image[draft.n_bytes : draft.n_bytes + length] = self._pages[page, :length]
        draft.pages.append((key, length))
        draft.n_bytes = aligned(draft.n_bytes + length)
        self._dirty.remove(key)
        return length

    def _end(self, draft: Draft) -> None:
        self._draft = None
        if not draft.pages or not draft.is_wanted:
            self.images.put(draft.image)
            return
        self._allowed -= draft.n_bytes
        self._submit(draft)

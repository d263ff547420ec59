"""Keeps what tasks have computed: their pages are copied between steps, and written behind them.

The pages of a prompt are dirty as soon as all of them are computed, those of an answer when it has
ended. Nothing waits for a page to be written. One that is taken for new content before it was
copied is lost to the tier, and counted.
"""

import queue
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kv.arrivals import STATE, PageKey
from kv.pool import PrefixCache
from kv.states import StateSlots
from kv.storage import Storage
from kv.tiers.bundle import ALIGNMENT, MAX_RECORDS, NO_PARENT, aligned, owner_tag
from kv.tiers.tier import Tier

MAX_IMAGE_BYTES = 32 << 20  # unless a single page has more
N_IMAGES = 2  # one is filled while another one is written
MAX_RUNS = 4096  # that wait, where a disk hangs: what tasks leave behind then is lost
BURST_S = 10.0  # for so long more may be written than the rate allows on average

Image = NDArray[np.uint8]


@dataclass(eq=False, slots=True)
class _Run:
    """Dirty pages of a sequence, by the hashes of all its pages up to the last one of these."""

    owner: bytes
    hashes: Sequence[bytes]
    begin: int = 0  # no page before it is dirty
    n_dirty: int = 0


@dataclass(eq=False, slots=True)
class _Chain:
    """The full pages of a task, by their hashes. `owner` None: they are not kept. The first
    `n_done` are of a run, or need none; `n_prompt` are of the prompt."""

    owner: bytes | None
    hashes: list[bytes] = field(default_factory=list)
    n_prompt: int = 0
    n_done: int = 0


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


@dataclass(eq=False, slots=True)
class _Filling:
    """A draft that pages of a run are copied into: those from number `next` to `end`, excluded."""

    draft: Draft
    run: _Run
    next: int
    end: int


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
        states: StateSlots | None = None,
        state_bytes: int = 0,
    ) -> None:
        """`states` are those of layers that keep one, each of `state_bytes`."""
        self._known, self._written, self._submit = known, written, submit
        self._states = states
        self._pages = storage.raw_pages()
        # By group. Pages of layers that keep nothing but states are there without being read.
        self._lengths = {n: storage.group_bytes(n) for n in range(len(storage.groups))}
        largest = aligned(max(1, *self._lengths.values()))
        n_records = max(1, min(MAX_RECORDS, MAX_IMAGE_BYTES // largest))
        if states is not None:
            self._lengths[STATE] = state_bytes
        self._image_bytes = ALIGNMENT + max(n_records * largest, aligned(state_bytes))
        self.images: queue.SimpleQueue[Image] = queue.SimpleQueue()
        for _ in range(N_IMAGES):
            self.images.put(np.empty(self._image_bytes, dtype=np.uint8))
        self.n_dropped = 0  # bytes that were lost before they were copied
        self._chains: dict[str, _Chain] = {}  # by task
        self._computed: dict[str, _Chain] = {}  # those whose prompts are to be written
        self._runs: dict[_Run, None] = {}
        self._dirty: dict[PageKey, _Run] = {}
        self._n_waiting: Counter[bytes] = Counter()  # by page: the runs of sequences that have it
        self._copied: dict[PageKey, Draft] = {}  # that may not be written yet
        self._filling: _Filling | None = None
        self._clock, self._rate = clock, bytes_per_s
        self._allowed = self._most = max(bytes_per_s * BURST_S, self._image_bytes)
        self._counted_at = clock()

    @property
    def is_dirty(self) -> bool:
        """Whether there is something to copy."""
        return bool(self._dirty)

    def holds(self, key: PageKey) -> bool:
        """Whether a page or a state is written, so that it can be brought."""
        return self._is_written(key)

    def spares(self, key: PageKey) -> bool:
        """Whether a page is dirty, or stands before one that is."""
        return key.page_hash in self._n_waiting

    def charge(self, task_id: str, owner: str | None, n_prompt: int = 0) -> None:
        """Says whose the pages of a task are; None: they are not to be kept. The first `n_prompt`
        are written as soon as all of them are computed."""
        chain = self._chains.setdefault(task_id, _Chain(b""))
        chain.owner = None if owner is None else owner_tag(owner)
        chain.n_prompt = n_prompt
        self._note_prompt(task_id, chain)

    def extend(self, task_id: str, first_page: int, hashes: Sequence[bytes]) -> None:
        """Notes the pages of a task."""
        chain = self._chains.get(task_id)
        if chain is None:
            chain = self._chains[task_id] = _Chain(owner_tag(""))
        if first_page <= len(chain.hashes):  # else there are forgotten ones between
            chain.hashes[first_page:] = hashes
            self._note_prompt(task_id, chain)

    def leave(self, task_id: str) -> None:
        """Makes the pages of a task dirty, until they are copied or taken."""
        self._computed.pop(task_id, None)
        chain = self._chains.pop(task_id, None)
        if chain is not None:
            self._make_dirty(chain)

    def lose(self, key: PageKey) -> None:
        """Counts a page that was not copied in time."""
        if key in self._dirty:
            self._clean(key)
            self.n_dropped += self._lengths[key.group]

    def forget(self, hashes: Sequence[bytes]) -> None:
        """Drops pages that can't be trusted, from what is being made, too."""
        gone = {*hashes}
        for key in [key for key in self._dirty if key.page_hash in gone]:
            self._clean(key)
        for chain in self._chains.values():
            n = next((n for n, page in enumerate(chain.hashes) if page in gone), None)
            if n is not None:
                del chain.hashes[n:]
        for key, draft in self._copied.items():
            if key.page_hash in gone:
                draft.is_wanted = False

    def copy(self, max_bytes: int, *, is_hurried: bool = False) -> bool:
        """Copies dirty pages of about `max_bytes`. Whether there is more to copy, and a place for
        it. `is_hurried`: as fast as it goes, whatever the rate."""
        self._write_prompts()
        while self._runs or self._filling is not None:
            if max_bytes <= 0:
                return True
            if self._filling is None:
                run = next(iter(self._runs))
                if not self._begin(run, self._first_dirty(run), len(run.hashes), is_hurried):
                    return False
            max_bytes -= self._copy_page()
        return False

    def rescue(self, keys: Sequence[PageKey], until: float) -> None:
        """Copies those of some pages that are dirty, which are about to be taken; until a time of
        the clock at most."""
        taken = dict.fromkeys(key.page_hash for key in keys)
        for page_hash in taken:
            while dirty := self._dirty_of(page_hash):
                if self._clock() >= until:
                    return
                run = self._dirty[dirty[0]]
                if self._filling is None:
                    pages = self._up_to(run, page_hash, taken.keys())
                    if not self._begin(run, *pages):
                        return
                self._copy_page()

    def check(self) -> None:
        """Asserts that what is dirty is cached, and of a run."""
        for key in self._dirty:
            assert self._place(key) is not None, "what is dirty is gone"
        assert Counter(self._dirty.values()) == {run: run.n_dirty for run in self._runs}
        assert self._n_waiting == Counter(page for run in self._runs for page in run.hashes)
        for key, run in self._dirty.items():
            assert key.page_hash in run.hashes[run.begin :], "a dirty page of another run"

    # What becomes dirty

    def _note_prompt(self, task_id: str, chain: _Chain) -> None:
        if 0 < chain.n_prompt <= len(chain.hashes):
            chain.n_prompt = 0
            self._computed[task_id] = chain

    def _write_prompts(self) -> None:
        for chain in self._computed.values():
            self._make_dirty(chain)
        self._computed.clear()

    def _make_dirty(self, chain: _Chain) -> None:
        """Makes a run of those pages and states that are cached and not kept. Behind the last state
        nothing can be hit."""
        if chain.owner is None:
            return
        begin, chain.n_done = chain.n_done, self._n_useful(chain)
        new = [
            (index, key)
            for index, page_hash in enumerate(chain.hashes[begin : chain.n_done], begin)
            for key in self._keys_of(page_hash)
            if self._is_new(key)
        ]
        if len(self._runs) >= MAX_RUNS:
            self.n_dropped += sum(self._lengths[key.group] for _, key in new)
        elif new:
            run = _Run(chain.owner, chain.hashes[: new[-1][0] + 1], new[0][0], len(new))
            self._runs[run] = None
            self._n_waiting.update(run.hashes)
            self._dirty |= {key: run for _, key in new}

    def _n_useful(self, chain: _Chain) -> int:
        """How many pages of a sequence a hit may need."""
        if self._states is None:
            return len(chain.hashes)
        n = len(chain.hashes)
        while n > chain.n_done:
            last = PageKey(chain.hashes[n - 1], STATE)
            if self._place(last) is not None or self._is_kept(last):
                break
            n -= 1
        return n

    def _keys_of(self, page_hash: bytes) -> Iterable[PageKey]:
        return (PageKey(page_hash, group) for group in self._lengths)

    def _place(self, key: PageKey) -> int | None:
        """Returns the page that holds this, or the slot of a state; None: it is not cached."""
        if key.group != STATE:
            return self._known.lookup(*key)
        return None if self._states is None else self._states.slot(key.page_hash)

    def _is_new(self, key: PageKey) -> bool:
        is_cached = key not in self._dirty and self._place(key) is not None
        return is_cached and not self._is_kept(key)

    def _is_kept(self, key: PageKey) -> bool:
        """Whether a page or a state is written, or will be."""
        if self._is_written(key):
            return True
        draft = self._copied.get(key)
        return draft is not None and draft.is_wanted

    def _is_written(self, key: PageKey) -> bool:
        return not self._lengths[key.group] or self._written(key)

    def _clean(self, key: PageKey) -> None:
        """A page is dirty no more."""
        run = self._dirty.pop(key)
        run.n_dirty -= 1
        if not run.n_dirty:
            del self._runs[run]
            self._n_waiting.subtract(run.hashes)
            for page_hash in run.hashes:
                if not self._n_waiting[page_hash]:
                    del self._n_waiting[page_hash]

    # What is copied

    def _first_dirty(self, run: _Run) -> int:
        while not self._dirty_of(run.hashes[run.begin]):
            run.begin += 1
        return run.begin

    def _up_to(self, run: _Run, page_hash: bytes, taken: Set[bytes]) -> tuple[int, int]:
        """The number of the first one and the end of the pages up to a dirty one that are `taken`
        and fit into a bundle."""
        begin = end = run.hashes.index(page_hash) + 1
        keys: list[PageKey] = []
        while begin > 0 and run.hashes[begin - 1] in taken:
            more = self._dirty_of(run.hashes[begin - 1])
            keys += more
            n_bytes = sum(aligned(self._lengths[key.group]) for key in keys)
            is_full = len(keys) > MAX_RECORDS or ALIGNMENT + n_bytes > self._image_bytes
            if not more or (is_full and begin < end):
                break
            begin -= 1
        return begin, end

    def _begin(self, run: _Run, begin: int, end: int, is_hurried: bool = False) -> bool:
        """Begins a draft with these pages. False: there is no place for it, or none may be written
        now."""
        if not is_hurried and not self._may_write():
            return False
        try:
            image = self.images.get_nowait()
        except queue.Empty:
            return False
        self._copied = {
            key: draft for key, draft in self._copied.items() if draft.image is not image
        }
        before = begin
        if self._dirty_of(run.hashes[begin])[0].group == STATE:  # which is used with this page
            before += 1
        parent = run.hashes[before - 1] if before else NO_PARENT
        self._filling = _Filling(Draft(run.owner, parent, begin, image), run, begin, end)
        return True

    def _may_write(self) -> bool:
        now = self._clock()
        self._allowed = min(self._most, self._allowed + self._rate * (now - self._counted_at))
        self._counted_at = now
        return self._allowed > 0

    def _dirty_of(self, page_hash: bytes) -> list[PageKey]:
        """Returns what is dirty of a page, in all groups, and the state behind it if that is."""
        return [key for key in self._keys_of(page_hash) if key in self._dirty]

    def _copy_page(self) -> int:
        """Copies the next dirty page or state into the draft; submits this where there is none, or
        no room. Returns how many bytes were copied."""
        filling = self._filling
        assert filling is not None
        draft, hashes = filling.draft, filling.run.hashes
        keys = self._dirty_of(hashes[filling.next]) if filling.next < filling.end else []
        if not keys or not self._has_room(draft, keys[0]):
            self._end(draft)
            return 0
        if len(keys) == 1:  # the last one of its groups
            filling.next += 1
        key, length = keys[0], self._lengths[keys[0].group]
        self._copy_content(key, draft.image[draft.n_bytes : draft.n_bytes + length])
        draft.pages.append((key, length))
        draft.n_bytes = aligned(draft.n_bytes + length)
        self._copied[key] = draft
        self._clean(key)
        return length

    def _has_room(self, draft: Draft, key: PageKey) -> bool:
        """A state is alone in its bundle: later ones of its sequence may be used without it."""
        if draft.pages and STATE in (key.group, draft.pages[-1][0].group):
            return False
        has_bytes = draft.n_bytes + aligned(self._lengths[key.group]) <= self._image_bytes
        return has_bytes and len(draft.pages) < MAX_RECORDS

    def _copy_content(self, key: PageKey, content: Image) -> None:
        place = self._place(key)
        assert place is not None, "what is dirty is gone"
        if key.group != STATE:
            content[:] = self._pages[place, : len(content)]
            return
        assert self._states is not None
        assert self._states.memory is not None, "the memory of states is not known"
        self._states.memory.read(place, content)

    def _end(self, draft: Draft) -> None:
        self._filling = None
        if not draft.pages or not draft.is_wanted:
            self.images.put(draft.image)
            return
        self._allowed -= draft.n_bytes
        self._submit(draft)

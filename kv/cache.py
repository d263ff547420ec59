"""The one door to the paged KV cache: accounts for pages by task, and owns their memory.

It accounts and never computes: who may have pages is the scheduler's decision.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import product

import numpy as np
import torch

from kv.arrays import IntArray
from kv.arrivals import STATE, Arrival, PageKey
from kv.hit_points import HitPoints
from kv.hit_rule import HitRule
from kv.journal import Journal
from kv.pool import PagePool
from kv.prefixes import Lacking, OverTier, PrefixFinder
from kv.sequences import CachedSequences
from kv.shape import CacheShape
from kv.states import StateSlots
from kv.table import TaskTable
from kv.tiers.tier import Tier
from kv.view import KvcacheView, bind


class KVCache:
    """One thread uses it, but for its journal. Tasks are named by strings."""

    def __init__(
        self,
        shape: CacheShape,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.shape = shape
        self.groups = shape.groups
        self._windows = [n for n, group in enumerate(self.groups) if group.window is not None]
        # A page alone is no hit where a state has to stand behind it, or windows need others, too.
        publishes = not shape.has_states and not self._windows
        self.pool = PagePool(
            shape.n_pages,
            len(self.groups),
            publishes_pages=publishes,
            on_evict=self._page_is_gone,
            spares=lambda key: self.tier.spares(key),
        )
        self.states: StateSlots | None = None
        self._hits = HitRule()
        if shape.has_states:
            slots = shape.max_tasks, shape.max_checkpoints
            self._hits = self.states = StateSlots(
                *slots,
                self.pool.journal,
                shape.max_drafted,
                on_lose=lambda last: self.tier.lose(PageKey(last, STATE)),
            )
        elif self._windows:
            self._hits = HitPoints(
                self.pool.journal,
                self.longest_hit,
                self._last_hit,
                self._first_page_needed,
            )
        known = self.pool.prefix_cache
        self._cached = PrefixFinder(self.groups, shape.page_size, known)
        self.tier = Tier()
        self.sequences = CachedSequences(self.pool, self._cached, self._hits, self._page_is_gone)
        max_pages = shape.pages_for(shape.max_tokens)
        self.table = TaskTable(shape.max_tasks, max_pages, len(self.groups))
        self.storage = shape.storage(dtype, device)
        # Pages handed out since the last batch to be filled in part, or in doubt: their groups, and
        # how many of their first tokens stay.
        self._stale: dict[int, tuple[int, int]] = {}

    @property
    def journal(self) -> Journal:
        """The journal of what can be found here, for another thread."""
        return self.pool.journal

    def bind(
        self, page_table: IntArray, total_len: IntArray, new_len: IntArray | None = None
    ) -> KvcacheView:
        """Returns the view that attention layers of the first group write to and gather from, for
        rows with these pages.

        page_table [rows, pages]; total_len [rows], tokens after the write; new_len [rows], how many
        of these are written, by default the newest one of each row.
        """
        return bind(self.storage, page_table, total_len, new_len)

    @property
    def usage(self) -> float:
        """Share of pages that tasks hold, 0 to 1; pages kept only for reuse count as free."""
        return self.pool.n_used / self.pool.n_pages

    @property
    def shares_pages(self) -> bool:
        """Whether a sequence may have pages that were computed for another one."""
        return not self.shape.has_states or self.shape.max_checkpoints > 0

    def find(self, hashes: Sequence[bytes]) -> int:
        """How many of these pages are cached in the first group, up to the first that is not."""
        return len(self.pool.prefix_cache.match(hashes))

    def allocate(self, task_id: str, hashes: Sequence[bytes], n_tokens: int, spare: int) -> bool:
        """Admits a task whose full pages have these hashes, with the cached prefix as its pages.

        False, and no change, unless the rest of its `n_tokens` would fit and leave `spare` pages.
        At least one token is left to compute: a sequence needs its last token's logits.
        """
        page_size = self.shape.page_size
        usable = hashes[: (n_tokens - 1) // page_size] if self.shares_pages else []
        n = self.longest_hit(usable)
        pages = [
            self.pool.match(usable[group.first_needed(n * page_size) // page_size : n], number)
            for number, group in enumerate(self.groups)
        ]
        missing = self._missing_behind(pages, n, n_tokens)
        if missing + spare > self.pool.n_available:
            for own in pages:
                self.pool.free(own)
            return False
        self.table.insert(task_id, n, pages, n * page_size)
        self._hits.insert(task_id, usable[:n], n * page_size)
        self.tier.extend(task_id, 0, usable[:n])
        return True

    def cached_tokens(self, task_id: str) -> int:
        """Tokens of the task that were found in the cache, when it was admitted or since."""
        return self.table.cached_tokens(task_id)

    def first_stored(self, task_id: str, group: int) -> int:
        """The first token of a task whose page in this group was not freed out of the window."""
        return self.table.first_page(task_id, group) * self.shape.page_size

    def longest_hit(self, hashes: Sequence[bytes]) -> int:
        """How many leading ones of these pages a task could have as they are."""
        return self._cached.longest(hashes, self._hits)

    def lacking(self, hashes: Sequence[bytes], held: Tier) -> Lacking:
        """Returns what would have to be brought of pages with these hashes, of which `held` tells
        what could be."""
        known = self.pool.prefix_cache
        over = PrefixFinder(self.groups, self.shape.page_size, OverTier(known, held))
        n_cached, n = self.longest_hit(hashes), over.longest(hashes, self._hits.over(held.holds))
        if n == n_cached:
            return Lacking(n_cached, n, [])
        keys = [*over.lacking(hashes[:n], known), *self._hits.lacking(hashes[:n])]
        return Lacking(n_cached, n, keys)

    def begin_arrival(self, hashes: Sequence[bytes], keys: Sequence[PageKey]) -> Arrival:
        """Pages for content with these keys, which a prefix with these hashes lacks, as many as
        there is room for. What is cached of the prefix stays.

        On a GPU a step that was launched may still write to such a page, for a task that has ended:
        nothing may be written there before that step is done. On a CPU it is, when it is launched.
        """
        kept = self.pool.retain(PageKey(*key) for key in product(hashes, range(len(self.groups))))
        has_state = any(key.group == STATE for key in keys[-1:])
        arrival = self.pool.begin_arrival(keys[:-1] if has_state else keys)
        arrival.prefix = hashes if has_state else ()
        self.pool.free(kept)
        return arrival

    def end_arrival(self, arrival: Arrival) -> None:
        """Makes what has arrived findable, a state only if all pages before it are cached."""
        self.pool.end_arrival(arrival)
        if self.states is None or arrival.state is None or not arrival.prefix:
            return
        if self._cached.longest(arrival.prefix, HitRule()) == len(arrival.prefix):
            self.states.arrive(arrival.prefix, arrival.state)

    def adopt(self, task_id: str, hashes: Sequence[bytes]) -> int:
        """Appends the longest cached prefix of `hashes`, which follow the task's last full page.

        Returns the number of pages adopted in each group.
        """
        known, page_size = self.pool.prefix_cache, self.shape.page_size
        n = min(len(known.match(hashes, group)) for group in range(len(self.groups)))
        n = self._hits.longest(hashes[:n])
        if n:
            pages = [self.pool.match(hashes[:n], group) for group in range(len(self.groups))]
            self.table.append(task_id, pages, cached_tokens=n * page_size)
            n_pages = self.table.n_pages(task_id)
            self._hits.adopt(task_id, n_pages * page_size, n_pages - n, hashes[:n])
            self.tier.extend(task_id, n_pages - n, hashes[:n])
        return n

    def missing(self, task_id: str, n_tokens: int) -> int:
        """Pages that the task still lacks to hold `n_tokens`."""
        return self.missing_in_all([task_id], [n_tokens])

    def missing_in_all(self, task_ids: Sequence[str], n_tokens: Sequence[int]) -> int:
        """Pages that some tasks still lack, all together, to hold `n_tokens` [tasks] each."""
        n_pages = -(-np.array(n_tokens, dtype=np.int64) // self.shape.page_size)
        return self.table.missing(task_ids, n_pages, self.shape.max_pages_per_group)

    def extend(self, task_id: str, n_tokens: int) -> bool:
        """Gives the task pages for `n_tokens` in all; False, and no change, when there are none.

        The next batch writes all of these tokens.
        """
        n = self.shape.pages_for(n_tokens) - self.table.n_pages(task_id)
        if n <= 0:
            return True
        pages = self.pool.allocate(n * len(self.groups))
        if pages is None:
            return False
        by_group = [pages[n * group : n * (group + 1)] for group in range(len(self.groups))]
        self.table.append(task_id, by_group)
        if n_tokens % self.shape.page_size:  # the others will be filled at once
            self._stale |= {own[-1]: (group, 0) for group, own in enumerate(by_group)}
        return True

    def retract(self, task_id: str, n_tokens: int) -> None:
        """Takes back what the task got for tokens beyond `n_tokens`, all of which it has computed.

        What a batch that failed may have written there is gone before the next one reads.
        """
        self._give_back(self.table.shorten(task_id, self.shape.pages_for(n_tokens)))
        index, n_kept = divmod(n_tokens, self.shape.page_size)
        if n_kept:
            groups = range(len(self.groups))
            self._stale |= {
                self.table.page(task_id, index, group): (group, n_kept) for group in groups
            }

    def settle(self, task_id: str, n_tokens: int) -> None:
        """The same of a task for which no step is in progress, and of its states."""
        self.retract(task_id, n_tokens)
        self._hits.settle(task_id, n_tokens)

    def record(self, task_id: str, first_page: int, hashes: Sequence[bytes]) -> None:
        """Makes the task's full pages from `first_page` on findable under `hashes`, where sequences
        share pages."""
        if not (hashes and self.shares_pages):
            return
        for index, page_hash in enumerate(hashes, first_page):
            for group in range(len(self.groups)):
                page = self.table.page(task_id, index, group)
                shared = self.pool.record(page, page_hash, group)
                if shared != page:
                    self.table.replace(task_id, index, shared, group)
        n_tokens = (first_page + len(hashes)) * self.shape.page_size
        self._hits.record(task_id, n_tokens, first_page, hashes)
        self.tier.extend(task_id, first_page, hashes)

    def free_out_of_window(self, task_id: str, n_tokens: int) -> None:
        """Gives back the pages that no token behind the task's `n_tokens` computed ones attends
        to. They stay findable until evicted."""
        for number in self._windows:
            first = self.groups[number].first_needed(n_tokens) // self.shape.page_size
            self._give_back(self.table.free_out_of_window(task_id, number, first))

    def forget(self, task_id: str, hashes: Sequence[bytes]) -> None:
        """Makes the task's pages unfindable, in every tier, with those freed out of the window:
        what was computed for it can't be trusted. So it takes the hashes of all of them, and maybe
        of more."""
        hashes = hashes[: self.table.n_pages(task_id)]
        for group in range(len(self.groups)):
            self.pool.forget(hashes, group)
        self._hits.forget(task_id, hashes)
        self.tier.forget(hashes)

    def free(self, task_id: str) -> None:
        """Gives back all pages of a task. Those that were recorded stay findable until evicted."""
        self._hits.remove(task_id)
        self.tier.leave(task_id)
        self._give_back(self.table.remove(task_id))

    def take_uncleared(self) -> IntArray:
        """Takes the tails that every storage has to clear before the next batch: [n, 3], each a
        group, a page and how many of its first tokens stay."""
        stale, self._stale = self._stale, {}
        tails = [(group, page, n_kept) for page, (group, n_kept) in stale.items()]
        return np.array(tails, dtype=np.int64).reshape(-1, 3)

    def check(self) -> None:
        """Asserts that references and tables agree and no page is lost."""
        self.pool.check()
        self.table.check()
        self._hits.check(self.table.task_ids())
        self.tier.check()
        references = Counter(self.table.references())
        assert len(references) == self.pool.n_used, (
            "pages in use that no task holds, or the reverse"
        )
        for page, count in references.items():
            assert self.pool.allocator.references(page) == count, f"page {page} is miscounted"

    def _give_back(self, pages: Sequence[int]) -> None:
        """Gives back a task's references. A page that nobody writes to is not to be cleared: its
        next content may be there before the next batch."""
        if self._stale:
            for page in pages:
                self._stale.pop(page, None)
        self.pool.free(pages)

    def _page_is_gone(self, key: PageKey) -> None:
        self.tier.lose(key)
        self._hits.lose(key.page_hash)

    def _last_hit(self, hashes: Sequence[bytes], n: int) -> int:
        return self._cached.last(hashes, n, self._hits)

    def _first_page_needed(self, n: int) -> int:
        """The first of `n` pages that some group with a window has to have for a hit."""
        finder = self._cached
        return min(finder.first_needed(self.groups[number], n) for number in self._windows)

    def _missing_behind(self, pages: Sequence[Sequence[int]], n: int, n_tokens: int) -> int:
        """Pages that a task lacks to compute all of its `n_tokens`, if it has these [groups] of its
        first `n` pages."""
        lacking = self.shape.pages_for(n_tokens) - n
        return sum(
            lacking if most is None else max(0, min(lacking, most - len(own)))
            for own, most in zip(pages, self.shape.max_pages_per_group, strict=True)
        )

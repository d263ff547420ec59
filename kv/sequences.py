"""Finds, tells and drops cached pages of sequences that no task has, by their hashes."""

from collections.abc import Callable, Sequence

from kv.arrivals import PageKey
from kv.hit_rule import HitRule
from kv.pool import PagePool
from kv.prefixes import PrefixFinder

ARRIVED = ""  # stands for a task, and is the id of none


class CachedSequences:
    """The cache's thread calls all methods. `is_gone` is called with what was dropped."""

    def __init__(
        self,
        pool: PagePool,
        finder: PrefixFinder,
        hits: HitRule,
        is_gone: Callable[[PageKey], object],
    ) -> None:
        self._pool, self._finder, self._hits = pool, finder, hits
        self._is_gone = is_gone

    def longest(self, hashes: Sequence[bytes]) -> int:
        """How many leading ones of these pages can be hit."""
        return self._finder.longest(hashes, self._hits)

    def needed(self, hashes: Sequence[bytes]) -> list[PageKey]:
        """Returns what a hit of all these pages needs, cached or not, first tokens first."""
        return self._finder.needed(hashes)

    def lacking(self, hashes: Sequence[bytes]) -> list[PageKey]:
        """Returns what of it is not cached."""
        return self._finder.lacking(hashes, self._pool.prefix_cache)

    def touch(self, hashes: Sequence[bytes]) -> None:
        """What a hit of these pages needs was used now: it is evicted last."""
        self._pool.free(self._pool.retain(self.needed(hashes)))

    def announce(self, hashes: Sequence[bytes]) -> int:
        """Says in the journal what can be hit of these pages, some of which have just arrived.
        Returns how many leading ones that are."""
        self.touch(hashes)
        n = self.longest(hashes)
        self._hits.insert(ARRIVED, hashes[:n])
        self._hits.remove(ARRIVED)
        return n

    def discard(self, hashes: Sequence[bytes]) -> None:
        """Makes those of these pages unfindable that no task has. Slower tiers keep theirs."""
        known, groups = self._pool.prefix_cache, range(self._finder.n_groups)
        keys = (PageKey(page_hash, group) for page_hash in hashes for group in groups)
        for key in keys:
            page = known.lookup(*key)
            if page is not None and not self._pool.allocator.references(page):
                self._pool.forget([key.page_hash], key.group)
                self._is_gone(key)

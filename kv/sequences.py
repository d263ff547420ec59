"""Finds, tells and drops cached pages of sequences that no task has, by their hashes."""

from collections.abc import Callable, Sequence

from kv.arrivals import PageKey
from kv.hit_rule import HitRule
from kv.pool import PagePool
from kv.prefixes import PrefixFinder

NO_TASK = ""  # stands for one, and is the id of none


class CachedSequences:
    """The cache's thread calls all methods. `lost` is called with what was dropped."""

    def __init__(
        self,
        pool: PagePool,
        finder: PrefixFinder,
        hits: HitRule,
        lost: Callable[[PageKey], object],
    ) -> None:
        self._pool, self._finder, self._hits = pool, finder, hits
        self._lost = lost

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
        """Notes that all that a hit of these pages needs was used now: it is evicted last."""
        self._pool.free(self._pool.retain(self.needed(hashes)))

    def announce(self, hashes: Sequence[bytes]) -> int:
        """Says in the journal what can be hit of these pages, some of which have just arrived.
        Returns how many leading ones that are."""
        self.touch(hashes)
        n = self.longest(hashes)
        self._hits.insert(NO_TASK, hashes[:n])
        self._hits.remove(NO_TASK)
        return n

    def discard(self, hashes: Sequence[bytes]) -> None:
        """Makes those of these pages unfindable that no task has, in any group. Slower tiers keep
        theirs."""
        groups = range(self._finder.n_groups)
        gone = [page_hash for page_hash in hashes if not self._is_used(page_hash)]
        for group in groups:
            known = [key for key in gone if self._pool.prefix_cache.lookup(key, group) is not None]
            self._pool.forget(known, group)
            for page_hash in known:
                self._lost(PageKey(page_hash, group))
        # Ends of other sequences may be behind them.
        self._hits.insert(NO_TASK)
        self._hits.forget(NO_TASK, gone)
        self._hits.remove(NO_TASK)

    def _is_used(self, page_hash: bytes) -> bool:
        found = (
            self._pool.prefix_cache.lookup(page_hash, group)
            for group in range(self._finder.n_groups)
        )
        references = self._pool.allocator.references
        return any(page is not None and references(page) for page in found)

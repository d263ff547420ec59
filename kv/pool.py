"""Hands out pages and shares those whose content is known; full pages are immutable."""

from collections.abc import Callable, Sequence

from kv.allocator import Allocator
from kv.journal import Journal
from kv.prefix import PrefixCache


class PagePool:
    """`n_pages` pages, an `Allocator` over them and a `PrefixCache` of their contents.

    A page is of any of the `n_groups` groups of layers, from when it is filled to its eviction.
    """

    def __init__(
        self,
        n_pages: int,
        n_groups: int = 1,
        *,
        publishes_pages: bool = True,
        on_evict: Callable[[bytes], object] = lambda page_hash: None,
    ) -> None:
        """`publishes_pages`: whether the journal says what can be found. `on_evict` is called with
        the hash of a page that is taken for new content."""
        self.prefix_cache = PrefixCache(n_groups, publishes_pages=publishes_pages)
        self.allocator = Allocator(
            n_pages, on_evict=lambda page: on_evict(self.prefix_cache.remove(page))
        )

    @property
    def journal(self) -> Journal:
        return self.prefix_cache.journal

    @property
    def n_pages(self) -> int:
        return self.allocator.n_pages

    @property
    def n_available(self) -> int:
        return self.allocator.n_available

    @property
    def n_used(self) -> int:
        return self.allocator.n_used

    def allocate(self, n: int) -> list[int] | None:
        """`n` pages with unknown content, or None (and no change) when there are fewer."""
        if n > self.n_available:
            return None
        return [self.allocator.allocate() for _ in range(n)]

    def match(self, hashes: Sequence[bytes], group: int = 0) -> list[int]:
        """A group's pages of the longest cached prefix, each with a reference for the caller."""
        pages = self.prefix_cache.match(hashes, group)
        for page in pages:
            self.allocator.retain(page)
        return pages

    def record(self, page: int, page_hash: bytes, group: int = 0) -> int:
        """Makes a full page of a group findable; returns the page to use from now on.

        When another page already holds this content the caller's reference moves to that one, so
        that sequences which computed the same tokens side by side end up sharing them.
        """
        known = self.prefix_cache.lookup(page_hash, group)
        if known is None:
            self.prefix_cache.insert(page_hash, page, group)
            return page
        if known != page:
            self.allocator.retain(known)
            self.allocator.release(page, keep=page in self.prefix_cache)
        return known

    def forget(self, hashes: Sequence[bytes], group: int = 0) -> None:
        """Makes pages of a group unfindable whose content can't be trusted; whoever holds them
        keeps them."""
        for page_hash in hashes:
            page = self.prefix_cache.lookup(page_hash, group)
            if page is not None:
                self.prefix_cache.remove(page)
                self.allocator.discard(page)

    def free(self, pages: Sequence[int]) -> None:
        """Gives back one sequence's references.

        Last page first: eviction then takes a prefix's end before its beginning, which alone keeps
        what is left reachable.
        """
        for page in reversed(pages):
            self.allocator.release(page, keep=page in self.prefix_cache)

    def check(self) -> None:
        """Asserts what the allocator and the prefix cache assert."""
        self.allocator.check()
        self.prefix_cache.check()

"""Hands out pages and shares those whose content is known; full pages are immutable.

Pages are found by what they hold: in each group, hash -> page, one page a hash, one hash a page.
"""

from collections.abc import Callable, Iterable, Sequence

from kv.allocator import Allocator
from kv.journal import Journal


class PrefixCache:
    """Hashes and pages of the content that can be found, in `n_groups` groups of layers."""

    def __init__(self, n_groups: int = 1, *, publishes_pages: bool = True) -> None:
        """`publishes_pages`: whether it writes the journal."""
        self.journal = Journal()
        self._publishes_pages = publishes_pages
        self._pages: list[dict[bytes, int]] = [{} for _ in range(n_groups)]
        self._keys: dict[int, tuple[int, bytes]] = {}  # by page: its group and hash

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, page: int) -> bool:
        return page in self._keys

    def lookup(self, page_hash: bytes, group: int = 0) -> int | None:
        """The group's page with this hash, or None."""
        return self._pages[group].get(page_hash)

    def match(self, hashes: Iterable[bytes], group: int = 0) -> list[int]:
        """The group's pages of the longest known prefix of `hashes`."""
        known, pages = self._pages[group], []
        for page_hash in hashes:
            page = known.get(page_hash)
            if page is None:
                break
            pages.append(page)
        return pages

    def insert(self, page_hash: bytes, page: int, group: int = 0) -> None:
        """Makes a page findable. Asserts that neither hash nor page is known."""
        assert page_hash not in self._pages[group], "two pages under one hash"
        assert page not in self._keys, f"page {page} under two hashes"
        self._pages[group][page_hash] = page
        self._keys[page] = group, page_hash
        if group == 0 and self._publishes_pages:
            self.journal.stored(page_hash)

    def remove(self, page: int) -> bytes:
        """Makes a page unfindable; returns its hash. KeyError if it is so already."""
        group, page_hash = self._keys.pop(page)
        del self._pages[group][page_hash]
        if group == 0 and self._publishes_pages:
            self.journal.evicted(page_hash)
        return page_hash

    def check(self) -> None:
        """Asserts that hashes and pages map to each other."""
        by_page = {
            page: (group, page_hash)
            for group, pages in enumerate(self._pages)
            for page_hash, page in pages.items()
        }
        assert by_page == self._keys
        assert len(by_page) == sum(map(len, self._pages)), "a page has two hashes"


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

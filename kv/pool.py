"""Hands out pages and shares those whose content is known; full pages are immutable.

Pages are found by what they hold: in each group, hash -> page, one page a hash, one hash a page.
"""

from collections.abc import Callable, Iterable, Sequence

from kv.allocator import Allocator
from kv.arrivals import Arrival, PageKey
from kv.journal import Journal


class PrefixCache:
    """Hashes and pages of the content that can be found, in `n_groups` groups of layers."""

    def __init__(self, n_groups: int = 1, *, publishes_pages: bool = True) -> None:
        """`publishes_pages`: whether it writes the journal."""
        self.journal = Journal()
        self._publishes_pages = publishes_pages
        self._pages: list[dict[bytes, int]] = [{} for _ in range(n_groups)]
        self._keys: dict[int, PageKey] = {}  # by page

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, page: int) -> bool:
        return page in self._keys

    def lookup(self, page_hash: bytes, group: int = 0) -> int | None:
        """The group's page with this hash, or None."""
        return self._pages[group].get(page_hash)

    def key_of(self, page: int) -> PageKey | None:
        """The key of a page that can be found; another object each time that it is filled anew. Any
        thread may ask."""
        return self._keys.get(page)

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
        self._keys[page] = PageKey(page_hash, group)
        if group == 0 and self._publishes_pages:
            self.journal.stored(page_hash)

    def key(self, page: int) -> PageKey:
        """Returns what a page holds. KeyError for one that can't be found."""
        return self._keys[page]

    def remove(self, page: int) -> PageKey:
        """Makes a page unfindable; returns its key. KeyError if it is so already."""
        key = self._keys.pop(page)
        del self._pages[key.group][key.page_hash]
        if key.group == 0 and self._publishes_pages:
            self.journal.evicted(key.page_hash)
        return key

    def check(self) -> None:
        """Asserts that hashes and pages map to each other."""
        by_page = {
            page: PageKey(page_hash, group)
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
        on_evict: Callable[[PageKey], object] = lambda key: None,
        spares: Callable[[PageKey], bool] = lambda key: False,
    ) -> None:
        """`publishes_pages`: whether the journal says what can be found. `on_evict` is called with
        the key of what a page held that is taken for new content. What `spares` says is taken after
        others."""
        self.prefix_cache = PrefixCache(n_groups, publishes_pages=publishes_pages)
        self.allocator = Allocator(
            n_pages,
            on_evict=lambda page: on_evict(self.prefix_cache.remove(page)),
            on_withdraw=self._withdraw,
            spares=lambda page: spares(self.prefix_cache.key(page)),
        )
        self._arrivals: dict[Arrival, None] = {}  # in the order in which they began

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

    def retain(self, keys: Iterable[PageKey]) -> list[int]:
        """Returns those pages that are cached, each with a reference for the caller."""
        found = (self.prefix_cache.lookup(*key) for key in keys)
        pages = [page for page in found if page is not None]
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
        for arrival in self._arrivals:
            arrival.forget(PageKey(page_hash, group) for page_hash in hashes)

    def begin_arrival(self, keys: Sequence[PageKey]) -> Arrival:
        """Pages for content with these keys that is on its way, as many as there is room for.
        They can be found from `end_arrival` on."""
        pages = self.allocator.reserve(len(keys))
        arrival = Arrival(dict(zip(keys, pages, strict=False)))
        self._arrivals[arrival] = None
        return arrival

    def end_arrival(self, arrival: Arrival) -> None:
        """Makes what has arrived findable, in so far as it is not by now. The last page is evicted
        first."""
        del self._arrivals[arrival]
        arrived = arrival.end()
        for key, page in reversed(arrival.pages.items()):
            is_new = key in arrived and self.prefix_cache.lookup(*key) is None
            self.allocator.arrive(page, keep=is_new)
            if is_new:
                self.prefix_cache.insert(key.page_hash, page, key.group)

    @property
    def arrivals(self) -> Iterable[Arrival]:
        """Arrivals that have begun and not ended."""
        return self._arrivals

    def coldest(self, n: int) -> list[PageKey]:
        """Returns what is cached of the next `n` pages to be taken."""
        return [*map(self.prefix_cache.key, self.allocator.coldest(n))]

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

    def _withdraw(self, page: int) -> None:
        for arrival in reversed(self._arrivals):
            if arrival.withdraw(page):
                return

"""Owns which pages are free, in use or evictable; every operation costs O(1) a page.

A page is in exactly one state: free, in use (reference count above 0), or evictable (count 0, its
content is still valid and can be found, until the page is taken because none is free).
"""

from collections import OrderedDict
from collections.abc import Callable


class Allocator:
    """Reference counts and least-recently-used eviction over `n_pages` pages.

    `on_evict(page)` is called when an evictable page is taken for new content.
    """

    def __init__(self, n_pages: int, on_evict: Callable[[int], object]) -> None:
        self.n_pages = n_pages
        self._on_evict = on_evict
        self._free = list(range(n_pages - 1, -1, -1))
        self._references = [0] * n_pages
        self._evictable: OrderedDict[int, None] = OrderedDict()

    @property
    def n_available(self) -> int:
        """Pages that `allocate` could hand out now."""
        return len(self._free) + len(self._evictable)

    @property
    def n_used(self) -> int:
        """Pages with references."""
        return self.n_pages - self.n_available

    def references(self, page: int) -> int:
        """How many references a page has."""
        return self._references[page]

    def allocate(self) -> int:
        """A page with one reference. Asserts that one is available."""
        if self._free:
            page = self._free.pop()
        else:
            assert self._evictable, "allocate() without an available page"
            page, _ = self._evictable.popitem(last=False)
            self._on_evict(page)
        self._references[page] = 1
        return page

    def retain(self, page: int) -> None:
        """One more reference to a page that is in use or evictable."""
        if self._references[page] == 0:
            del self._evictable[page]
        self._references[page] += 1

    def release(self, page: int, *, keep: bool) -> None:
        """One reference less. Without any the page is evictable if `keep`, else free.

        Asserts that it had one.
        """
        assert self._references[page] > 0, f"page {page} released too often"
        self._references[page] -= 1
        if self._references[page] == 0:
            if keep:
                self._evictable[page] = None
            else:
                self._free.append(page)

    def discard(self, page: int) -> None:
        """Frees an evictable page whose content is of no use. A page in use stays so."""
        if page in self._evictable:
            del self._evictable[page]
            self._free.append(page)

    def check(self) -> None:
        """Asserts that each page is in exactly one state."""
        free, evictable = set(self._free), set(self._evictable)
        used = {page for page, count in enumerate(self._references) if count}
        assert len(free) == len(self._free), "a page is free twice"
        counted = len(free) + len(evictable) + len(used)
        assert counted == self.n_pages, "a page is in two states, or none"
        assert free | evictable | used == set(range(self.n_pages)), "a page is lost"

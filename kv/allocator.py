"""Owns which pages are free, in use or kept for reuse; every operation costs O(1) a page.

A page is in exactly one state: free, in use (reference count above 0), or kept (count 0, content
still valid, first to go when nothing is free).
"""

from collections import OrderedDict
from collections.abc import Callable


class Allocator:
    """Reference counts and least-recently-used eviction over `n_pages` pages.

    `on_evict(page)` is called when a kept page is taken for new content.
    """

    def __init__(self, n_pages: int, on_evict: Callable[[int], None]) -> None:
        self.n_pages = n_pages
        self._on_evict = on_evict
        self._free = list(range(n_pages - 1, -1, -1))
        self._references = [0] * n_pages
        self._kept: OrderedDict[int, None] = OrderedDict()

    @property
    def n_available(self) -> int:
        """Pages that `allocate` could hand out now."""
        return len(self._free) + len(self._kept)

    @property
    def n_used(self) -> int:
        return self.n_pages - self.n_available

    def references(self, page: int) -> int:
        return self._references[page]

    def allocate(self) -> int:
        """A page with one reference. Asserts that one is available."""
        if self._free:
            page = self._free.pop()
        else:
            assert self._kept, "allocate() without an available page"
            page, _ = self._kept.popitem(last=False)
            self._on_evict(page)
        self._references[page] = 1
        return page

    def retain(self, page: int) -> None:
        """One more reference to a page in use or kept."""
        if self._references[page] == 0:
            del self._kept[page]
        self._references[page] += 1

    def release(self, page: int, *, keep: bool) -> None:
        """One reference less; the last one frees the page, or keeps its content for reuse."""
        assert self._references[page] > 0, f"page {page} released too often"
        self._references[page] -= 1
        if self._references[page] == 0:
            if keep:
                self._kept[page] = None
            else:
                self._free.append(page)

    def check(self) -> None:
        """Asserts that each page is in exactly one state."""
        free, kept = set(self._free), set(self._kept)
        used = {page for page, count in enumerate(self._references) if count}
        assert len(free) == len(self._free), "a page is free twice"
        assert len(free) + len(kept) + len(used) == self.n_pages, "a page is in two states, or none"
        assert free | kept | used == set(range(self.n_pages)), "a page is lost"

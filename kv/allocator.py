"""Owns which pages are free, in use, evictable or arriving; every operation costs O(1) a page.

A page is in exactly one state: free, in use (reference count above 0), evictable (count 0, its
content is still valid and can be found, until the page is taken because none is free), or arriving
(count 0, content is on its way to it, unless the page is taken because there is no other one).
"""

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice

N_COLDEST = 64  # evictable pages of which one is chosen, where the first one is to be spared


class Allocator:
    """Reference counts and least-recently-used eviction over `n_pages` pages.

    `on_evict(page)` is called when an evictable page is taken for new content, `on_withdraw(page)`
    when an arriving one is. A page that `spares(page)` is taken after the others among the coldest.
    """

    def __init__(
        self,
        n_pages: int,
        on_evict: Callable[[int], object],
        on_withdraw: Callable[[int], object] = lambda page: None,
        spares: Callable[[int], bool] = lambda page: False,
    ) -> None:
        self.n_pages = n_pages
        self._on_evict, self._on_withdraw = on_evict, on_withdraw
        self._spares = spares
        self._free = list(range(n_pages - 1, -1, -1))
        self._references = [0] * n_pages
        self._evictable: OrderedDict[int, None] = OrderedDict()
        self._arriving: dict[int, None] = {}  # the last one is taken first

    @property
    def n_available(self) -> int:
        """Pages that `allocate` could hand out now."""
        return len(self._free) + len(self._evictable) + len(self._arriving)

    @property
    def n_used(self) -> int:
        """Pages with references."""
        return self.n_pages - self.n_available

    def references(self, page: int) -> int:
        """How many references a page has."""
        return self._references[page]

    def allocate(self) -> int:
        """A page with one reference. Asserts that one is available."""
        if self._free or self._evictable:
            page = self._take()
        else:
            assert self._arriving, "allocate() without an available page"
            page, _ = self._arriving.popitem()
            self._on_withdraw(page)
        self._references[page] = 1
        return page

    def reserve(self, n: int) -> list[int]:
        """Up to `n` free or evictable pages, which are arriving from now on."""
        n = min(n, len(self._free) + len(self._evictable))
        pages = [self._take() for _ in range(n)]
        self._arriving |= dict.fromkeys(pages)
        return pages

    def arrive(self, page: int, *, keep: bool) -> None:
        """The page is arriving no more, but evictable if `keep`, else free."""
        del self._arriving[page]
        if keep:
            self._evictable[page] = None
        else:
            self._free.append(page)

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

    def coldest(self, n: int) -> list[int]:
        """Returns those of the next `n` pages to be taken that are evictable."""
        return [*islice(self._evictable, max(0, n - len(self._free)))]

    def check(self) -> None:
        """Asserts that each page is in exactly one state."""
        free, evictable, arriving = set(self._free), set(self._evictable), set(self._arriving)
        used = {page for page, count in enumerate(self._references) if count}
        assert len(free) == len(self._free), "a page is free twice"
        counted = len(free) + len(evictable) + len(arriving) + len(used)
        assert counted == self.n_pages, "a page is in two states, or none"
        every = free | evictable | arriving | used
        assert every == set(range(self.n_pages)), "a page is lost"

    def _take(self) -> int:
        if self._free:
            return self._free.pop()
        page = next(iter(self._evictable))
        if self._spares(page):
            coldest = islice(self._evictable, N_COLDEST)
            page = next((other for other in coldest if not self._spares(other)), page)
        del self._evictable[page]
        self._on_evict(page)
        return page

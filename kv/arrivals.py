"""Pages whose content is on its way from elsewhere: one thread writes it, the cache's own decides
what becomes of them.

A page may be taken for something else at any moment, so that nobody waits for what is slow. From
then on nothing is written to it.
"""

import threading
from collections.abc import Callable, Iterable, Set
from typing import NamedTuple


class PageKey(NamedTuple):
    """Names what a page holds: some tokens behind a prefix, in the layers of one group."""

    page_hash: bytes
    group: int = 0


class PrefixHolder(NamedTuple):
    """A replica whose cache holds the first `n_pages` pages of a prompt."""

    replica_id: str
    n_pages: int


class Arrival:
    """Keys and the pages that they arrive in. Any thread may call `write`, the cache's the rest."""

    def __init__(self, pages: dict[PageKey, int]) -> None:
        self.pages = pages
        self.is_open = True
        self._lock = threading.Lock()
        self._arrived: set[PageKey] = set()
        self._forgotten: set[PageKey] = set()

    def write(self, key: PageKey, copy: Callable[[int], object]) -> bool:
        """Has the page of a key filled by `copy(page)`. False, and no call, where the content is
        not wanted any more."""
        with self._lock:
            if not self.is_open or key not in self.pages:
                return False
            copy(self.pages[key])
            self._arrived.add(key)
            return True

    def withdraw(self, page: int) -> bool:
        """Takes a page back; False where it is none of these."""
        key = next((key for key, own in reversed(self.pages.items()) if own == page), None)
        if key is None:
            return False
        with self._lock:
            del self.pages[key]
            self._arrived.discard(key)
        return True

    def forget(self, keys: Iterable[PageKey]) -> None:
        """The content of these keys can't be trusted, wherever it comes from."""
        self._forgotten.update(self.pages.keys() & {*keys})

    def end(self) -> Set[PageKey]:
        """Returns what has arrived. Nothing is written any more."""
        with self._lock:
            self.is_open = False
            return self._arrived - self._forgotten

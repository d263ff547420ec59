"""Pages whose content is on its way from elsewhere: one thread writes it, the cache's own decides
what becomes of them.

A page may be taken for something else at any moment, so that nobody waits for what is slow. From
then on nothing is written to it.
"""

import threading
from collections.abc import Callable, Iterable, Sequence, Set
from typing import NamedTuple

STATE = 255  # in the place of a group: the state behind a page, of all layers that keep one


class PageKey(NamedTuple):
    """Names what a page holds: some tokens behind a prefix, in the layers of one group. Or the
    state behind these tokens, which lies in no page."""

    page_hash: bytes
    group: int = 0


class PrefixHolder(NamedTuple):
    """A replica whose cache holds the first `n_pages` pages of a prompt."""

    replica_id: str
    n_pages: int


class Arrival:
    """Keys and the pages that they arrive in. Any thread may call `write` and `take_state`, the
    cache's the rest."""

    def __init__(self, pages: dict[PageKey, int]) -> None:
        self.pages = pages
        self.prefix: Sequence[bytes] = ()  # hashes of the pages that a state arrives behind
        self.state: bytes | None = None
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

    @property
    def keys(self) -> list[PageKey]:
        """All that is to arrive."""
        return [*self.pages, *(PageKey(last, STATE) for last in self.prefix[-1:])]

    def take_state(self, content: bytes) -> bool:
        """Takes the state behind `prefix`. False where it is not wanted any more."""
        with self._lock:
            if self.is_open:
                self.state = content
            return self.is_open

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
        gone = {*keys}
        self._forgotten.update(self.pages.keys() & gone)
        if not {key.page_hash for key in gone}.isdisjoint(self.prefix[-1:]):
            self.prefix = ()

    def end(self) -> Set[PageKey]:
        """Returns what has arrived. Nothing is written any more."""
        with self._lock:
            self.is_open = False
            return self._arrived - self._forgotten

"""Which pages became findable and which no longer are: one thread records it, another drains it.

Only the net effect is kept, so that a journal which nobody drains stays as small as the cache.
"""

import threading
from collections import Counter
from collections.abc import Iterable


class Journal:
    """The engine's thread calls `stored` and `evicted`; one other thread calls the rest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes: dict[bytes, bool] = {}  # page hash -> stored, or else evicted
        self._drained: set[bytes] = set()

    def stored(self, page_hash: bytes) -> None:
        """A page with this hash can be found from now on."""
        self._record(page_hash, True)

    def evicted(self, page_hash: bytes) -> None:
        """No page with this hash can be found any more."""
        self._record(page_hash, False)

    @property
    def changed(self) -> bool:
        """Whether there is something to drain."""
        return bool(self._changes)

    def drain(self) -> tuple[bytes, bytes]:
        """Hashes stored and hashes evicted since the last drain, each a concatenation of
        `kv.content.DIGEST_BYTES` bytes a hash; none is in both."""
        with self._lock:
            changes, self._changes = self._changes, {}
        stored = [page_hash for page_hash, is_stored in changes.items() if is_stored]
        evicted = [page_hash for page_hash, is_stored in changes.items() if not is_stored]
        self._drained.difference_update(evicted)
        self._drained.update(stored)
        return b"".join(stored), b"".join(evicted)

    def snapshot(self) -> bytes:
        """All hashes that were findable at the last drain, concatenated."""
        return b"".join(self._drained)

    def _record(self, page_hash: bytes, is_stored: bool) -> None:
        with self._lock:
            # A page is stored and evicted by turns: the second event undoes the first.
            if self._changes.pop(page_hash, None) is None:
                self._changes[page_hash] = is_stored


class PublishedPages:
    """Pages are published while something stands at them or behind them. So the pages before a
    published one are published, too."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._n_behind: Counter[bytes] = Counter()

    def add(self, hashes: Iterable[bytes]) -> None:
        """Something stands behind these pages, which are a prefix or go on behind one."""
        for page_hash in hashes:
            if not self._n_behind[page_hash]:
                self._journal.stored(page_hash)
            self._n_behind[page_hash] += 1

    def remove(self, hashes: Iterable[bytes]) -> None:
        """Something no longer stands behind these pages."""
        for page_hash in hashes:
            self._n_behind[page_hash] -= 1
            if not self._n_behind[page_hash]:
                del self._n_behind[page_hash]
                self._journal.evicted(page_hash)

    def check(self, standing: Iterable[Iterable[bytes]]) -> None:
        """Asserts that these prefixes are what stands behind pages."""
        assert self._n_behind == Counter(
            page_hash for hashes in standing for page_hash in hashes
        ), "miscounted"

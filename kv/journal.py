"""Which pages became findable and which no longer are: one thread records it, another drains it.

Only the net effect is kept, so that a journal which nobody drains stays as small as the cache.
"""

import threading


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

"""Publishes all pages before something that can be hit."""

from collections import Counter
from collections.abc import Iterable

from kv.journal import Journal


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

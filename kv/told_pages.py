"""Tells others of all pages before something that can be hit."""

from collections import Counter
from collections.abc import Iterable

from kv.journal import Journal


class ToldPages:
    """Pages are told of while something stands at them or behind them. So whoever is told of a page
    is told of those before it, too."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._n_behind: Counter[bytes] = Counter()

    def add(self, hashes: Iterable[bytes]) -> None:
        """Something stands behind these pages, which are a prefix or go on behind one."""
        for one in hashes:
            if not self._n_behind[one]:
                self._journal.stored(one)
            self._n_behind[one] += 1

    def remove(self, hashes: Iterable[bytes]) -> None:
        """It no longer does."""
        for one in hashes:
            self._n_behind[one] -= 1
            if not self._n_behind[one]:
                del self._n_behind[one]
                self._journal.evicted(one)

    def check(self, standing: Iterable[Iterable[bytes]]) -> None:
        """Asserts that these prefixes are what stands behind pages."""
        assert self._n_behind == Counter(one for hashes in standing for one in hashes), "miscounted"

"""Which prefixes can be hit where layers have windows.

All groups have to have the last pages of such a prefix still. Those before the windows may be gone.
So what others are told goes by the ends of sequences, and not by single pages.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

from kv.journal import Journal
from kv.told_pages import ToldPages


class HitPoints:
    """The ends of tasks, and of tasks that are gone. An end that can no longer be hit moves back to
    where its sequence can be.

    longest_hit: of a prefix's pages, how many leading ones can be hit.
    last_hit: the same of a prefix that could be until now.
    first_needed: of so many pages, the first one that a hit needs.
    """

    def __init__(
        self,
        journal: Journal,
        longest_hit: Callable[[Sequence[bytes]], int],
        last_hit: Callable[[Sequence[bytes]], int],
        first_needed: Callable[[int], int],
    ) -> None:
        self._longest_hit, self._last_hit = longest_hit, last_hit
        self._first_needed = first_needed
        self._told = ToldPages(journal)
        self._tasks: dict[str, list[bytes]] = {}  # hashes of their full pages
        self._ends: dict[bytes, Sequence[bytes]] = {}  # by the last hash: all of them
        self._needing: defaultdict[bytes, set[bytes]] = defaultdict(set)  # by page: last hashes

    def extend(self, task_id: str, first_page: int, hashes: Sequence[bytes]) -> None:
        """The task has full pages with these hashes from `first_page` on. Behind forgotten ones
        they are no hit."""
        own = self._tasks.setdefault(task_id, [])
        if first_page > len(own):
            return
        new = hashes[len(own) - first_page :]
        own += new
        self._told.add(new)

    def remove(self, task_id: str) -> None:
        """The task gives back its pages."""
        hashes = self._tasks.pop(task_id, [])
        self._keep(hashes, self._longest_hit(hashes))

    def lose(self, page_hash: bytes) -> None:
        """A page with this hash is gone, of some group."""
        for end in [*self._needing.get(page_hash, ())]:
            hashes = self._pop(end)
            self._keep(hashes, self._last_hit(hashes))

    def forget(self, task_id: str, hashes: Sequence[bytes]) -> None:
        """Nothing can be hit any more at these pages or behind them, which the task has."""
        self._told.remove(self._tasks.pop(task_id, []))
        gone = {*hashes}
        for end, own in [*self._ends.items()]:
            if not gone.isdisjoint(own):
                self._told.remove(self._pop(end))

    def check(self) -> None:
        """Asserts that what is kept can be hit, and is told of."""
        self._told.check([*self._tasks.values(), *self._ends.values()])
        for end, hashes in self._ends.items():
            assert hashes[-1] == end
            assert self._longest_hit(hashes) == len(hashes), "an end that can't be hit"
        needing = {(page, end) for end in self._ends for page in self._needed(self._ends[end])}
        assert needing == {(page, end) for page, ends in self._needing.items() for end in ends}

    def _keep(self, hashes: Sequence[bytes], n: int) -> None:
        """Of a sequence that is told of, the `n` pages that can be hit."""
        if n and hashes[n - 1] in self._ends:
            n = 0
        self._told.remove(hashes[n:])
        if n:
            self._ends[hashes[n - 1]] = kept = hashes[:n]
            for page in self._needed(kept):
                self._needing[page].add(kept[-1])

    def _pop(self, end: bytes) -> Sequence[bytes]:
        hashes = self._ends.pop(end)
        for page in self._needed(hashes):
            self._needing[page].discard(end)
            if not self._needing[page]:
                del self._needing[page]
        return hashes

    def _needed(self, hashes: Sequence[bytes]) -> Sequence[bytes]:
        return hashes[self._first_needed(len(hashes)) :]

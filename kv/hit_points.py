"""Which prefixes can be hit where layers have windows.

All groups have to have the last pages of such a prefix still. Those before the windows may be gone.
So what is published goes by the ends of sequences, and not by single pages.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kv.hit_rule import HitRule
from kv.journal import Journal, PublishedPages


@dataclass(eq=False, slots=True)
class _End:
    """A sequence with these hashes of pages, of which the first `n` can be hit."""

    hashes: Sequence[bytes]
    n: int


class HitPoints(HitRule):
    """The ends of tasks, and of tasks that are gone. An end that can no longer be hit moves back to
    where its sequence can be.

    longest_hit: of a prefix's pages, how many leading ones can be hit.
    last_hit: the same of the first so many, which could be until now.
    first_needed: of so many pages, the first one that a hit needs.
    """

    def __init__(
        self,
        journal: Journal,
        longest_hit: Callable[[Sequence[bytes]], int],
        last_hit: Callable[[Sequence[bytes], int], int],
        first_needed: Callable[[int], int],
    ) -> None:
        self._longest_hit, self._last_hit = longest_hit, last_hit
        self._first_needed = first_needed
        self._published = PublishedPages(journal)
        self._tasks: dict[str, list[bytes]] = {}  # hashes of their full pages
        self._ends: dict[bytes, _End] = {}  # by the hash of the last page
        self._needing: defaultdict[bytes, set[_End]] = defaultdict(set)  # by page

    def insert(self, task_id: str, hashes: Sequence[bytes] = (), n_tokens: int = 0) -> None:
        """Pages with these hashes can be hit while the task has them."""
        self._extend(task_id, 0, hashes)

    def adopt(self, task_id: str, n_tokens: int, first_page: int, hashes: Sequence[bytes]) -> None:
        """Behind forgotten pages these are no hit."""
        self._extend(task_id, first_page, hashes)

    def record(self, task_id: str, n_tokens: int, first_page: int, hashes: Sequence[bytes]) -> None:
        """Behind forgotten pages these are no hit."""
        self._extend(task_id, first_page, hashes)

    def _extend(self, task_id: str, first_page: int, hashes: Sequence[bytes]) -> None:
        own = self._tasks.setdefault(task_id, [])
        if first_page > len(own):
            return
        new = hashes[len(own) - first_page :]
        own += new
        self._published.add(new)

    def remove(self, task_id: str) -> None:
        """The task's pages can be hit up to where they are cached."""
        hashes = self._tasks.pop(task_id, [])
        self._move(_End(hashes, 0), len(hashes), self._longest_hit(hashes))

    def lose(self, page_hash: bytes) -> None:
        """Ends that need the page move back."""
        for end in [*self._needing.get(page_hash, ())]:
            del self._ends[end.hashes[end.n - 1]]
            self._move(end, end.n, self._last_hit(end.hashes, end.n))

    def forget(self, task_id: str, hashes: Sequence[bytes]) -> None:
        """Forgets the ends there, too, and the task."""
        gone = {*hashes}
        for own in self._tasks.values():
            n = next((n for n, page in enumerate(own) if page in gone), len(own))
            self._published.remove(own[n:])
            del own[n:]
        self._tasks.pop(task_id, None)
        for last, end in [*self._ends.items()]:
            if not gone.isdisjoint(end.hashes[: end.n]):
                del self._ends[last]
                self._move(end, end.n, 0)

    def check(self, task_ids: Iterable[str]) -> None:
        """Asserts as well that what can be hit is published."""
        ends = {last: end.hashes[: end.n] for last, end in self._ends.items()}
        self._published.check([*self._tasks.values(), *ends.values()])
        for last, hashes in ends.items():
            assert hashes[-1] == last
            assert self._longest_hit(hashes) == len(hashes), "an end that can't be hit"
        needed = {(page, end) for end in self._ends.values() for page in self._needed(end, end.n)}
        assert needed == {(page, end) for page, found in self._needing.items() for end in found}

    def _move(self, end: _End, n_published: int, n: int) -> None:
        """Moves an end to `n` pages of its sequence, `n_published` of which are published. There is
        one end at a page."""
        if n and end.hashes[n - 1] in self._ends:
            n = 0
        self._published.remove(end.hashes[n:n_published])
        before, after = self._needed(end, end.n), self._needed(end, n)
        end.n = n
        for page in before - after:
            self._needing[page].discard(end)
            if not self._needing[page]:
                del self._needing[page]
        for page in after - before:
            self._needing[page].add(end)
        if n:
            self._ends[end.hashes[n - 1]] = end

    def _needed(self, end: _End, n: int) -> set[bytes]:
        pages: Iterable[bytes] = end.hashes[self._first_needed(n) : n] if n else ()
        return {*pages}

"""The page pool: what is findable, who is evicted, and that contents are never mixed up."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kv.content import page_hashes
from kv.pool import PagePool

Prefix = tuple[int, ...]


def hashes_of(tokens: Prefix) -> list[bytes]:
    """One token a page: a page's content is the whole prefix up to it."""
    return page_hashes(tokens, 1)


class PagePoolMachine(RuleBasedStateMachine):
    """Sequences over two tokens, one token a page; the model knows what fills each page."""

    @initialize(n_pages=st.integers(2, 8))
    def start(self, n_pages: int) -> None:
        self.pool = PagePool(n_pages)
        self.content: dict[int, Prefix] = {}
        self.findable: dict[Prefix, int] = {}
        self.kept: list[int] = []  # least recently used first
        self.sequences: list[tuple[Prefix, list[int]]] = []
        self.forgot = False  # a chain may have lost its beginning, and may get another one

    def _references(self, page: int) -> int:
        return sum(pages.count(page) for _, pages in self.sequences)

    def _release(self, page: int, n_references: int) -> None:
        if n_references == 0 and self.findable.get(self.content[page]) == page:
            self.kept.append(page)

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=5).map(tuple))
    def run_a_sequence(self, tokens: Prefix) -> None:
        """Matches its prefix, fills pages for the rest, makes them findable."""
        matched = self.pool.match(hashes_of(tokens))
        expected: list[int] = []
        while tokens[: len(expected) + 1] in self.findable and len(expected) < len(tokens):
            expected.append(self.findable[tokens[: len(expected) + 1]])
        assert matched == expected
        assert [self.content[page] for page in matched] == [
            tokens[: i + 1] for i in range(len(matched))
        ]
        self.kept = [page for page in self.kept if page not in matched]
        fresh = self._allocate(len(tokens) - len(matched))
        if fresh is None:
            self._give_back(tokens[: len(matched)], matched)
            return
        for i, page in enumerate(fresh, len(matched)):
            self.content[page] = tokens[: i + 1]
        pages = [*matched, *fresh]
        self.sequences.append((tokens, pages))
        for i, page_hash in list(enumerate(hashes_of(tokens)))[len(matched) :]:
            pages[i] = self._record(pages[i], page_hash, tokens[: i + 1])

    def _allocate(self, n: int) -> list[int] | None:
        used = {page for _, pages in self.sequences for page in pages}
        available = self.pool.n_available
        pages = self.pool.allocate(n)
        if pages is None:
            assert n > available
            assert self.pool.n_available == available
            return None
        assert len(set(pages)) == n
        assert not used & set(pages), "a page in use was handed out"
        evicted = [page for page in pages if page in self.kept]
        assert evicted == self.kept[: len(evicted)], "not the least recently used"
        assert not evicted or self.pool.n_available == len(self.kept) - len(evicted)
        self.kept = self.kept[len(evicted) :]
        for page in evicted:
            del self.findable[self.content[page]]
        return pages

    def _record(self, page: int, page_hash: bytes, prefix: Prefix) -> int:
        used = self.pool.record(page, page_hash)
        known = self.findable.setdefault(prefix, page)
        assert used == known
        assert self.content[used] == prefix
        if used in self.kept:
            self.kept.remove(used)
        return used

    @rule(data=st.data())
    @precondition(lambda self: self.sequences)
    def free_a_sequence(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.sequences) - 1))
        self._give_back(*self.sequences.pop(index))

    def _give_back(self, tokens: Prefix, pages: list[int]) -> None:
        self.pool.free(pages)
        for page in reversed(pages):
            self._release(page, self._references(page))

    @rule(data=st.data())
    @precondition(lambda self: self.sequences)
    def forget_a_sequence(self, data: st.DataObject) -> None:
        """Its pages may be used by nobody any more, or another one was found by their content."""
        tokens = data.draw(
            st.sampled_from([*(sequence for sequence, _ in self.sequences), *self.findable])
        )
        self.pool.forget(hashes_of(tokens))
        self.forgot = True
        for n in range(1, len(tokens) + 1):
            if (page := self.findable.pop(tokens[:n], None)) in self.kept:
                self.kept.remove(page)

    @invariant()
    def references_are_exact(self) -> None:
        self.pool.check()
        for page in range(self.pool.n_pages):
            assert self.pool.allocator.references(page) == self._references(page)

    @invariant()
    def exactly_what_was_recorded_and_not_evicted_is_findable(self) -> None:
        assert len(self.pool.prefix_cache) == len(self.findable)
        for prefix, page in self.findable.items():
            assert self.pool.prefix_cache.lookup(hashes_of(prefix)[-1]) == page
            assert self.content[page] == prefix

    @invariant()
    def children_go_before_their_parents(self) -> None:
        order = {self.content[page]: i for i, page in enumerate(self.kept)}
        for prefix, i in order.items():
            assert self.forgot or order.get(prefix[:-1], i + 1) > i


TestPagePool = PagePoolMachine.TestCase
TestPagePool.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


def filled(pool: PagePool, tokens: Prefix) -> list[int]:
    pages = pool.allocate(len(tokens))
    assert pages is not None
    return [pool.record(page, h) for page, h in zip(pages, hashes_of(tokens), strict=True)]


def test_a_prefix_is_evicted_from_its_end() -> None:
    pool = PagePool(4)
    pool.free(filled(pool, (1, 2, 3, 4)))
    for left in (3, 2, 1, 0):
        assert pool.allocate(1) is not None
        matched = pool.match(hashes_of((1, 2, 3, 4)))
        assert len(matched) == left
        pool.free(matched)


def test_a_prefix_used_again_outlives_one_that_was_not() -> None:
    pool = PagePool(4)
    pool.free(filled(pool, (1, 2)))
    pool.free(filled(pool, (3, 4)))
    pool.free(pool.match(hashes_of((1, 2))))
    assert pool.allocate(2) is not None
    assert pool.match(hashes_of((3, 4))) == []
    assert len(pool.match(hashes_of((1, 2)))) == 2


def test_a_page_computed_twice_is_stored_once() -> None:
    pool = PagePool(4)
    first, second = filled(pool, (1, 2)), filled(pool, (1, 2))
    assert first == second
    assert pool.n_used == 2


def test_allocating_more_than_there_is_changes_nothing() -> None:
    pool = PagePool(3)
    pool.free(filled(pool, (1, 2)))
    assert pool.allocate(4) is None
    assert len(pool.match(hashes_of((1, 2)))) == 2

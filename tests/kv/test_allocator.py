"""The allocator against a plain model: who is free, in use or kept, and who is evicted next."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kv.allocator import Allocator


class AllocatorMachine(RuleBasedStateMachine):
    @initialize(n_pages=st.integers(1, 6))
    def start(self, n_pages: int) -> None:
        self.evicted: list[int] = []
        self.allocator = Allocator(n_pages, on_evict=self.evicted.append)
        self.free = set(range(n_pages))
        self.references: dict[int, int] = {}
        self.kept: list[int] = []  # least recently used first

    @rule()
    @precondition(lambda self: self.free or self.kept)
    def allocate(self) -> None:
        self.evicted.clear()
        page = self.allocator.allocate()
        if self.free:
            assert page in self.free
            assert not self.evicted
            self.free.remove(page)
        else:
            assert page == self.kept.pop(0)
            assert self.evicted == [page]
        self.references[page] = 1

    @rule(data=st.data())
    @precondition(lambda self: self.references or self.kept)
    def retain(self, data: st.DataObject) -> None:
        page = data.draw(st.sampled_from(sorted([*self.references, *self.kept])))
        self.allocator.retain(page)
        if page in self.kept:
            self.kept.remove(page)
        self.references[page] = self.references.get(page, 0) + 1

    @rule(data=st.data(), keep=st.booleans())
    @precondition(lambda self: self.references)
    def release(self, data: st.DataObject, keep: bool) -> None:
        page = data.draw(st.sampled_from(sorted(self.references)))
        self.allocator.release(page, keep=keep)
        self.references[page] -= 1
        if self.references[page]:
            return
        del self.references[page]
        if keep:
            self.kept.append(page)
        else:
            self.free.add(page)

    @invariant()
    def counts_agree(self) -> None:
        self.allocator.check()
        assert self.allocator.n_available == len(self.free) + len(self.kept)
        assert self.allocator.n_used == len(self.references)
        for page in range(self.allocator.n_pages):
            assert self.allocator.references(page) == self.references.get(page, 0)


TestAllocator = AllocatorMachine.TestCase
TestAllocator.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_page_released_too_often_is_an_error() -> None:
    allocator = Allocator(1, on_evict=lambda page: None)
    page = allocator.allocate()
    allocator.release(page, keep=False)
    with pytest.raises(AssertionError, match="released too often"):
        allocator.release(page, keep=False)


def test_allocating_from_an_empty_pool_is_an_error() -> None:
    allocator = Allocator(1, on_evict=lambda page: None)
    allocator.allocate()
    with pytest.raises(AssertionError, match="without an available page"):
        allocator.allocate()

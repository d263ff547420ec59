"""The journal: what it publishes is what can be found, however often it is asked."""

import threading

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kv.content import DIGEST_BYTES, page_hashes
from kv.journal import Journal
from kv.pool import PagePool


def split(hashes: bytes) -> list[bytes]:
    return [hashes[at : at + DIGEST_BYTES] for at in range(0, len(hashes), DIGEST_BYTES)]


class JournalMachine(RuleBasedStateMachine):
    """Sequences run through a small pool, and somebody who replays what the journal publishes."""

    @initialize(n_pages=st.integers(2, 8))
    def start(self, n_pages: int) -> None:
        self.pool = PagePool(n_pages)
        self.published: set[bytes] = set()
        self.sequences: list[list[int]] = []
        self.hashes: list[list[bytes]] = []  # of all sequences that there were

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=5))
    def run_a_sequence(self, tokens: list[int]) -> None:
        hashes = page_hashes(tokens, 1)
        matched = self.pool.match(hashes)
        fresh = self.pool.allocate(len(hashes) - len(matched))
        if fresh is None:
            self.pool.free(matched)
            return
        pages = [*matched, *fresh]
        self.hashes.append(hashes)
        self.sequences.append([self.pool.record(*pair) for pair in zip(pages, hashes, strict=True)])

    @rule(data=st.data())
    @precondition(lambda self: self.sequences)
    def free_a_sequence(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.sequences) - 1))
        self.pool.free(self.sequences.pop(index))

    @rule(data=st.data())
    @precondition(lambda self: self.hashes)
    def forget_a_sequence(self, data: st.DataObject) -> None:
        self.pool.forget(data.draw(st.sampled_from(self.hashes)))

    @rule()
    def drain(self) -> None:
        stored, evicted = (split(part) for part in self.pool.journal.drain())
        assert len({*stored, *evicted}) == len(stored) + len(evicted), "a hash is published twice"
        assert self.published.isdisjoint(stored), "stored again what was not evicted"
        assert self.published.issuperset(evicted), "evicted what was never stored"
        assert len(stored) <= self.pool.n_pages
        self.published = (self.published | set(stored)) - set(evicted)
        assert all(
            self.pool.prefix_cache.lookup(page_hash) is not None for page_hash in self.published
        )
        assert len(self.published) == len(self.pool.prefix_cache)

    @invariant()
    def the_snapshot_is_the_replay_of_all_drains(self) -> None:
        snapshot = split(self.pool.journal.snapshot())
        assert len(snapshot) == len(self.published)
        assert set(snapshot) == self.published


TestJournal = JournalMachine.TestCase
TestJournal.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_page_that_came_and_went_between_two_drains_is_not_published() -> None:
    journal = Journal()
    journal.stored(b"a" * 16)
    journal.evicted(b"a" * 16)
    assert not journal.changed
    assert journal.drain() == (b"", b"")


def test_a_journal_that_nobody_drains_does_not_grow_past_the_pages() -> None:
    pool = PagePool(4)
    for salt in range(50):
        pages = pool.allocate(4)
        assert pages is not None
        hashes = page_hashes([salt] * 4, 1)
        pool.free([pool.record(*pair) for pair in zip(pages, hashes, strict=True)])
    stored, evicted = pool.journal.drain()
    assert split(stored) == hashes
    assert evicted == b""


def test_what_two_threads_record_and_drain_adds_up() -> None:
    journal = Journal()
    hashes = page_hashes(range(20_000), 1)

    def record() -> None:
        for page_hash in hashes:
            journal.stored(page_hash)
        for page_hash in hashes[::2]:
            journal.evicted(page_hash)

    thread = threading.Thread(target=record)
    thread.start()
    known: set[bytes] = set()
    while thread.is_alive() or journal.changed:
        stored, evicted = journal.drain()
        known = (known | set(split(stored))) - set(split(evicted))
    thread.join()
    assert known == set(hashes[1::2])

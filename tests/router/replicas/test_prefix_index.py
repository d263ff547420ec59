"""The prefix index: exact while there is room, bounded when there is none, and quick to forget."""

import random
from collections import UserList
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from deployments.router.replicas.prefix_index import (
    MAX_PREDICTED_PAGES,
    N_SHARDS,
    PREDICTION_TTL_S,
    PrefixIndex,
)
from kv.content import page_hashes

REPLICAS = st.sampled_from(["a", "b", "c"])
TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=6)


def chain(tokens: list[int]) -> list[bytes]:
    return page_hashes(tokens, 1)


class IndexMachine(RuleBasedStateMachine):
    """Against plain sets; replicas hold whole prefixes, as real ones do."""

    @initialize()
    def start(self) -> None:
        self.index = PrefixIndex(1000)
        self.stored: dict[str, set[bytes]] = {}
        self.asked: list[list[bytes]] = []

    @rule(replica=REPLICAS, tokens=TOKENS)
    def store(self, replica: str, tokens: list[int]) -> None:
        hashes = chain(tokens)
        self.index.store(replica, b"".join(hashes))
        self.stored.setdefault(replica, set()).update(hashes)
        self.asked.append(hashes)

    @rule(replica=REPLICAS, data=st.data())
    def evict_the_end_of_a_prefix(self, replica: str, data: st.DataObject) -> None:
        if self.asked:
            hashes = data.draw(st.sampled_from(self.asked))
            first = data.draw(st.integers(0, len(hashes)))
            below = [h for h in self.stored.get(replica, ()) if self._continues(hashes[first:], h)]
            self.index.evict(replica, b"".join(below))
            self.stored.get(replica, set()).difference_update(below)

    def _continues(self, cut: list[bytes], page_hash: bytes) -> bool:
        """Whether a page's prefix goes through what is cut off."""
        through = [prefix for prefix in self.asked if page_hash in prefix]
        return any(
            not set(prefix[: prefix.index(page_hash) + 1]).isdisjoint(cut) for prefix in through
        )

    @rule(replica=REPLICAS)
    def forget(self, replica: str) -> None:
        self.index.forget(replica)
        self.stored.pop(replica, None)

    @rule(replica=REPLICAS)
    def start_over(self, replica: str) -> None:
        self.index.restart(replica)
        self.stored.pop(replica, None)

    @rule(shards=st.sampled_from([1, 100, N_SHARDS + 1, 2 * N_SHARDS + 2]))
    def sweep(self, shards: int) -> None:
        for _ in range(shards):
            self.index.sweep()

    @invariant()
    def every_overlap_is_exact(self) -> None:
        for hashes in self.asked:
            expected = {name: leading(hashes, stored) for name, stored in self.stored.items()}
            assert self.index.overlap(hashes) == {name: n for name, n in expected.items() if n}


def leading(hashes: list[bytes], stored: set[bytes]) -> int:
    return next((n for n, page_hash in enumerate(hashes) if page_hash not in stored), len(hashes))


TestIndex = IndexMachine.TestCase
TestIndex.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def prompts(n: int, pages: int) -> list[list[bytes]]:
    rng = random.Random(n)
    return [[rng.randbytes(16) for _ in range(pages)] for _ in range(n)]


def test_without_room_it_stays_bounded_and_still_tells_long_prefixes_apart() -> None:
    index, made = PrefixIndex(max_pages=400), prompts(40, 100)
    for number, hashes in enumerate(made):
        index.store(str(number % 4), b"".join(hashes))
        assert len(index) <= 400
    for number, hashes in enumerate(made):
        overlap = index.overlap(hashes)
        assert set(overlap) == {str(number % 4)}
        assert 50 < overlap[str(number % 4)] <= 100
    index.evict("0", b"".join(made[0]))
    assert index.overlap(made[0]) == {}


def test_sweeping_frees_what_the_gone_have_left() -> None:
    index, (one, two) = PrefixIndex(1000), prompts(2, 200)
    index.store("a", b"".join(one))
    index.store("b", b"".join(two))
    index.forget("a")
    assert index.overlap(one) == {}
    for _ in range(N_SHARDS):
        index.sweep()
    assert len(index) == len(two)
    assert index.overlap(two) == {"b": len(two)}


def test_many_that_come_and_go_leave_no_trace() -> None:
    index, (prompt, kept) = PrefixIndex(1000), prompts(2, 20)
    index.store("stays", b"".join(kept))
    for number in range(200):
        index.store(str(number), b"".join(prompt))
        assert index.overlap(prompt) == {str(number): len(prompt)}
        index.forget(str(number))
        for _ in range(2 * N_SHARDS):
            index.sweep()
    assert index.overlap(kept) == {"stays": len(kept)}
    assert len(index) == len(kept)


def test_a_prediction_counts_at_once_and_is_forgotten_in_time() -> None:
    index, (prompt,) = PrefixIndex(1000), prompts(1, 20)
    index.predict("a", prompt, 0.0)
    index.expire(PREDICTION_TTL_S)
    assert index.overlap(prompt) == {"a": 20}
    index.expire(2 * PREDICTION_TTL_S)
    assert index.overlap(prompt) == {}


def test_a_prediction_is_not_believed_after_a_long_silence() -> None:
    index, (prompt,) = PrefixIndex(1000), prompts(1, 20)
    index.predict("a", prompt, 0.0)
    index.expire(100.0)
    assert index.overlap(prompt) == {}


def test_predictions_of_one_page_for_two_replicas_add_up() -> None:
    index, (prompt,) = PrefixIndex(1000), prompts(1, 20)
    index.predict("a", prompt[:10], 0.0)
    index.predict("b", prompt, 1.0)
    assert index.overlap(prompt) == {"a": 10, "b": 20}
    index.predict("a", prompt, PREDICTION_TTL_S)
    assert index.overlap(prompt) == {"a": 20, "b": 20}
    index.expire(2 * PREDICTION_TTL_S)
    assert index.overlap(prompt) == {"a": 20}


def test_what_was_predicted_and_then_reported_stays() -> None:
    index, (prompt,) = PrefixIndex(1000), prompts(1, 20)
    index.predict("a", prompt, 0.0)
    index.restart("a")  # by a first snapshot, which does not have these pages yet
    assert index.overlap(prompt) == {"a": 20}
    index.store("a", b"".join(prompt))
    index.expire(100.0)
    assert index.overlap(prompt) == {"a": 20}


def test_a_newcomer_inherits_no_predictions() -> None:
    index, (prompt, other) = PrefixIndex(1000), prompts(2, 20)
    index.store("stays", b"".join(other))
    index.predict("gone", prompt, 0.0)
    index.forget("gone")
    for _ in range(2 * N_SHARDS + 2):
        index.sweep()
    index.store("new", b"".join(other))
    assert index.overlap(prompt) == {}


def test_predictions_do_not_pile_up() -> None:
    index = PrefixIndex(1_000_000)
    first, *more = prompts(2 * MAX_PREDICTED_PAGES // 1000 + 2, 1000)
    index.predict("a", first, 0.0)
    for prompt in more:
        index.predict("a", prompt, 0.0)
        index.expire(0.0)
    assert index.overlap(first) == {}
    assert index.overlap(more[-1]) == {"a": 1000}


class Counted(UserList[bytes]):
    """A prompt that counts the hashes that are looked at."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        self.looks += 1
        return self.data[at]


@pytest.mark.parametrize("others", [0, 2000])
def test_an_overlap_takes_a_few_looks_whatever_the_index_holds(others: int) -> None:
    index = PrefixIndex(1_000_000)
    prompt = Counted(prompts(1, 512)[0])
    for number, hashes in enumerate(prompts(others, 20)):
        index.store(str(number % 64), b"".join(hashes))
    index.store("a", b"".join(prompt.data[:300]))
    index.store("b", b"".join(prompt.data[:17]))
    assert index.overlap(prompt) == {"a": 300, "b": 17}
    assert prompt.looks <= 3 * 9

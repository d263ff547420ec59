"""Sequences that no task has: what of them is dropped, and what others hear of what has come."""

import pytest

from kv.arrivals import PageKey
from kv.content import DIGEST_BYTES, page_hashes
from kv.layout import LayerShape, Layout
from tests.kv.caches import PLAIN, small_cache
from tests.kv.test_cache import run

TOKENS = [1, 2, 3, 4, 5, 6, 7, 8, 9]
HASHES = page_hashes(TOKENS, 2)
WINDOWED: Layout = (LayerShape(1, 1), LayerShape(1, 1, window=4))


@pytest.mark.parametrize("layout", [PLAIN, WINDOWED])
def test_what_is_dropped_is_found_no_more_but_for_what_a_task_has(layout: Layout) -> None:
    cache = small_cache(16, 2, layout)
    run(cache, "first", TOKENS)
    cache.free("first")
    assert cache.allocate("second", HASHES[:2], 5, 0)
    cache.sequences.discard(HASHES)
    assert cache.sequences.longest(HASHES) == 2
    cache.check()
    cache.free("second")
    cache.sequences.discard(HASHES)
    assert cache.sequences.longest(HASHES) == 0
    cache.check()
    stored, evicted = cache.journal.drain()
    assert not stored
    assert not evicted
    assert cache.pool.n_available == 16


@pytest.mark.parametrize("layout", [PLAIN, WINDOWED])
def test_others_hear_of_what_has_come(layout: Layout) -> None:
    cache = small_cache(16, 2, layout)
    keys = cache.sequences.lacking(HASHES)
    assert keys == cache.sequences.needed(HASHES)
    arrival = cache.begin_arrival(HASHES, keys)
    for key in keys:
        assert arrival.write(key, lambda page: None)
    cache.end_arrival(arrival)
    assert cache.sequences.announce(HASHES) == 4
    stored, _ = cache.journal.drain()
    assert {stored[at : at + DIGEST_BYTES] for at in range(0, len(stored), DIGEST_BYTES)} == {
        *HASHES
    }
    assert run(cache, "next", TOKENS) == 8
    cache.free("next")
    cache.check()


def test_what_is_used_is_taken_last_the_end_of_a_sequence_first() -> None:
    cache = small_cache(8, 2)
    run(cache, "first", TOKENS[:6])
    run(cache, "other", [*range(20, 26)])
    cache.free("first")
    cache.free("other")
    cache.sequences.touch(page_hashes(TOKENS[:6], 2))
    held = cache.pool.allocate(2 + 3 + 1)
    assert held is not None
    assert cache.pool.prefix_cache.lookup(*PageKey(HASHES[1])) is not None
    assert cache.pool.prefix_cache.lookup(*PageKey(HASHES[2])) is None

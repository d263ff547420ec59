"""A cache gives, shares and refuses pages, case by case."""

import numpy as np
import pytest

from kv.cache import KVCache
from kv.content import Content, page_hashes
from tests.kv.caches import small_cache


def run(cache: KVCache, task_id: str, tokens: list[int]) -> int:
    """Computes a sequence; returns how many of its tokens were cached."""
    hashes = page_hashes(tokens, cache.shape.page_size)
    assert cache.allocate(task_id, hashes, len(tokens), 0)
    first = cache.cached_tokens(task_id) // cache.shape.page_size
    assert cache.extend(task_id, len(tokens))
    cache.record(task_id, first, hashes[first:])
    return cache.cached_tokens(task_id)


def test_a_repeated_sequence_leaves_at_least_its_last_token_to_compute() -> None:
    cache = small_cache(8, 2)
    tokens = [1, 2, 3, 4, 5, 6]
    assert run(cache, "first", tokens) == 0
    assert run(cache, "second", tokens) == 4
    assert run(cache, "longer", [*tokens, 7]) == 6


def test_a_page_that_its_task_has_left_is_not_cleared_any_more() -> None:
    """Its next content may be there before the next batch."""
    cache = small_cache(2, 2)
    tokens = [1, 2, 3]
    hashes = page_hashes(tokens, 2)
    run(cache, "first", tokens)
    cache.free("first")
    assert cache.allocate("task", hashes, 3, 0)
    assert cache.extend("task", 3)
    cache.free("task")
    assert not len(cache.take_uncleared())


def test_another_salt_finds_nothing() -> None:
    cache = small_cache(8, 2)
    run(cache, "first", [1, 2, 3, 4, 5])
    assert cache.allocate("second", page_hashes([1, 2, 3, 4, 5], 2, Content("salt")), 5, 0)
    assert cache.cached_tokens("second") == 0


def test_a_task_is_not_admitted_when_spare_pages_would_be_taken() -> None:
    cache = small_cache(4, 2)
    assert not cache.allocate("task", [], 6, spare=2)
    assert cache.allocate("task", [], 6, spare=1)


def test_a_task_can_not_be_admitted_twice() -> None:
    cache = small_cache(4, 2)
    assert cache.allocate("task", [], 2, 0)
    with pytest.raises(AssertionError, match="in the table already"):
        cache.allocate("task", [], 2, 0)


def test_check_notices_a_page_that_no_task_holds() -> None:
    cache = small_cache(4, 2)
    run(cache, "task", [1, 2, 3, 4])
    cache.table.remove("task")
    with pytest.raises(AssertionError):
        cache.check()


def test_check_notices_a_page_that_is_shared_but_counted_once() -> None:
    cache = small_cache(8, 2)
    run(cache, "first", [1, 2, 3])
    run(cache, "second", [4, 5, 6])
    cache.table.replace("second", 0, cache.table.page("first", 0))
    with pytest.raises(AssertionError):
        cache.check()


def test_rows_of_the_table_are_padded_to_the_longest_with_pages_of_their_own() -> None:
    cache = small_cache(8, 2)
    run(cache, "other", [9, 9])  # holds the page that a careless padding would name
    run(cache, "long", [1, 2, 3, 4, 5])
    run(cache, "short", [6])
    table = cache.table.page_table(["short", "long"])[0]
    assert table.shape == (2, 3)
    assert set(table[0].tolist()) == {cache.table.page("short", 0)}
    assert table[1].tolist() == [cache.table.page("long", i) for i in range(3)]


def test_rows_of_tasks_without_pages_are_empty() -> None:
    cache = small_cache(8, 2)
    assert cache.allocate("task", [], 5, 0)
    assert cache.table.page_table(["task"]).shape == (1, 1, 0)
    assert cache.table.page_table([]).shape == (1, 0, 0)
    assert cache.table.page_table([]).dtype == np.int64

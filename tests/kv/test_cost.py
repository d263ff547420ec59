"""Every operation costs O(pages touched): the number of calls does not grow with the pool."""

import gc
import sys
from collections.abc import Callable

import pytest

from kv.cache import KVCache
from kv.content import Content, page_hashes
from kv.layout import alike
from kv.shape import CacheShape
from tests.effort import tries

TOKENS = list(range(64))
HASHES = page_hashes(TOKENS, 4)


def calls(operation: Callable[[], object]) -> int:
    """Calls of Python and C functions that an operation makes."""
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    gc.collect()
    gc.disable()  # what it would call in the middle is none of the operation's
    sys.setprofile(count)
    try:
        operation()
    finally:
        sys.setprofile(None)
        gc.enable()
    return counted


def cost_of_a_life(n_pages: int) -> dict[str, int]:
    """Calls of each operation, on a pool whose pages are all kept for reuse already."""
    shape = CacheShape(
        layout=alike(1, 1, 1),
        n_pages=n_pages,
        page_size=4,
        max_tasks=2,
        max_tokens=n_pages * 4,
    )
    cache = KVCache(shape)
    ballast = page_hashes(range(n_pages * 4), 4, Content("ballast"))
    assert cache.allocate("ballast", [], n_pages * 4, 0)
    assert cache.extend("ballast", n_pages * 4)
    cache.record("ballast", 0, ballast)
    cache.free("ballast")
    operations: dict[str, Callable[[], object]] = {
        "allocate": lambda: cache.allocate("task", HASHES, 64, 0),
        "extend": lambda: cache.extend("task", 64),
        "record": lambda: cache.record("task", 0, HASHES),
        "free": lambda: cache.free("task"),
        "match": lambda: cache.allocate("again", HASHES, 64, 0),
        "missing": lambda: cache.missing("again", 64),
        "free again": lambda: cache.free("again"),
    }
    return {name: calls(operation) for name, operation in operations.items()}


def test_no_operation_makes_more_calls_on_a_larger_pool() -> None:
    assert cost_of_a_life(200) == cost_of_a_life(tries(800, 50_000))


@pytest.mark.parametrize("n", [1, 8, 16])
def test_a_match_costs_a_constant_number_of_calls_a_page(n: int) -> None:
    shape = CacheShape(layout=alike(1, 1, 1), n_pages=64, page_size=4, max_tasks=2, max_tokens=256)
    cache = KVCache(shape)
    assert cache.extend("task", 64) if cache.allocate("task", [], 64, 0) else False
    cache.record("task", 0, HASHES)
    alone = calls(lambda: cache.pool.match(HASHES[:1]))
    assert calls(lambda: cache.pool.match(HASHES[:n])) <= n * alone

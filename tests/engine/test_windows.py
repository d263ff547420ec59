"""Pages out of the window are freed: long contexts take less memory, more run at once."""

from dataclasses import replace

import pytest

from kv.cache import KVCache
from kv.layout import LayerShape, Layout, alike
from kv.shape import CacheShape
from tests.engine.drive import engine, random_ids, request, roomy

CONTEXT, PAGE, CHUNK, WINDOW = 8192, 16, 512, 512  # tokens
# Gemma 3's shape: five layers with a window to one that attends to all.
GEMMA: Layout = ((LayerShape(1, 2, WINDOW),) * 5 + (LayerShape(1, 2),)) * 4
FULL = alike(len(GEMMA), 1, 2)


def cache_of(layout: Layout, n_tokens_in_memory: int) -> KVCache:
    """A cache with room for so many tokens if every layer kept all."""
    shape = CacheShape(
        layout=layout,
        n_pages=1,
        page_size=PAGE,
        max_tasks=64,
        max_tokens=CONTEXT,
        max_new_tokens=CHUNK,
    )
    numbers = n_tokens_in_memory * sum(layer.token_numbers for layer in layout)
    page = PAGE * max(group.numbers(layout) for group in shape.groups)
    return KVCache(replace(shape, n_pages=numbers // page))


def run(cache: KVCache, task_id: str) -> bool:
    """Computes a sequence of the whole context in chunks. False: there is no room for it."""
    if not cache.allocate(task_id, [], CONTEXT, spare=0):
        return False
    for end in range(CHUNK, CONTEXT + 1, CHUNK):
        assert cache.extend(task_id, end)
        cache.free_out_of_window(task_id, end)
    cache.check()
    return True


def numbers_stored(layout: Layout) -> int:
    cache = cache_of(layout, 2 * CONTEXT)
    assert run(cache, "one")
    page_numbers = PAGE * max(group.numbers(layout) for group in cache.groups)
    return cache.pool.n_used * page_numbers


def test_a_long_sequence_holds_three_tenths_of_the_pages_at_most() -> None:
    assert numbers_stored(GEMMA) <= 0.3 * numbers_stored(FULL)


@pytest.mark.parametrize(("layout", "n_running"), [(FULL, 4), (GEMMA, 16)])
def test_four_times_as_many_sequences_run_in_the_same_memory(
    layout: Layout, n_running: int
) -> None:
    cache = cache_of(layout, 4 * CONTEXT)
    n = 0
    while run(cache, f"{n}"):
        n += 1
    assert n >= n_running
    assert layout is GEMMA or n == n_running


def test_a_context_is_as_long_as_its_windows_allow() -> None:
    limits = roomy(n_pages=16, max_batch_tokens=16)  # 64 tokens, if all stayed
    with engine("mistral", limits=limits) as running:
        (outcome,) = running.run(request("long", random_ids(150)))
    assert outcome.error is None
    assert len(outcome.token_ids) == 16

"""Writing through a view and gathering back gives what a plain dense tensor would hold."""

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.cache import KVCache
from kv.layout import LayerShape, alike
from kv.shape import CacheShape
from kv.storage import Storage
from kv.view import KvcacheView, bind_padded

LAYERS, HEADS, DIM = 2, 2, 3


@dataclass(frozen=True)
class Ragged:
    """Rows that hold `cached` tokens and then compute `new` more."""

    page_size: int
    cached: list[int]
    new: list[int]


@st.composite
def ragged_batches(draw: st.DrawFn) -> Ragged:
    n = draw(st.integers(1, 5))
    return Ragged(
        draw(st.integers(1, 5)),
        draw(st.lists(st.integers(0, 12), min_size=n, max_size=n)),
        draw(st.lists(st.integers(1, 9), min_size=n, max_size=n)),
    )


def cache_for(batch: Ragged) -> KVCache:
    n_pages = sum(
        -(-(cached + new) // batch.page_size)
        for cached, new in zip(batch.cached, batch.new, strict=True)
    )
    return KVCache(
        CacheShape(
            layout=alike(LAYERS, HEADS, DIM),
            n_pages=n_pages,
            page_size=batch.page_size,
            max_tasks=len(batch.new),
            max_tokens=64,
        )
    )


def bind(cache: KVCache, ids: list[str], total: list[int], new: list[int]) -> KvcacheView:
    """Binds rows as a step does before it writes."""
    cache.storage.clear_tails(cache.take_uncleared())
    return cache.bind(cache.table.page_table(ids)[0], np.array(total), np.array(new))


def write(cache: KVCache, ids: list[str], total: list[int], new: list[int]) -> torch.Tensor:
    """Random keys for the new tokens of all layers, and their negatives as values."""
    view = bind(cache, ids, total, new)
    keys = torch.randn(LAYERS, sum(new), HEADS, DIM)
    for layer in range(LAYERS):
        view.write(layer, keys[layer], -keys[layer])
    return keys


@settings(deadline=None, max_examples=60)
@given(ragged_batches(), st.randoms(use_true_random=False))
def test_two_ragged_writes_gather_like_a_dense_tensor(batch: Ragged, random: object) -> None:
    cache = cache_for(batch)
    ids = [f"task{row}" for row in range(len(batch.new))]
    for task_id, cached, new in zip(ids, batch.cached, batch.new, strict=True):
        assert cache.allocate(task_id, [], cached + new, 0)
    dense = torch.zeros(LAYERS, len(ids), 64, HEADS, DIM)
    for before, lengths in (([0] * len(ids), batch.cached), (batch.cached, batch.new)):
        total = [start + n for start, n in zip(before, lengths, strict=True)]
        for task_id, n_tokens in zip(ids, total, strict=True):
            assert cache.extend(task_id, n_tokens)
        keys = torch.split(write(cache, ids, total, lengths), lengths, dim=1)
        for row, (start, end) in enumerate(zip(before, total, strict=True)):
            dense[:, row, start:end] = keys[row]
    total_len = torch.tensor(total)
    view = bind(cache, ids, total, batch.new)
    for layer in range(LAYERS):
        k, v = view.gather(layer)
        assert k.shape[:2] == (len(ids), view.page_table.shape[1] * batch.page_size)
        seen = torch.arange(k.shape[1]) < total_len[:, None]
        assert torch.equal(k[seen], dense[layer, :, : k.shape[1]][seen])
        assert torch.equal(v[seen], -k[seen])


@settings(deadline=None, max_examples=40)
@given(ragged_batches(), st.data())
def test_a_selection_of_rows_gathers_what_the_batch_gathers_for_them(
    batch: Ragged, data: st.DataObject
) -> None:
    cache = cache_for(batch)
    ids = [f"task{row}" for row in range(len(batch.new))]
    for task_id, new in zip(ids, batch.new, strict=True):
        assert cache.allocate(task_id, [], new, 0)
        assert cache.extend(task_id, new)
    write(cache, ids, batch.new, batch.new)
    view = bind(cache, ids, batch.new, batch.new)
    rows = data.draw(st.lists(st.integers(0, len(ids) - 1), min_size=1, unique=True))
    part = bind_padded(cache.storage, view.page_table[rows], view.total_len[rows])
    longest = max(batch.new[row] for row in rows)
    assert part.page_table.shape[1] == cache.shape.pages_for(longest)
    for layer in range(LAYERS):
        whole, some = view.gather(layer)[0], part.gather(layer)[0]
        for index, row in enumerate(rows):
            n = batch.new[row]
            assert torch.equal(some[index, :n], whole[row, :n])


@settings(deadline=None, max_examples=40)
@given(ragged_batches())
def test_behind_a_rows_end_stand_only_numbers_of_its_own(batch: Ragged) -> None:
    """Masked numbers are still multiplied by 0, so another task's NaN must never be gathered."""
    cache = cache_for(batch)
    for pages in (*cache.storage.k, *cache.storage.v):
        pages.fill_(torch.nan)  # as tasks long gone may have left them
    ids = [f"task{row}" for row in range(len(batch.new))]
    for task_id, new in zip(ids, batch.new, strict=True):
        assert cache.allocate(task_id, [], new, 0)
        assert cache.extend(task_id, new)
    write(cache, ids, batch.new, batch.new)
    view = bind(cache, ids, batch.new, batch.new)
    for layer in range(LAYERS):
        assert all(gathered.isfinite().all() for gathered in view.gather(layer))


def test_without_lengths_a_view_writes_the_newest_token_of_each_row() -> None:
    cache = cache_for(Ragged(4, [0, 0], [6, 3]))
    for task_id, n_tokens in (("a", 6), ("b", 3)):
        assert cache.allocate(task_id, [], n_tokens, 0)
        assert cache.extend(task_id, n_tokens)
    view = cache.bind(cache.table.page_table(["a", "b"])[0], np.array([6, 3]))
    keys = torch.randn(2, HEADS, DIM)
    view.write(1, keys, -keys)
    k, v = view.gather(1)
    assert torch.equal(torch.stack([k[0, 5], k[1, 2]]), keys)
    assert torch.equal(v, -k)
    written = sum(int(pages.count_nonzero()) for pages in cache.storage.k)
    assert written == keys.count_nonzero(), "it wrote something else"


def test_page_bytes_are_what_a_page_takes_in_memory() -> None:
    layout = (LayerShape(3, 4), LayerShape(2, 6), LayerShape(3, 4))
    storage = Storage(layout, 7, 4, dtype=torch.bfloat16)
    assert [pages.shape for pages in storage.v] == [(7, 4, *shape[:2]) for shape in layout]
    taken = sum(pages.nbytes for pages in (*storage.k, *storage.v))
    assert taken == 7 * Storage.page_bytes(layout, 4, torch.bfloat16)


def test_values_in_keys_are_stored_once() -> None:
    """Beside a layer that stores both; each gets back what it was given."""
    layout = (LayerShape(1, 6, value_dim=4), LayerShape(2, 3))
    shape = CacheShape(layout=layout, n_pages=8, page_size=4, max_tasks=2, max_tokens=16)
    assert shape.page_bytes(torch.float32) == 4 * (6 + 2 * 6) * 4
    cache = KVCache(shape)
    assert cache.allocate("a", [], 6, 0)
    assert cache.extend("a", 6)
    view = cache.bind(cache.table.page_table(["a"])[0], np.array([6]), np.array([6]))
    keys = torch.randn(6, 1, 6), torch.randn(6, 2, 3)
    view.write(0, keys[0], keys[0][..., :4])
    view.write(1, keys[1], -keys[1])
    (latents, values), (k, v) = view.gather(0), view.gather(1)
    assert values is latents
    assert torch.equal(latents[0, :6], keys[0])
    assert torch.equal(k[0, :6], keys[1])
    assert torch.equal(v[0, :6], -keys[1])
    cache.storage.clear_tail(0, int(view.page_table[0, 1]), 1)
    assert torch.equal(view.gather(0)[0][0, :6], torch.cat([keys[0][:5], torch.zeros(1, 1, 6)]))

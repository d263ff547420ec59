"""The one door to the paged KV cache: accounts for pages by task, and owns their memory.

It accounts and never computes: who may have pages is the scheduler's decision.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kv.arrays import IntArray
from kv.journal import Journal
from kv.layout import Layout
from kv.pool import PagePool
from kv.states import StateSlots
from kv.storage import Storage
from kv.table import TaskTable
from kv.view import KvcacheView, bind


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShape:
    """Sizes of a cache.

    layout: what each layer stores of a token.
    page_size: tokens of a page.
    max_tasks: sequences that have pages at once.
    max_tokens: of the longest sequence, prompt and output.
    has_states: some layers keep a state in the place of keys. Sequences share no pages then: what
        follows a page needs the state behind it, too.
    is_fp8: keys and values are stored in one byte each (e4m3), whatever the model computes with.
    """

    layout: Layout
    n_pages: int
    page_size: int
    max_tasks: int
    max_tokens: int
    is_fp8: bool = False
    has_states: bool = False

    def storage_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The type of stored keys and values, for a model that computes with `dtype`."""
        return torch.float8_e4m3fn if self.is_fp8 else dtype

    def storage(self, dtype: torch.dtype, device: torch.device | str) -> Storage:
        """New memory of this shape, for a model that computes with `dtype`."""
        stored = self.storage_dtype(dtype)
        return Storage(self.layout, self.n_pages, self.page_size, dtype=stored, device=device)

    def page_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of one page, for a model that computes with `dtype`."""
        return Storage.page_bytes(self.layout, self.page_size, self.storage_dtype(dtype))

    def pages_for(self, n_tokens: int) -> int:
        """Pages that hold `n_tokens` tokens."""
        return -(-n_tokens // self.page_size)


class KVCache:
    """One thread uses it, but for its journal. Tasks are named by strings."""

    def __init__(
        self,
        shape: CacheShape,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.shape = shape
        self.pool = PagePool(shape.n_pages)
        self.table = TaskTable(shape.max_tasks, shape.pages_for(shape.max_tokens))
        self.storage = shape.storage(dtype, device)
        self.states = StateSlots(shape.max_tasks) if shape.has_states else None
        self._uncleared: list[
            int
        ] = []  # pages handed out since the last batch, to be filled in part
        self._untrusted: list[
            tuple[int, int]
        ] = []  # pages, and how many of their first tokens stay

    @property
    def journal(self) -> Journal:
        """What can be found here, for another thread."""
        return self.pool.journal

    def bind(
        self, page_table: IntArray, total_len: IntArray, new_len: IntArray | None = None
    ) -> KvcacheView:
        """What attention layers write to and gather from, for rows with these pages.

        page_table [rows, pages]; total_len [rows], tokens after the write; new_len [rows], how many
        of these are written, by default the newest one of each row.
        """
        return bind(self.storage, page_table, total_len, new_len)

    @property
    def usage(self) -> float:
        """Share of pages that tasks hold, 0 to 1; pages kept only for reuse count as free."""
        return self.pool.n_used / self.pool.n_pages

    @property
    def shares_pages(self) -> bool:
        """Whether a sequence may have pages that were computed for another one."""
        return self.states is None

    def find(self, hashes: Sequence[bytes]) -> int:
        """How many of these pages are cached, up to the first that is not."""
        return len(self.pool.prefix_cache.match(hashes))

    def allocate(self, task_id: str, hashes: Sequence[bytes], n_tokens: int, spare: int) -> bool:
        """Admits a task whose full pages have these hashes, with the cached prefix as its pages.

        False, and no change, unless the rest of its `n_tokens` would fit and leave `spare` pages.
        At least one token is left to compute: a sequence needs its last token's logits.
        """
        usable = hashes[: (n_tokens - 1) // self.shape.page_size] if self.shares_pages else []
        pages = self.pool.match(usable)
        if self.shape.pages_for(n_tokens) - len(pages) + spare > self.pool.n_available:
            self.pool.free(pages)
            return False
        self.table.insert(task_id, pages, len(pages) * self.shape.page_size)
        if self.states is not None:
            self.states.insert(task_id)
        return True

    def cached_tokens(self, task_id: str) -> int:
        """Tokens of the task that were found in the cache, when it was admitted or since."""
        return self.table.cached_tokens(task_id)

    def adopt(self, task_id: str, hashes: Sequence[bytes]) -> int:
        """Appends the longest cached prefix of `hashes`, which follow the task's last full page.

        Returns the number of pages adopted.
        """
        pages = self.pool.match(hashes)
        self.table.append(task_id, pages, cached_tokens=len(pages) * self.shape.page_size)
        return len(pages)

    def missing(self, task_id: str, n_tokens: int) -> int:
        """Pages that the task still lacks to hold `n_tokens`."""
        return max(0, self.shape.pages_for(n_tokens) - self.table.n_pages(task_id))

    def missing_in_all(self, task_ids: Sequence[str], n_tokens: Sequence[int]) -> int:
        """Pages that some tasks still lack, all together, to hold `n_tokens` [tasks] each."""
        n_pages = -(-np.array(n_tokens, dtype=np.int64) // self.shape.page_size)
        return self.table.missing(task_ids, n_pages)

    def extend(self, task_id: str, n_tokens: int) -> bool:
        """Gives the task pages for `n_tokens` in all; False, and no change, when there are none.

        The next batch writes all of these tokens.
        """
        pages = self.pool.allocate(self.missing(task_id, n_tokens))
        if pages is None:
            return False
        self.table.append(task_id, pages)
        if n_tokens % self.shape.page_size:  # the others will be filled at once
            self._uncleared += pages[-1:]
        return True

    def retract(self, task_id: str, n_tokens: int) -> None:
        """Takes back what the task got for tokens beyond `n_tokens`, all of which it has computed.

        What a batch that failed may have written there is gone before the next one reads.
        """
        self.pool.free(self.table.shorten(task_id, self.shape.pages_for(n_tokens)))
        if n_kept := n_tokens % self.shape.page_size:
            last = self.table.page(task_id, n_tokens // self.shape.page_size)
            self._untrusted.append((last, n_kept))

    def record(self, task_id: str, first_page: int, hashes: Sequence[bytes]) -> None:
        """Makes the task's full pages from `first_page` on findable under `hashes`, where sequences
        share pages."""
        if not self.shares_pages:
            return
        for index, page_hash in enumerate(hashes, first_page):
            page = self.table.page(task_id, index)
            shared = self.pool.record(page, page_hash)
            if shared != page:
                self.table.replace(task_id, index, shared)

    def forget(self, task_id: str) -> None:
        """Makes the task's pages unfindable: what was computed for it can't be trusted."""
        self.pool.forget(self.table.pages(task_id))

    def free(self, task_id: str) -> None:
        """Gives back all pages of a task. Those that were recorded stay findable until evicted."""
        if self.states is not None:
            self.states.remove(task_id)
        self.pool.free(self.table.remove(task_id))

    def take_uncleared(self) -> IntArray:
        """What every storage has to clear before the next batch: [n, 2], each a page and how many
        of its first tokens stay."""
        tails = [(page, 0) for page in self._uncleared] + self._untrusted
        self._uncleared, self._untrusted = [], []
        return np.array(tails, dtype=np.int64).reshape(-1, 2)

    def check(self) -> None:
        """Asserts that references and tables agree and no page is lost."""
        self.pool.check()
        self.table.check()
        if self.states is not None:
            self.states.check()
            assert all(task_id in self.states for task_id in self.table.task_ids())
        held = Counter(self.table.references())
        assert len(held) == self.pool.n_used, "pages in use that no task holds, or the reverse"
        for page, count in held.items():
            assert self.pool.allocator.references(page) == count, f"page {page} is miscounted"

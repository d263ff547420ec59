"""The whole cache against a model in which every slot knows the prefix it was computed for."""

import math
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import product

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kv.arrivals import STATE, Arrival, PageKey
from kv.content import DIGEST_BYTES, Content, page_hashes
from kv.layout import LayerShape, Layout
from kv.states import NO_STATE
from tests.effort import tries
from tests.kv.caches import MAX_TASKS, MAX_TOKENS, PLAIN, small_cache
from tests.kv.kept import KeptPages, ModelledStates

token_lists = st.lists(st.integers(0, 1), min_size=1, max_size=MAX_TOKENS)


MAX_NEW = 6  # tokens of a step
THREE_GROUPS = (LayerShape(1, 1, 3), LayerShape(1, 1), LayerShape(1, 1, 5))
WINDOW = (LayerShape(1, 1, 4),)
TUMBLING = (LayerShape(1, 1, 6, is_tumbling=True), LayerShape(1, 1))
# What layers store, and how many states are kept as checkpoints; None: there are no states.
KINDS: list[tuple[Layout, int | None]] = [
    *((PLAIN, None), (THREE_GROUPS, None), (WINDOW, None), (TUMBLING, None)),
    *((PLAIN, 3), (THREE_GROUPS, 2), (PLAIN, 0)),
]


@dataclass
class Running:
    """A task of the model; a slot of a page holds the salt and tokens it depends on."""

    salt: str
    tokens: list[int]
    n_computed: int = 0
    hashes: list[bytes] = field(default_factory=list)

    def slot(self, position: int) -> tuple[str, tuple[int, ...]]:
        return self.salt, tuple(self.tokens[: position + 1])


class KVCacheMachine(RuleBasedStateMachine):
    @initialize(n=st.integers(2, 12), page_size=st.integers(1, 3), kind=st.sampled_from(KINDS))
    def start(self, n: int, page_size: int, kind: tuple[Layout, int | None]) -> None:
        self.cache = small_cache(n * len(kind[0]), page_size, *kind, max_new_tokens=MAX_NEW)
        self.page_size = page_size
        self.groups = [*enumerate(self.cache.groups)]
        self.slots: dict[tuple[int, int], object] = {}  # by page and offset in it
        self.states: dict[int, object] = {}  # by slot of a state
        self.tasks: dict[str, Running] = {}
        self.chains: list[list[bytes]] = []  # hashes of all sequences that there were
        self.published: set[bytes] = set()
        # What was forgotten, or has arrived, is seldom published when it can be hit again.
        self.has_forgotten = False
        self.n_started = 0
        self.kept: dict[PageKey, list[object]] = {}  # what the tier would bring
        self.arrivals: list[Arrival] = []
        self.memory = ModelledStates(self.states)
        if self.cache.states is not None:
            self.cache.states.memory = self.memory
        self.tier = KeptPages(self.cache, self.kept, self.memory)
        self.cache.tier = self.tier

    def _pick(self, data: st.DataObject) -> tuple[str, Running]:
        task_id = data.draw(st.sampled_from(sorted(self.tasks)))
        return task_id, self.tasks[task_id]

    @rule(tokens=token_lists, salt=st.sampled_from(["", "other"]), spare=st.integers(0, 3))
    @precondition(lambda self: len(self.tasks) < MAX_TASKS)
    def admit(self, tokens: list[int], salt: str, spare: int) -> None:
        self.n_started += 1
        task_id = str(self.n_started)
        task = Running(salt, tokens, hashes=page_hashes(tokens, self.page_size, Content(salt)))
        hit = self._longest_hit(task.hashes[: (len(tokens) - 1) // self.page_size])
        pool = self.cache.pool
        kept = sum(pool.allocator.references(page) == 0 for page in hit)
        before = pool.n_available
        admitted = self.cache.allocate(task_id, task.hashes, len(tokens), spare)
        if not admitted:
            assert pool.n_available == before
            assert task_id not in self.cache.table
        if len(self.groups) == 1 and self.cache.groups[0].window is None:
            needed = self.cache.shape.pages_for(len(tokens)) - len(hit) + kept + spare
            assert admitted == (needed <= before)
        if not admitted:
            assert spare or pool.n_used or self.cache.shape.longest(pool.n_pages) < len(tokens)
            return
        task.n_computed = self.cache.cached_tokens(task_id)
        self.tier.charge(task_id, salt, len(task.hashes))
        assert self.cache.table.pages(task_id) == hit
        assert task.n_computed == self.cache.table.n_pages(task_id) * self.page_size < len(tokens)
        self.tasks[task_id] = task
        self.chains.append(task.hashes)

    def _longest_hit(self, hashes: list[bytes]) -> list[int]:
        """The pages of the most leading tokens that all groups can serve."""
        if not self.cache.shares_pages:
            return []
        return self._pages_of_hit(hashes, self._n_hit(hashes))

    def _pages_of_hit(self, hashes: list[bytes], n: int) -> list[int]:
        """All that a sequence needs which is given `n` pages; none if something is missing."""
        known = [
            self.cache.pool.prefix_cache.lookup(hashes[index], number)
            for index in range(n)
            for number, group in self.groups
            if index >= group.first_needed(n * self.page_size) // self.page_size
        ]
        states = self.cache.states
        is_kept = not n or states is None or states.longest(hashes[:n]) == n
        return [page for page in known if page is not None] if is_kept and None not in known else []

    @rule(data=st.data(), n=st.integers(1, MAX_NEW))
    @precondition(lambda self: self.tasks)
    def compute(self, data: st.DataObject, n: int) -> None:
        task_id, task = self._pick(data)
        end = min(task.n_computed + n, len(task.tokens))
        if end == task.n_computed:
            return
        before, missing = self.cache.pool.n_available, self.cache.missing(task_id, end)
        if not self.cache.extend(task_id, end):
            assert missing > before
            assert self.cache.pool.n_available == before
            return
        assert self.cache.missing(task_id, end) == 0
        self._clear()
        for position in range(task.n_computed, end):
            for number, _ in self.groups:
                self._write(task_id, task, position, number)
        self._move_state(task_id, task, end)
        first, last = task.n_computed // self.page_size, end // self.page_size
        self.cache.record(task_id, first, task.hashes[first:last])
        for index, (number, _) in product(range(first, last), self.groups):
            positions = range(index * self.page_size, (index + 1) * self.page_size)
            content: list[object] = [(number, *task.slot(position)) for position in positions]
            self.kept[PageKey(task.hashes[index], number)] = content
        if self.cache.shares_pages and self.cache.states is not None and not end % self.page_size:
            self.kept[PageKey(task.hashes[last - 1], STATE)] = [task.slot(end - 1)]
        self.cache.free_out_of_window(task_id, end)
        task.n_computed = end

    def _clear(self) -> None:
        """Clears what the next batch has to clear."""
        for _, page, n_kept in self.cache.take_uncleared().tolist():
            for offset in range(n_kept, self.page_size):
                self.slots[page, offset] = None

    def _write(self, task_id: str, task: Running, position: int, group: int) -> None:
        index, offset = divmod(position, self.page_size)
        page = self.cache.table.page(task_id, index, group)
        assert self.cache.pool.allocator.references(page) == 1, "a write to a shared page"
        assert page not in self.cache.pool.prefix_cache, "a write to a page that can be found"
        self.slots[page, offset] = group, *task.slot(position)

    def _move_state(self, task_id: str, task: Running, end: int) -> None:
        if self.cache.states is None:
            return
        lengths = np.array([end]), np.array([end - task.n_computed])
        [[read, written]] = self.cache.states.take([task_id], *lengths).tolist()
        assert read != written
        assert (read == NO_STATE) == (task.n_computed == 0)
        assert task.n_computed == 0 or self.states[read] == task.slot(task.n_computed - 1)
        self.states[written] = task.slot(end - 1)

    @rule(data=st.data())
    @precondition(lambda self: self.tasks)
    def keep_a_checkpoint(self, data: st.DataObject) -> None:
        task_id, _ = self._pick(data)
        if self.cache.states is not None:
            self.cache.states.save(task_id)

    @rule(data=st.data(), n=st.integers(1, MAX_NEW))
    @precondition(lambda self: self.tasks)
    def fail(self, data: st.DataObject, n: int) -> None:
        """Fails a step; what it has written is of no use."""
        task_id, task = self._pick(data)
        end = min(task.n_computed + n, len(task.tokens))
        if end == task.n_computed or not self.cache.extend(task_id, end):
            return
        if self.cache.states is not None:
            lengths = np.array([end]), np.array([end - task.n_computed])
            self.states[self.cache.states.take([task_id], *lengths).tolist()[0][1]] = None
        self.cache.retract(task_id, task.n_computed)

    @rule(data=st.data(), token=st.integers(0, 1))
    @precondition(lambda self: self.tasks)
    def draw_a_token(self, data: st.DataObject, token: int) -> None:
        _, task = self._pick(data)
        if task.n_computed == len(task.tokens) < MAX_TOKENS:
            task.tokens.append(token)
            task.hashes = page_hashes(task.tokens, self.page_size, Content(task.salt))
            self.chains.append(task.hashes)

    @rule(data=st.data())
    @precondition(lambda self: self.tasks)
    def adopt(self, data: st.DataObject) -> None:
        task_id, task = self._pick(data)
        if task.n_computed % self.page_size or task.n_computed == len(task.tokens):
            return
        cached = self.cache.cached_tokens(task_id)
        first = task.n_computed // self.page_size
        following = task.hashes[first : (len(task.tokens) - 1) // self.page_size]
        n = self.cache.adopt(task_id, following) * self.page_size
        task.n_computed += n
        assert self.cache.cached_tokens(task_id) == cached + n

    @rule(data=st.data())
    @precondition(lambda self: self.tasks)
    def free(self, data: st.DataObject) -> None:
        task_id, _ = self._pick(data)
        del self.tasks[task_id]
        self.cache.free(task_id)
        assert task_id not in self.cache.table

    @rule(data=st.data())
    @precondition(lambda self: self.tasks)
    def forget(self, data: st.DataObject) -> None:
        task_id, task = self._pick(data)
        self.cache.forget(task_id, task.hashes)
        self.has_forgotten = True
        pages = self.cache.table.pages(task_id)
        assert not any(page in self.cache.pool.prefix_cache for page in pages)
        for number, _ in self.groups:
            assert not self.cache.pool.prefix_cache.match(self._recorded(task), number)
        if self.cache.states is not None:
            assert not self.cache.states.longest(self._recorded(task))

    @rule(data=st.data(), is_used=st.booleans())
    @precondition(lambda self: self.chains)
    def drop_or_use_what_tasks_have_left(self, data: st.DataObject, is_used: bool) -> None:
        chain = data.draw(st.sampled_from(self.chains))
        if is_used:
            if self.cache.states is None:
                assert self.cache.sequences.announce(chain) == self._n_hit(chain)
            return
        self.cache.sequences.discard(chain)
        self.has_forgotten = True
        pool = self.cache.pool
        for page_hash in chain:
            found = (pool.prefix_cache.lookup(page_hash, number) for number, _ in self.groups)
            pages = [page for page in found if page is not None]
            assert not pages or any(pool.allocator.references(page) for page in pages)

    @rule(data=st.data())
    @precondition(lambda self: self.chains)
    def begin_an_arrival(self, data: st.DataObject) -> None:
        """Pages that were cached once come back from a tier."""
        chain = data.draw(st.sampled_from(self.chains))
        n_cached, n, lacking = self.cache.lacking(chain, self.cache.tier)
        assert n >= n_cached == self._n_hit(chain)
        assert bool(lacking) == (n > n_cached)
        if not lacking:
            return
        room = self.cache.pool.n_available
        arrival = self.cache.begin_arrival(chain[:n], lacking)
        assert self.cache.pool.n_available == room
        self.arrivals.append(arrival)

    @rule(max_bytes=st.sampled_from([1, 40, 1 << 30]))
    def copy_what_tasks_have_left(self, max_bytes: int) -> None:
        has_more = self.tier.copy(max_bytes)
        assert max_bytes == 1 << 30 or has_more or not self.tier.is_dirty
        assert max_bytes < 1 << 30 or not self.tier.is_dirty

    @rule(n=st.integers(1, 6))
    def copy_what_is_taken_next(self, n: int) -> None:
        taken = self.cache.pool.coldest(n)
        self.tier.rescue(taken, math.inf)
        assert not any(self.tier.is_dirty_at(key) for key in taken)

    @rule(data=st.data())
    @precondition(lambda self: self.arrivals)
    def a_page_arrives(self, data: st.DataObject) -> None:
        arrival = data.draw(st.sampled_from(self.arrivals))
        for key in [*arrival.pages][:2]:
            content = self.kept[key]
            arrival.write(key, partial(self._fill, content=content))
        for key in arrival.keys[len(arrival.pages) :]:
            arrival.take_state(self.memory.encode(self.kept[key]))

    def _fill(self, page: int, content: list[object]) -> None:
        assert self.cache.pool.allocator.references(page) == 0, "it was taken"
        self.slots |= {(page, offset): token for offset, token in enumerate(content)}

    @rule(data=st.data())
    @precondition(lambda self: self.arrivals)
    def end_an_arrival(self, data: st.DataObject) -> None:
        arrival = self.arrivals.pop(data.draw(st.integers(0, len(self.arrivals) - 1)))
        arrived = arrival.end()
        self.cache.end_arrival(arrival)
        if self.cache.states is not None or len(self.groups) > 1 or self.groups[0][1].window:
            self.has_forgotten = True
        for key in arrived:
            assert self.cache.pool.prefix_cache.lookup(*key) is not None
            assert not arrival.write(key, lambda page: self._fill(page, []))

    def _recorded(self, task: Running) -> list[bytes]:
        return task.hashes[: task.n_computed // self.page_size]

    @invariant()
    def what_a_task_has_computed_stands_in_its_pages(self) -> None:
        for task_id, task in self.tasks.items():
            assert self.cache.table.n_pages(task_id) == self.cache.shape.pages_for(task.n_computed)
            for number, group in self.groups:
                for position in range(group.first_needed(task.n_computed), task.n_computed):
                    index, offset = divmod(position, self.page_size)
                    page = self.cache.table.page(task_id, index, number)
                    assert self.slots[page, offset] == (number, *task.slot(position))

    @invariant()
    def what_no_token_attends_to_is_freed(self) -> None:
        for task_id, task in self.tasks.items():
            n = self.cache.shape.pages_for(task.n_computed)
            needed = [
                group.first_needed(task.n_computed) // self.page_size for _, group in self.groups
            ]
            n_pages = len(self.cache.table.pages(task_id))
            assert n_pages == sum(n - first for first in needed if first < n or not n)

    @invariant()
    def what_can_be_hit_is_published(self) -> None:
        """And of all pages before it, so that its end is found by bisection."""
        self._hear()
        can_be_hit = [chain[: self._n_hit(chain)] for chain in self.chains]
        hits = {page_hash for hashes in can_be_hit for page_hash in hashes}
        assert hits <= self.published or self.has_forgotten
        if self.cache.states is None and any(group.window is not None for _, group in self.groups):
            recorded = {
                page_hash for task in self.tasks.values() for page_hash in self._recorded(task)
            }
            assert self.published <= hits | recorded

    def _hear(self) -> None:
        stored, evicted = (
            {hashes[at : at + DIGEST_BYTES] for at in range(0, len(hashes), DIGEST_BYTES)}
            for hashes in self.cache.journal.drain()
        )
        assert self.published.isdisjoint(stored)
        assert self.published >= evicted
        self.published = (self.published | stored) - evicted

    def _n_hit(self, hashes: list[bytes]) -> int:
        """How many of these pages a sequence could be given."""
        return next((n for n in range(len(hashes), 0, -1) if self._pages_of_hit(hashes, n)), 0)

    @invariant()
    def page_tables_are_the_same_copied_or_not(self) -> None:
        table, ids = self.cache.table, list(self.tasks)
        in_order = [ids[i] for i in table.in_order(ids)]
        rows, reverse = table.page_table(in_order), table.page_table(in_order[::-1])[:, ::-1]
        assert np.array_equal(rows, reverse)
        assert not rows.size or np.shares_memory(rows, table.page_table(in_order)), "a copy"
        for number, _ in self.groups:
            for task_id, row in zip(in_order, rows[number].tolist(), strict=True):
                own = {
                    table.page(task_id, index, number) for index in range(table.n_pages(task_id))
                }
                assert {*row} == own or not own, "a row is not filled up with its own pages"

    @invariant()
    def references_are_exact(self) -> None:
        self.cache.check()
        references = Counter(self.cache.table.references())
        for page in range(self.cache.shape.n_pages):
            assert self.cache.pool.allocator.references(page) == references[page]
        assert self.cache.usage == len(references) / self.cache.shape.n_pages

    def teardown(self) -> None:
        for arrival in getattr(self, "arrivals", ()):
            self.cache.end_arrival(arrival)
        for task_id in list(getattr(self, "tasks", ())):
            self.cache.free(task_id)
            self.cache.check()
        if hasattr(self, "cache"):
            assert self.cache.pool.n_used == 0


TestKVCache = KVCacheMachine.TestCase
TestKVCache.settings = settings(max_examples=tries(60, 240), stateful_step_count=40, deadline=None)

"""The need of pages that lie elsewhere, on a disk or at another replica: a task is parked while
they are brought, if that is faster than to compute them. Other tasks go on.

Whatever fails or takes too long is a miss: what has arrived is used, the rest is computed. What
tasks have computed is copied between steps, where it is to be written.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deployments.contract.events import CacheSource
from deployments.contract.routing import MIN_FETCHED_TOKENS
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.needs.need import Failure, Need, Unparked
from deployments.engine.stats import Durations
from deployments.engine.tasks.batch import Batch
from deployments.engine.tasks.task import Task
from kv.arrivals import PageKey
from kv.cache import KVCache
from kv.tiers.fetches import TierFetch
from kv.tiers.source import PageSource

MUST_SAVE = 0.8  # a read takes at most this part of the time to compute
GUESSED_COST = 0.25  # of bringing a token, until it was measured what it takes to compute one
# A read that takes longer than twice what was expected, and this much, is given up.
GRACE_S = 0.1
OPEN_S = 2.0  # after a start, the most that a task waits to know what lies on the disk
COPIED_BETWEEN_STEPS, COPIED_WHEN_IDLE = 1 << 20, 8 << 20  # bytes
RESCUE_S = 0.002  # in a step, for pages of preempted tasks that it may take
PROMPT_STEP = 64  # tokens of prompts in a step that says how fast they are computed
FLUSH_S = 10.0
RETRY_S = 1.0  # to write what may not be written yet, where nothing else happens


@dataclass(eq=False, slots=True)
class _Restore:
    """Tasks that wait for the same read, or to know what could be read: `fetch` is None then."""

    deadline: float
    fetch: TierFetch | None = None
    keys: frozenset[PageKey] = frozenset()
    tasks: dict[Task, None] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        return self.fetch is not None and self.fetch.is_done


class KvTierNeed(Need):
    """A task has one read of its source, each time that it is to run."""

    def __init__(
        self, cache: KVCache, source: PageSource, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cache, self._source, self._clock = cache, source, clock
        self._page_size = cache.shape.page_size
        n_bytes = sum(map(cache.storage.group_bytes, range(len(cache.groups))))
        self._token_bytes = n_bytes / self._page_size
        rows = cache.shape.max_tasks + cache.shape.pages_for(cache.shape.max_new_tokens)
        self._n_taken = rows * len(cache.groups)  # pages of a step, at most
        self._rescued_until: float | None = None  # None: nothing was preempted for this step
        self._wake: Callable[[], None] = lambda: None
        self._tried: set[Task] = set()
        self._restores: dict[_Restore, None] = {}
        self._next: tuple[Task, _Restore] | None = None  # that is to be parked
        self._without_room: tuple[Task, int] | None = None  # and how many pages there were
        # Tokens that were cached before and behind a read, of tasks that it was for.
        self._cached_before: dict[Task, int] = {}
        self._cached_behind: dict[Task, int] = {}
        self._opens_by = 0.0
        self._timer: threading.Timer | None = None
        self._wakes_at = 0.0
        self._tokens_per_s: float | None = None  # of prompts
        self._launched: tuple[float, int] | None = None  # a step: when, and with how many of them
        self._n_hit = self._n_declined = 0
        self._durations = Durations()

    def start(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._opens_by = self._clock() + OPEN_S
        self._source.start(wake)

    # Before a task runs

    def admits(self, task: Task) -> bool:
        if task in self._tried:
            return True
        restore = self._plan(task)
        if restore is None:
            return True
        self._next = task, restore
        return False

    def park(self, task: Task) -> None:
        assert self._next is not None
        planned, restore = self._next
        assert planned is task, "another task was to be parked"
        self._restores[restore] = None
        restore.tasks[task] = None
        self._wake_at(restore.deadline)

    @property
    def parked(self) -> Sequence[Task]:
        return [task for restore in self._restores for task in restore.tasks]

    @property
    def can_unpark(self) -> bool:
        return any(self._is_over(restore) for restore in self._restores)

    def unpark(self) -> Unparked:
        """Releases tasks whose pages are there, as far as they have come in time."""
        found = Unparked()
        for restore in [restore for restore in self._restores if self._is_over(restore)]:
            found.released += restore.tasks
            self._end(restore)
            for task in restore.tasks.keys() & self._cached_before.keys():
                n = self._cache.longest_hit(task.usable_pages(self._page_size))
                self._cached_behind[task] = n * self._page_size
        return found

    def join(self, task: Task, running: Iterable[Task]) -> None:
        self._tried.discard(task)
        owner = task.request.owner if task.request.is_kept else None
        self._source.charge(task.id, owner, task.n_tokens // self._page_size)
        before, behind = self._cached_before.pop(task, 0), self._cached_behind.pop(task, 0)
        n = max(0, min(behind, self._cache.cached_tokens(task.id)) - before)
        task.fetched[CacheSource(self._source.name)] = n
        self._n_hit += n

    # While it runs

    def advance(self, running: Iterable[Task]) -> Iterable[Failure]:
        """Copies a part of what tasks have computed. Measures how long the last step took."""
        self._rescued_until = None
        is_idle = next(iter(running), None) is None
        most = COPIED_WHEN_IDLE if is_idle else self._copied_between_steps()
        self._measure(is_idle)
        has_more = self._source.copy(most)
        if is_idle and has_more:
            self._wake()
        elif is_idle and self._source.is_dirty:
            self._wake_at(self._clock() + RETRY_S)
        for restore in self._restores:
            self._wake_at(restore.deadline)
        return ()

    def inputs(self, batch: Batch, step: StepInputs) -> StepInputs:
        self._launched = self._clock(), batch.n_prompt_tokens
        return step

    # Afterwards

    def leave(self, task: Task, *, is_preempted: bool) -> None:
        self._tried.discard(task)
        self._cached_before.pop(task, None)
        self._cached_behind.pop(task, None)
        if is_preempted:
            self._rescue()
        for restore in [restore for restore in self._restores if task in restore.tasks]:
            del restore.tasks[task]
            if not restore.tasks:
                self._end(restore)
        if self._source.is_dirty:
            self._wake()

    def _rescue(self) -> None:
        """Copies what the next step may take: a preempted task finds it again."""
        if self._rescued_until is None:
            self._rescued_until = self._clock() + RESCUE_S
        self._source.rescue(self._cache.pool.coldest(self._n_taken), self._rescued_until)

    def stats(self) -> Mapping[str, Any]:
        source = self._source
        counts = {
            **source.stats(),
            "hit_tokens": self._n_hit,
            "read_bytes": source.n_read,
            "corrupt": source.n_corrupt,
            "declined": self._n_declined,
            "restore_seconds": self._durations + Durations(),
            "cost": self._cost(),
        }
        return {f"kv_{source.name}_{name}": count for name, count in counts.items()}

    def flush(self) -> None:
        self._source.flush(FLUSH_S)

    def close(self) -> None:
        for restore in [*self._restores]:
            self._end(restore)
        if self._timer is not None:
            self._timer.cancel()
        self._source.close()

    def _cost(self) -> float:
        """The time to bring a token over the time to compute it."""
        speed = self._tokens_per_s
        return GUESSED_COST if speed is None else self._token_bytes * speed / self._source.rate

    def _plan(self, task: Task) -> _Restore | None:
        """Returns what a task is to wait for; None: nothing. It is asked again before it runs only
        where there is no room now."""
        holder = task.request.prefix_holder
        hashes = task.usable_pages(self._page_size)[: (task.n_tokens - 1) // self._page_size]
        if len(hashes) * self._page_size < MIN_FETCHED_TOKENS:
            return None
        if not self._source.is_open.is_set():
            return self._until_open()
        room = self._cache.pool.n_available
        if self._without_room is not None and self._without_room == (task, room):
            return None
        self._tried.add(task)
        held = self._source.holding(hashes, holder)
        if held is None:
            return self._under_way(task, hashes)
        n_cached, n, keys = self._cache.lacking(hashes, held)
        n_tokens = (n - n_cached) * self._page_size
        if n_tokens < MIN_FETCHED_TOKENS:
            return None
        if (other := self._reading(keys)) is not None:
            self._tried.discard(task)
            return other
        if len(keys) > room:
            self._tried.discard(task)
            self._without_room = task, room
            return None
        seconds = self._source.estimate_s(self._source.size_of(keys))
        if seconds is None or not self._pays(n_tokens, seconds):
            self._n_declined += 1
            return None
        self._cached_before[task] = n_cached * self._page_size
        fetch = self._source.fetch(self._cache.begin_arrival(hashes[:n], keys), holder)
        return _Restore(self._clock() + 2 * seconds + GRACE_S, fetch, frozenset(keys))

    def _until_open(self) -> _Restore | None:
        """Returns what all wait for after a start, not for long."""
        if self._clock() >= self._opens_by:
            return None
        waiting = (restore for restore in self._restores if restore.fetch is None)
        return next(waiting, _Restore(self._opens_by))

    def _under_way(self, task: Task, hashes: Sequence[bytes]) -> _Restore | None:
        """A read for another task that brings enough of these pages, too."""
        if not self._restores:
            return None
        index = self._cache.longest_hit(hashes) + MIN_FETCHED_TOKENS // self._page_size - 1
        other = self._reading(PageKey(page_hash) for page_hash in hashes[index : index + 1])
        if other is not None:
            self._tried.discard(task)
        return other

    def _reading(self, keys: Iterable[PageKey]) -> _Restore | None:
        """A read under way that brings some of these pages."""
        wanted = {*keys} if self._restores else set()
        found = (restore for restore in self._restores if not restore.keys.isdisjoint(wanted))
        return next(found, None)

    def _pays(self, n_tokens: int, seconds: float) -> bool:
        speed = self._tokens_per_s
        return speed is None or seconds < MUST_SAVE * n_tokens / speed

    def _is_over(self, restore: _Restore) -> bool:
        if restore.fetch is None and self._source.is_open.is_set():
            return True
        return restore.is_done or self._clock() >= restore.deadline

    def _end(self, restore: _Restore) -> None:
        del self._restores[restore]
        fetch = restore.fetch
        if fetch is None:
            return
        if not fetch.is_done and restore.tasks:
            self._source.give_up(fetch)
        self._cache.end_arrival(fetch.arrival)
        self._durations.add(self._clock() - fetch.began)

    def _copied_between_steps(self) -> int:
        """Bytes to copy: more than the last step made, so that what prompts leave is not taken
        before it is copied. It is a hundredth of the time that computing it took."""
        _, n = self._launched or (0.0, 0)
        return max(COPIED_BETWEEN_STEPS, int(2 * n * self._token_bytes))

    def _measure(self, is_idle: bool) -> None:
        launched, self._launched = self._launched, None
        if launched is None or is_idle or launched[1] < PROMPT_STEP:
            return
        began, n = launched
        speed = n / max(self._clock() - began, 1e-6)
        before = self._tokens_per_s
        self._tokens_per_s = speed if before is None else (3 * before + speed) / 4

    def _wake_at(self, when: float) -> None:
        """Has the scheduler look again then, or before."""
        now = self._clock()
        if self._timer is not None and now < self._wakes_at <= when:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = when
        self._timer = threading.Timer(max(0.0, when - now), self._wake)
        self._timer.daemon = True
        self._timer.start()

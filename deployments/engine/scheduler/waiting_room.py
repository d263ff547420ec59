"""The tasks that do not run, and which of them run next.

A task that has to wait for its adapters is parked beside the queue: what is behind it goes on.
Texts for vectors have a queue of their own, because one request may have thousands, and no more of
them run than a step can compute: each that runs holds a place and pages, and every step looks at
it. Where both kinds wait, they have the places in turn.
"""

from bisect import insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from deployments.engine.scheduler.adapter_gate import AdapterGate
from deployments.engine.scheduler.checkpoint_borders import CheckpointBorders
from deployments.engine.scheduler.fair_queue import BlockedHead, WaitingQueue
from deployments.engine.tasks.task import Task
from deployments.wire import TokenEvent
from kv.cache import KVCache


@dataclass(slots=True)
class Refilled:
    """The tasks that run now, and those whose adapters can't be served, with what to say of it."""

    admitted: list[Task] = field(default_factory=list)
    failed: list[tuple[Task, TokenEvent]] = field(default_factory=list)


class WaitingRoom:
    """Iterates over its tasks, in no order."""

    def __init__(
        self,
        cache: KVCache,
        borders: CheckpointBorders,
        gate: AdapterGate,
        *,
        max_running: int,
        max_batch_tokens: int,
    ) -> None:
        self._cache = cache
        self._borders = borders
        self._gate = gate
        self._max_running = max_running
        self._max_batch_tokens = max_batch_tokens
        self._queue, self._texts = WaitingQueue(), WaitingQueue()
        self._is_texts_turn = False
        self._blocked: BlockedHead | None = None

    def __iter__(self) -> Iterator[Task]:
        return iter((*self._queue, *self._texts, *self._gate))

    def __bool__(self) -> bool:
        return bool(self._queue or self._texts or self._gate)

    @property
    def has_next(self) -> bool:
        """Whether some task waits for nothing but its turn."""
        return bool(self._queue or self._texts) or self._gate.has_loaded

    def push(self, task: Task) -> None:
        self._queue_of(task).push(task)

    def put_back(self, task: Task) -> None:
        """One that was preempted."""
        self._gate.preempt(task)
        self._queue_of(task).put_back(task)

    def remove(self, tasks: Iterable[Task]) -> None:
        queued = [task for task in tasks if not self._gate.remove(task)]
        for queue in (self._queue, self._texts):
            queue.remove(task for task in queued if self._queue_of(task) is queue)

    def reset(self) -> None:
        """Forgets what clients were served. Nothing may be waiting or running."""
        self._queue.reset()
        self._texts.reset()

    def close(self) -> None:
        self._gate.stop()
        self._queue, self._texts = WaitingQueue(), WaitingQueue()

    def refill(self, running: list[Task]) -> Refilled:
        """Admits tasks to those that run, in order, while their known tokens fit beside those of
        others."""
        refilled = Refilled()
        if self._gate:
            released, refilled.failed = self._gate.take_loaded(running)
            for task in released:
                self._queue_of(task).put_back(task)
        if (self._queue or self._texts) and len(running) < self._max_running:
            self._admit_all(running, refilled.admitted)
        return refilled

    def _queue_of(self, task: Task) -> WaitingQueue:
        return self._queue if task.pooled is None else self._texts

    def _next(self, n_text_tokens: int) -> WaitingQueue | None:
        """The queue whose head is next, where `n_text_tokens` of texts may still run."""
        if not self._texts or n_text_tokens <= 0:
            return self._queue or None
        if not self._queue:
            return self._texts
        own, texts = self._queue.head.request.priority, self._texts.head.request.priority
        is_texts_turn = self._is_texts_turn if own == texts else texts < own
        return self._texts if is_texts_turn else self._queue

    def _admit_all(self, running: list[Task], admitted: list[Task]) -> None:
        spare = self._cache.missing_in_all(
            [task.id for task in running], [task.n_tokens + 1 for task in running]
        )
        n_text_tokens = self._max_batch_tokens - sum(
            task.n_uncomputed for task in running if task.pooled is not None
        )
        while len(running) < self._max_running and (queue := self._next(n_text_tokens)):
            task = queue.head
            if not self._gate.admits(task, running):
                self._gate.park(queue.pop())
                continue
            if not self._admit(task, spare):
                return
            task.n_computed = self._cache.cached_tokens(task.id)
            self._borders.find_branch(task, running)
            spare += self._cache.missing(task.id, task.n_tokens + 1)
            queue.pop()
            if queue is self._texts:
                n_text_tokens -= task.n_uncomputed
            self._is_texts_turn = queue is self._queue
            self._gate.admit(task)
            insort(running, task, key=lambda task: task.order)
            admitted.append(task)

    def _admit(self, task: Task, spare: int) -> bool:
        """Finds pages for a waiting task beside `spare` ones. Looks for none where it was blocked
        and nothing has changed."""
        room = self._cache.pool.n_available - spare
        if self._blocked is not None and self._blocked.is_still(task, room, self._cache):
            return False
        hashes = task.usable_pages(self._cache.shape.page_size)
        is_admitted = self._cache.allocate(task.id, hashes, task.n_tokens, spare)
        next_page = hashes[self._cache.find(hashes) :][:1]
        self._blocked = None if is_admitted else BlockedHead(task, room, next_page)
        return is_admitted

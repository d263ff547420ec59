"""The tasks that do not run, and which of them run next.

A task that has to wait for its adapters is parked beside the queue, and so are texts for vectors
while enough of them run: what is behind them goes on.
"""

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from deployments.engine.scheduler.adapter_gate import AdapterGate
from deployments.engine.scheduler.checkpoint_borders import CheckpointBorders
from deployments.engine.scheduler.fair_queue import BlockedHead, WaitingQueue
from deployments.engine.tasks.task import Task
from deployments.wire import TokenEvent
from kv.cache import KVCache

MAX_PARKED_AT_ONCE = 32  # so that many texts that come together hold up no step


class TextGate:
    """Lets no more texts run whose answers are vectors than a step can compute.

    One request may have thousands. Running, each would hold a place and pages, and every step would
    look at it. Iterates over those that are parked.
    """

    def __init__(self, max_tokens: int) -> None:
        """`max_tokens` are those of a step."""
        self._max_tokens = max_tokens
        self._parked: dict[Task, None] = {}  # in the order in which they came

    def __iter__(self) -> Iterator[Task]:
        return iter(self._parked)

    def __bool__(self) -> bool:
        return bool(self._parked)

    def admits(self, task: Task, running: Sequence[Task]) -> bool:
        """Whether the task may run. Else it is to be parked."""
        return task.pooled is None or self._room(running) > 0

    def park(self, task: Task) -> None:
        self._parked[task] = None

    def remove(self, task: Task) -> bool:
        """Whether it was parked."""
        was_parked = task in self._parked
        self._parked.pop(task, None)
        return was_parked

    def release(self, running: Sequence[Task]) -> list[Task]:
        """Those that may be tried again, which are parked no more."""
        room = self._room(running)
        released: list[Task] = []
        for task in self._parked:
            if room <= 0:
                break
            released.append(task)
            room -= task.n_tokens
        for task in released:
            del self._parked[task]
        return released

    def _room(self, running: Sequence[Task]) -> int:
        """Tokens of a step that no running text has."""
        held = sum(task.n_uncomputed for task in running if task.pooled is not None)
        return self._max_tokens - held


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
        self._texts = TextGate(max_batch_tokens)
        self._max_running = max_running
        self._queue = WaitingQueue()
        self._blocked: BlockedHead | None = None

    def __iter__(self) -> Iterator[Task]:
        return iter((*self._queue, *self._gate, *self._texts))

    def __bool__(self) -> bool:
        return bool(self._queue or self._gate or self._texts)

    @property
    def has_next(self) -> bool:
        """Whether some task waits for nothing but its turn."""
        return bool(self._queue or self._texts) or self._gate.has_loaded

    def push(self, task: Task) -> None:
        self._queue.push(task)

    def put_back(self, task: Task) -> None:
        """One that was preempted."""
        self._gate.preempt(task)
        self._queue.put_back(task)

    def remove(self, tasks: Iterable[Task]) -> None:
        parked = self._gate, self._texts
        self._queue.remove(one for one in tasks if not any(gate.remove(one) for gate in parked))

    def reset(self) -> None:
        """Forgets what clients were served. Nothing may be waiting or running."""
        self._queue.reset()

    def close(self) -> None:
        self._gate.stop()
        self._queue = WaitingQueue()

    def refill(self, running: list[Task]) -> Refilled:
        """Admits tasks to those that run, in order, while their known tokens fit beside those of
        others."""
        refilled = Refilled()
        if self._gate:
            released, refilled.failed = self._gate.take_loaded(running)
            self._put_back(released)
        if self._texts:
            self._put_back(self._texts.release(running))
        if self._queue and len(running) < self._max_running:
            self._admit_all(running, refilled.admitted)
        return refilled

    def _put_back(self, tasks: list[Task]) -> None:
        for task in tasks:
            self._queue.put_back(task)

    def _admit_all(self, running: list[Task], admitted: list[Task]) -> None:
        spare = self._cache.missing_in_all(
            [task.id for task in running], [task.n_tokens + 1 for task in running]
        )
        n_parked = 0
        while self._queue and len(running) < self._max_running and n_parked < MAX_PARKED_AT_ONCE:
            task = self._queue.head
            if not self._texts.admits(task, running):
                self._texts.park(self._queue.pop())
                n_parked += 1
                continue
            if not self._gate.admits(task, running):
                self._gate.park(self._queue.pop())
                continue
            if not self._admit(task, spare):
                return
            task.n_computed = self._cache.cached_tokens(task.id)
            self._borders.find_branch(task, running)
            spare += self._cache.missing(task.id, task.n_tokens + 1)
            self._queue.pop()
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

"""The tasks that do not run, and which of them run next.

Where all running slots are taken, a client with more than its share of them gives one to a client
with less: who asks for little waits for no long answer of another one.
A task that a need does not admit is parked beside the queue: what is behind it goes on.
Pooling tasks have a queue of their own, because a client may send thousands at once, and no more of
them run than a step can compute: each that runs has a slot and pages, and every step looks at
it. Where both kinds wait, they have the slots in turn.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from deployments.engine.needs.need import Failure, Need
from deployments.engine.scheduler.fair_queue import BlockedHead, WaitingQueue
from deployments.engine.scheduler.running_tasks import RunningTasks
from deployments.engine.tasks.task import Task
from kv.cache import KVCache


class WaitingRoom:
    """Iterates over its tasks, in no order."""

    def __init__(self, cache: KVCache, needs: Sequence[Need]) -> None:
        self._cache = cache
        self._needs = needs
        self._max_running = cache.shape.max_tasks
        self._max_batch_tokens = cache.shape.max_new_tokens
        self._queue, self._pooling_queue = WaitingQueue(), WaitingQueue()
        self._is_pooling_turn = False
        self._arrivals = itertools.count()
        self._blocked: BlockedHead | None = None
        self._owed_blocked: BlockedHead | None = None  # for which even a given slot was too few

    def __iter__(self) -> Iterator[Task]:
        parked = [task for need in self._needs for task in need.parked]
        return iter((*self._queue, *self._pooling_queue, *parked))

    def __bool__(self) -> bool:
        has_queue = bool(self._queue or self._pooling_queue)
        return has_queue or any(need.parked for need in self._needs)

    @property
    def has_next(self) -> bool:
        """Whether some task waits for nothing but its turn."""
        has_queue = bool(self._queue or self._pooling_queue)
        return has_queue or any(need.can_unpark for need in self._needs)

    def push(self, task: Task) -> None:
        self._queue_of(task).push(task, next(self._arrivals))

    def put_back(self, task: Task) -> None:
        """One that was preempted."""
        self._queue_of(task).put_back(task)

    def owed(self, running: RunningTasks) -> tuple[Task, Task] | None:
        """A waiting task, and the running one whose slot it should have: the newest of the client
        that has most slots. None: nobody with less than a share waits for one with more."""
        if len(running) < self._max_running or not (self._queue or self._pooling_queue):
            return None
        n_running = Counter(task.request.client for task in running)
        waiting = self._queue.clients() | self._pooling_queue.clients()
        share = max(1, self._max_running // len(n_running.keys() | waiting))
        client, n = n_running.most_common(1)[0]
        if n <= share or (task := self._first(running, lambda one: n_running[one] < share)) is None:
            return None
        newest = running.newest_of(client)
        blocked, room = self._owed_blocked, self._room_beside(self._spare(running))
        is_blocked = blocked is not None and blocked.is_still(task, room, self._cache)
        if is_blocked or task.request.priority > newest.request.priority:
            return None
        return task, newest

    def _first(self, running: RunningTasks, clients: Callable[[str], bool]) -> Task | None:
        found = self._queue.first(clients)
        if found is None and self._pooling_room(running) > 0:
            found = self._pooling_queue.first(clients)
        return found

    def admit_first(self, task: Task, running: RunningTasks) -> Sequence[Task]:
        """Admits a waiting task before all others, unless it has to wait for its adapters or there
        are too few pages. Returns those that were admitted."""
        admitted: list[Task] = []
        spare = self._spare(running)
        is_in = self._take_in(self._queue_of(task), task, running, admitted, spare)
        self._owed_blocked = None if is_in else self._blocked
        return admitted

    def remove(self, tasks: Iterable[Task]) -> None:
        """Takes tasks out of the queues. Their needs take out those that are parked."""
        parked = {task for need in self._needs for task in need.parked}
        queued = [task for task in tasks if task not in parked]
        for queue in (self._queue, self._pooling_queue):
            queue.remove(task for task in queued if self._queue_of(task) is queue)

    def reset(self) -> None:
        """Forgets what clients were served. Nothing may be waiting or running."""
        self._queue.reset()
        self._pooling_queue.reset()

    def close(self) -> None:
        self._queue, self._pooling_queue = WaitingQueue(), WaitingQueue()

    def unpark(self) -> Sequence[Failure]:
        """Has parked tasks wait for their turn again. Returns those that can't run."""
        failed: list[Failure] = []
        for need in [need for need in self._needs if need.parked]:
            found = need.unpark()
            failed += found.failed
            for task in found.released:
                self._queue_of(task).put_back(task)
        return failed

    def refill(self, running: RunningTasks) -> Sequence[Task]:
        """Admits tasks to those that run, in order, while their known tokens fit beside those of
        others. Returns them."""
        admitted: list[Task] = []
        if (self._queue or self._pooling_queue) and len(running) < self._max_running:
            self._admit_all(running, admitted)
        return admitted

    def _queue_of(self, task: Task) -> WaitingQueue:
        return self._pooling_queue if task.is_pooling else self._queue

    def _pooling_room(self, running: Iterable[Task]) -> int:
        """Tokens of pooling tasks that may run beside these."""
        pooling = (task for task in running if task.is_pooling)
        return self._max_batch_tokens - sum(task.n_uncomputed for task in pooling)

    def _next(self, n_pooling_tokens: int) -> WaitingQueue | None:
        """The queue whose head is next, where `n_pooling_tokens` of pooling tasks may still run."""
        if not self._pooling_queue or n_pooling_tokens <= 0:
            return self._queue or None
        if not self._queue:
            return self._pooling_queue
        own, pooling = self._queue.head.request.priority, self._pooling_queue.head.request.priority
        is_pooling_turn = self._is_pooling_turn if own == pooling else pooling < own
        return self._pooling_queue if is_pooling_turn else self._queue

    def _admit_all(self, running: RunningTasks, admitted: list[Task]) -> None:
        spare, n_pooling_tokens = self._spare(running), self._pooling_room(running)
        while len(running) < self._max_running and (queue := self._next(n_pooling_tokens)):
            task = queue.head
            if not self._take_in(queue, task, running, admitted, spare):
                return
            if admitted and admitted[-1] is task:
                spare += self._cache.missing(task.id, task.n_tokens + 1)
                n_pooling_tokens -= task.n_uncomputed * (queue is self._pooling_queue)

    def _spare(self, running: Iterable[Task]) -> int:
        """Pages that those that run need for their next tokens."""
        tasks = [*running]
        return self._cache.missing_in_all(
            [task.id for task in tasks], [task.n_tokens + 1 for task in tasks]
        )

    def _take_in(
        self,
        queue: WaitingQueue,
        task: Task,
        running: RunningTasks,
        admitted: list[Task],
        spare: int,
    ) -> bool:
        """Takes a task out of the queue: it runs, or is parked. False: it has no pages yet."""
        for need in self._needs:
            if not need.admits(task):
                queue.pop(task)
                need.park(task)
                return True
        if not self._admit(task, spare):
            return False
        queue.pop(task)
        self._is_pooling_turn = queue is self._queue
        for need in self._needs:
            need.join(task, running)
        running.admit(task)
        admitted.append(task)
        return True

    def _room_beside(self, spare: int) -> int:
        return self._cache.pool.n_available - spare

    def _admit(self, task: Task, spare: int) -> bool:
        """Finds pages for a waiting task beside `spare` ones. Looks for none where it was blocked
        and nothing has changed."""
        room = self._room_beside(spare)
        if self._blocked is not None and self._blocked.is_still(task, room, self._cache):
            return False
        hashes = task.usable_pages(self._cache.shape.page_size)
        is_admitted = self._cache.allocate(task.id, hashes, task.n_tokens, spare)
        next_page = hashes[self._cache.find(hashes) :][:1]
        self._blocked = None if is_admitted else BlockedHead(task, room, next_page)
        return is_admitted

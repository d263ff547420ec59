"""Orders waiting tasks: by priority, then fairly among clients, then as each client orders its own.

Start-time fair queueing (Goyal, Vin and Cheng 1996): a task's virtual start is the virtual finish
of its client's last task. It finishes as much later as it has tokens. The lowest start is next.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from deployments.engine.tasks.task import Order, Task
from kv.cache import KVCache

MAX_EXPECTED_OUTPUT = 256  # tokens; nobody knows beforehand how long an output gets
MAX_CLIENTS = 1024  # of one priority whose virtual finish is kept
MAX_IDLE_PRIORITIES = 64  # whose queues are kept while nothing waits in them


def cost(task: Task) -> int:
    """Tokens of a task, as far as they are known before it runs."""
    return task.n_tokens + min(max(task.n_limit - task.n_tokens, 0), MAX_EXPECTED_OUTPUT)


@dataclass(frozen=True, slots=True)
class BlockedHead:
    """The head of the queue, for which there were too few pages. `room` is how many there were."""

    task: Task
    room: int
    next_page: Sequence[bytes]  # the hash of its first page that was not cached, if any

    def is_still(self, task: Task, room: int, cache: KVCache) -> bool:
        """Whether `task` is this one and neither more room nor a newly cached page can help it."""
        return self.task is task and room <= self.room and not cache.find(self.next_page)


Heap = list[tuple[Order, Task]]
Own = list[tuple[int, int, Task]]  # a heap, by own priority and arrival
Entry = TypeVar("Entry", tuple[Order, Task], tuple[int, int, Task])


class FairQueue:
    """The waiting tasks of one priority.

    A new client starts at the virtual time. That follows the work that is given out, but slower
    than any client's share of it. So a new client goes before those that were served, and however
    many new clients come, the others are served again.
    """

    def __init__(self) -> None:
        self._virtual_time = 0.0
        self._by_client: dict[str, Own] = {}  # the first of each is in one of the next two
        self._new: Heap = []  # tasks that started when they came
        # Tasks that started where their client's last one finished, and preempted ones.
        self._due: Heap = []
        self._finishes: OrderedDict[str, float] = OrderedDict()  # by client, oldest first

    @property
    def head(self) -> Task | None:
        firsts = [heap[0] for heap in (self._new, self._due) if heap]
        return min(firsts)[1] if firsts else None

    @property
    def clients(self) -> Iterable[str]:
        """Clients with tasks that have not run yet."""
        return self._by_client

    def push(self, task: Task, arrival: int) -> None:
        """`arrival` is a number that grows from task to task."""
        task.arrival = arrival
        own = self._by_client.setdefault(task.request.client, [])
        first = own[0][-1] if own else None
        heapq.heappush(own, (task.request.own_priority, task.arrival, task))
        if first is None:
            self._start(task)
        elif self._is_first(task):
            task.virtual_start = first.virtual_start
            heapq.heappush(self._take(first), (task.order, task))

    def put_back(self, task: Task) -> None:
        """A preempted task keeps its virtual start, which is before all others'."""
        heapq.heappush(self._due, (task.order, task))

    def first(self, clients: Callable[[str], bool]) -> Task | None:
        """The next one of such clients."""
        entries = (entry for heap in (self._new, self._due) for entry in heap)
        found = [entry for entry in entries if clients(entry[1].request.client)]
        return min(found)[1] if found else None

    def pop(self, task: Task) -> None:
        """Takes `head` out, or what is `first` of some clients."""
        head = self.head
        assert head is not None
        self._take(task)
        if self._is_first(task):
            n_clients = len(self._by_client) + 1
            self._virtual_time = max(self._virtual_time, head.virtual_start)
            self._finish(task)
            following = self._due[0][-1].virtual_start if self._due else inf
            self._virtual_time = max(
                self._virtual_time, min(self._virtual_time + cost(task) / n_clients, following)
            )

    def remove(self, tasks: Set[Task]) -> None:
        """Tasks that were not served cost their clients nothing. Takes as long for many as for one:
        a client may leave thousands at once."""
        for heap in (self._new, self._due):
            _keep(heap, [entry for entry in heap if entry[-1] not in tasks])
        for client in {task.request.client for task in tasks} & self._by_client.keys():
            own = self._by_client[client]
            first = own[0][-1]
            _keep(own, [entry for entry in own if entry[-1] not in tasks])
            if not own:
                del self._by_client[client]
            elif own[0][-1] is not first:
                self._start(own[0][-1])

    def _is_first(self, task: Task) -> bool:
        own = self._by_client.get(task.request.client)
        return own is not None and own[0][-1] is task

    def _take(self, task: Task) -> Heap:
        """Removes it from the heap that has it, which is returned."""
        entry = (task.order, task)
        for heap in (self._new, self._due):
            if heap and heap[0] == entry:
                heapq.heappop(heap)
                return heap
        heap = self._due if entry in self._due else self._new
        heap.remove(entry)
        heapq.heapify(heap)
        return heap

    def _shift(self, task: Task) -> Task | None:
        """Removes its client's first task; returns the one that is first now."""
        client = task.request.client
        own = self._by_client[client]
        heapq.heappop(own)
        if not own:
            del self._by_client[client]
            return None
        return own[0][-1]

    def _start(self, task: Task) -> None:
        task.virtual_start = max(self._virtual_time, self._finishes.get(task.request.client, 0.0))
        heap = self._due if task.virtual_start > self._virtual_time else self._new
        heapq.heappush(heap, (task.order, task))

    def _finish(self, task: Task) -> None:
        client, finish = task.request.client, task.virtual_start + cost(task)
        self._finishes[client] = finish
        self._finishes.move_to_end(client)
        if len(self._finishes) > MAX_CLIENTS:
            self._finishes.popitem(last=False)
        if follower := self._shift(task):
            follower.virtual_start = finish
            heapq.heappush(self._due, (follower.order, follower))


def _keep(heap: list[Entry], kept: list[Entry]) -> None:
    if len(kept) < len(heap):
        heap[:] = kept
        heapq.heapify(heap)


class WaitingQueue:
    """All waiting tasks. Iterates over them in no order; `head` is the next to run."""

    def __init__(self) -> None:
        self._tasks: dict[Task, None] = {}
        self._queues: dict[int, FairQueue] = {}  # by priority, those with tasks
        self._idle: OrderedDict[int, FairQueue] = OrderedDict()  # by priority, oldest first

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    @property
    def head(self) -> Task:
        task = self._queues[min(self._queues)].head
        assert task is not None, "a priority of which nothing waits"
        return task

    def push(self, task: Task, arrival: int) -> None:
        self._queue_of(task).push(task, arrival)

    def put_back(self, task: Task) -> None:
        """Puts a popped task back, in front of all that it was in front of."""
        self._queue_of(task).put_back(task)

    def clients(self) -> set[str]:
        return {client for queue in self._queues.values() for client in queue.clients}

    def first(self, clients: Callable[[str], bool]) -> Task | None:
        """The next one of such clients."""
        found = (self._queues[priority].first(clients) for priority in sorted(self._queues))
        return next((task for task in found if task is not None), None)

    def pop(self, task: Task) -> None:
        """Takes `head` out, or what is `first` of some clients."""
        self._queues[task.request.priority].pop(task)
        del self._tasks[task]
        self._retire(task.request.priority)

    def remove(self, tasks: Iterable[Task]) -> None:
        by_priority: dict[int, set[Task]] = {}
        for task in tasks:
            by_priority.setdefault(task.request.priority, set()).add(task)
        for priority, leaving in by_priority.items():
            self._queues[priority].remove(leaving)
            for task in leaving:
                del self._tasks[task]
            self._retire(priority)

    def reset(self) -> None:
        """Forgets what clients were served. Nothing may be waiting or running."""
        assert not self._tasks
        self._idle.clear()

    def _queue_of(self, task: Task) -> FairQueue:
        self._tasks[task] = None
        priority = task.request.priority
        if priority not in self._queues:
            is_idle = priority in self._idle
            self._queues[priority] = self._idle.pop(priority) if is_idle else FairQueue()
        return self._queues[priority]

    def _retire(self, priority: int) -> None:
        """Keeps a queue without tasks apart."""
        if self._queues[priority].head is None:
            self._idle[priority] = self._queues.pop(priority)
            if len(self._idle) > MAX_IDLE_PRIORITIES:
                self._idle.popitem(last=False)

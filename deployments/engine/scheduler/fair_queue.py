"""Orders waiting tasks: by priority; among equals clients take turns; a client's own as they came.

Start-time fair queueing (Goyal, Vin and Cheng 1996): a client's turn begins where its last one
ended and is as long as its task has tokens. The turn that begins first is the next one.
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from deployments.engine.tasks.task import Order, Task
from kv.cache import KVCache

EXPECTED_OUTPUT = 256  # tokens; a task is taken to draw no more
MAX_REMEMBERED = 1024  # clients of one priority
MAX_RESTING = 64  # priorities that are remembered while nothing of them waits


def cost(task: Task) -> int:
    """Tokens that it takes to serve a task, as far as one can say beforehand."""
    return task.n_tokens + min(max(task.n_limit - task.n_tokens, 0), EXPECTED_OUTPUT)


@dataclass(frozen=True, slots=True)
class Blocked:
    """The head of the queue, when it did not fit: more room or one more cached page may help."""

    task: Task
    room: int
    next_page: Sequence[bytes]  # hash of its first page that was not cached, if any

    def still(self, task: Task, room: int, cache: KVCache) -> bool:
        """Whether another look at `task` must be vain."""
        return self.task is task and room <= self.room and not cache.find(self.next_page)


Heap = list[tuple[Order, Task]]


class Turns:
    """The waiting tasks of one priority.

    A newcomer's turn begins `now`. That follows the work that is given out, but slower than any
    client's share of it: so a newcomer goes before those who have had their turn, and however many
    newcomers there are, these have their next one.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._lanes: dict[str, deque[Task]] = {}  # by client; the first of each has its turn
        self._newcomers: Heap = []  # whose turns began when they came
        self._due: Heap = []  # the other turns, and preempted tasks
        self._ends: OrderedDict[str, float] = OrderedDict()  # of turns, by client, oldest first

    @property
    def head(self) -> Task | None:
        firsts = [heap[0] for heap in (self._newcomers, self._due) if heap]
        return min(firsts)[1] if firsts else None

    def push(self, task: Task) -> None:
        lane = self._lanes.setdefault(task.request.client, deque())
        lane.append(task)
        if lane[0] is task:
            self._begin_turn(task)

    def put_back(self, task: Task) -> None:
        """A preempted task has its turn, which began before all others'."""
        heapq.heappush(self._due, (task.order, task))

    def pop(self) -> None:
        task = self.head
        assert task is not None
        self._take(task)
        if self._leads(task):
            n_clients = len(self._lanes) + 1
            self._now = max(self._now, task.turn)
            self._end_turn(task)
            following = self._due[0][0][1] if self._due else inf
            self._now = max(self._now, min(self._now + cost(task) / n_clients, following))

    def remove(self, task: Task) -> None:
        """A task that was not served costs its client nothing."""
        if self._leads(task):
            self._take(task)
            if follower := self._shift(task):
                self._begin_turn(follower)
        elif (task.order, task) in self._due:
            self._take(task)
        else:
            self._lanes[task.request.client].remove(task)

    def _leads(self, task: Task) -> bool:
        lane = self._lanes.get(task.request.client)
        return lane is not None and lane[0] is task

    def _take(self, task: Task) -> None:
        entry = (task.order, task)
        for heap in (self._newcomers, self._due):
            if heap and heap[0] == entry:
                heapq.heappop(heap)
                return
        heap = self._due if entry in self._due else self._newcomers
        heap.remove(entry)
        heapq.heapify(heap)

    def _shift(self, task: Task) -> Task | None:
        """The one that is first in its lane instead of a task."""
        client = task.request.client
        lane = self._lanes[client]
        lane.popleft()
        if not lane:
            del self._lanes[client]
            return None
        return lane[0]

    def _begin_turn(self, task: Task) -> None:
        task.turn = max(self._now, self._ends.get(task.request.client, 0.0))
        heap = self._due if task.turn > self._now else self._newcomers
        heapq.heappush(heap, (task.order, task))

    def _end_turn(self, task: Task) -> None:
        client, end = task.request.client, task.turn + cost(task)
        self._ends[client] = end
        self._ends.move_to_end(client)
        if len(self._ends) > MAX_REMEMBERED:
            self._ends.popitem(last=False)
        if follower := self._shift(task):
            follower.turn = end
            heapq.heappush(self._due, (follower.order, follower))


class WaitingQueue:
    """Iterates over its tasks in no order; `head` is the next to run."""

    def __init__(self) -> None:
        self._tasks: dict[Task, None] = {}
        self._waiting: dict[int, Turns] = {}  # by priority
        self._resting: OrderedDict[int, Turns] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    @property
    def head(self) -> Task:
        task = self._waiting[min(self._waiting)].head
        assert task is not None, "a priority of which nothing waits"
        return task

    def push(self, task: Task) -> None:
        self._turns(task).push(task)

    def put_back(self, task: Task) -> None:
        """A task that was popped; goes before all that it went before."""
        self._turns(task).put_back(task)

    def pop(self) -> Task:
        task = self.head
        self._waiting[task.request.priority].pop()
        self._let_go(task)
        return task

    def remove(self, task: Task) -> None:
        self._waiting[task.request.priority].remove(task)
        self._let_go(task)

    def forget(self) -> None:
        """Nobody has anything waiting or running: all begin anew."""
        assert not self._tasks
        self._resting.clear()

    def _turns(self, task: Task) -> Turns:
        self._tasks[task] = None
        priority = task.request.priority
        if priority not in self._waiting:
            rested = priority in self._resting
            self._waiting[priority] = self._resting.pop(priority) if rested else Turns()
        return self._waiting[priority]

    def _let_go(self, task: Task) -> None:
        del self._tasks[task]
        priority = task.request.priority
        if self._waiting[priority].head is None:
            self._resting[priority] = self._waiting.pop(priority)
            if len(self._resting) > MAX_RESTING:
                self._resting.popitem(last=False)

"""Pooling tasks, of which a client may have thousands, and everybody else."""

from collections import Counter
from dataclasses import replace
from itertools import count
from queue import SimpleQueue

from deployments.contract.outputs import Pooling
from deployments.engine.scheduler.running_tasks import RunningTasks
from deployments.engine.scheduler.waiting_room import WaitingRoom
from deployments.engine.tasks.mailbox import ThreadMailbox
from deployments.engine.tasks.pooled import Pooled
from deployments.engine.tasks.task import Task, make_task
from kv.cache import KVCache
from kv.layout import alike
from kv.shape import CacheShape
from tests.engine.drive import request

STEP, PROMPT = 64, 30  # tokens


class Room:
    """A room of eight slots. Whatever runs has ended when it is asked again who runs."""

    def __init__(self) -> None:
        shape = CacheShape(
            layout=alike(1, 1, 8),
            n_pages=100,
            page_size=4,
            max_tasks=8,
            max_tokens=200,
            max_new_tokens=STEP,
        )
        self._cache = KVCache(shape)
        self._waiting = WaitingRoom(self._cache, ())
        self._numbers = count()
        self.running = RunningTasks(self._cache)

    def come(self, client: str, *, is_pooling: bool = True, priority: int = 0) -> Task:
        n = next(self._numbers)
        asked = replace(request(f"{n}", (1,) * PROMPT, priority=priority), client=client)
        pooled = Pooled(Pooling.MEAN) if is_pooling else None
        task = make_task(f"{n}", asked, ThreadMailbox(0, SimpleQueue()), frozenset(), 200, pooled)
        self._waiting.push(task)
        return task

    def give_slots(self) -> list[Task]:
        """Gives slots to others until nobody is owed one."""
        given = []
        while owed := self._waiting.owed(self.running):
            task, newest = owed
            given.append(newest)
            self.running.preempt(newest)
            self._waiting.put_back(newest)
            assert self._waiting.admit_first(task, self.running) == [task]
        return given

    def next_running(self) -> list[Task]:
        for task in self.running:
            self.running.end(task)
        self._waiting.refill(self.running)
        return [*self.running]


def test_no_more_pooling_tasks_run_than_fill_a_step() -> None:
    room = Room()
    for _ in range(8):
        room.come("a")
    assert len(room.next_running()) == 3  # of which the last fits in part


def test_a_pooling_task_waits_for_no_more_than_one_of_each_other_client() -> None:
    room = Room()
    for _ in range(300):
        room.come("a")
    room.next_running()
    newcomer, urgent = room.come("b"), room.come("a", priority=-1)
    assert room.next_running()[:2] == [urgent, newcomer]


def test_pooling_tasks_and_all_else_have_the_slots_in_turn() -> None:
    room = Room()
    for _ in range(100):
        room.come("a")
        room.come("a", is_pooling=False)
    running = room.next_running()
    assert [task.pooled is None for task in running] == [True] * 5 + [False] * 3
    assert running == sorted(running, key=lambda task: task.order)


def test_a_client_gives_its_newest_slots_down_to_its_share_and_no_further() -> None:
    room = Room()
    for _ in range(20):
        room.come("a", is_pooling=False)
    first = [*room.next_running()]
    assert not room.give_slots()
    newcomers = [room.come("b", is_pooling=False) for _ in range(20)]
    assert room.give_slots() == first[:3:-1]
    assert [*room.running] == [*first[:4], *newcomers[:4]]
    room.come("c", is_pooling=False)
    room.come("c", is_pooling=False)
    given = room.give_slots()
    assert Counter(task.request.client for task in given) == {"a": 1, "b": 1}
    assert Counter(task.request.client for task in room.running) == {"a": 3, "b": 3, "c": 2}


def test_no_slot_is_given_to_what_is_less_urgent() -> None:
    room = Room()
    for _ in range(9):
        room.come("a", is_pooling=False)
    room.next_running()
    room.come("b", is_pooling=False, priority=1)
    assert not room.give_slots()

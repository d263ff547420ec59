"""Texts for vectors, of which one request may have thousands, and everybody else."""

from collections import Counter
from dataclasses import replace
from itertools import count
from queue import SimpleQueue

from deployments.engine.scheduler.adapter_gate import AdapterGate
from deployments.engine.scheduler.checkpoint_borders import CheckpointBorders
from deployments.engine.scheduler.waiting_room import WaitingRoom
from deployments.engine.tasks.mailbox import ThreadMailbox
from deployments.engine.tasks.pooled import Pooled
from deployments.engine.tasks.task import Task, make_task
from deployments.outputs import Pooling
from kv.cache import CacheShape, KVCache
from kv.layout import alike
from tests.engine.drive import request

STEP, TEXT = 64, 30  # tokens


class Place:
    """A room of eight places. Whatever runs has ended when it is asked again who runs."""

    def __init__(self) -> None:
        shape = CacheShape(
            layout=alike(1, 1, 8), n_pages=100, page_size=4, max_tasks=8, max_tokens=200
        )
        self._cache = KVCache(shape)
        self._room = WaitingRoom(
            self._cache,
            CheckpointBorders(self._cache, 1024),
            AdapterGate(None, None, lambda: None),
            max_running=8,
            max_batch_tokens=STEP,
        )
        self._numbers = count()
        self.running: list[Task] = []

    def come(self, client: str, *, is_text: bool = True, priority: int = 0) -> Task:
        n = next(self._numbers)
        asked = replace(request(f"{n}", (1,) * TEXT, priority=priority), client=client)
        pooled = Pooled(Pooling.MEAN) if is_text else None
        task = make_task(f"{n}", asked, ThreadMailbox(0, SimpleQueue()), frozenset(), 200, pooled)
        task.arrival = n
        self._room.push(task)
        return task

    def give_places(self) -> list[Task]:
        """Gives places to others until nobody is owed one."""
        given = []
        while owed := self._room.owed(self.running):
            task, newest = owed
            given.append(newest)
            self.running.remove(newest)
            self._cache.free(newest.id)
            self._room.put_back(newest)
            assert self._room.admit_first(task, self.running) == [task]
        return given

    def next_running(self) -> list[Task]:
        for task in self.running:
            self._cache.free(task.id)
        self.running = []
        self._room.refill(self.running)
        return self.running


def test_no_more_texts_run_than_fill_a_step() -> None:
    place = Place()
    for _ in range(8):
        place.come("a")
    assert len(place.next_running()) == 3  # of which the last fits in part


def test_a_text_waits_for_no_more_than_one_of_each_other_client() -> None:
    place = Place()
    for _ in range(300):
        place.come("a")
    place.next_running()
    newcomer, urgent = place.come("b"), place.come("a", priority=-1)
    assert place.next_running()[:2] == [urgent, newcomer]


def test_texts_and_all_else_have_the_places_in_turn() -> None:
    place = Place()
    for _ in range(100):
        place.come("a")
        place.come("a", is_text=False)
    running = place.next_running()
    assert [task.pooled is None for task in running] == [True] * 5 + [False] * 3
    assert running == sorted(running, key=lambda task: task.order)


def test_a_client_gives_its_newest_places_down_to_its_share_and_no_further() -> None:
    place = Place()
    for _ in range(20):
        place.come("a", is_text=False)
    first = [*place.next_running()]
    assert not place.give_places()
    newcomers = [place.come("b", is_text=False) for _ in range(20)]
    assert place.give_places() == first[:3:-1]
    assert place.running == [*first[:4], *newcomers[:4]]
    place.come("c", is_text=False)
    place.come("c", is_text=False)
    given = place.give_places()
    assert Counter(task.request.client for task in given) == {"a": 1, "b": 1}
    assert Counter(task.request.client for task in place.running) == {"a": 3, "b": 3, "c": 2}


def test_no_place_is_given_to_what_is_less_urgent() -> None:
    place = Place()
    for _ in range(9):
        place.come("a", is_text=False)
    place.next_running()
    place.come("b", is_text=False, priority=1)
    assert not place.give_places()

"""llama-server's slots: remembers the sequences that requests name, saves them, restores them.

A thread reads and writes files, one action at a time. What it needs of the cache the scheduler's
thread does for it between steps, in bounded pieces: no running task waits for a file. A page that
is restored arrives as one of a tier does, and is found from when the whole file was verified.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

import numpy as np

from deployments.contract.errors import ErrorKind, Refused
from deployments.contract.slots import SlotAction, SlotReport
from deployments.engine.needs.need import Failure, Need
from deployments.engine.needs.slots.slot_actions import SlotActions
from deployments.engine.needs.slots.slot_cache import SlotCache
from deployments.engine.needs.slots.slot_table import SlotTable
from deployments.engine.tasks.task import Task
from kv.cache import KVCache
from kv.tiers.slot_file import CachedSequence
from kv.tiers.slot_folder import SlotFolder

T = TypeVar("T")
MAX_ACTIONS, MAX_ACTIONS_OF_OWNER = 256, 16  # that are not done


class _Job(NamedTuple):
    action: SlotAction
    done: "Future[SlotReport]"


class _Call(NamedTuple):
    """Work for the scheduler's thread, which is told whether it is idle."""

    work: Callable[[bool], Any]
    done: "Future[Any]"


class SlotNeed(Need):
    """No task waits for it. An action waits for the running tasks of its slot."""

    def __init__(self, cache: KVCache, folder: SlotFolder, *, takes_adapters: bool) -> None:
        self.table = SlotTable()
        self._page_size = cache.shape.page_size
        self._cache = SlotCache(cache, self.table)
        self._actions = SlotActions(self._cache, folder, self._ask, takes_adapters=takes_adapters)
        self._wake: Callable[[], None] = lambda: None
        self._using: dict[Task, None] = {}  # tasks that will leave a sequence in their slots
        self._lock = threading.Lock()
        self._is_closed = False
        self._n_of_owners: Counter[str] = Counter()  # actions that are not done
        self._incoming: SimpleQueue[_Job] = SimpleQueue()
        self._waiting: deque[_Job] = deque()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._is_acting = False
        self._calls: SimpleQueue[_Call] = SimpleQueue()

    def submit(self, action: SlotAction) -> "Future[SlotReport]":
        """Begins an action, on any thread. Its future may raise Refused, and so does this."""
        job, owner = _Job(action, Future()), action.owner
        with self._lock:
            if self._is_closed:
                raise _stopped()
            n_own, n = self._n_of_owners[owner], self._n_of_owners.total()
            if n_own >= MAX_ACTIONS_OF_OWNER or n >= MAX_ACTIONS:
                raise Refused.of_kind(ErrorKind.OVERLOADED, "Too many actions on slots wait")
            self._n_of_owners[owner] += 1
            self._incoming.put(job)
        job.done.add_done_callback(lambda done: self._count_done(owner))
        self._wake()
        return job.done

    def start(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        threading.Thread(target=self._act_on_all, name="slot files", daemon=True).start()

    def join(self, task: Task, running: Iterable[Task]) -> None:
        if task.request.id_slot >= 0:
            self._using[task] = None

    def advance(self, running: Iterable[Task]) -> Iterable[Failure]:
        """Does a piece of what the action in progress asks for."""
        self._receive()
        if self._waiting and not self._is_acting:
            self._begin_next()
        with suppress(Empty):
            call = self._calls.get_nowait()
            try:
                call.done.set_result(call.work(next(iter(running), None) is None))
            except Exception as error:  # whatever it is, it is of this action alone
                call.done.set_exception(error)
        return ()

    def leave(self, task: Task, *, is_preempted: bool) -> None:
        if task.request.id_slot < 0 or is_preempted:
            return
        self._using.pop(task, None)
        if task.n_computed and not task.is_pooling:
            self._remember(task)
        if self._waiting:
            self._wake()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self._cache.give_up_arrival()
        self._receive()
        undone = [job.done for job in self._waiting if job.done.set_running_or_notify_cancel()]
        while not self._calls.empty():
            undone.append(self._calls.get().done)
        for done in undone:
            done.set_exception(_stopped())
        self._jobs.put(None)

    def _remember(self, task: Task) -> None:
        request, n = task.request, task.n_computed
        content = request.content
        sequence = CachedSequence(
            token_ids=task.tokens[:n].astype(np.int32),
            root=content.root(),
            hashes=task.hash_pages(self._page_size)[: n // self._page_size],
            media=content.media,
            adapters=task.adapters,
        )
        self.table.put(request.owner, request.id_slot, sequence, is_kept=request.is_kept)

    def _receive(self) -> None:
        while not self._incoming.empty():
            self._waiting.append(self._incoming.get())

    def _begin_next(self) -> None:
        """Begins the first action on a slot that no running task will change."""
        used = {(task.request.owner, task.request.id_slot) for task in self._using}
        for job in self._waiting:
            if (job.action.owner, job.action.id_slot) not in used:
                self._waiting.remove(job)
                self._is_acting = True
                self._jobs.put(job)
                return

    def _count_done(self, owner: str) -> None:
        with self._lock:
            self._n_of_owners[owner] -= 1
            if not self._n_of_owners[owner]:
                del self._n_of_owners[owner]

    # On the thread of the files

    def _act_on_all(self) -> None:
        with suppress(OSError):  # who saves is told
            self._actions.clean()
        while (job := self._jobs.get()) is not None:
            if job.done.set_running_or_notify_cancel():
                try:
                    job.done.set_result(self._actions.act(job.action))
                except BaseException as error:  # the next action may work
                    job.done.set_exception(error)
            self._is_acting = False
            self._wake()

    def _ask(self, work: Callable[[bool], T], /) -> T:
        """Raises what the work raises, Refused where the scheduler has ended."""
        done: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise _stopped()
            self._calls.put(_Call(work, done))
        self._wake()
        return done.result()


def _stopped() -> Refused:
    return Refused.of_kind(ErrorKind.UNAVAILABLE, "The model stops; try again")

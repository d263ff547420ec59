"""Decides which waiting tasks have their adapters at hand, and what is in each slot.

A task whose adapters are not loaded, or find no slot, is parked beside the queue: those behind it
go on. A slot that a running task has is never changed. Where adapters wait for a slot, those that
have had theirs for longest get no more tasks, so that each has its turn.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

from deployments.adapter_files import AdapterError
from deployments.contract.errors import ErrorKind
from deployments.contract.events import TokenEvent
from deployments.engine.forward.adapters.slots import AdapterSlots
from deployments.engine.loading.adapter_loader import AdapterLoader, LoadedAdapter
from deployments.engine.scheduler.events import FAILED
from deployments.engine.tasks.task import Task
from kv.content import Adapter

log = logging.getLogger(__name__)

Key = tuple[Adapter, ...]  # what one slot holds


@dataclass(slots=True)
class _Parked:
    """Tasks that wait for the same adapters. `loads` is empty until these are asked for."""

    tasks: dict[Task, None] = field(default_factory=dict)  # in the order in which they came
    loads: "list[Future[LoadedAdapter]]" = field(default_factory=list)

    @property
    def is_loaded(self) -> bool:
        return bool(self.loads) and all(load.done() for load in self.loads)


class AdapterGate:
    """Iterates over the parked tasks. Without `slots` no task has adapters."""

    def __init__(
        self, slots: AdapterSlots | None, loader: AdapterLoader | None, wake: Callable[[], None]
    ) -> None:
        """`wake` is called from any thread when adapters were loaded."""
        self._slots = slots
        self._loader = loader
        self._wake = wake
        self._parked: dict[Key, _Parked] = {}
        self._ready: dict[Key, _Parked] = {}  # released, and in no slot yet
        self._installed: dict[Key, int] = {}  # the slots, those that changed last at the end
        self._last_used: dict[int, int] = {}  # by slot, the number of the last task
        self._preempted: set[Task] = set()  # which keep their slots until they run again
        self._n_tasks = 0

    def __iter__(self) -> Iterator[Task]:
        for parked in self._parked.values():
            yield from parked.tasks

    def __bool__(self) -> bool:
        return bool(self._parked)

    @property
    def has_loaded(self) -> bool:
        """Whether some of the parked tasks wait for a slot alone."""
        return any(parked.is_loaded for parked in self._parked.values())

    def admits(self, task: Task, running: Iterable[Task]) -> bool:
        """Whether the task has its adapters in a slot, and may run. Else it is to be parked."""
        key = task.adapters
        if not key:
            return True
        in_use, slot = self._in_use(running), self._installed.get(key)
        if slot is None and key in self._ready and (slot := self._idle_slot(in_use)) is not None:
            if not self._install(slot, key):
                return False
        elif slot is None or not (task in self._preempted or self._has_turn(key, slot, in_use)):
            return False
        self._ready.pop(key, None)
        self._n_tasks += 1
        self._last_used[slot] = self._n_tasks
        task.adapter_slot = slot
        return True

    def admit(self, task: Task) -> None:
        """The task runs now. Until then one that was preempted keeps its slot."""
        self._preempted.discard(task)

    def preempt(self, task: Task) -> None:
        """The task keeps its slot: whatever became of the files, it goes on with its adapters."""
        if task.adapter_slot:
            self._preempted.add(task)

    def park(self, task: Task) -> None:
        key = task.adapters
        if key not in self._parked:
            ready = self._ready.pop(key, None)
            self._parked[key] = _Parked(loads=[] if ready is None else ready.loads)
        self._parked[key].tasks[task] = None
        self._begin_loads()

    def remove(self, task: Task) -> bool:
        """Whether it was parked."""
        parked = self._parked.get(task.adapters)
        if parked is None or task not in parked.tasks:
            return False
        del parked.tasks[task]
        if not parked.tasks:
            del self._parked[task.adapters]
            self._begin_loads()
        return True

    def take_loaded(
        self, running: Iterable[Task]
    ) -> tuple[list[Task], list[tuple[Task, TokenEvent]]]:
        """Tasks that are parked no more: those that may be tried again, and those whose adapters
        can't be served."""
        for key in [key for key, parked in self._ready.items() if _have_ended(parked)]:
            del self._ready[key]
        n_idle = self._n_slots - len(self._in_use(running)) - len(self._ready)
        released: list[Task] = []
        failed: list[tuple[Task, TokenEvent]] = []
        for key in [key for key in self._in_order() if self._parked[key].is_loaded]:
            if (event := self._failure(key)) is not None:
                failed += [(task, event) for task in self._parked.pop(key).tasks]
            elif n_idle > 0:
                self._ready[key] = self._parked.pop(key)
                released += self._ready[key].tasks
                n_idle -= 1
        self._begin_loads()
        return released, failed

    def stop(self) -> None:
        if self._loader is not None:
            self._loader.stop()

    @property
    def _n_slots(self) -> int:
        return 0 if self._slots is None else self._slots.n_slots

    def _in_order(self) -> list[Key]:
        """Returns the keys of parked tasks, by the order of the first task of each."""
        return sorted(
            self._parked, key=lambda key: min(task.order for task in self._parked[key].tasks)
        )

    def _begin_loads(self) -> None:
        """Begins to load the adapters of the first ones. There are slots for no more."""
        assert self._loader is not None
        for key in self._in_order()[: self._n_slots]:
            parked = self._parked[key]
            if not parked.loads:
                parked.loads = [self._loader.load(adapter) for adapter in key]
                for load in parked.loads:
                    load.add_done_callback(lambda _: self._wake())

    def _failure(self, key: Key) -> TokenEvent | None:
        """Returns the failure of loaded adapters, if there is one."""
        assert self._slots is not None
        for load in self._parked[key].loads:
            if isinstance(error := load.exception(), AdapterError):
                return TokenEvent.failed(str(error), ErrorKind.INVALID_REQUEST)
            if error is not None:
                log.error("an adapter could not be loaded", exc_info=error)
                return FAILED
        ranks = sum(load.result().rank for load in self._parked[key].loads)
        if ranks > self._slots.max_rank:
            message = (
                f"{', '.join(adapter.label for adapter in key)}: together they have rank {ranks}, "
                f"and max_lora_rank is {self._slots.max_rank}"
            )
            return TokenEvent.failed(message, ErrorKind.INVALID_REQUEST)
        return None

    def _idle_slot(self, in_use: set[int]) -> int | None:
        """The one that was used least recently of those that no running task has."""
        idle = [slot for slot in range(1, self._n_slots + 1) if slot not in in_use]
        return min(idle, key=lambda slot: self._last_used.get(slot, 0), default=None)

    def _install(self, slot: int, key: Key) -> bool:
        """False if that failed, of which `take_loaded` tells when the task is parked."""
        assert self._slots is not None
        loads = self._ready.pop(key).loads
        for before in [other for other, its_slot in self._installed.items() if its_slot == slot]:
            del self._installed[before]
        adapters = zip(loads, key, strict=True)
        try:
            self._slots.install(
                slot, [(load.result().matrices, adapter.scale) for load, adapter in adapters]
            )
        except Exception as error:  # a device without memory, say; whoever has a slot goes on
            failed: Future[LoadedAdapter] = Future()
            failed.set_exception(error)
            self._ready[key] = _Parked(loads=[failed])
            return False
        self._installed[key] = slot
        return True

    def _has_turn(self, key: Key, slot: int, in_use: set[int]) -> bool:
        """Whether a slot gets more tasks: not where others wait for it."""
        if key in self._parked:
            return False
        if slot not in in_use or len(in_use) < self._n_slots:
            return True
        n_waiting = sum(parked.is_loaded for parked in self._parked.values())
        busy = [installed for installed in self._installed.values() if installed in in_use]
        return slot not in busy[:n_waiting]

    def _in_use(self, running: Iterable[Task]) -> set[int]:
        self._preempted = {task for task in self._preempted if not task.has_ended}
        tasks = (*running, *self._preempted)
        return {task.adapter_slot for task in tasks if task.adapter_slot}


def _have_ended(one: _Parked) -> bool:
    return all(task.has_ended for task in one.tasks)

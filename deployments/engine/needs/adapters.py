"""The need of adapters: which tasks have theirs at hand, and what is in each slot.

A task whose adapters are not loaded, or find no slot, is parked beside the queue: those behind it
go on. A slot that a running task has is never changed. Where adapters wait for a slot, those that
have had theirs for longest get no more tasks, so that each has its turn.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import numpy as np

from deployments.adapter_files import AdapterError
from deployments.contract.errors import ErrorKind
from deployments.contract.events import TokenEvent
from deployments.engine.forward.adapters.slots import AdapterSlots
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.needs.adapter_loader import AdapterLoader, LoadedAdapter
from deployments.engine.needs.need import Failure, Need, Unparked
from deployments.engine.tasks.batch import Batch
from deployments.engine.tasks.endings import FAILED
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


class AdapterNeed(Need):
    """The slots are numbered from 1. One that a running task has is never changed."""

    def __init__(self, slots: AdapterSlots, loader: AdapterLoader) -> None:
        self._slots = slots
        self._loader = loader
        self._wake: Callable[[], None] = lambda: None
        self._parked: dict[Key, _Parked] = {}
        self._ready: dict[Key, _Parked] = {}  # released, and in no slot yet
        self._installed: dict[Key, int] = {}  # the slots, those that changed last at the end
        self._last_used: dict[int, int] = {}  # by slot, the number of the last task
        # The slots of tasks that run or were preempted: these go on with their adapters, whatever
        # became of the files.
        self._slot_of: dict[Task, int] = {}
        self._n_tasks = 0

    def start(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    @property
    def parked(self) -> Sequence[Task]:
        return [task for parked in self._parked.values() for task in parked.tasks]

    @property
    def can_unpark(self) -> bool:
        """Whether some of the parked tasks wait for a slot alone."""
        return any(parked.is_loaded for parked in self._parked.values())

    def admits(self, task: Task) -> bool:
        """Whether the task has its adapters in a slot."""
        key = task.adapters
        if not key:
            return True
        in_use, slot = {*self._slot_of.values()}, self._installed.get(key)
        if slot is None and key in self._ready and (slot := self._idle_slot(in_use)) is not None:
            if not self._install(slot, key):
                return False
        elif slot is None or not (task in self._slot_of or self._has_turn(key, slot, in_use)):
            return False
        self._ready.pop(key, None)
        self._n_tasks += 1
        self._last_used[slot] = self._n_tasks
        return True

    def join(self, task: Task, running: Iterable[Task]) -> None:
        if key := task.adapters:
            self._slot_of[task] = self._installed[key]

    def leave(self, task: Task, *, is_preempted: bool) -> None:
        if is_preempted:
            return
        self._slot_of.pop(task, None)
        parked = self._parked.get(task.adapters)
        if parked is not None and task in parked.tasks:
            del parked.tasks[task]
            if not parked.tasks:
                del self._parked[task.adapters]
                self._begin_loads()

    def park(self, task: Task) -> None:
        key = task.adapters
        if key not in self._parked:
            ready = self._ready.pop(key, None)
            self._parked[key] = _Parked(loads=[] if ready is None else ready.loads)
        self._parked[key].tasks[task] = None
        self._begin_loads()

    def unpark(self) -> Unparked:
        """Releases tasks whose adapters were loaded, as far as slots are idle. Those end whose
        adapters can't be served."""
        for key in [key for key, parked in self._ready.items() if _have_ended(parked)]:
            del self._ready[key]
        n_idle = self._slots.n_slots - len({*self._slot_of.values()}) - len(self._ready)
        found = Unparked()
        for key in [key for key in self._in_order() if self._parked[key].is_loaded]:
            if (event := self._failure(key)) is not None:
                failed: list[Failure] = [(task, event) for task in self._parked.pop(key).tasks]
                found.failed += failed
            elif n_idle > 0:
                self._ready[key] = self._parked.pop(key)
                found.released += self._ready[key].tasks
                n_idle -= 1
        self._begin_loads()
        return found

    def inputs(self, batch: Batch, step: StepInputs) -> StepInputs:
        slots = [self._slot_of.get(task, 0) for task in batch.tasks]
        return replace(step, adapter_slots=np.array(slots, dtype=np.int64)) if any(slots) else step

    def close(self) -> None:
        self._loader.stop()

    def _in_order(self) -> list[Key]:
        """Returns the keys of parked tasks, by the order of the first task of each."""
        return sorted(
            self._parked, key=lambda key: min(task.order for task in self._parked[key].tasks)
        )

    def _begin_loads(self) -> None:
        """Begins to load the adapters of the first ones. There are slots for no more."""
        for key in self._in_order()[: self._slots.n_slots]:
            parked = self._parked[key]
            if not parked.loads:
                parked.loads = [self._loader.load(adapter) for adapter in key]
                for load in parked.loads:
                    load.add_done_callback(lambda _: self._wake())

    def _failure(self, key: Key) -> TokenEvent | None:
        """Returns the failure of loaded adapters, if there is one."""
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
        idle = [slot for slot in range(1, self._slots.n_slots + 1) if slot not in in_use]
        return min(idle, key=lambda slot: self._last_used.get(slot, 0), default=None)

    def _install(self, slot: int, key: Key) -> bool:
        """False if that failed, of which `unpark` tells when the task is parked."""
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
        if slot not in in_use or len(in_use) < self._slots.n_slots:
            return True
        n_waiting = sum(parked.is_loaded for parked in self._parked.values())
        busy = [installed for installed in self._installed.values() if installed in in_use]
        return slot not in busy[:n_waiting]


def _have_ended(one: _Parked) -> bool:
    return all(task.has_ended for task in one.tasks)

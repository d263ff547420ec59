"""Which slots hold the recurrent states of tasks, and those kept as checkpoints of prefixes.

A step reads the slot whose state stands behind the task's last computed token, and writes another
one. A step that failed is so undone by being computed again: what it has written stands behind
tokens that are not computed. Of drafts it is not known how many are right, so a state is written
behind each. A state is never written twice, so a checkpoint is a slot that a task leaves behind,
and costs no copy.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from kv.arrays import IntArray
from kv.arrivals import STATE, PageKey
from kv.hit_rule import HitRule
from kv.journal import Journal, PublishedPages

NO_STATE = -1  # the slot that a task reads which has computed nothing yet
# One behind its committed tokens, one behind those of a step in progress, one that the next step
# writes, and one behind its last full page.
SLOTS_PER_TASK = 4


class State(NamedTuple):
    slot: int
    n_tokens: int  # that it stands behind


class Boundary(NamedTuple):
    """A state behind full pages, and how many these are."""

    slot: int
    n_pages: int


class Checkpoint(NamedTuple):
    """A state behind full pages, and their hashes."""

    slot: int
    hashes: tuple[bytes, ...]


class StateMemory(Protocol):
    """The memory of slots on a CPU, in a form that is the same in each process."""

    @property
    def parts(self) -> Sequence[tuple[torch.dtype, int]]:
        """Types and bytes of what lies behind each other in a state."""
        ...

    def read(self, slot: int, state: NDArray[np.uint8]) -> None:
        """Copies the bytes of a slot to `state` [bytes]."""
        ...

    def write(self, slot: int, state: NDArray[np.uint8]) -> None:
        """Copies bytes to a slot that no step reads or writes."""
        ...


@dataclass(slots=True)
class _TaskStates:
    """The states that a task holds references to."""

    # Up to three, and one for each drafted token; the newest is last.
    states: list[State] = field(default_factory=list)
    boundary: Boundary | None = None
    hashes: list[bytes] = field(default_factory=list)  # of its full pages


class StateSlots(HitRule):
    """Slots of up to `max_tasks` tasks with up to `max_drafted` drafted tokens in all, and of up to
    `max_checkpoints` checkpoints, by the hash of the last page that they stand behind. The least
    recently used one goes first.

    Its journal publishes which prefixes can be found: all pages before a checkpoint.
    """

    def __init__(
        self,
        max_tasks: int,
        max_checkpoints: int = 0,
        journal: Journal | None = None,
        max_drafted: int = 0,
        on_lose: Callable[[bytes], object] = lambda page_hash: None,
    ) -> None:
        """`on_lose` is called with the hash of the page before a checkpoint whose slot is about to
        be given away."""
        n_slots = SLOTS_PER_TASK * max_tasks + max_checkpoints + max_drafted
        self.max_checkpoints = max_checkpoints
        self.memory: StateMemory | None = None  # where states are kept elsewhere, too
        self._on_lose = on_lose
        self.n_saved = self.n_restored = 0  # checkpoints, since the start
        self.n_slots = n_slots
        self._free = list(range(n_slots - 1, -1, -1))
        self._references = [0] * n_slots
        self._tasks: dict[str, _TaskStates] = {}
        self._checkpoints: OrderedDict[bytes, Checkpoint] = OrderedDict()
        self._published = PublishedPages(journal or Journal())

    @property
    def n_checkpoints(self) -> int:
        return len(self._checkpoints)

    def longest(self, hashes: Sequence[bytes]) -> int:
        """The most leading ones that a state is kept behind."""
        return _longest(hashes, self._checkpoints.__contains__)

    def over(self, holds: Callable[[PageKey], bool]) -> HitRule:
        """States that a tier `holds` are kept, too."""
        return _StatesOverTier(self, holds)

    def lacking(self, hashes: Sequence[bytes]) -> list[PageKey]:
        """The state behind the last page, if there is none."""
        return [PageKey(last, STATE) for last in hashes[-1:] if last not in self._checkpoints]

    def slot(self, page_hash: bytes) -> int | None:
        """The slot of the checkpoint behind a page."""
        checkpoint = self._checkpoints.get(page_hash)
        return None if checkpoint is None else checkpoint.slot

    def arrive(self, hashes: Sequence[bytes], state: bytes) -> None:
        """Makes a state that comes from elsewhere the checkpoint behind these pages. To be called
        between steps."""
        if hashes[-1] in self._checkpoints or not self.max_checkpoints:
            return
        assert self.memory is not None, "states are kept nowhere else"
        self._make_room()
        slot = self._allocate()
        self.memory.write(slot, np.frombuffer(state, dtype=np.uint8))
        self._checkpoints[hashes[-1]] = Checkpoint(slot, tuple(hashes))
        self._published.add(hashes)

    def insert(self, task_id: str, hashes: Sequence[bytes] = (), n_tokens: int = 0) -> None:
        """A new task, without a state or with the one of a checkpoint, which stands behind the
        `n_tokens` of the pages with these hashes. Asserts that it is new; KeyError for an unknown
        checkpoint."""
        assert task_id not in self._tasks, f"task {task_id} has a state already"
        self._tasks[task_id] = _TaskStates()
        if hashes:
            self.adopt(task_id, n_tokens, 0, hashes)

    def adopt(self, task_id: str, n_tokens: int, first_page: int, hashes: Sequence[bytes]) -> None:
        """Gives a task the state of the checkpoint behind these pages. KeyError for an unknown
        checkpoint."""
        task = self._tasks[task_id]
        self._checkpoints.move_to_end(hashes[-1])
        slot = self._checkpoints[hashes[-1]].slot
        for state in task.states:
            self._release(state.slot)
        self._references[slot] += 1
        task.states = [State(slot, n_tokens)]
        task.hashes += hashes
        self.n_restored += 1

    def remove(self, task_id: str) -> None:
        """The state behind its last full page becomes a checkpoint. KeyError for an unknown
        task."""
        self.save(task_id)
        for slot in _slots(self._tasks.pop(task_id)):
            self._release(slot)

    def take(
        self,
        task_ids: Sequence[str],
        total_len: IntArray,
        new_len: IntArray,
        committed: IntArray | None = None,
        n_drafted: Sequence[int] = (),
    ) -> IntArray:
        """Slots for a step that computes the last `new_len` of `total_len` tokens [tasks] of each
        task. [tasks, 2 + the most drafted]: one to read, which is NO_STATE for a task's first
        tokens; one to write behind all of them; where some are drafted, one behind each token
        before the last, and else NO_STATE.

        committed [tasks]: tokens behind which a state may be needed again, if the step in progress
        fails; by default all before the step. n_drafted [tasks]: how many of the tokens are, none
        by default. Asserts that there is a state to read.
        """
        before = total_len - new_len
        needed = before if committed is None else committed
        drafted = n_drafted or [0] * len(task_ids)
        lengths = needed.tolist(), before.tolist(), total_len.tolist()
        rows = [self._take(*row) for row in zip(task_ids, *lengths, drafted, strict=True)]
        width = 2 + max(drafted, default=0)
        if width > 2:
            rows = [(*row, *[NO_STATE] * (width - len(row))) for row in rows]
        return np.array(rows, dtype=np.int64).reshape(-1, width)

    def _take(
        self, task_id: str, committed: int, before: int, total: int, n_drafted: int
    ) -> tuple[int, ...]:
        task = self._tasks[task_id]
        kept = [state for state in task.states if committed <= state.n_tokens <= before]
        read = [state for state in kept if state.n_tokens == before]
        assert read or not before, f"task {task_id} has no state behind {before} tokens"
        for state in task.states:
            if state not in kept:
                self._release(state.slot)
        first = total - n_drafted
        *inner, last = [State(self._allocate(), n) for n in range(first, total + 1)]
        task.states = [*kept, *inner, last]
        return read[-1].slot if read else NO_STATE, last.slot, *(state.slot for state in inner)

    def settle(self, task_id: str, n_tokens: int) -> None:
        """Frees all states of the task but the one behind so many tokens, and its boundary's.
        KeyError for an unknown task."""
        task = self._tasks[task_id]
        kept = [state for state in task.states if state.n_tokens == n_tokens]
        for state in task.states:
            if state not in kept:
                self._release(state.slot)
        task.states = kept

    def record(self, task_id: str, n_tokens: int, first_page: int, hashes: Sequence[bytes]) -> None:
        """The task's state there is kept until the next boundary, if it has one there."""
        task = self._tasks[task_id]
        task.hashes[first_page:] = hashes
        for state in task.states:
            if state.n_tokens == n_tokens:
                if task.boundary is not None:
                    self._release(task.boundary.slot)
                self._references[state.slot] += 1
                task.boundary = Boundary(state.slot, len(task.hashes))

    def save(self, task_id: str) -> None:
        """Makes the state at the task's last boundary a checkpoint, if there is one."""
        task = self._tasks[task_id]
        if task.boundary is not None:
            hashes = tuple(task.hashes[: task.boundary.n_pages])
            self._save(Checkpoint(task.boundary.slot, hashes))

    def forget(self, task_id: str, hashes: Sequence[bytes]) -> None:
        """Forgets the state behind the task's last full page, too."""
        task = self._tasks[task_id]
        if task.boundary is not None:
            self._release(task.boundary.slot)
            task.boundary = None
        gone = {*hashes}
        for last, checkpoint in [*self._checkpoints.items()]:
            if not gone.isdisjoint(checkpoint.hashes):
                self.lose(last)

    def lose(self, page_hash: bytes) -> None:
        """Forgets the checkpoint behind the page, if there is one."""
        if (checkpoint := self._checkpoints.pop(page_hash, None)) is None:
            return
        self._on_lose(page_hash)
        self._release(checkpoint.slot)
        self._published.remove(checkpoint.hashes)

    def check(self, task_ids: Iterable[str]) -> None:
        """Asserts as well that each slot is free or referenced, and as often as is counted."""
        assert self._tasks.keys() == {*task_ids}
        referenced = [slot for task in self._tasks.values() for slot in _slots(task)]
        referenced += [checkpoint.slot for checkpoint in self._checkpoints.values()]
        counts = np.bincount(np.array(referenced, dtype=np.int64), minlength=len(self._references))
        assert counts.tolist() == self._references, "a slot is miscounted"
        free = {slot for slot, count in enumerate(self._references) if not count}
        assert sorted(self._free) == sorted(free), "slots are lost or free twice"
        assert len(self._checkpoints) <= self.max_checkpoints
        self._published.check(kept.hashes for kept in self._checkpoints.values())

    def _save(self, checkpoint: Checkpoint) -> None:
        page_hash = checkpoint.hashes[-1]
        if page_hash in self._checkpoints:  # of the same tokens, and so the same state
            self._checkpoints.move_to_end(page_hash)
            return
        if not self.max_checkpoints:
            return
        self._make_room()
        self._checkpoints[page_hash] = checkpoint
        self._references[checkpoint.slot] += 1
        self.n_saved += 1
        self._published.add(checkpoint.hashes)

    def _make_room(self) -> None:
        if len(self._checkpoints) == self.max_checkpoints:
            self.lose(next(iter(self._checkpoints)))

    def _allocate(self) -> int:
        slot = self._free.pop()  # there is one: tasks and checkpoints hold no more than all others
        self._references[slot] = 1
        return slot

    def _release(self, slot: int) -> None:
        self._references[slot] -= 1
        if not self._references[slot]:
            self._free.append(slot)


class _StatesOverTier(HitRule):
    """Looks up checkpoints and states that a tier holds."""

    def __init__(self, states: StateSlots, holds: Callable[[PageKey], bool]) -> None:
        self._states, self._holds = states, holds

    def longest(self, hashes: Sequence[bytes]) -> int:
        return _longest(hashes, self._is_kept)

    def _is_kept(self, page_hash: bytes) -> bool:
        in_slot = self._states.slot(page_hash) is not None
        return in_slot or self._holds(PageKey(page_hash, STATE))


def _longest(hashes: Sequence[bytes], is_kept: Callable[[bytes], bool]) -> int:
    return next((n for n in range(len(hashes), 0, -1) if is_kept(hashes[n - 1])), 0)


def _slots(task: _TaskStates) -> list[int]:
    boundary = [] if task.boundary is None else [task.boundary.slot]
    return [*boundary, *(state.slot for state in task.states)]

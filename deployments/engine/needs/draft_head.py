"""The need of a draft head: a running task has a slot, in which the states of its last tokens wait
for its next step."""

from collections.abc import Iterable
from dataclasses import replace

from deployments.engine.forward.draft_heads.carried_states import CarriedStates
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.needs.need import Need
from deployments.engine.tasks.batch import Batch
from deployments.engine.tasks.task import Task


class DraftHeadNeed(Need):
    """There are as many slots as tasks may run."""

    def __init__(self, carried: CarriedStates) -> None:
        self._carried = carried

    def join(self, task: Task, running: Iterable[Task]) -> None:
        self._carried.take_slot(task.id)

    def inputs(self, batch: Batch, step: StepInputs) -> StepInputs:
        slots = self._carried.slots([task.id for task in batch.tasks])
        return replace(step, head_slots=slots)

    def leave(self, task: Task, *, is_preempted: bool) -> None:
        self._carried.free_slot(task.id)

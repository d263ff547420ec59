"""A need is all that a feature is to the engine: it waits, and brings inputs, and no more."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from deployments.contract.events import FinishReason
from deployments.engine import core
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.needs.need import Need
from deployments.engine.tasks.batch import Ahead, Batch
from deployments.engine.tasks.task import Task
from tests.engine.drive import Record, engine, random_ids, request, roomy
from tests.models import VOCAB

HELD = "held"


class Permission(Need):
    """Rows of a request named `held` wait until they are permitted, and then read other tokens."""

    def __init__(self) -> None:
        self._wake: Callable[[], None] = lambda: None
        self._is_permitted = False
        self.left: list[tuple[str, bool]] = []

    def start(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def permit(self) -> None:
        self._is_permitted = True
        self._wake()

    def choose(self, tasks: Sequence[Task], ahead: Ahead) -> Sequence[Task]:
        return [task for task in tasks if self._is_permitted or task.request.request_id != HELD]

    def inputs(self, batch: Batch, step: StepInputs) -> StepInputs:
        held = [task.request.request_id == HELD for task in batch.tasks]
        others = [7 if is_held else 0 for is_held, n in zip(held, batch.new_len, strict=True)
                  for _ in range(n)]  # fmt: skip
        return replace(step, token_ids=(step.token_ids + others) % VOCAB)

    def leave(self, task: Task, *, is_preempted: bool) -> None:
        self.left.append((task.request.request_id, is_preempted))


@pytest.mark.parametrize("is_async", [False, True])
def test_a_need_of_its_own_waits_and_brings_inputs(
    monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    need, prompt = Permission(), random_ids(9)
    monkeypatch.setattr(core, "list_needs", lambda *_: [need])

    async def run() -> list[Record]:
        held = asyncio.create_task(running.follow(request(HELD, prompt)))
        free = await running.follow(request("free", prompt))
        assert not held.done()  # although it came first
        need.permit()
        return [free, await held]

    limits = roomy(async_scheduling=is_async)
    with engine(limits=limits) as running:
        free, held = (record.outcome for record in asyncio.run(run()))
        plain, other = running.run(request("plain", prompt), request("other", prompt))
    assert free.token_ids == plain.token_ids == other.token_ids
    assert held.finish_reason is FinishReason.LENGTH
    assert held.token_ids != plain.token_ids
    assert sorted(need.left) == [(name, False) for name in ("free", HELD, "other", "plain")]

"""Among waiting requests the lowest priority value runs first, then whichever came first."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.contract.events import FinishReason
from deployments.contract.requests import GenerationRequest
from tests.engine.drive import Engine, engine, random_ids, request, roomy
from tests.engine.workload import Workload


@settings(max_examples=15)
@given(st.lists(st.integers(-2, 2), max_size=8))
def test_waiting_requests_run_by_priority_and_then_by_arrival(priorities: list[int]) -> None:
    requests = [
        request(f"r{i}", (i + 1,), max_tokens=2, priority=priority)
        for i, priority in enumerate(priorities)
    ]
    with engine(limits=roomy(max_running=1)) as running:
        ended = running.order_of_ends(*requests)
    by_priority = sorted(requests, key=lambda req: req.priority)
    assert ended == [req.request_id for req in by_priority]


@pytest.mark.parametrize(("old", "young"), [(0, 0), (0, 1), (1, 0)])
def test_the_lowest_and_then_the_youngest_gives_way(old: int, young: int) -> None:
    """Two that do not fit together: the first by order ends first, the other starts over."""
    both = [
        request("old", random_ids(8, seed=1), max_tokens=24, priority=old),
        request("young", random_ids(8, seed=2), max_tokens=24, priority=young),
    ]
    with engine(limits=roomy(n_pages=10)) as running:
        ended = running.order_of_ends(*both)
        assert running.core.stats().preemptions > 0
        Workload(requests=both).check(running.run_at_once(*both))
    assert ended == (["young", "old"] if young < old else ["old", "young"])


def test_a_preempted_one_is_the_first_of_its_class_again() -> None:
    """It comes back before those of its priority that came later, and after the more urgent."""
    first = request("first", random_ids(8, seed=1), max_tokens=24)
    second = request("second", random_ids(8, seed=2), max_tokens=24)
    later = request("later", random_ids(8, seed=3), max_tokens=24)
    urgent = request("urgent", random_ids(2, seed=4), max_tokens=1, priority=-1)

    async def play(running: Engine) -> list[str]:
        ended: list[str] = []

        async def follow(one: GenerationRequest) -> None:
            await running.follow(one)
            ended.append(one.request_id)

        running.gate.close()
        tasks = [asyncio.create_task(follow(req)) for req in (first, second)]
        await asyncio.sleep(0)
        while not running.core.stats().preemptions:
            running.gate.step()
        tasks += [asyncio.create_task(follow(req)) for req in (later, urgent)]
        await asyncio.sleep(0)
        running.gate.open()
        await asyncio.gather(*tasks)
        return ended

    with engine(limits=roomy(n_pages=8)) as running:
        assert asyncio.run(play(running)) == ["urgent", "first", "second", "later"]


def test_aborting_among_waiting_ones_leaves_the_others_in_order() -> None:
    requests = [request(f"r{i}", (i + 1,), max_tokens=2, priority=-i) for i in range(6)]
    with engine(limits=roomy(max_running=1)) as running:
        ended = running.order_of_ends(*requests, aborted="r3")
    assert ended == ["r3", "r5", "r4", "r2", "r1", "r0"]


def test_many_waiting_priorities_all_end() -> None:
    requests = [request(f"r{i}", (i + 1, 2), max_tokens=3, priority=i % 3) for i in range(60)]
    with engine(limits=roomy(max_running=3, n_pages=16)) as running:
        outcomes = running.run_at_once(*requests)
    assert {outcome.finish_reason for outcome in outcomes} == {FinishReason.LENGTH}

"""A step costs a constant number of Python operations a row, and none a token of context."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.limits import EngineLimits
from tests.engine.drive import GREEDY, Engine, engine, random_ids, request, roomy

N_STEPS = 8


class Calls:
    """Counts the Python and C calls of threads that start while it is on.

    Garbage is not collected meanwhile: what that calls in the middle is none of a step's.
    """

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, frame: object, event: str, argument: object) -> None:
        self.n += event in ("call", "c_call")


@contextmanager
def counted_engine(limits: EngineLimits) -> Iterator[tuple[Engine, Calls]]:
    calls = Calls()
    gc.collect()
    gc.disable()
    threading.setprofile(calls)
    try:
        block = engine(limits=limits)
        running = block.__enter__()
    finally:
        threading.setprofile(None)
    try:
        yield running, calls
    finally:
        gc.enable()
        block.__exit__(None, None, None)


def calls_of_some_steps(limits: EngineLimits, *requests: GenerationRequest) -> int:
    """Calls of `N_STEPS` steps of requests that run or wait already."""

    async def scenario() -> int:
        running.gate.close()
        tasks = [asyncio.create_task(running.follow(req)) for req in requests]
        await asyncio.sleep(0)
        for _ in range(8):
            running.gate.step()
        before = calls.n
        for _ in range(N_STEPS):
            running.gate.step()
        counted = calls.n - before
        for req in requests:
            running.core.abort(req.request_id)
        running.gate.open()
        await asyncio.gather(*tasks)
        return counted

    with counted_engine(limits) as (running, calls):
        return asyncio.run(scenario())


@pytest.mark.parametrize(
    "sampling", [GREEDY, SamplingParams(temperature=1, repetition_penalty=1.2, top_p=0.9)], ids=str
)
def test_a_decode_makes_as_many_calls_at_a_long_context_as_at_a_short_one(
    sampling: SamplingParams,
) -> None:
    short, long = (
        calls_of_some_steps(roomy(), request("r", random_ids(n), sampling, max_tokens=50))
        for n in (16, 400)
    )
    assert short > 1000
    assert abs(long - short) < 20


def test_a_request_that_waits_for_pages_costs_a_step_nothing_a_page() -> None:
    """Its prefix is cached, so that there is a lot to look at each time."""

    def cost(n: int) -> int:
        shared = random_ids(n)
        pages = n // 4
        first = request("first", shared + (1,), max_tokens=60)
        waiting = request("waiting", shared + random_ids(64, seed=2), max_tokens=4)
        # Too few pages for the second one's own part beside the first one.
        limits = roomy(n_pages=pages + 17, max_running=2)
        return calls_of_some_steps(limits, first, waiting)

    assert abs(cost(400) - cost(40)) < 20

"""Every accepted request ends in exactly one terminal event and gives back all that it held."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from functools import cache

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from deployments.contract.errors import ErrorKind
from deployments.contract.events import FinishReason, TokenEvent
from deployments.contract.requests import GenerationRequest, SamplingParams
from tests.effort import tries
from tests.engine.drive import GREEDY, Engine, Outcome, engine, random_ids, request, roomy

PROMPTS = [random_ids(12, seed=1)[:n] for n in (1, 5, 12)] + [random_ids(9, seed=2)]
SAMPLINGS = [GREEDY, SamplingParams(temperature=2, seed=5, frequency_penalty=0.5)]
LENGTHS = [1, 9, 20]
LONGEST = 12 + 20  # tokens


@cache
def undisturbed(prompt: int, sampling: int) -> tuple[int, ...]:
    with engine() as running:
        one = request("alone", PROMPTS[prompt], SAMPLINGS[sampling], max_tokens=max(LENGTHS))
        return running.run(one)[0].token_ids


choices = st.tuples(
    st.integers(0, len(PROMPTS) - 1),
    st.integers(0, len(SAMPLINGS) - 1),
    st.sampled_from(LENGTHS),
    st.sampled_from([0, 0, 3]),  # tokens that an earlier replica produced
)


class Follower:
    """A request on its way: what was asked, what came, and whether it was told to end."""

    def __init__(self, expected: tuple[int, ...], task: "asyncio.Task[Outcome]") -> None:
        self.expected = expected
        self.task = task
        self.ended = False


class EngineMachine(RuleBasedStateMachine):
    """Random submissions, aborts and departures on a pool that always runs out of pages.

    Between rules the engine stands at the gate of its next step, or has nothing to do.
    """

    @initialize(
        spare_pages=st.integers(0, 5),
        page_size=st.sampled_from([2, 4]),
        max_running=st.integers(2, 5),
        max_batch_tokens=st.sampled_from([4, 9, 64]),
        async_scheduling=st.booleans(),
    )
    def start(self, spare_pages: int, page_size: int, **others: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.block = engine(
            limits=roomy(
                n_pages=LONGEST // page_size + spare_pages,
                page_size=page_size,
                **others,
            )
        )
        self.engine = self.block.__enter__()
        self.engine.gate.close()
        self.arrived = asyncio.Event()
        self.engine.gate.listener = lambda: self.loop.call_soon_threadsafe(self.arrived.set)
        self.standing = False
        self.followers: dict[str, Follower] = {}
        self.n_started = 0

    def _unfinished(self) -> list[str]:
        return [name for name, follower in self.followers.items() if not follower.task.done()]

    async def _settle(self) -> None:
        """Waits until a step stands at the gate or every request has ended."""
        while not self.standing and (names := self._unfinished()):
            arrival = asyncio.ensure_future(self.arrived.wait())
            all_ended = asyncio.ensure_future(
                asyncio.wait([self.followers[name].task for name in names])
            )
            await asyncio.wait({arrival, all_ended}, return_when="FIRST_COMPLETED")
            arrival.cancel()
            all_ended.cancel()
            self.standing = self.arrived.is_set()

    @rule(requests=st.lists(choices, min_size=1, max_size=4))
    def submit(self, requests: list[tuple[int, int, int, int]]) -> None:
        """Several requests at the same instant."""
        for prompt, sampling, n, n_produced in requests:
            self.n_started += 1
            tokens = undisturbed(prompt, sampling)
            one = request(
                str(self.n_started),
                PROMPTS[prompt],
                SAMPLINGS[sampling],
                max_tokens=n,
                produced_ids=tokens[:n_produced],
            )
            self.loop.run_until_complete(self._submit(one, tokens[n_produced:n]))
        self.loop.run_until_complete(self._settle())

    async def _submit(self, one: GenerationRequest, expected: tuple[int, ...]) -> None:
        async def follow() -> Outcome:
            return (await self.engine.follow(one)).outcome

        task = self.loop.create_task(follow())
        self.followers[one.request_id] = Follower(expected, task)
        await asyncio.sleep(0)

    # What is drawn must not depend on how far the engine's thread has come: a number picks one of
    # those that have not ended, if any.
    @rule(number=st.integers(0, 59))
    def abort(self, number: int) -> None:
        if names := self._unfinished():
            name = names[number % len(names)]
            self.followers[name].ended = True
            self.engine.core.abort(name)

    @rule(name=st.sampled_from(["never heard of", "1", "2"]))
    def abort_a_request_that_ended_or_never_was(self, name: str) -> None:
        if name not in self._unfinished():
            self.engine.core.abort(name)

    @rule(number=st.integers(0, 59))
    def leave(self, number: int) -> None:
        """A reader goes away without a word."""
        if not (names := self._unfinished()):
            return
        follower = self.followers.pop(names[number % len(names)])
        follower.task.cancel()
        self.loop.run_until_complete(asyncio.wait([follower.task]))
        assert follower.task.cancelled()

    @rule(n=st.integers(1, 15))
    def pass_steps(self, n: int) -> None:
        for _ in range(n):
            if self.standing:
                self.standing = False
                self.arrived.clear()
                self.engine.gate.let_one_pass()
            self.loop.run_until_complete(self._settle())

    @invariant()
    def accounts_agree(self) -> None:
        if getattr(self, "standing", False):  # the engine's thread is at the gate
            self.engine.core.cache.check()

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        self.engine.gate.open()
        for follower in self.followers.values():
            self._check(follower, self.loop.run_until_complete(follower.task))
        self.block.__exit__(None, None, None)
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def _check(self, follower: Follower, outcome: Outcome) -> None:
        if follower.ended and outcome.finish_reason is FinishReason.ABORT:
            n = len(outcome.token_ids)
            assert outcome.token_ids == follower.expected[:n]
        else:
            assert outcome.finish_reason is FinishReason.LENGTH
            assert outcome.token_ids == follower.expected


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(
    max_examples=tries(25, 120), stateful_step_count=30, deadline=None
)


def pages_used(running: Engine) -> int:
    return running.core.stats().pages_used


LONG = request("long", random_ids(30), max_tokens=400)


async def started(running: Engine, one: GenerationRequest) -> "asyncio.Task[Outcome]":
    """A request that runs, with the engine at the gate of its second step."""

    async def follow() -> Outcome:
        return (await running.follow(one)).outcome

    running.gate.close()
    task = asyncio.create_task(follow())
    await asyncio.sleep(0)
    running.gate.step()
    return task


KEEPER = request("keeper", (1,), max_tokens=400)  # keeps the engine stepping


async def cancel_while_it_waits(stream: AsyncGenerator[TokenEvent, None]) -> None:
    while (waiting := asyncio.create_task(anext(stream))) and await is_done_soon(waiting):
        pass
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()


async def is_done_soon(task: asyncio.Task[TokenEvent]) -> bool:
    for _ in range(3):
        await asyncio.sleep(0)
    return task.done()


@pytest.mark.parametrize("leave", ["abort", "cancel", "close", "complete"])
def test_pages_are_free_within_two_steps_of_leaving(leave: str) -> None:
    async def scenario() -> None:
        running.gate.close()
        keeper = asyncio.create_task(running.follow(KEEPER))
        stream = running.core.stream(LONG, lambda: leave == "complete")
        first = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        running.gate.step()
        running.gate.step()
        await first
        assert pages_used(running) > 8
        if leave == "abort":
            running.core.abort("long")
        elif leave == "cancel":
            await cancel_while_it_waits(stream)
        else:
            await stream.aclose()
        steps = running.core.stats().steps
        running.gate.step()
        assert running.core.stats().steps - steps <= 2
        assert pages_used(running) == 1  # the keeper's
        assert running.core.stats().aborted_requests == (leave != "complete")
        running.core.abort("keeper")
        running.gate.open()
        if leave == "abort":
            assert [event.finish_reason async for event in stream][-1] is FinishReason.ABORT
        assert (await keeper).outcome.finish_reason is FinishReason.ABORT

    with engine() as running:
        asyncio.run(scenario())


def test_leaving_the_loop_over_a_plain_generator_ends_its_requests() -> None:
    with engine() as running:
        for _, event in running.core.run([LONG, KEEPER]):
            assert event.finish_reason is None
            break
        running.run(request("after", (1, 2, 3)))  # the aborts have been received by then
        assert pages_used(running) == 0


def test_a_request_that_waits_can_be_aborted() -> None:
    async def scenario() -> None:
        runs = await started(running, LONG)
        waits = asyncio.create_task(running.follow(request("waits", (1, 2))))
        await asyncio.sleep(0)
        running.gate.step()
        assert running.core.stats().waiting_requests == 1
        running.core.abort("waits")
        running.gate.step()
        running.gate.open()
        outcome = (await waits).outcome
        assert (outcome.token_ids, outcome.finish_reason) == ((), FinishReason.ABORT)
        running.core.abort("long")
        assert (await runs).finish_reason is FinishReason.ABORT

    with engine(limits=roomy(max_running=1)) as running:
        asyncio.run(scenario())


def test_aborting_unknown_and_finished_requests_changes_nothing() -> None:
    with engine() as running:
        (before,) = running.run(request("same", (1, 2, 3)))
        running.core.abort("same")
        running.core.abort("never heard of")
        (after,) = running.run(request("same", (1, 2, 3)))
    assert after.token_ids == before.token_ids
    assert after.finish_reason is FinishReason.LENGTH


def test_two_requests_of_one_id_do_not_touch_each_other() -> None:
    """An ingress may come back with a request whose first stream has not been seen to end."""

    async def scenario() -> None:
        running.gate.close()
        stream = running.core.stream(request("twin", (4, 5, 6), max_tokens=100))
        first = asyncio.create_task(anext(stream))
        second = asyncio.create_task(running.follow(request("twin", (1, 2, 3))))
        await asyncio.sleep(0)
        running.gate.open()
        await first
        await stream.aclose()  # ends the first one alone
        outcome = (await second).outcome
        assert outcome.finish_reason is FinishReason.LENGTH
        assert outcome.token_ids == expected.token_ids

    with engine() as running:
        (expected,) = running.run(request("alone", (1, 2, 3)))
        asyncio.run(scenario())
        running.core.check_health()


def test_aborting_an_id_ends_every_request_that_bears_it() -> None:
    async def scenario() -> None:
        running.gate.close()
        twins = [asyncio.create_task(running.follow(LONG)) for _ in range(2)]
        await asyncio.sleep(0)
        running.gate.step()
        running.core.abort("long")
        running.gate.open()
        for twin in twins:
            assert (await twin).outcome.finish_reason is FinishReason.ABORT

    with engine() as running:
        asyncio.run(scenario())


def test_shutting_down_ends_running_and_waiting_requests_and_refuses_later_ones() -> None:
    async def scenario() -> None:
        runs = await started(running, LONG)
        waits = asyncio.create_task(running.follow(request("waits", (1, 2))))
        await asyncio.sleep(0)
        running.gate.open()
        running.core.shutdown()
        for outcome in (await runs, (await waits).outcome):
            assert outcome.error is not None
            assert outcome.error.kind is ErrorKind.UNAVAILABLE

    with engine(limits=roomy(max_running=1)) as running:
        asyncio.run(scenario())
        running.core.shutdown()
        (late,) = running.run(request("late", (1,)))
        assert late.error is not None
        assert late.error.kind is ErrorKind.UNAVAILABLE
        with pytest.raises(RuntimeError, match="ended"):
            running.core.check_health()


def test_requests_from_many_threads_at_once_are_all_served() -> None:
    expected: dict[int, tuple[int, ...]] = {}
    served: dict[int, tuple[int, ...]] = {}

    def client(number: int) -> None:
        one = request(f"r{number}", random_ids(10, seed=number), max_tokens=8)
        served[number] = running.run(one)[0].token_ids

    with engine() as running:
        for number in range(12):
            client(number)
        expected, served = served, {}
        threads = [threading.Thread(target=client, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert served == expected


def test_a_reader_whose_event_loop_is_gone_does_not_stop_the_engine() -> None:
    async def leave_without_closing() -> None:
        stream = running.core.stream(LONG)
        abandoned.append(stream)
        await anext(stream)

    abandoned: list[object] = []
    with engine() as running:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(leave_without_closing())
        loop.close()
        (outcome,) = running.run(request("next", (1, 2, 3)))
        assert outcome.finish_reason is FinishReason.LENGTH
        running.core.abort("long")


def test_stats_are_a_picture_of_their_moment() -> None:
    with engine() as running:
        before = running.core.stats()
        running.run(request("r", (1, 2, 3), max_tokens=5))
        after = running.core.stats()
    assert (before.tokens_generated, before.total_requests) == (0, 0)
    assert (after.tokens_generated, after.total_requests) == (5, 1)


def test_nothing_grows_with_the_number_of_requests_served() -> None:
    with engine(limits=roomy(n_pages=32)) as running:
        for i in range(120):
            running.run(request(f"r{i}", random_ids(9, seed=i), max_tokens=3))
        cache = running.core.cache
        assert len(cache.pool.prefix_cache) <= 32
        assert len(cache.table) == 0
        assert running.core.stats().waiting_requests == 0

"""Running requests hold a shared prefix once, and say how much of it they found."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from deployments.contract.requests import GenerationRequest
from tests.engine.drive import Engine, Outcome, engine, random_ids, request, roomy

PREFIX = random_ids(32, seed=1)  # 8 pages of 4
FIRST = request("first", PREFIX + (7, 8), max_tokens=12)
SECOND = request("second", PREFIX + (9,), max_tokens=12)


def pages_alone(one: GenerationRequest, n_output: int) -> int:
    """Pages of 4 that hold a request's prompt and all of its output but the token last drawn."""
    return -(-(len(one.prompt_ids) + n_output - 1) // 4)


async def submit(running: Engine, *requests: GenerationRequest) -> list[asyncio.Task[Outcome]]:
    async def outcome(one: GenerationRequest) -> Outcome:
        return (await running.follow(one)).outcome

    tasks = [asyncio.create_task(outcome(req)) for req in requests]
    await asyncio.sleep(0)
    return tasks


def check(running: Engine, scenario: Callable[[Engine], Awaitable[list[Outcome]]]) -> None:
    """Runs a scenario and compares its outcomes with those of FIRST and SECOND apart."""

    async def play() -> list[Outcome]:
        return list(await scenario(running))

    first, second = asyncio.run(play())
    assert (first.cached_tokens, second.cached_tokens) == (0, len(PREFIX))
    with engine() as other:
        assert first.token_ids == other.run(FIRST)[0].token_ids
    with engine() as other:
        assert second.token_ids == other.run(SECOND)[0].token_ids


@pytest.mark.parametrize("steps_between", [1, 2, 5])
def test_a_request_that_comes_while_another_runs_shares_its_prefix(steps_between: int) -> None:
    async def scenario(running: Engine) -> list[Outcome]:
        running.gate.close()
        first = await submit(running, FIRST)
        for _ in range(steps_between):
            running.gate.step()
        second = await submit(running, SECOND)
        for _ in range(4):
            running.gate.step()
        # At the gate: pages for the step that has not run yet are held already.
        separate = pages_alone(FIRST, steps_between + 4 + 1) + pages_alone(SECOND, 3 + 1)
        assert running.core.stats().active_requests == 2
        assert running.core.stats().pages_used == separate - len(PREFIX) // 4
        running.gate.open()
        return await asyncio.gather(*first, *second)

    with engine() as running:
        check(running, scenario)


@pytest.mark.parametrize("max_batch_tokens", [16, 512])
def test_two_requests_of_the_same_instant_compute_their_prefix_once(max_batch_tokens: int) -> None:
    async def scenario(running: Engine) -> list[Outcome]:
        running.gate.close()
        plug = await submit(running, request("plug", (1,), max_tokens=1))
        running.gate.await_step()
        both = await submit(running, FIRST, SECOND)
        for _ in range(1 + 32 // min(max_batch_tokens, 32) + 3):
            running.gate.step()
        stats = running.core.stats()
        assert stats.active_requests == 2
        assert stats.pages_used <= len(PREFIX) // 4 + 2 * 2
        running.gate.open()
        await asyncio.gather(*plug)
        return await asyncio.gather(*both)

    with engine(limits=roomy(max_batch_tokens=max_batch_tokens)) as running:
        check(running, scenario)


def test_requests_with_other_salts_share_nothing() -> None:
    with engine() as running:
        running.run(FIRST)
        (outcome,) = running.run(request("salted", FIRST.prompt_ids, cache_salt="other"))
    assert outcome.cached_tokens == 0


def test_the_same_prompt_many_times_at_once_is_computed_once() -> None:
    copies = [request(f"copy{i}", PREFIX + (5,), max_tokens=6) for i in range(6)]
    with engine() as running:
        outcomes = running.run_together(request("plug", (1,), max_tokens=1), *copies)[1:]
        stats = running.core.stats()
    assert len({outcome.token_ids for outcome in outcomes}) == 1
    assert sorted(outcome.cached_tokens for outcome in outcomes) == [0] + [32] * 5
    assert stats.cached_tokens == 5 * 32
    assert stats.prompt_tokens == 6 * 33 + 1


def test_a_follow_up_finds_the_whole_conversation_before_it() -> None:
    with engine() as running:
        (first,) = running.run(FIRST)
        history = FIRST.prompt_ids + first.token_ids
        (second,) = running.run(request("next", history + (1, 2, 3)))
    # The last token drawn was never computed.
    assert second.cached_tokens == (len(history) - 1) // 4 * 4

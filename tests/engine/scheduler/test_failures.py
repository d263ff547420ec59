"""A row that fails alone fails and nothing else; an engine that can't go on says so."""

import asyncio

import pytest
import torch

from deployments.contract.errors import ErrorKind
from deployments.contract.events import FinishReason
from deployments.contract.requests import SamplingParams
from deployments.engine.core import EngineCore
from deployments.engine.loading.loaded_model import LoadedModel
from tests.engine.drive import Engine, Gate, Outcome, Poison, engine, random_ids, request, roomy
from tests.models import tiny_model

BAD = 100
GOOD_IDS = tuple(token_id for token_id in random_ids(30) if token_id != BAD)
# Never draws BAD itself.
SAMPLING = SamplingParams(temperature=0, logit_bias=((BAD, -1e9),))


def poisoned(running: Engine) -> Poison:
    return Poison(running.model, BAD)


def assert_failed(outcome: Outcome, kind: ErrorKind = ErrorKind.INTERNAL) -> None:
    assert outcome.finish_reason is FinishReason.ERROR
    assert outcome.error is not None
    assert outcome.error.kind is kind


def good(name: str, n: int = 12, max_tokens: int = 12) -> Outcome:
    """Returns the outcome of a request on a sound engine."""
    with engine() as running:
        return running.run(request(name, GOOD_IDS[:n], SAMPLING, max_tokens=max_tokens))[0]


def test_a_row_that_fails_alone_harms_nobody_who_comes_later() -> None:
    async def scenario() -> None:
        running.gate.close()
        bad = asyncio.create_task(running.follow(request("bad", (1, BAD, 2), SAMPLING)))
        await asyncio.sleep(0)
        running.gate.await_step()
        later = asyncio.create_task(
            running.follow(request("later", GOOD_IDS[:12], SAMPLING, max_tokens=12))
        )
        await asyncio.sleep(0)
        running.gate.open()
        assert_failed((await bad).outcome)
        assert (await later).outcome == good("later")

    with engine() as running:
        poisoned(running).raises()
        asyncio.run(scenario())
        stats = running.core.stats()
        assert (stats.failed_steps, stats.pages_used) == (1, 0)
        running.core.check_health()


def test_a_request_fails_with_the_step_in_which_its_bad_chunk_runs() -> None:
    with engine(limits=roomy(max_batch_tokens=16)) as running:
        poisoned(running).raises()
        ids = GOOD_IDS[:20] + (BAD,)
        assert_failed(running.run(request("bad", ids, SAMPLING))[0])
        (outcome,) = running.run(request("same prefix", ids[:20], SAMPLING))
    assert outcome.cached_tokens == 16
    assert outcome.finish_reason is FinishReason.LENGTH


def test_bad_requests_do_not_end_an_engine_that_can_go_on() -> None:
    with engine() as running:
        poisoned(running).raises()
        for _ in range(7):
            assert_failed(running.run(request("bad", (BAD,)))[0])
        assert running.run(request("r", GOOD_IDS[:12], SAMPLING))[0].error is None
        running.core.check_health()


def break_down(running: Engine) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    running.model.get_input_embeddings().register_forward_pre_hook(fail)


def test_an_engine_that_can_compute_nothing_any_more_ends_and_everything_pending_with_it() -> None:
    async def scenario() -> None:
        running.gate.close()
        tasks = [
            asyncio.create_task(running.follow(request(f"{i}", (1, 2), SAMPLING))) for i in range(6)
        ]
        await asyncio.sleep(0)
        running.gate.open()
        for task in tasks[:3]:
            assert_failed((await task).outcome)
        for task in tasks[3:]:
            assert_failed((await task).outcome, ErrorKind.UNAVAILABLE)

    with engine(limits=roomy(max_running=1)) as running:
        break_down(running)
        asyncio.run(scenario())
        assert_failed(running.run(request("late", (1, 2)))[0], ErrorKind.UNAVAILABLE)
        with pytest.raises(RuntimeError, match="ended"):
            running.core.check_health()
        running.core.shutdown()
        running.core.shutdown()


def test_rows_that_ran_together_when_it_broke_down_may_go_on_elsewhere() -> None:
    together = [request(f"{i}", (i, 2), SAMPLING) for i in range(1, 9)]
    model = tiny_model()
    core = EngineCore(LoadedModel(model), frozenset(), roomy())
    running = Engine(core, Gate(model), model)
    break_down(running)
    outcomes = running.run_at_once(*together)
    core.shutdown()
    kinds = [outcome.error.kind for outcome in outcomes if outcome.error is not None]
    assert len(kinds) == 8
    assert kinds.count(ErrorKind.INTERNAL) == 3
    assert kinds.count(ErrorKind.UNAVAILABLE) == 5


def test_what_arrives_in_the_last_step_of_an_engine_ends_too() -> None:
    async def scenario() -> list[Outcome]:
        running.gate.close()
        for i in range(3):
            tasks = [asyncio.create_task(running.follow(request(f"{i}", (BAD,))))]
            await asyncio.sleep(0)
            running.gate.await_step()
            if i < 2:
                running.gate.let_one_pass()
                await tasks[0]
        tasks += [asyncio.create_task(running.follow(request("late", (1, 2)))) for _ in range(3)]
        await asyncio.sleep(0)
        running.gate.open()
        return [(await task).outcome for task in tasks]

    with engine() as running:
        break_down(running)
        failed, *late = asyncio.run(scenario())
    assert_failed(failed)
    for outcome in late:
        assert_failed(outcome, ErrorKind.UNAVAILABLE)


def test_a_request_that_ends_as_the_accounts_break_has_its_end() -> None:
    async def scenario() -> Outcome:
        gate.close()
        task = asyncio.create_task(running.follow(request("r", GOOD_IDS[:2], max_tokens=2)))
        await asyncio.sleep(0)
        gate.step()
        core.cache.table.remove(core.cache.table.task_ids()[0])
        gate.open()
        return (await task).outcome

    model = tiny_model()
    gate = Gate(model)
    core = EngineCore(LoadedModel(model), frozenset(), roomy())
    running = Engine(core, gate, model)
    assert asyncio.run(scenario()).finish_reason is FinishReason.LENGTH
    core.shutdown()


def test_an_engine_whose_accounts_are_broken_still_ends_every_request() -> None:
    async def scenario() -> None:
        gate.close()
        tasks = [
            asyncio.create_task(running.follow(request(f"{i}", GOOD_IDS[:5], max_tokens=4)))
            for i in range(3)
        ]
        await asyncio.sleep(0)
        gate.step()
        for task_id in core.cache.table.task_ids():
            core.cache.table.remove(task_id)
        gate.open()
        for task in tasks:
            assert_failed((await task).outcome, ErrorKind.UNAVAILABLE)

    model = tiny_model()
    gate = Gate(model)
    core = EngineCore(LoadedModel(model), frozenset(), roomy())
    running = Engine(core, gate, model)
    asyncio.run(scenario())
    core.shutdown()
    with pytest.raises(RuntimeError, match="ended"):
        core.check_health()


def test_a_row_that_is_not_finite_fails_alone() -> None:
    requests = [
        request("bad", (1, 2, BAD), SAMPLING),
        *(request(f"r{n}", GOOD_IDS[:n], SAMPLING, max_tokens=12) for n in (12, 3, 25)),
    ]
    with engine() as running:
        poisoned(running).gives_nan()
        outcomes = running.run_together(*requests)
        assert running.core.stats().failed_steps == 0
    assert_failed(outcomes[0])
    for outcome, n in zip(outcomes[1:], (12, 3, 25), strict=True):
        assert outcome.token_ids == good(f"r{n}", n).token_ids


def test_pages_that_held_what_is_not_finite_harm_no_later_request() -> None:
    with engine(limits=roomy(n_pages=8)) as running:
        poisoned(running).gives_nan()
        for i in range(3):
            assert_failed(running.run(request("bad", (BAD,) * (20 + i), SAMPLING))[0])
            (outcome,) = running.run(request("r", GOOD_IDS[:12], SAMPLING, max_tokens=12))
            assert outcome.token_ids == good("r").token_ids


def test_what_is_not_finite_is_not_found_again_by_the_next_request() -> None:
    """A fault that passes, as of hardware, must not live on in the prefix cache."""
    ids = GOOD_IDS[:9] + (BAD,) + GOOD_IDS[9:20]
    with engine(limits=roomy(max_batch_tokens=16)) as running:
        weights = running.model.get_input_embeddings().weight
        sound = weights.detach().clone()
        poisoned(running).gives_nan()
        assert_failed(running.run(request("r", ids, SAMPLING))[0])
        with torch.no_grad():
            weights.copy_(sound)
        (outcome,) = running.run(request("r", ids, SAMPLING))
    with engine() as running:
        assert outcome.token_ids == running.run(request("r", ids, SAMPLING))[0].token_ids
    assert outcome.cached_tokens == 0


def test_a_step_that_does_not_come_back_fails_the_health_check_until_it_does() -> None:
    with engine(limits=roomy(max_stuck_s=0.0)) as running:
        running.core.check_health()
        running.gate.close()
        events = running.core.run([request("r", (1, 2), max_tokens=2)])

        async def scenario() -> None:
            follower = asyncio.create_task(running.follow(request("r", (1, 2), max_tokens=2)))
            await asyncio.sleep(0)
            running.gate.await_step()
            with pytest.raises(RuntimeError, match="a step has been running"):
                running.core.check_health()
            running.gate.open()
            assert (await follower).outcome.finish_reason is FinishReason.LENGTH

        asyncio.run(scenario())
        events.close()
        running.core.shutdown()  # no step is in progress afterwards
        with pytest.raises(RuntimeError, match="ended"):
            running.core.check_health()


def test_a_slow_step_is_healthy_within_its_time() -> None:
    async def scenario() -> None:
        running.gate.close()
        follower = asyncio.create_task(running.follow(request("r", (1, 2), max_tokens=2)))
        await asyncio.sleep(0)
        running.gate.await_step()
        running.core.check_health()
        running.gate.open()
        await follower
        running.core.check_health()

    with engine() as running:
        asyncio.run(scenario())


def test_an_engine_whose_model_is_not_finite_at_all_keeps_serving_refusals() -> None:
    model = tiny_model()
    with torch.no_grad():
        model.get_output_embeddings().weight.fill_(torch.nan)
    with engine(model=model) as running:
        for _ in range(5):
            assert_failed(running.run(request("r", (1, 2, 3)))[0])
        running.core.check_health()

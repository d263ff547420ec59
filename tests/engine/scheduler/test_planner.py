"""Prompts share a step: none is blocked by a longer one, and each goes on until it is done."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from deployments.contract.outputs import Pooling, PoolParams
from deployments.engine.scheduler.planner import divide
from deployments.engine.tasks.task import Task
from tests.engine.drive import engine, random_ids, request, roomy
from tests.engine.outputs.drive import ask
from tests.engine.sampling.rows import task_of
from tests.models import CONFIGS


def prompts_of(*sizes: int, priority: int = 0) -> list[Task]:
    return [task_of(prompt=(0,) * size, priority=priority) for size in sizes]


def served(prompts: list[Task], budget: int) -> list[int]:
    """Tokens that each gets of a step."""
    got: Counter[Task] = Counter()
    left = budget
    for task, share in divide({task: task.n_uncomputed for task in prompts}, budget):
        n = min(share, left, task.n_uncomputed - got[task])
        got[task] += n
        left -= n
    return [got[task] for task in prompts]


sizes = st.lists(st.integers(2, 90), min_size=1, max_size=9)
budgets = st.integers(1, 200)


@given(sizes, budgets)
def test_the_first_has_half_of_a_step_and_nothing_is_left_over(
    lengths: list[int], budget: int
) -> None:
    got = served(prompts_of(*lengths), budget)
    assert got[0] >= min(lengths[0], budget - budget // 2)
    assert sum(got) == min(sum(lengths), budget)


@given(sizes, budgets)
def test_every_prompt_is_done_in_as_many_steps_as_all_of_them_need(
    lengths: list[int], budget: int
) -> None:
    prompts = prompts_of(*lengths)
    for _ in range(-(-sum(lengths) // budget)):
        for task, n in zip(prompts, served(prompts, budget), strict=True):
            task.n_computed += n
        prompts = [task for task in prompts if task.n_uncomputed]
    assert not prompts


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((90, 20), (30, 20)),
        ((90, 20, 3), (27, 20, 3)),
        ((90, 60, 20), (25, 5, 20)),
        ((90, 90), (50, 0)),
        ((20, 90), (20, 30)),
        ((90,), (50,)),
    ],
)
def test_the_shortest_of_the_others_come_first_in_their_half(
    lengths: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert served(prompts_of(*lengths), 50) == list(expected)


def test_a_short_prompt_that_is_less_urgent_waits() -> None:
    urgent, later = prompts_of(90), prompts_of(5, priority=1)
    assert served(urgent + later, 50) == [50, 0]


def test_a_prompt_of_3000_tokens_does_not_delay_one_of_20_that_came_after() -> None:
    async def scenario() -> int:
        running.gate.close()
        long = asyncio.create_task(running.follow(request("long", random_ids(3000), max_tokens=1)))
        await asyncio.sleep(0)
        running.gate.step()
        short = request("short", random_ids(20, seed=1), max_tokens=1)
        n = await running.steps_to_first_token(short, limit=9)
        assert not long.done()
        running.gate.open()
        (outcome,) = await asyncio.gather(long)
        assert len(outcome.outcome.token_ids) == 1
        return n

    torch.manual_seed(0)
    config = CONFIGS["llama"]()
    config.max_position_embeddings = 4000
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with engine(model=model, limits=roomy(n_pages=1000, max_batch_tokens=64)) as running:
        assert asyncio.run(scenario()) <= 3


def test_a_target_for_streams_changes_when_prompts_are_computed_and_nothing_else() -> None:
    """One that can't be met: beside streams prompts go on by the least that there is."""
    requests = [
        request(f"r{i}", random_ids(n, seed=i), max_tokens=30) for i, n in enumerate((3, 90, 60))
    ]
    limits = roomy(max_batch_tokens=64, async_scheduling=False)
    with engine(limits=limits) as running:
        expected = running.run_at_once(*requests)
        n_steps = running.core.stats().steps
    with engine(limits=replace(limits, target_itl_ms=1e-6)) as running:
        assert running.run_at_once(*requests) == expected
        assert running.core.stats().steps > n_steps + 10


def test_a_pooling_task_goes_on_beside_a_stream_and_a_long_prompt() -> None:
    """Though it may have but one token of a step, which is less than a page."""
    stream = request("stream", random_ids(4), max_tokens=100)
    prompt = request("prompt", random_ids(96, seed=1), max_tokens=1)
    pooling = ask("pooling", random_ids(6, seed=2), PoolParams(pooling=Pooling.MEAN))
    limits = roomy(n_pages=1024, page_size=16, max_running=4, max_batch_tokens=4)
    with engine(limits=limits) as running:
        assert running.order_of_ends(stream, prompt, pooling) == ["pooling", "prompt", "stream"]

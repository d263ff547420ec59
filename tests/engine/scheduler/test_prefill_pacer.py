"""Streams keep their pace: what prompts get beside them follows from how long steps took."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.engine.scheduler.prefill_pacer import MAX_OBSERVED, PrefillPacer

TARGET_S = 0.2
BUDGET = 512
LEAST = 16


def machine(constant: float, per_row: float, per_token: float) -> Callable[[int, int], float]:
    return lambda rows, tokens: constant + per_row * rows + per_token * tokens


def drive(
    pace: PrefillPacer,
    step_s: Callable[[int, int], float],
    n_steps: int = 100,
    *,
    seed: int = 0,
    noise: float = 0.0,
    stalls: float = 0.0,
) -> list[tuple[int, int]]:
    """Streams come and go while prompts are computed in every other step: (rows, tokens) of each,
    as the pace had it. A stall is a step that took a second more."""
    chance = random.Random(seed)
    given = []
    pace.observe(0, BUDGET, step_s(0, BUDGET))  # the first one's prompt, with no stream beside it
    for i in range(n_steps):
        rows = chance.randint(1, 8)
        tokens = pace.max_prompt_tokens(rows, BUDGET) if i % 2 else 0
        took = step_s(rows, tokens) * chance.uniform(1 - noise, 1 + noise)
        pace.observe(rows, tokens, took + (chance.random() < stalls))
        if tokens:
            given.append((rows, tokens))
    return given


prices = st.tuples(st.floats(0, 0.1), st.floats(0, 0.005), st.floats(1e-5, 0.01))


@settings(deadline=None)
@given(prices, st.integers(0, 99))
def test_steps_with_prompts_come_as_near_to_the_target_as_they_can(
    price: tuple[float, float, float], seed: int
) -> None:
    step_s = machine(*price)
    for rows, tokens in drive(PrefillPacer(TARGET_S, LEAST), step_s, seed=seed)[10:]:
        assert LEAST <= tokens <= BUDGET
        if tokens > LEAST:
            assert step_s(rows, tokens) <= TARGET_S * 1.01
        if tokens < BUDGET:
            assert step_s(rows, tokens + 2) >= TARGET_S * 0.99


@settings(deadline=None)
@given(st.integers(0, 99))
def test_noise_and_stalls_do_not_throw_it_off(seed: int) -> None:
    step_s = machine(0.03, 0.002, 0.0007)
    last = drive(PrefillPacer(TARGET_S, LEAST), step_s, 200, seed=seed, noise=0.1, stalls=0.1)[-20:]
    for rows, tokens in last:
        assert TARGET_S * 0.75 < step_s(rows, tokens) < TARGET_S * 1.25


def test_it_follows_a_machine_that_becomes_slower() -> None:
    pace = PrefillPacer(TARGET_S, LEAST)
    drive(pace, machine(0.03, 0.002, 0.0003))
    slower = machine(0.06, 0.004, 0.0006)
    last = drive(pace, slower, 4 * MAX_OBSERVED)[-5:]
    assert all(abs(slower(*step) - TARGET_S) < TARGET_S * 0.05 for step in last)


@pytest.mark.parametrize("target_s", [None, TARGET_S])
def test_prompts_have_all_of_a_step_without_streams_or_without_a_target(
    target_s: float | None,
) -> None:
    pace = PrefillPacer(target_s, LEAST)
    drive(pace, machine(0.1, 0.01, 0.01))
    assert pace.max_prompt_tokens(0, BUDGET) == BUDGET
    assert (pace.max_prompt_tokens(1, BUDGET) == BUDGET) == (target_s is None)


def test_prompts_go_on_where_streams_alone_are_too_slow() -> None:
    given = drive(PrefillPacer(TARGET_S, LEAST), machine(3 * TARGET_S, 0.01, 0.01))
    assert {tokens for _, tokens in given} == {LEAST}


def test_a_first_guess_is_small() -> None:
    assert PrefillPacer(TARGET_S, LEAST).max_prompt_tokens(4, BUDGET) < BUDGET / 4


def test_never_more_than_the_budget() -> None:
    assert PrefillPacer(TARGET_S, LEAST).max_prompt_tokens(4, 3) == 3


@settings(deadline=None)
@given(prices, st.integers(0, 99))
def test_pooling_tasks_make_no_step_of_streams_twice_as_long(
    price: tuple[float, float, float], seed: int
) -> None:
    pace, step_s = PrefillPacer(None, LEAST), machine(*price)
    chance = random.Random(seed)
    for i in range(60):
        rows = chance.randint(1, 8)
        tokens = pace.max_pooling_tokens(rows, BUDGET, has_prompts=False) if i % 2 else 0
        if tokens > LEAST:
            assert step_s(rows, tokens) <= 2 * step_s(rows, 0)
        pace.observe(rows, tokens, step_s(rows, tokens))


def test_pooling_tasks_have_all_of_a_step_without_streams() -> None:
    assert PrefillPacer(None, LEAST).max_pooling_tokens(0, BUDGET, has_prompts=False) == BUDGET


def test_pooling_tasks_fill_what_a_dear_first_token_leaves_of_a_step() -> None:
    def step_s(tokens: int) -> float:
        return 0.01 + 0.004 * (tokens > 0) + 1e-4 * tokens  # 30 tokens make it 1.7 times as long

    pace, given = PrefillPacer(None, LEAST), []
    for _ in range(300):
        given.append(pace.max_pooling_tokens(2, BUDGET, has_prompts=False))
        pace.observe(2, given[-1], step_s(given[-1]))
    assert max(map(step_s, given)) < 2 * step_s(0)
    assert sum(given[100:]) / len(given[100:]) > 20


def test_pooling_tasks_go_on_beside_prompts_that_never_end() -> None:
    pace = PrefillPacer(None, LEAST)
    given = []
    for _ in range(300):
        given.append(pace.max_pooling_tokens(2, BUDGET, has_prompts=True))
        pace.observe(2, 100 + given[-1], 0.05)
    assert min(given) > 0

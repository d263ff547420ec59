"""A draft model is asked for as many tokens as pay, by the times of steps and of its passes."""

from collections.abc import Callable

from deployments.engine.scheduler.draft_policy import (
    FIRST_REFRESH,
    FIRST_RETRY,
    MAX_OBSERVED,
    MIN_OBSERVED,
    TRIED_TOKENS,
    DraftPolicy,
)

N_MAX = 8


def policy(
    step_s: Callable[[int], float], pass_s: Callable[[int], float], rows: tuple[int, ...] = (1,)
) -> DraftPolicy:
    """One that knows what steps of so many tokens and passes of so many rows take."""
    known = DraftPolicy()
    for n_rows in rows:
        for _ in range(MIN_OBSERVED):
            for k in reversed(range(N_MAX + 1)):  # a plain step is the last one
                known.observe_step(n_rows, n_rows * (1 + k), step_s(n_rows * (1 + k)))
            known.observe_passes(n_rows, 2, 2 * pass_s(n_rows))
    return known


def test_nothing_is_drafted_before_a_plain_step_was_timed() -> None:
    new = DraftPolicy()
    assert not new.may_draft(1, N_MAX)
    for _ in range(MIN_OBSERVED):
        new.observe_step(1, 1, 0.01)
    assert new.may_draft(1, N_MAX)
    assert not new.may_draft(2, N_MAX)


def test_plain_steps_are_timed_now_and_then() -> None:
    known = policy(lambda n: 10.0, lambda n: 0.1)
    for _ in range(FIRST_REFRESH):
        assert known.may_draft(1, N_MAX)
        known.observe_step(1, 3, 10.0)
    assert known.needs_plain_step(1)
    assert not known.may_draft(1, N_MAX)
    known.observe_step(1, 1, 10.0)
    assert not known.needs_plain_step(1)
    assert known.may_draft(1, N_MAX)


def test_the_longer_the_more_is_right() -> None:
    known = policy(lambda n: 10 + 0.1 * n, lambda n: 1.0)
    lengths = known.lengths([0.05, 0.3, 0.6, 0.8, 0.99], 1, N_MAX)
    assert lengths == sorted(lengths)
    assert lengths[0] == 0
    assert lengths[-1] == N_MAX


def test_it_ends_where_the_tokens_that_follow_are_seldom_right() -> None:
    """A head was trained to say so many tokens, and no more."""
    known = policy(lambda n: 10.0, lambda n: 0.2)
    assert known.lengths([0.8], 1, N_MAX)[0] > 4
    for _ in range(100):
        known.observe_draft(N_MAX, 3)
        known.observe_step(1, 1, 10.0)
    assert known.lengths([0.8], 1, N_MAX) == [3]
    for _ in range(1000):
        known.observe_draft(3, 3)
        known.observe_step(1, 1, 10.0)
    assert known.lengths([0.8], 1, N_MAX)[0] > 3


def test_what_takes_as_long_as_a_step_does_not_pay() -> None:
    known = policy(lambda n: 10.0, lambda n: 10.0)
    assert not known.may_draft(1, N_MAX)


def test_where_tokens_cost_what_rows_cost_nothing_is_drafted() -> None:
    """Few rows take the time of one, many rows their share of it each."""
    known = policy(lambda n: max(16.0, n), lambda n: 1.0, rows=(1, 32))
    assert known.may_draft(1, N_MAX)
    assert not known.may_draft(32, N_MAX)


def test_what_did_not_pay_is_tried_again_and_ever_more_seldom() -> None:
    known = policy(lambda n: 10.0, lambda n: 10.0)
    waits = []
    for _ in range(3):
        n = 0
        while not known.may_draft(1, N_MAX):
            known.observe_step(1, 1, 10.0)
            n += 1
        waits.append(n)
        assert known.lengths([0.8], 1, N_MAX) == [TRIED_TOKENS]
    assert waits[1:] == [FIRST_RETRY, 2 * FIRST_RETRY]


def test_it_goes_on_once_it_pays_again() -> None:
    known = policy(lambda n: 10.0, lambda n: 10.0)
    for _ in range(MAX_OBSERVED):
        known.observe_passes(1, 1, 0.5)
        known.observe_step(1, 1, 10.0)
    assert known.may_draft(1, N_MAX)
    assert known.lengths([0.8], 1, N_MAX)[0] > TRIED_TOKENS


def test_a_long_prompt_is_read_once_as_much_was_said_as_pays_for_it() -> None:
    known = policy(lambda n: 10.0, lambda n: 0.1)
    for _ in range(MIN_OBSERVED):
        known.observe_read(100, 10.0)
    worth = [known.is_worth_reading(500, said, 0.8, 1, N_MAX) for said in range(20)]
    assert worth == sorted(worth)
    assert not worth[3]
    assert worth[-1]
    assert known.is_worth_reading(50, 1, 0.8, 1, N_MAX)


def test_what_costs_nothing_to_guess_is_as_long_as_a_step_takes_it_well() -> None:
    """Up to four tokens take the time of one, more than that of three."""
    known = policy(lambda n: 10.0 if n <= 4 else 30.0, lambda n: 5.0)
    assert known.longest_ngram(1, N_MAX) == 3
    assert known.longest_ngram(1, 2) == 2
    assert DraftPolicy(is_forced=True).longest_ngram(1, N_MAX) == N_MAX


def test_forced_it_is_as_long_as_it_may_be() -> None:
    assert DraftPolicy(is_forced=True).may_draft(9, 3)
    assert DraftPolicy(is_forced=True).lengths([0.0, 1.0], 9, 3) == [3, 3]

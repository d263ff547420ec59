"""Samplers that look at what was said before: penalties, DRY and bad words, against plain loops."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.contract.requests import DryParams, SamplingParams
from deployments.engine.sampling.bans import BadWordsStrategy
from deployments.engine.sampling.penalties import DryStrategy, PenaltyStrategy
from deployments.engine.sampling.strategy import BaseSamplingStrategy
from deployments.engine.tasks.repetitions import Repetitions, match_lengths
from tests.engine.sampling.rows import VOCAB, Array, applied, sequences, task_of, token_ids

LOGITS = np.linspace(-3, 3, VOCAB).tolist()
few_ids = st.integers(0, 2)  # so that much is repeated
windows = st.integers(1, 9)


def growing(
    strategy: BaseSamplingStrategy,
    params: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
) -> Array:
    """Returns the logits after a strategy that has seen a sequence grow token by token."""
    task = task_of(params, prompt)
    for token_id in output:
        applied(strategy, LOGITS, task)
        task.append(token_id)
    return applied(strategy, LOGITS, task)


@settings(deadline=None, max_examples=80)
@given(
    prompt=sequences,
    output=sequences,
    last_n=st.integers(-1, 12),
    repetition=st.sampled_from([0.7, 1.0, 1.4]),
    presence=st.sampled_from([0.0, 0.9]),
    frequency=st.sampled_from([0.0, -0.3]),
)
def test_a_window_lets_all_penalties_see_the_last_tokens_of_prompt_and_output(
    prompt: list[int],
    output: list[int],
    last_n: int,
    repetition: float,
    presence: float,
    frequency: float,
) -> None:
    params = SamplingParams(
        repetition_penalty=repetition,
        presence_penalty=presence,
        frequency_penalty=frequency,
        penalty_last_n=last_n,
    )
    known = [0, *prompt, *output]
    seen = known if last_n == -1 else known[max(len(known) - last_n, 0) :]
    expected = np.array(LOGITS)
    for token_id in set(seen):
        logit = expected[token_id]
        expected[token_id] = logit / repetition if logit > 0 else logit * repetition
        expected[token_id] -= presence + frequency * seen.count(token_id)
    for got in (
        growing(PenaltyStrategy(), params, [0, *prompt], output),
        applied(PenaltyStrategy(), LOGITS, task_of(params, [0, *prompt], output)),
    ):
        assert np.allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize("huge", [1e300, -1e300])
def test_no_penalty_is_too_large_for_a_float(huge: float) -> None:
    params = SamplingParams(
        repetition_penalty=abs(huge),
        presence_penalty=huge,
        frequency_penalty=huge,
    )
    assert np.isfinite(applied(PenaltyStrategy(), LOGITS, task_of(params, [1], [1, 2, 2]))).all()


def repetition_before(known: Sequence[int], token_id: int, breakers: Sequence[int]) -> int:
    """The most newest tokens that stood before this token once before."""
    longest = -1
    for index in range(1, len(known)):
        if known[index] != token_id:
            continue
        n = 0
        while n < index and known[index - 1 - n] == known[-1 - n]:
            if known[-1 - n] in breakers:
                break
            n += 1
        longest = max(longest, n)
    return longest


@settings(deadline=None, max_examples=200)
@given(
    prompt=st.lists(few_ids, max_size=12),
    output=st.lists(few_ids, max_size=12),
    allowed_length=st.integers(0, 4),
    last_n=st.one_of(st.just(-1), windows),
    breakers=st.sets(few_ids, max_size=1),
)
def test_dry_punishes_what_would_prolong_a_repetition(
    prompt: list[int], output: list[int], allowed_length: int, last_n: int, breakers: set[int]
) -> None:
    dry = DryParams(
        multiplier=0.8,
        base=1.5,
        allowed_length=allowed_length,
        last_n=last_n,
        breakers=tuple(breakers),
    )
    params = SamplingParams(dry=dry)
    known = [0, *prompt, *output]
    window = known if last_n == -1 else known[-last_n:]
    expected = np.array(LOGITS)
    for token_id in range(VOCAB):
        n = repetition_before(window, token_id, dry.breakers)
        if n >= allowed_length and token_id not in breakers:
            expected[token_id] -= 0.8 * 1.5 ** (n - allowed_length)
    for got in (
        growing(DryStrategy(), params, [0, *prompt], output),
        applied(DryStrategy(), LOGITS, task_of(params, [0, *prompt], output)),
    ):
        assert np.allclose(got, expected, atol=1e-4)


def test_dry_gives_its_examples() -> None:
    """The tokens are a b c c b c y a b c: c follows three that repeat, y two, b one."""
    known = [1, 2, 3, 3, 2, 3, 4, 1, 2, 3]
    punished = [
        np.array(LOGITS)
        - applied(
            DryStrategy(),
            LOGITS,
            task_of(
                SamplingParams(
                    dry=DryParams(multiplier=1, base=2, allowed_length=1, breakers=breakers)
                ),
                known,
            ),
        )
        for breakers in ((), (1,), (4,), (3,))
    ]
    assert [row[[3, 4, 2]].round(4).tolist() for row in punished] == [
        [4, 2, 1],
        [2, 2, 1],
        [4, 0, 1],
        [0, 0, 0],
    ]


def test_dry_that_could_never_apply_changes_nothing() -> None:
    known = [1, 2] * 20
    for changes in ({"multiplier": 0.0}, {"last_n": 0}, {"allowed_length": 10**30}):
        dry = DryParams(**{"multiplier": 1.0, **changes})  # type: ignore[arg-type]
        assert applied(DryStrategy(), LOGITS, task_of(SamplingParams(dry=dry), known)).tolist() == (
            pytest.approx(LOGITS)
        )


def test_dry_of_an_endless_repetition_is_a_number() -> None:
    dry = DryParams(multiplier=1e300, base=1e300, allowed_length=0)
    got = applied(DryStrategy(), LOGITS, task_of(SamplingParams(dry=dry), [1] * 99))
    assert np.isfinite(got).all()
    assert got[1] < -1e8


@settings(deadline=None, max_examples=150)
@given(st.lists(few_ids, min_size=1, max_size=40))
def test_match_lengths_are_those_of_a_plain_comparison(tokens: list[int]) -> None:
    expected = []
    for end in range(1, len(tokens)):
        n = 0
        while n < end and tokens[end - 1 - n] == tokens[-1 - n]:
            n += 1
        expected.append(n)
    assert match_lengths(np.array(tokens, dtype=np.int64)).tolist() == expected


@pytest.mark.parametrize("period", [1, 2, 7, 100_000])
def test_a_long_sequence_is_searched_at_once_as_token_by_token(period: int) -> None:
    """Whatever its period: the search is not quadratic where all is repeated."""
    generator = np.random.default_rng(period)
    tokens = np.tile(generator.integers(0, 50, period), 1 + 100_000 // period)[:100_000]
    at_once, grown = (Repetitions(len(tokens), (3,)) for _ in range(2))
    for end in range(len(tokens) - 5, len(tokens)):
        grown.continuations(tokens[:end], 70_000, 1)
    for got, expected in zip(
        at_once.continuations(tokens, 70_000, 1),
        grown.continuations(tokens, 70_000, 1),
        strict=True,
    ):
        assert got.tolist() == expected.tolist()


@settings(deadline=None, max_examples=100)
@given(
    words=st.lists(st.lists(few_ids, min_size=1, max_size=4).map(tuple), max_size=6),
    prompt=st.lists(few_ids, max_size=5),
    output=st.lists(few_ids, max_size=5),
)
def test_a_bad_word_is_never_completed(
    words: list[tuple[int, ...]], prompt: list[int], output: list[int]
) -> None:
    known = [0, *prompt, *output]
    banned = {
        word[-1]
        for word in words
        if [*word[:-1]] == known[len(known) - len(word) + 1 :] and len(word) <= len(known) + 1
    }
    params = SamplingParams(bad_words=tuple(words))
    got = applied(BadWordsStrategy(), LOGITS, task_of(params, [0, *prompt], output))
    assert set(np.flatnonzero(np.isinf(got)).tolist()) == banned


@given(token_ids, token_ids)
def test_a_bad_word_of_one_token_is_always_banned(bad: int, newest: int) -> None:
    params = SamplingParams(bad_words=((bad,),))
    got = applied(BadWordsStrategy(), LOGITS, task_of(params, [newest]))
    assert np.flatnonzero(np.isinf(got)).tolist() == [bad]

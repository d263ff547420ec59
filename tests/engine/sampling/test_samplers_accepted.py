"""Whatever the validation lets pass can be drawn: a row that raised would fail all others."""

from math import inf, isfinite, isnan
from random import Random
from sys import float_info

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.contract.requests import DryParams, MirostatParams, SamplingParams
from deployments.engine.sampling.sampler import SAMPLERS, default_pipeline
from deployments.engine.validation import find_invalid
from tests.engine.sampling.rows import VOCAB, task_of, token_ids

extremes = st.sampled_from([0.0, 5e-324, 1e-45, 1.0, 1e30, float_info.max])
amounts = extremes | st.floats(0, allow_nan=False, allow_infinity=False)
signed = amounts | amounts.map(lambda amount: -amount)
shares = st.sampled_from([0.0, 5e-324, 1 - 1e-16, 1.0]) | st.floats(0, 1)
counts = st.integers(0, 20) | st.just(10**40)
lengths = st.just(-1) | counts
some_ids = st.lists(token_ids, min_size=1, max_size=3).map(tuple)
accepted = st.builds(
    SamplingParams,
    temperature=amounts,
    dynatemp_range=amounts,
    dynatemp_exponent=amounts,
    top_k=counts,
    top_p=shares,
    min_p=shares,
    typical_p=shares,
    top_n_sigma=amounts,
    xtc_probability=shares,
    xtc_threshold=shares,
    repetition_penalty=amounts.filter(bool),
    presence_penalty=signed,
    frequency_penalty=signed,
    penalty_last_n=st.none() | lengths,
    dry=st.none()
    | st.builds(
        DryParams,
        multiplier=amounts,
        base=amounts.map(lambda amount: max(amount, 1.0)),
        allowed_length=counts,
        last_n=lengths,
        breakers=some_ids,
    ),
    mirostat=st.none()
    | st.builds(
        MirostatParams,
        version=st.sampled_from([1, 2]),
        tau=amounts,
        eta=amounts,
        mu=st.none() | signed,
    ),
    logit_bias=st.lists(st.tuples(token_ids, signed | st.just(-inf)), max_size=4).map(tuple),
    bad_words=st.lists(some_ids, max_size=4).map(tuple),
    samplers=st.lists(st.sampled_from(list(SAMPLERS)), max_size=6).map(tuple),
    min_keep=counts,
    seed=st.integers(-(2**70), 2**70),
    logprobs=st.none() | counts,
    sampled_logprobs=st.booleans(),
)


def row(random: Random) -> list[float]:
    """Drawn as a whole: one by one its numbers take most of a test's time."""
    extreme = random.choice((0.0, 0.1, 0.9))
    some = [random.choice(EXTREMES) if random.random() < extreme else 0.0 for _ in range(VOCAB)]
    whole = [number or random.uniform(-30, 30) for number in some]
    whole[random.randrange(VOCAB)] = random.choice((-30.0, 0.0, 30.0))  # not all are -inf
    return whole


EXTREMES = (-inf, -3e38, 3e38, 0.0)
rows = st.integers(0, 2**32).map(lambda seed: row(Random(seed)))
sequences = st.lists(token_ids, min_size=1, max_size=6)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(accepted, rows, sequences, sequences), min_size=1, max_size=3))
def test_what_is_accepted_is_drawn(
    batch: list[tuple[SamplingParams, list[float], list[int], list[int]]],
) -> None:
    tasks = [task_of(params, prompt, output) for params, _, prompt, output in batch]
    assert [find_invalid(task.request, VOCAB) for task in tasks] == [None] * len(tasks)
    drawn = default_pipeline().sample(torch.tensor([row for _, row, _, _ in batch]), tasks)
    for sample, task in zip(drawn, tasks, strict=True):
        assert (sample.token_id is None) == sample.is_all_banned
        assert task.sampling_state.mirostat_mu is None or isfinite(task.sampling_state.mirostat_mu)
        assert sample.logprob is None or not isnan(sample.logprob.logprob)

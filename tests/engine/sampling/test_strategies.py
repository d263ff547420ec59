"""Each strategy against a plain reference, and the draw against the distribution it draws from."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import eq
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from deployments.contract.requests import SamplingParams
from deployments.engine.rng import SAMPLE_STREAM, mix, stream_keys, uniform
from deployments.engine.sampling.bans import LogitBiasStrategy, MinTokensStrategy
from deployments.engine.sampling.penalties import PenaltyStrategy
from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.sampler import default_pipeline
from deployments.engine.sampling.strategy import BaseSamplingStrategy
from deployments.engine.sampling.temperature import TemperatureStrategy
from deployments.engine.sampling.truncation import (
    FIRST_REACH,
    MinPStrategy,
    TopKStrategy,
    TopPStrategy,
)
from deployments.engine.tasks.task import Task
from tests.engine.sampling.rows import (
    CPU,
    VOCAB,
    Array,
    applied,
    logit_rows,
    only,
    sequences,
    softmax,
    task_of,
)

Reference = Callable[[Array, SamplingParams, Task], Array]

sampling_params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    top_k=st.integers(0, VOCAB + 2),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    repetition_penalty=st.sampled_from([0.8, 1.0, 1.5]),
    presence_penalty=st.sampled_from([-0.5, 0.0, 1.0]),
    frequency_penalty=st.sampled_from([-0.5, 0.0, 1.0]),
    logit_bias=st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-9, 9, width=32)).map(
        lambda biases: tuple(biases.items())
    ),
    seed=st.integers(-(2**63), 2**64 - 1),
    logprobs=st.sampled_from([None, 0, 3]),
)


def biased(x: Array, params: SamplingParams, task: Task) -> Array:
    for token_id, bias in params.logit_bias:
        x[token_id] += bias
    return x


def penalised(x: Array, params: SamplingParams, task: Task) -> Array:
    tokens = task.tokens[: task.n_tokens].tolist()
    for token_id in set(tokens):
        factor = params.repetition_penalty
        x[token_id] = x[token_id] / factor if x[token_id] > 0 else x[token_id] * factor
    output = tokens[task.n_prompt :]
    for token_id in set(output):
        x[token_id] -= params.presence_penalty
        x[token_id] -= params.frequency_penalty * output.count(token_id)
    return x


def heated(x: Array, params: SamplingParams, task: Task) -> Array:
    if params.temperature in (0, 1):
        return x
    return np.asarray((x - x.max()) / params.temperature)


def top_k(x: Array, params: SamplingParams, task: Task) -> Array:
    if params.temperature == 0 or not 0 < params.top_k < VOCAB:
        return x
    return only(x, x >= np.sort(x)[-params.top_k])


def top_p(x: Array, params: SamplingParams, task: Task) -> Array:
    if params.temperature == 0 or params.top_p == 1:
        return x
    probs, kept, mass = softmax(x), np.zeros(VOCAB, dtype=bool), 0.0
    for token_id in np.argsort(-x, kind="stable"):
        kept[token_id] = True
        mass += probs[token_id]
        if mass >= params.top_p:
            break
    return only(x, kept)


def min_p(x: Array, params: SamplingParams, task: Task) -> Array:
    if params.temperature == 0 or params.min_p == 0:
        return x
    probs = softmax(x)
    return only(x, probs >= params.min_p * probs.max() * (1 - 1e-6))


STRATEGIES: list[tuple[BaseSamplingStrategy, Reference]] = [
    (LogitBiasStrategy(), biased),
    (PenaltyStrategy(), penalised),
    (TemperatureStrategy(), heated),
    (TopKStrategy(), top_k),
    (TopPStrategy(), top_p),
    (MinPStrategy(), min_p),
]


@pytest.mark.parametrize(
    ("strategy", "reference"), STRATEGIES, ids=lambda x: getattr(x, "__name__", "")
)
@settings(deadline=None, max_examples=60)
@given(logits=logit_rows, params=sampling_params, prompt=sequences, output=sequences)
def test_a_strategy_does_what_its_plain_reference_does(
    strategy: BaseSamplingStrategy,
    reference: Reference,
    logits: list[float],
    params: SamplingParams,
    prompt: list[int],
    output: list[int],
) -> None:
    task = task_of(params, [*prompt, 0], output)
    expected = reference(np.array(logits, dtype=np.float64), params, task)
    got = applied(strategy, logits, task)
    assert np.allclose(got, expected, rtol=1e-4, atol=1e-4, equal_nan=False)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(logit_rows, sampling_params, sequences, sequences), min_size=2))
def test_a_batch_of_different_rows_draws_what_each_draws_alone(
    rows: list[tuple[list[float], SamplingParams, list[int], list[int]]],
) -> None:
    def tasks() -> list[Task]:
        return [task_of(params, [*prompt, 1], output) for _, params, prompt, output in rows]

    logits = torch.tensor([row[0] for row in rows], dtype=torch.float32)
    together = default_pipeline().sample(logits.clone(), tasks())
    alone = [
        default_pipeline().sample(logits[i : i + 1].clone(), [task])[0]
        for i, task in enumerate(tasks())
    ]
    assert together == alone


@settings(deadline=None, max_examples=40)
@given(sequences, st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=8))
def test_counting_the_output_token_by_token_is_counting_it_at_once(
    prompt: list[int], output: list[int]
) -> None:
    params = SamplingParams(frequency_penalty=1.0, presence_penalty=0.5, repetition_penalty=1.3)
    logits = np.linspace(-3, 3, VOCAB).tolist()
    growing = task_of(params, [*prompt, 0])
    for token_id in output:
        applied(PenaltyStrategy(), logits, growing)
        growing.append(token_id)
    at_once = task_of(params, [*prompt, 0], output)
    assert np.array_equal(
        applied(PenaltyStrategy(), logits, growing), applied(PenaltyStrategy(), logits, at_once)
    )


def drawn(params: SamplingParams, logits: Sequence[float], seeds: int) -> NDArray[np.int64]:
    """How often each token is drawn over some seeds."""
    tasks = [task_of(replace(params, seed=seed)) for seed in range(seeds)]
    rows = torch.tensor([logits], dtype=torch.float32).repeat(seeds, 1)
    ids = [sample.token_id for sample in default_pipeline().sample(rows, tasks)]
    return np.bincount(np.array(ids, dtype=np.int64), minlength=len(logits))


def chi_square(counts: NDArray[np.int64], expected: Array) -> float:
    """Over the tokens that are expected at all; no other one may have been drawn."""
    said = expected > 0
    assert not counts[~said].any()
    return float(((counts - expected)[said] ** 2 / expected[said]).sum())


# Probability of a larger chi-square 0.001, by degrees of freedom; all seeds are fixed.
LARGEST = {4: 18.5, 11: 31.3}


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_over_many_seeds_follow_the_softmax(temperature: float) -> None:
    logits = np.linspace(-2, 2, VOCAB)
    n = 4000
    counts = drawn(SamplingParams(temperature=temperature), logits.tolist(), n)
    assert chi_square(counts, softmax(logits / temperature) * n) < LARGEST[VOCAB - 1]


def test_draws_over_many_positions_follow_the_softmax() -> None:
    logits = torch.linspace(-2, 2, VOCAB)
    n = 4000
    tasks = [task_of(SamplingParams(seed=5))] * n
    pending = default_pipeline().launch(logits.repeat(n, 1), tasks, np.arange(n))
    ids = [sample.token_id for sample in pending.result()]
    counts = np.bincount(np.array(ids, dtype=np.int64), minlength=VOCAB)
    assert chi_square(counts, softmax(logits.double().numpy()) * n) < LARGEST[VOCAB - 1]


@pytest.mark.parametrize("truncation", [{"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.1}])
def test_draws_follow_the_softmax_of_what_truncation_leaves(truncation: dict[str, Any]) -> None:
    logits, n_kept = np.linspace(-3, 3, VOCAB), 5
    left = only(logits, np.arange(VOCAB) >= VOCAB - n_kept)
    counts = drawn(SamplingParams(**truncation), logits.tolist(), 4000)
    assert chi_square(counts, softmax(left) * 4000) < LARGEST[n_kept - 1]


def test_two_models_that_nearly_agree_nearly_always_draw_the_same() -> None:
    """They share 92 % of their probability. By one number for all tokens, passed by the sum of
    probabilities, they would draw the same token for 67 % of the seeds."""
    generator = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn(300, 4096, generator=generator)
    others = logits + 0.3 * torch.randn(300, 4096, generator=generator)
    tasks = [task_of(SamplingParams(seed=seed)) for seed in range(300)]
    said = [
        [sample.token_id for sample in default_pipeline().sample(rows, tasks)]
        for rows in (logits, others)
    ]
    assert sum(map(eq, *said)) > 0.86 * 300


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_uniform_is_at_least_0_and_below_1(seed: int, position: int) -> None:
    keys = stream_keys(np.array([seed], dtype=np.uint64), np.array([position]), SAMPLE_STREAM)
    assert 0 <= uniform(keys)[0] < 1


def test_neighbouring_seeds_and_positions_draw_independently() -> None:
    n = 300
    seeds, positions = np.meshgrid(np.arange(n, dtype=np.uint64), np.arange(n))
    keys = stream_keys(seeds.ravel(), positions.ravel(), SAMPLE_STREAM)
    are_independent(uniform(keys).reshape(n, n) - 0.5)


def test_neighbouring_tokens_and_positions_have_independent_noise() -> None:
    n = 300
    ids = np.arange(n, dtype=np.uint64)
    keys = stream_keys(np.zeros_like(ids), np.arange(n), SAMPLE_STREAM)
    bits = mix(np.add.outer(keys, ids).ravel())
    are_independent(uniform(bits).reshape(n, n) - 0.5)


def are_independent(grid: Array) -> None:
    assert abs(grid.mean()) < 0.005
    assert abs((grid[1:] * grid[:-1]).mean()) * 12 < 0.02
    assert abs((grid[:, 1:] * grid[:, :-1]).mean()) * 12 < 0.02
    assert abs((grid[1:, :-1] * grid[:-1, 1:]).mean()) * 12 < 0.02


LOGITS = [0.0, 3.0, 1.0, 3.0, -2.0, 2.0]


def support(params: SamplingParams, logits: Sequence[float] = LOGITS) -> set[int]:
    return set(np.flatnonzero(drawn(params, logits, 600)).tolist())


def test_without_strategies_every_token_is_drawn() -> None:
    assert support(SamplingParams()) == set(range(6))


def test_tokens_that_tie_for_the_last_place_of_top_k_are_all_kept() -> None:
    assert support(SamplingParams(top_k=1)) == {1, 3}
    assert support(SamplingParams(top_k=3)) == {1, 3, 5}


def test_a_tiny_top_p_keeps_the_most_likely_token() -> None:
    for top_p in (0.0, 1e-9, 0.01):
        assert support(SamplingParams(top_p=top_p), [0.0, 3.0, 2.9]) == {1}


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 999),
    st.floats(0.1, 4),
    st.sampled_from([0.0, 0.25]),
    st.lists(st.tuples(st.sampled_from([0.05, 0.5, 0.9, 0.999]), st.integers(0, 300)), min_size=1),
)
def test_top_p_is_the_same_whether_a_large_vocabulary_is_sorted_or_not(
    seed: int, spread: float, step: float, asked: list[tuple[float, int]]
) -> None:
    """Tokens may tie, as those of rounded logits do."""
    vocab = 8 * FIRST_REACH
    logits = spread * torch.randn(len(asked), vocab, generator=torch.Generator().manual_seed(seed))
    if step:
        logits = (logits / step).round() * step
    tasks = [task_of(SamplingParams(top_p=p, min_keep=n)) for p, n in asked]
    cut = logits.clone()
    TopPStrategy().apply(cut, SamplingRows(tasks, CPU))
    for row, kept, (p, n) in zip(logits, cut, asked, strict=True):
        order = row.argsort(descending=True, stable=True)
        before = row.double().softmax(0)[order].cumsum(0).roll(1)
        before[0] = 0
        fewest, most = (max(int((before < p + way).sum()), n, 1) for way in (-1e-5, 1e-5))
        n_kept = int(kept.isfinite().sum())
        assert fewest <= n_kept <= most
        assert torch.equal(kept[order[:n_kept]], row[order[:n_kept]])


def test_top_p_takes_the_first_of_tokens_that_tie() -> None:
    assert support(SamplingParams(top_p=0.2), [3.0] * 40) == set(range(8))


def test_min_p_of_one_keeps_what_ties_with_the_most_likely() -> None:
    assert support(SamplingParams(min_p=1.0)) == {1, 3}


@pytest.mark.parametrize("temperature", [1e-3, 1e-10, 1e-38, 1e-45, 5e-324])
def test_a_tiny_temperature_is_greedy(temperature: float) -> None:
    logits = [-50.0, 10.0, 49.0, 50.0]
    assert support(SamplingParams(temperature=temperature), logits) == {3}


def test_a_huge_temperature_is_uniform() -> None:
    counts = drawn(SamplingParams(temperature=1e30), LOGITS, 1200)
    assert counts.min() > 150


def test_a_huge_temperature_frees_no_banned_token() -> None:
    banned = SamplingParams(temperature=1e300, logit_bias=((1, float("-inf")),))
    assert support(banned) == {0, 2, 3, 4, 5}


def test_greedy_rows_ignore_what_only_shapes_a_distribution() -> None:
    params = SamplingParams(temperature=0, top_k=1, top_p=0.1, min_p=0.9)
    assert support(params, [0.0, 1.0, 0.9]) == {1}


def test_a_banned_token_is_never_drawn_even_if_all_others_are_unlikely() -> None:
    bias = SamplingParams(logit_bias=((1, float("-inf")),))
    assert support(bias, [0.0, 80.0, 0.0]) == {0, 2}


def test_end_tokens_are_banned_before_min_tokens_and_free_afterwards() -> None:
    early = task_of(stop_token_ids=(2, 3), min_tokens=2, output=(5,))
    late = task_of(stop_token_ids=(2, 3), min_tokens=2, output=(5, 5))
    rows = torch.zeros(2, 6)
    MinTokensStrategy().apply(rows, SamplingRows([early, late], CPU))
    assert rows[0].isinf().nonzero().flatten().tolist() == [2, 3]
    assert rows[1].isfinite().all()


def test_logprobs_are_the_models_own_whatever_shapes_the_draw() -> None:
    params = SamplingParams(
        temperature=0.1, top_k=2, logit_bias=((4, 50.0),), repetition_penalty=2, logprobs=3
    )
    (sample,) = default_pipeline().sample(torch.tensor([LOGITS]), [task_of(params)])
    own = torch.tensor(LOGITS).log_softmax(0).tolist()
    assert sample.token_id == 4
    assert sample.logprob is not None
    assert sample.logprob.logprob == pytest.approx(own[4])
    assert [logprob for _, logprob in sample.logprob.top] == pytest.approx([own[1], own[3], own[5]])


def test_more_logprobs_than_tokens_are_all_of_them() -> None:
    params = SamplingParams(logprobs=50)
    (sample,) = default_pipeline().sample(torch.tensor([LOGITS]), [task_of(params)])
    assert sample.logprob is not None
    assert len(sample.logprob.top) == len(LOGITS)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_has_no_token_and_its_neighbours_have(bad: float) -> None:
    rows: Tensor = torch.tensor([LOGITS, LOGITS, LOGITS])
    rows[1, 2] = bad
    tasks = [task_of(SamplingParams(seed=7, top_p=0.9)) for _ in range(3)]
    samples = default_pipeline().sample(rows, tasks)
    assert samples[1].token_id is None
    assert samples[0] == samples[2]
    assert samples[0].token_id is not None

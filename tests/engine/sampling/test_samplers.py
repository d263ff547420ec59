"""Each sampler against its definition, written plainly; and their order against their sequence."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.contract.requests import DryParams, MirostatParams, SamplingParams, ThinkingBudget
from deployments.engine.rng import SAMPLE_STREAM, XTC_STREAM, stream_keys, uniform
from deployments.engine.sampling.mirostat import MirostatStrategy
from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.sampler import SAMPLERS, OrderedStrategy, default_pipeline
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
    token_ids,
)

Reference = Callable[[Array, SamplingParams], Array]

# Apart by more than float32 could make equal.
spread_rows = st.lists(st.integers(-1900, 1900), min_size=VOCAB, max_size=VOCAB, unique=True).map(
    lambda row: [logit / 97 for logit in row]
)
shapes = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.4, 1.0, 1.7]),
    dynatemp_range=st.sampled_from([0.0, 0.3, 2.5]),
    dynatemp_exponent=st.sampled_from([0.5, 1.0, 2.0]),
    top_k=st.integers(0, VOCAB + 2),
    top_p=st.sampled_from([0.15, 0.55, 0.93, 1.0]),
    min_p=st.sampled_from([0.0, 0.07, 0.6]),
    typical_p=st.sampled_from([0.15, 0.55, 0.93, 1.0]),
    top_n_sigma=st.sampled_from([0.0, 0.6, 1.3, 2.1]),
    xtc_probability=st.sampled_from([0.0, 1.0]),
    xtc_threshold=st.sampled_from([0.0, 0.03, 0.2, 0.5, 0.6]),
    min_keep=st.sampled_from([0, 1, 2, 5, VOCAB + 9]),
)


def likeliest_first(x: Array) -> list[int]:
    left = np.flatnonzero(np.isfinite(x))
    return sorted(left.tolist(), key=lambda token_id: -x[token_id])


def keeping(x: Array, token_ids: list[int]) -> Array:
    return only(x, np.isin(np.arange(len(x)), token_ids))


def up_to(order: list[int], probs: Array, mass: float, at_least: int) -> list[int]:
    kept: list[int] = []
    for token_id in order:
        if len(kept) >= max(at_least, 1) and sum(probs[kept]) >= mass:
            break
        kept.append(token_id)
    return kept


def top_k(x: Array, params: SamplingParams) -> Array:
    order = likeliest_first(x)
    k = max(params.top_k, params.min_keep)
    return x if params.top_k == 0 or k >= len(order) else keeping(x, order[:k])


def top_p(x: Array, params: SamplingParams) -> Array:
    if params.top_p == 1:
        return x
    return keeping(x, up_to(likeliest_first(x), softmax(x), params.top_p, params.min_keep))


def min_p(x: Array, params: SamplingParams) -> Array:
    order, probs = likeliest_first(x), softmax(x)
    enough = [i for i in order if probs[i] >= params.min_p * probs.max()]
    return keeping(x, order[: max(len(enough), params.min_keep)])


def typical(x: Array, params: SamplingParams) -> Array:
    if params.typical_p == 1:
        return x
    probs = softmax(x)
    said = np.flatnonzero(probs)
    entropy = -(probs[said] * np.log(probs[said])).sum()
    order = sorted(said.tolist(), key=lambda i: abs(-np.log(probs[i]) - entropy))
    return keeping(x, up_to(order, probs, params.typical_p, params.min_keep))


def top_n_sigma(x: Array, params: SamplingParams) -> Array:
    if params.top_n_sigma == 0:
        return x
    order = likeliest_first(x)
    least = x.max() - params.top_n_sigma * x[order].std()
    near = [i for i in order if x[i] >= least]
    return keeping(x, order[: max(len(near), params.min_keep)])


def xtc(x: Array, params: SamplingParams) -> Array:
    if params.xtc_probability == 0 or params.xtc_threshold > 0.5:
        return x
    order, probs = likeliest_first(x), softmax(x)
    top = [i for i in order if probs[i] >= params.xtc_threshold]
    rest = order[max(len(top) - 1, 0) :]
    return keeping(x, rest) if len(rest) >= params.min_keep else x


def temperature(x: Array, params: SamplingParams) -> Array:
    degrees, reach = params.temperature, params.dynatemp_range
    order = likeliest_first(x)
    if reach > 0 and len(order) > 1:
        probs = softmax(x)[order]
        probs = probs[probs > 0]
        share = -(probs * np.log(probs)).sum() / np.log(len(order))
        low, high = max(0.0, degrees - reach), degrees + reach
        degrees = max(low + (high - low) * share**params.dynatemp_exponent, 1e-30)
    return np.asarray((x - x.max()) / degrees) if degrees != 1 else x


REFERENCES: dict[str, Reference] = {
    "top_k": top_k,
    "top_p": top_p,
    "min_p": min_p,
    "typ_p": typical,
    "top_n_sigma": top_n_sigma,
    "xtc": xtc,
    "temperature": temperature,
}


def agree(got: Array, expected: Array) -> None:
    """The same tokens can be drawn, with the same probabilities."""
    assert ((softmax(got) > 1e-9) == (softmax(expected) > 1e-9)).all()
    assert np.allclose(softmax(got), softmax(expected), rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize("name", REFERENCES)
@settings(deadline=None, max_examples=80)
@given(logits=spread_rows, params=shapes)
def test_a_sampler_does_what_its_definition_says(
    name: str, logits: list[float], params: SamplingParams
) -> None:
    got = applied(SAMPLERS[name], logits, task_of(params))
    agree(got, REFERENCES[name](np.array(logits), params))


@settings(deadline=None, max_examples=80, derandomize=True)
@given(
    logits=spread_rows,
    params=shapes,
    names=st.lists(st.sampled_from(sorted(REFERENCES)), min_size=1, max_size=8),
)
def test_samplers_run_in_the_order_that_is_asked_for_and_others_are_off(
    logits: list[float], params: SamplingParams, names: list[str]
) -> None:
    expected = np.array(logits)
    for name in names:
        expected = REFERENCES[name](expected, params)
    task = task_of(replace(params, samplers=tuple(names)))
    agree(applied(OrderedStrategy(SAMPLERS), logits, task), expected)


@settings(deadline=None, max_examples=80, derandomize=True)
@given(logits=spread_rows, params=shapes)
def test_without_an_order_temperature_comes_before_truncation(
    logits: list[float], params: SamplingParams
) -> None:
    expected = np.array(logits)
    for name in ("temperature", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc"):
        expected = REFERENCES[name](expected, params)
    agree(applied(OrderedStrategy(SAMPLERS), logits, task_of(params)), expected)


def test_the_order_of_truncation_and_temperature_matters() -> None:
    hot = SamplingParams(temperature=3, top_p=0.9)
    left = [
        np.isfinite(
            applied(
                OrderedStrategy(SAMPLERS),
                np.linspace(-5, 5, VOCAB).tolist(),
                task_of(replace(hot, samplers=order)),
            )
        ).sum()
        for order in (("temperature", "top_p"), ("top_p", "temperature"), ("temperature",))
    ]
    assert left[1] < left[0] < left[2] == VOCAB


every_sampling = st.builds(
    replace,
    shapes,
    temperature=st.sampled_from([0.0, 0.7, 1.0]),
    xtc_probability=st.sampled_from([0.0, 0.5]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    frequency_penalty=st.sampled_from([0.0, 0.4]),
    penalty_last_n=st.sampled_from([None, -1, 0, 3]),
    dry=st.none() | st.just(DryParams(multiplier=0.8, allowed_length=1, breakers=(3,))),
    mirostat=st.none() | st.builds(MirostatParams, version=st.sampled_from([1, 2])),
    bad_words=st.lists(st.lists(token_ids, min_size=1, max_size=3).map(tuple), max_size=3).map(
        tuple
    ),
    samplers=st.just(())
    | st.lists(st.sampled_from(sorted(SAMPLERS)), min_size=1, unique=True).map(tuple),
    seed=st.integers(0, 2**64 - 1),
    logprobs=st.sampled_from([None, 3]),
    sampled_logprobs=st.booleans(),
)
budgets = st.none() | st.just(ThinkingBudget(tokens=2, start_ids=(4,), end_ids=(5, 6), open=True))


@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(logit_rows, every_sampling, sequences, sequences, budgets), min_size=2))
def test_a_batch_of_all_kinds_of_rows_draws_what_each_draws_alone(
    rows: list[tuple[list[float], SamplingParams, list[int], list[int], ThinkingBudget | None]],
) -> None:
    def tasks() -> list[Task]:
        return [
            task_of(params, [*prompt, 1], output, thinking=budget)
            for _, params, prompt, output, budget in rows
        ]

    logits = torch.tensor([row[0] for row in rows], dtype=torch.float32)
    together = default_pipeline().sample(logits.clone(), tasks())
    alone = [
        default_pipeline().sample(logits[i : i + 1].clone(), [task])[0]
        for i, task in enumerate(tasks())
    ]
    assert together == alone


def test_a_greedy_row_is_not_truncated_nor_steered_nor_heated() -> None:
    params = SamplingParams(
        temperature=0,
        dynatemp_range=3,
        typical_p=0.1,
        top_n_sigma=0.1,
        xtc_probability=1,
        xtc_threshold=0,
        mirostat=MirostatParams(version=2, tau=0),
    )
    logits = torch.linspace(-3, 3, VOCAB)[None]
    row = logits.clone()
    default_pipeline().apply(row, SamplingRows([task_of(params)], CPU))
    assert torch.equal(row, logits)
    (sample,) = default_pipeline().sample(logits, [task_of(params)])
    assert (sample.token_id, sample.mirostat_mu) == (VOCAB - 1, None)


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_xtc_excludes_as_often_as_it_is_asked_to(probability: float) -> None:
    logits = [3.0, 3.0, *[0.0] * (VOCAB - 2)]
    n = 2000
    excluded = 0
    for seed in range(n):
        params = SamplingParams(xtc_probability=probability, seed=seed)
        excluded += applied(SAMPLERS["xtc"], logits, task_of(params))[0] == -np.inf
    assert abs(excluded - n * probability) < 4 * (n * probability * (1 - probability)) ** 0.5


def test_xtc_is_a_function_of_seed_and_position() -> None:
    logits = [3.0, 3.0, *[0.0] * (VOCAB - 2)]

    def excludes(seed: int, output: list[int]) -> bool:
        params = SamplingParams(xtc_probability=0.5, seed=seed)
        return bool(applied(SAMPLERS["xtc"], logits, task_of(params, output=output))[0] == -np.inf)

    positions = [(seed, [1] * n) for seed in range(8) for n in range(8)]
    first = [excludes(*position) for position in positions]
    assert [excludes(*position) for position in reversed(positions)] == first[::-1]
    assert 10 < sum(first) < 54


def test_the_chance_of_xtc_says_nothing_of_the_draw() -> None:
    seeds, positions = np.arange(20_000, dtype=np.uint64), np.arange(20_000)
    draw, xtc = (
        uniform(stream_keys(seeds, positions, stream)) - 0.5
        for stream in (SAMPLE_STREAM, XTC_STREAM)
    )
    assert abs((draw * xtc).mean()) * 12 < 0.03


def mirostat(x: Array, version: int, mu: float) -> Array:
    order, probs = likeliest_first(x), np.sort(softmax(x))[::-1]
    if version == 2:
        n = int((-np.log2(probs) <= mu).sum())
        return keeping(x, order[: max(n, 1)])
    n = min(len(order), 100)
    t = np.log(np.arange(2, n + 1) / np.arange(1, n))
    b = np.log(probs[: n - 1] / probs[1:n])
    s = (t @ b) / (t @ t)
    k = ((s - 1) * 2**mu / (1 - len(x) ** (1 - s))) ** (1 / s)
    return keeping(x, order[: max(int(min(k, len(x))), 1)])


@pytest.mark.parametrize("version", [1, 2])
@settings(deadline=None, max_examples=80)
@given(logits=spread_rows, mu=st.floats(-1, 8))
def test_mirostat_cuts_where_its_paper_does(version: int, logits: list[float], mu: float) -> None:
    params = SamplingParams(mirostat=MirostatParams(version=version, mu=mu), top_k=1, min_p=1)
    got = applied(MirostatStrategy(), logits, task_of(params))
    agree(got, mirostat(np.array(logits), version, mu))


def test_mirostat_takes_the_place_of_all_truncation() -> None:
    steered = SamplingParams(mirostat=MirostatParams(version=2, mu=99))
    cutting = replace(steered, top_k=1, top_p=0, min_p=1, typical_p=0, top_n_sigma=0.1)
    cutting = replace(cutting, xtc_probability=1, xtc_threshold=0)
    row = torch.linspace(-3, 3, VOCAB)[None]
    default_pipeline().apply(row, SamplingRows([task_of(cutting)], CPU))
    assert row.isfinite().all()


@pytest.mark.parametrize(
    "logits", [[1.0] * VOCAB, [50.0, *[-50.0] * (VOCAB - 1)], [-9e9, *[0] * 11]]
)
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("mu", [-1e9, 0.0, 1e9])
def test_mirostat_leaves_something_of_any_row(logits: list[float], version: int, mu: float) -> None:
    params = SamplingParams(mirostat=MirostatParams(version=version, mu=mu))
    (sample,) = default_pipeline().sample(torch.tensor([logits]), [task_of(params)])
    assert sample.token_id is not None
    assert sample.mirostat_mu is not None
    assert np.isfinite(sample.mirostat_mu)

"""The pipeline follows a sequence that grows: a restart must not be seen in its tokens."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from deployments.contract.requests import DryParams, MirostatParams, SamplingParams, ThinkingBudget
from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.sampler import Sample, default_pipeline
from deployments.engine.sampling.strategy import BaseSamplingStrategy
from deployments.engine.tasks.task import Task
from deployments.engine.tasks.thinking_tracker import ThinkingTracker
from tests.engine.sampling.rows import CPU, VOCAB, softmax, task_of

LOGITS = [0.0, 3.0, 1.0, 3.0, -2.0, 2.0]
BANNED = float("-inf")


class Chain:
    """A model of one token of memory, with random logits."""

    def __init__(self, *masks: BaseSamplingStrategy) -> None:
        generator = torch.Generator().manual_seed(5)
        self.logits = torch.randn(VOCAB, VOCAB, generator=generator) * 2
        self.pipeline = default_pipeline(*masks)

    def step(self, task: Task) -> Sample:
        newest = int(task.tokens[task.n_tokens - 1])
        (sample,) = self.pipeline.sample(self.logits[newest][None].clone(), [task])
        assert sample.token_id is not None
        task.append(sample.token_id)
        return sample

    def run(self, task: Task, n: int) -> list[Sample]:
        return [self.step(task) for _ in range(n)]


def ids(samples: Sequence[Sample]) -> list[int]:
    return [sample.token_id for sample in samples if sample.token_id is not None]


def sample(params: SamplingParams, logits: Sequence[float] = LOGITS) -> Sample:
    (drawn,) = default_pipeline().sample(torch.tensor([logits]), [task_of(params)])
    return drawn


STATEFUL = {
    "mirostat 1": SamplingParams(mirostat=MirostatParams(version=1, tau=1.5, eta=0.4), seed=1),
    "mirostat 2": SamplingParams(mirostat=MirostatParams(version=2, tau=1.5, eta=0.4), seed=2),
    "xtc": SamplingParams(temperature=1.5, xtc_probability=0.5, xtc_threshold=0.05, seed=3),
    "dry": SamplingParams(dry=DryParams(multiplier=1, base=2, allowed_length=1), seed=4),
    "window": SamplingParams(repetition_penalty=1.5, penalty_last_n=4, seed=5),
    "bad words": SamplingParams(bad_words=((1,), (2, 3), (4, 5, 6)), temperature=3, seed=6),
}


@pytest.mark.parametrize("name", STATEFUL)
@pytest.mark.parametrize("n_produced", [1, 5, 9])
def test_a_restart_goes_on_as_if_nothing_had_been(name: str, n_produced: int) -> None:
    params = STATEFUL[name]
    whole = Chain().run(task_of(params), 20)
    assert [drawn.mirostat_mu is not None for drawn in whole] == [params.mirostat is not None] * 20
    if params.mirostat is not None:
        reported = whole[n_produced - 1].mirostat_mu
        params = replace(params, mirostat=replace(params.mirostat, mu=reported))
    resumed = task_of(params, output=ids(whole[:n_produced]))
    assert Chain().run(resumed, 20 - n_produced) == whole[n_produced:]


def test_mirostat_without_its_state_goes_on_otherwise() -> None:
    """So that the restart above shows something."""
    for name in ("mirostat 1", "mirostat 2"):
        whole = Chain().run(task_of(STATEFUL[name]), 20)
        resumed = task_of(STATEFUL[name], output=ids(whole[:9]))
        assert Chain().run(resumed, 11) != whole[9:]


@pytest.mark.parametrize("version", [1, 2])
def test_mirostats_state_begins_at_twice_tau_and_moves_against_the_surprise(version: int) -> None:
    params = SamplingParams(mirostat=MirostatParams(version=version, tau=3, eta=0.5), seed=9)
    logits = np.linspace(-1, 1, VOCAB)
    drawn = sample(params, logits.tolist())
    assert drawn.token_id is not None
    assert drawn.mirostat_mu is not None
    cut = np.sort(logits)[::-1]  # 6 bits of 12 tokens cut nothing, whichever the version
    surprise = -np.log2(softmax(cut)[VOCAB - 1 - drawn.token_id])
    assert drawn.mirostat_mu == pytest.approx(6 - 0.5 * (surprise - 3))


def test_mirostat_brings_the_surprise_to_its_target() -> None:
    for version in (1, 2):
        params = SamplingParams(
            temperature=2, mirostat=MirostatParams(version=version, tau=1.2, eta=0.2)
        )
        chain, task = Chain(), task_of(params)
        mus = [drawn.mirostat_mu or 0.0 for drawn in chain.run(task, 90)]
        surprises = 1.2 - np.diff(mus) / 0.2
        assert surprises.mean() == pytest.approx(1.2, abs=0.25)


BUDGET = ThinkingBudget(tokens=6, start_ids=(1, 2), end_ids=(7, 8, 9))


def told(budget: ThinkingBudget, output: Sequence[int]) -> int | None:
    """Returns the token that must follow some output, None where any may."""
    thought = ThinkingTracker(budget)
    thought.read(output)
    return thought.forced(is_over=False)


@pytest.mark.parametrize(
    ("output", "forced"),
    [
        ([], None),
        ([3] * 99, None),  # no thought has begun
        ([1, 2, 3, 3, 3, 3, 3], None),
        ([1, 1, 2, 3, 3, 3, 3, 3, 3], 7),
        ([1, 2, 3, 3, 3, 3, 3, 3, 7], 8),
        ([1, 2, 3, 3, 3, 3, 3, 3, 7, 8], 9),
        ([1, 2, 3, 3, 3, 3, 3, 3, 7, 8, 9], None),
        ([1, 2, 3, 3, 3, 3, 3, 7], 8),  # the model has begun the end by itself
        ([1, 2, 3, 3, 3, 3, 7, 7, 8], 9),
        ([1, 2, 3, 7, 8, 9, 4, 4, 4, 4, 4, 4], None),
        ([1, 2, 3, 7, 8, 9, 1, 2, 3, 3], 7),  # a second thought has what the first one left
    ],
    ids=str,
)
def test_an_exhausted_thought_is_ended_and_nothing_else_is(
    output: list[int], forced: int | None
) -> None:
    assert told(BUDGET, output) == forced


def test_what_breaks_a_thought_ends_it() -> None:
    """A call that begins within one is no more of it, whatever the budget is by then."""
    broken = replace(BUDGET, break_ids=((4, 5), (6,)))
    for call in ([4, 5], [4, 4, 5], [6], [7, 6]):
        assert told(broken, [1, 2, 3, *call, *[3] * 9]) is None
        assert told(broken, [1, 2, 3, *call, *[3] * 9, 1, 2, *[3] * 9]) == 7
    assert told(broken, [1, 2, *[3] * 6, 4]) == 7


def test_a_thought_may_be_open_and_its_budget_nothing() -> None:
    budget = replace(BUDGET, tokens=0, start_ids=(), open=True)
    assert [told(budget, output) for output in ([], [7], [7, 8], [7, 8, 9], [7, 8, 9, 3])] == [
        7,
        8,
        9,
        None,
        None,
    ]


few_ids = st.integers(0, 2)
marks = st.lists(few_ids, min_size=1, max_size=4).map(tuple)


@settings(deadline=None, max_examples=200)
@given(
    output=st.lists(few_ids, max_size=30),
    start=marks,
    end=marks,
    begins_open=st.booleans(),
    tokens=st.integers(0, 12),
)
def test_thoughts_are_what_a_plain_search_for_their_marks_finds(
    output: list[int],
    start: tuple[int, ...],
    end: tuple[int, ...],
    begins_open: bool,
    tokens: int,
) -> None:
    is_open, since, spent = begins_open, 0, 0
    for n in range(1, len(output) + 1):
        spent += is_open
        mark = end if is_open else start
        if n - since >= len(mark) and tuple(output[n - len(mark) : n]) == mark:
            is_open, since = not is_open, n
    begun = max(
        n
        for n in range(len(end))
        if n <= len(output) - since and (*output,)[len(output) - n :] == end[:n]
    )
    expected = end[begun] if is_open and spent >= tokens else None
    budget = ThinkingBudget(tokens=tokens, start_ids=start, end_ids=end, open=begins_open)
    assert told(budget, output) == expected


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_thought_ends_on_budget_also_across_a_restart(temperature: float) -> None:
    budget = ThinkingBudget(tokens=4, start_ids=(1,), end_ids=(11, 10, 11), open=True)
    never_ends = SamplingParams(temperature=temperature, bad_words=((1,), (11,)), seed=3)
    whole = ids(Chain().run(task_of(never_ends, thinking=budget), 20))
    assert whole[4:7] == [11, 10, 11]
    assert 11 not in whole[:4] + whole[7:]
    for n_produced in range(1, 20):
        resumed = task_of(never_ends, output=whole[:n_produced], thinking=budget)
        assert ids(Chain().run(resumed, 20 - n_produced)) == whole[n_produced:]


class Mask(BaseSamplingStrategy):
    """Allows some tokens, as a grammar does."""

    def __init__(self, allowed: Sequence[int]) -> None:
        self.allowed = allowed

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        banned = torch.ones(logits.shape[1], dtype=torch.bool)
        banned[list(self.allowed)] = False
        logits[:, banned] = BANNED


def test_truncation_takes_from_what_a_mask_allows() -> None:
    for params in (
        SamplingParams(top_k=1),
        SamplingParams(top_p=0.01),
        SamplingParams(mirostat=MirostatParams(version=2, tau=0)),
        SamplingParams(samplers=("top_k", "temperature"), top_k=1),
        SamplingParams(temperature=0, repetition_penalty=2),
    ):
        (drawn,) = default_pipeline(Mask([2, 4])).sample(torch.tensor([LOGITS]), [task_of(params)])
        assert drawn.token_id == 2


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_with_nothing_left_to_draw_fails_alone_and_says_so(temperature: float) -> None:
    free = SamplingParams(temperature=temperature, top_p=0.9, logprobs=2, sampled_logprobs=True)
    banned = replace(
        free,
        bad_words=((0,), (1,), (2,)),
        logit_bias=tuple((token_id, BANNED) for token_id in (3, 4, 5)),
        mirostat=MirostatParams(version=2),
        typical_p=0.5,
        dynatemp_range=0.5,
    )
    rows = torch.tensor([LOGITS] * 3)
    tasks = [task_of(params) for params in (free, banned, free)]
    samples = default_pipeline().sample(rows, tasks)
    assert samples[1] == Sample(None, is_all_banned=True)
    assert samples[0] == samples[2]
    assert samples[0].token_id is not None
    for version in (1, 2):
        steered = replace(banned, mirostat=MirostatParams(version=version), samplers=("xtc",))
        assert sample(steered).is_all_banned


def test_a_row_that_is_not_finite_is_not_called_banned() -> None:
    assert sample(SamplingParams(), [float("nan"), 1.0]) == Sample(None)


def test_what_is_said_by_force_may_be_banned() -> None:
    budget = ThinkingBudget(tokens=0, start_ids=(), end_ids=(2,), open=True)
    every_token = SamplingParams(bad_words=tuple((token_id,) for token_id in range(6)))
    task = task_of(every_token, thinking=budget)
    (drawn,) = default_pipeline().sample(torch.tensor([LOGITS]), [task])
    assert drawn.token_id == 2


@pytest.mark.parametrize("huge", [1e30, 1e300])
def test_no_strength_of_a_strategy_breaks_a_row(huge: float) -> None:
    for params in (
        SamplingParams(logit_bias=((0, huge), (1, huge)), repetition_penalty=1 / huge),
        SamplingParams(logit_bias=((0, -huge),), presence_penalty=-huge, frequency_penalty=huge),
        SamplingParams(temperature=huge, dynatemp_range=huge, dynatemp_exponent=huge),
        SamplingParams(temperature=1 / huge, dynatemp_range=huge, top_n_sigma=huge),
        SamplingParams(temperature=1 / huge, top_n_sigma=1 / huge, typical_p=1 / huge),
        SamplingParams(mirostat=MirostatParams(version=1, tau=huge, eta=huge, mu=huge)),
        SamplingParams(mirostat=MirostatParams(version=2, tau=huge, eta=huge, mu=-huge)),
        SamplingParams(temperature=1 / huge, mirostat=MirostatParams(version=1)),
        SamplingParams(min_keep=10**30, top_p=0, top_k=1, min_p=1, xtc_probability=1),
        SamplingParams(dry=DryParams(multiplier=huge, base=huge, last_n=10**30)),
    ):
        drawn = sample(params)
        assert drawn.token_id is not None, params
        assert drawn.mirostat_mu is None or np.isfinite(drawn.mirostat_mu), params


def test_sampled_logprobs_are_of_what_was_drawn_from() -> None:
    params = SamplingParams(
        temperature=0.5, top_k=3, logit_bias=((4, 5.0),), logprobs=6, sampled_logprobs=True
    )
    drawn = sample(params)
    expected = np.log(softmax(np.array([3.0, 3.0, 3.0]) / 0.5))
    assert drawn.logprob is not None
    assert drawn.logprob.token_id == drawn.token_id
    assert {token_id for token_id, _ in drawn.logprob.top} == {1, 3, 4}  # what was cut is none
    assert [value for _, value in drawn.logprob.top] == pytest.approx(expected)
    assert drawn.logprob.logprob == pytest.approx(expected[0])


def test_a_greedy_draw_was_certain() -> None:
    drawn = sample(SamplingParams(temperature=0, logprobs=3, sampled_logprobs=True))
    assert drawn.logprob is not None
    assert (drawn.logprob.logprob, drawn.logprob.top) == (0, ((1, 0),))


def test_rows_of_both_kinds_of_logprobs_get_their_own() -> None:
    own = SamplingParams(temperature=0.1, logprobs=2)
    tasks = [task_of(params) for params in (own, replace(own, sampled_logprobs=True), own)]
    samples = default_pipeline().sample(torch.tensor([LOGITS] * 3), tasks)
    values = [drawn.logprob.top[0][1] for drawn in samples if drawn.logprob is not None]
    assert values[0] == values[2] == pytest.approx(np.log(softmax(np.array(LOGITS))[1]))
    assert values[1] == pytest.approx(np.log(0.5), abs=1e-3)


class Passes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Names the operations that read or write all of some rows' logits."""

    def __init__(self, numel: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numel = numel
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        tensors = [value for value in (*args, result) if isinstance(value, Tensor)]
        if any(tensor.numel() >= self.numel for tensor in tensors):
            self.names.append(func.overloadpacket.__name__)
        return result


def test_a_greedy_batch_costs_one_pass_over_its_logits() -> None:
    """It is numpy's, which shows only as the loan of its memory."""
    tasks = [task_of(SamplingParams(temperature=0)) for _ in range(4)]
    with Passes(4 * VOCAB) as passes:
        default_pipeline().sample(torch.zeros(4, VOCAB), tasks)
    assert passes.names == ["zeros", "detach"]


def test_rows_that_ask_for_nothing_are_not_touched_by_those_that_do() -> None:
    logits = torch.tensor([LOGITS] * 3)
    params = replace(STATEFUL["xtc"], top_k=2, typical_p=0.5, samplers=("xtc", "top_k"))
    tasks = [task_of(row_params) for row_params in (SamplingParams(), params, SamplingParams())]
    default_pipeline().apply(logits, SamplingRows(tasks, CPU))
    assert logits[[0, 2]].tolist() == [LOGITS] * 2
    assert logits[1].isinf().any()

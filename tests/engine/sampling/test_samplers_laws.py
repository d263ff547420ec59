"""The samplers on a real engine: refused by name, or the same whatever happens to the request."""

from dataclasses import replace
from functools import cache
from math import inf, nan

import pytest

from deployments.contract.errors import ErrorKind
from deployments.contract.events import FinishReason
from deployments.contract.requests import (
    DryParams,
    GenerationRequest,
    MirostatParams,
    SamplingParams,
    ThinkingBudget,
)
from tests.engine.drive import Outcome, engine, random_ids, request, roomy
from tests.models import VOCAB

WORD = (1,) * 129
THINKING = ThinkingBudget(tokens=5, start_ids=(1,), end_ids=(2, 3))

WRONG = [
    SamplingParams(typical_p=1.5),
    SamplingParams(typical_p=nan),
    SamplingParams(top_n_sigma=-1),
    SamplingParams(top_n_sigma=nan),
    SamplingParams(dynatemp_range=-0.5),
    SamplingParams(dynatemp_range=inf),
    SamplingParams(dynatemp_exponent=-1),
    SamplingParams(dynatemp_exponent=nan),
    SamplingParams(xtc_probability=2),
    SamplingParams(xtc_probability=nan),
    SamplingParams(xtc_threshold=-0.1),
    SamplingParams(min_keep=-1),
    SamplingParams(penalty_last_n=-2),
    SamplingParams(samplers=("top_k", "magic")),
    SamplingParams(samplers=("top_k",) * 33),
    SamplingParams(bad_words=((1,), ())),
    SamplingParams(bad_words=((1, VOCAB),)),
    SamplingParams(bad_words=((-1,),)),
    SamplingParams(bad_words=(WORD,)),
    SamplingParams(dry=DryParams(multiplier=-1)),
    SamplingParams(dry=DryParams(multiplier=nan)),
    SamplingParams(dry=DryParams(multiplier=1, base=0.5)),
    SamplingParams(dry=DryParams(multiplier=1, base=inf)),
    SamplingParams(dry=DryParams(multiplier=1, allowed_length=-1)),
    SamplingParams(dry=DryParams(multiplier=1, last_n=-2)),
    SamplingParams(dry=DryParams(multiplier=1, breakers=(VOCAB,))),
    SamplingParams(mirostat=MirostatParams(version=0)),
    SamplingParams(mirostat=MirostatParams(version=3)),
    SamplingParams(mirostat=MirostatParams(version=2, tau=-1)),
    SamplingParams(mirostat=MirostatParams(version=2, eta=inf)),
    SamplingParams(mirostat=MirostatParams(version=2, mu=nan)),
]
WRONG_THINKING = [
    replace(THINKING, tokens=-1),
    replace(THINKING, end_ids=()),
    replace(THINKING, end_ids=WORD),
    replace(THINKING, end_ids=(VOCAB,)),
    replace(THINKING, start_ids=()),
    replace(THINKING, start_ids=WORD, open=True),
    replace(THINKING, start_ids=(-1,)),
]


def test_sampling_that_can_not_be_honoured_is_refused_by_name() -> None:
    neutral = SamplingParams()
    with engine() as running:
        outcomes = running.run(*(request("r", (1, 2), sampling) for sampling in WRONG))
    for sampling, outcome in zip(WRONG, outcomes, strict=True):
        assert outcome.error is not None, sampling
        assert outcome.error.kind is ErrorKind.INVALID_REQUEST
        assert outcome.error.param is not None
        changed = getattr(sampling, outcome.error.param)
        assert changed != getattr(neutral, outcome.error.param), outcome.error


def test_a_thinking_budget_that_can_not_be_honoured_is_refused_by_name() -> None:
    one = request("r", (1, 2))
    with engine() as running:
        outcomes = running.run(*(replace(one, thinking=budget) for budget in WRONG_THINKING))
    for budget, outcome in zip(WRONG_THINKING, outcomes, strict=True):
        assert outcome.error is not None, budget
        assert (outcome.error.kind, outcome.error.param) == (
            ErrorKind.INVALID_REQUEST,
            "thinking",
        )


N_NEW = 20
PROMPTS = (random_ids(21, seed=1), random_ids(9, seed=3), random_ids(2, seed=4))
SAMPLINGS = {
    "typical": SamplingParams(temperature=3, typical_p=0.7, seed=1),
    "top_n_sigma": SamplingParams(temperature=3, top_n_sigma=1.2, seed=2),
    "dynatemp": SamplingParams(temperature=2, dynatemp_range=1.5, dynatemp_exponent=2, seed=3),
    "xtc": SamplingParams(temperature=3, xtc_probability=0.5, xtc_threshold=0.05, seed=4),
    "dry": SamplingParams(
        temperature=0, dry=DryParams(multiplier=9, allowed_length=0, breakers=(5,)), logprobs=0
    ),
    "mirostat 1": SamplingParams(temperature=3, mirostat=MirostatParams(version=1, tau=3), seed=5),
    "mirostat 2": SamplingParams(temperature=3, mirostat=MirostatParams(version=2, tau=3), seed=6),
    "window": SamplingParams(
        temperature=2, repetition_penalty=1.4, frequency_penalty=0.5, penalty_last_n=7, seed=7
    ),
    "bad words": SamplingParams(
        temperature=4, bad_words=tuple((token_id,) for token_id in range(0, VOCAB, 2)), seed=8
    ),
    "order": SamplingParams(
        temperature=3, top_k=20, top_p=0.9, min_p=0.01, samplers=("min_p", "temperature"), seed=9
    ),
    "min_keep": SamplingParams(temperature=3, top_p=0.1, min_keep=20, seed=10),
    "sampled_logprobs": SamplingParams(
        temperature=3, top_k=9, seed=11, logprobs=4, sampled_logprobs=True
    ),
    "thinking": SamplingParams(temperature=3, seed=12),
}
BUDGET = ThinkingBudget(tokens=6, start_ids=(5,), end_ids=(7, 8, 9), open=True)
every_sampling = pytest.mark.parametrize("name", SAMPLINGS)


def requests(name: str) -> list[GenerationRequest]:
    budget = BUDGET if name == "thinking" else None
    return [
        replace(request(f"r{i}", prompt, SAMPLINGS[name], max_tokens=N_NEW), thinking=budget)
        for i, prompt in enumerate(PROMPTS)
    ]


@cache
def undisturbed(name: str) -> list[Outcome]:
    """Each request alone on an engine."""
    outcomes = []
    for req in requests(name):
        with engine() as running:
            outcomes += running.run(req)
    return outcomes


def check(outcomes: list[Outcome], name: str, skipped: int = 0) -> None:
    for outcome, expected in zip(outcomes, undisturbed(name), strict=True):
        assert outcome.finish_reason is FinishReason.LENGTH
        assert outcome.token_ids == expected.token_ids[skipped:]
        assert [entry.token_id for entry in outcome.logprobs] == [
            entry.token_id for entry in expected.logprobs[skipped:]
        ]
        assert [value for entry in outcome.logprobs for _, value in entry.top] == pytest.approx(
            [value for entry in expected.logprobs[skipped:] for _, value in entry.top], abs=1e-4
        )


def test_each_sampler_makes_a_difference() -> None:
    for name, sampling in SAMPLINGS.items():
        plain = SamplingParams(temperature=sampling.temperature, seed=sampling.seed)
        with engine() as running:
            (outcome,) = running.run(request("r", PROMPTS[0], plain, max_tokens=N_NEW))
        assert outcome.token_ids != undisturbed(name)[0].token_ids, name


@pytest.mark.parametrize("is_async", [False, True])
def test_all_samplers_in_one_batch_are_each_alone(is_async: bool) -> None:
    together = [req for name in SAMPLINGS for req in requests(name)]
    limits = roomy(max_running=64, n_pages=2048, async_scheduling=is_async)
    with engine(limits=limits) as running:
        outcomes = running.run_together(*together)
        assert running.core.stats().steps < 1.5 * N_NEW
    for i, name in enumerate(SAMPLINGS):
        check(outcomes[i * len(PROMPTS) : (i + 1) * len(PROMPTS)], name)


@every_sampling
def test_preempted_is_undisturbed(name: str) -> None:
    with engine(limits=roomy(n_pages=12, max_batch_tokens=16)) as running:
        check(running.run_together(*requests(name)), name)
        assert running.core.stats().preemptions > 0


@every_sampling
@pytest.mark.parametrize("n_produced", [1, 7, 13])
def test_failed_over_is_undisturbed(name: str, n_produced: int) -> None:
    continued = [
        replace(req, produced_ids=outcome.token_ids[:n_produced])
        for req, outcome in zip(requests(name), undisturbed(name), strict=True)
    ]
    if SAMPLINGS[name].mirostat is not None:
        continued = [with_state(req, name, i, n_produced) for i, req in enumerate(continued)]
    with engine() as running:
        check(running.run_together(*continued), name, skipped=n_produced)


def with_state(one: GenerationRequest, name: str, i: int, n_produced: int) -> GenerationRequest:
    """Mirostat's state as the replica before reported it with its last token."""
    cut = replace(requests(name)[i], max_tokens=n_produced)
    with engine() as running:
        events = [event for _, event in running.core.run([cut])]
    assert one.sampling.mirostat is not None
    mirostat = replace(one.sampling.mirostat, mu=events[-1].mirostat_mu)
    assert mirostat.mu is not None
    return replace(one, sampling=replace(one.sampling, mirostat=mirostat))


def test_a_thought_is_ended_by_force() -> None:
    for outcome in undisturbed("thinking"):
        assert outcome.token_ids[6:9] == (7, 8, 9)

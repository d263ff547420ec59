"""The samplers on a real engine: refused by name, or the same whatever happens to the request."""

from dataclasses import replace
from functools import cache
from math import inf, nan

import pytest

from deployments.contract.errors import ErrorKind
from deployments.contract.requests import (
    DryParams,
    MirostatParams,
    SamplingParams,
    ThinkingBudget,
)
from tests.engine import laws
from tests.engine.drive import Engine, engine, random_ids, request
from tests.engine.workload import Workload, beside
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
    "xtc": SamplingParams(temperature=3, xtc_probability=0.5, xtc_threshold=0.02, seed=4),
    "dry": SamplingParams(
        temperature=0, dry=DryParams(multiplier=9, allowed_length=0, breakers=(5,)), logprobs=0
    ),
    "mirostat 1": SamplingParams(temperature=3, mirostat=MirostatParams(version=1, tau=3), seed=5),
    "mirostat 2": SamplingParams(temperature=3, mirostat=MirostatParams(version=2, tau=3), seed=6),
    "window": SamplingParams(
        temperature=2, repetition_penalty=1.4, frequency_penalty=3, penalty_last_n=7, seed=7
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


@cache
def workload(name: str) -> Workload:
    budget = BUDGET if name == "thinking" else None
    requests = [request("r", prompt, SAMPLINGS[name], max_tokens=N_NEW) for prompt in PROMPTS]
    return Workload(
        requests=[replace(req, thinking=budget) for req in requests],
        come=Engine.run_at_once,
        few_pages=[{"n_pages": 12, "max_batch_tokens": 16}],
        cuts=(1, 7, 13),
    )


def test_each_sampler_makes_a_difference() -> None:
    for name, sampling in SAMPLINGS.items():
        plain = SamplingParams(temperature=sampling.temperature, seed=sampling.seed)
        with engine() as running:
            (outcome,) = running.run(request("r", PROMPTS[0], plain, max_tokens=N_NEW))
        assert outcome.token_ids != workload(name).undisturbed[0].token_ids, name
        assert outcome.finish_reason is workload(name).undisturbed[0].finish_reason


@pytest.mark.parametrize("name", SAMPLINGS)
@pytest.mark.parametrize("law", [laws.preempted_is_undisturbed, laws.failed_over_is_undisturbed])
def test_law(law: laws.Law, name: str) -> None:
    law(workload(name))


@pytest.mark.parametrize("law", [laws.batched_is_alone, laws.launched_ahead_is_in_turns])
def test_law_of_all_samplers_in_one_batch(law: laws.Law) -> None:
    law(beside(*map(workload, SAMPLINGS)).on(max_running=64, n_pages=2048))


def test_a_thought_is_ended_by_force() -> None:
    for outcome in workload("thinking").undisturbed:
        assert outcome.token_ids[6:9] == (7, 8, 9)

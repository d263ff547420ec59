"""All that a request may ask for at once, on an engine where all that may disturb it happens at
once: chunks, preemptions, priorities, shared prefixes and a replica that died before."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployments.contract.events import FinishReason
from deployments.contract.requests import (
    DryParams,
    MirostatParams,
    SamplingParams,
    ThinkingBudget,
)
from deployments.text.grammar.grammar import from_lark, from_regex
from tests.effort import tries
from tests.engine import laws
from tests.engine.drive import Engine, Outcome, random_ids, request
from tests.engine.workload import Workload, check_same, continued
from tests.heads import random_head
from tests.models import alike, forgetful

END = 0  # the model's end token
SHARED = random_ids(22, seed=1)
STEERED = SamplingParams(
    temperature=2, seed=8, mirostat=MirostatParams(version=2, tau=3), logprobs=2
)
REMEMBERING = SamplingParams(
    temperature=2.5,
    seed=6,
    dry=DryParams(multiplier=2, allowed_length=0, last_n=30),
    xtc_probability=0.5,
    xtc_threshold=0.05,
    frequency_penalty=0.7,
    repetition_penalty=1.2,
    penalty_last_n=9,
    bad_words=((3,), (40, 41)),
)
# Pairs of letters in brackets, and then a word: what ends a thought may only follow a pair.
THOUGHT = from_lark('start: "[" pair* "]" word\npair: /[a-p][a-p]/\nword: /[q-z]{9,12}/', "g")
BUDGET = ThinkingBudget(tokens=7, start_ids=(ord("["),), end_ids=(ord("]"),))
WORDS = from_regex("([a-f]{3}-){4,6}[a-f]{3}", "regex")

REQUESTS = {
    "thought in a grammar": replace(
        request("a", SHARED, STEERED, max_tokens=30, grammar=THOUGHT), thinking=BUDGET
    ),
    "steered in a grammar": replace(
        request("b", (*SHARED[:13], 7), STEERED, max_tokens=30, grammar=WORDS), prompt_logprobs=2
    ),
    "remembering in a grammar": request(
        "c", random_ids(5, seed=2), REMEMBERING, max_tokens=40, grammar=WORDS, min_tokens=20
    ),
    "remembering thought": replace(
        request("d", (*SHARED, 9), REMEMBERING, max_tokens=24, prompt_logprobs=1),
        thinking=ThinkingBudget(tokens=6, start_ids=(5,), end_ids=(7, 8, 9), open=True),
    ),
    "steered": request("e", random_ids(37, seed=3), STEERED, max_tokens=21, prompt_logprobs=0),
    "prompt alone": request("f", (*SHARED, 9, 9, 1), max_tokens=0, prompt_logprobs=3),
    "plain": request("g", SHARED[:9], max_tokens=18),
    "repeating": request("h", random_ids(5, seed=4) * 3, max_tokens=32),
}
every_request = pytest.mark.parametrize("name", REQUESTS)
WORKLOAD = Workload(
    requests=[*REQUESTS.values()],
    model=forgetful,
    eos=frozenset({END}),
    come=Engine.run_at_once,
    cuts=range(3, 31, 3),
)


def undisturbed(name: str) -> Outcome:
    return dict(zip(REQUESTS, WORKLOAD.undisturbed, strict=True))[name]


@every_request
def test_undisturbed_is_what_was_asked_for(name: str) -> None:
    outcome = undisturbed(name)
    ids = outcome.token_ids
    assert outcome.error is None
    if name == "thought in a grammar":
        assert ids.index(ord("]")) == 9  # 7 would be amid a pair
    elif name == "remembering thought":
        assert ids[6:9] == (7, 8, 9)
    elif name.endswith("in a grammar"):
        assert outcome.finish_reason is FinishReason.STOP
        assert {*ids} <= {END, *b"abcdef-"}


def test_failed_over_is_undisturbed() -> None:
    laws.failed_over_is_undisturbed(WORKLOAD)


N = len(REQUESTS)
DRAFTS = {"none": None, "a model": lambda: alike(forgetful()), "a head": random_head}


@settings(max_examples=tries(12, 50), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    names=st.permutations(list(REQUESTS)),
    priorities=st.lists(st.integers(-1, 1), min_size=N, max_size=N),
    cuts=st.lists(st.integers(0, 30), min_size=N, max_size=N),
    n_pages=st.integers(16, 40),
    max_running=st.integers(1, N),
    max_batch_tokens=st.integers(N, 40),
    is_async=st.booleans(),
    draft_tokens=st.integers(0, 6),
    draft=st.sampled_from([*DRAFTS]),
)
def test_whatever_happens_at_once_each_is_undisturbed(
    names: list[str],
    priorities: list[int],
    cuts: list[int],
    n_pages: int,
    max_running: int,
    max_batch_tokens: int,
    is_async: bool,
    draft_tokens: int,
    draft: str,
) -> None:
    wholes = [undisturbed(name) for name in names]
    skipped = [
        max(0, min(cut, len(whole.token_ids) - 1)) for whole, cut in zip(wholes, cuts, strict=True)
    ]
    asked = [
        replace(continued(REQUESTS[name], whole, n), priority=priority)
        for name, whole, n, priority in zip(names, wholes, skipped, priorities, strict=True)
    ]
    workload = replace(WORKLOAD, draft=DRAFTS[draft])
    with workload.engine(
        n_pages=n_pages,
        max_running=max_running,
        max_batch_tokens=max_batch_tokens,
        async_scheduling=is_async,
        draft_tokens=draft_tokens,
        draft_min=1,
    ) as running:
        found = running.run_at_once(*asked)
    for outcome, whole, n in zip(found, wholes, skipped, strict=True):
        check_same(outcome, whole, skipped=n)


@every_request
def test_what_gives_way_to_all_others_is_undisturbed(name: str) -> None:
    names = [name, *(other for other in REQUESTS if other != name)]
    laws.preempted_is_undisturbed(
        replace(
            WORKLOAD,
            requests=[replace(REQUESTS[each], priority=-(each != name)) for each in names],
            reference=lambda: [undisturbed(each) for each in names],
            few_pages=[{"n_pages": n, "max_batch_tokens": 16} for n in (16, 21, 26)],
        )
    )

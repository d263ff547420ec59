"""The end of a generation, the requests that are refused, and the usage that is reported."""

import asyncio
from dataclasses import replace
from math import inf, nan

import pytest

from deployments.contract.errors import ErrorKind
from deployments.contract.events import FinishReason
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.limits import EngineLimits
from tests import effort
from tests.engine.drive import Engine, Outcome, engine, random_ids, request, roomy
from tests.models import VOCAB

PROMPT = random_ids(10)


def greedy(prompt: tuple[int, ...] = PROMPT, n: int = 30) -> tuple[int, ...]:
    with engine() as running:
        return running.run(request("reference", prompt, max_tokens=n))[0].token_ids


def run(one: GenerationRequest, eos: frozenset[int] = frozenset(), **limits: float) -> Outcome:
    with engine(eos=eos, limits=roomy(**limits)) as running:
        return running.run(one)[0]


def first_seen_late(tokens: tuple[int, ...]) -> tuple[int, int]:
    """A token that has not been drawn before, and its index, which is not among the first."""
    return next((token, i) for i, token in enumerate(tokens) if i > 3 and token not in tokens[:i])


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"prompt_ids": ()}, "prompt"),
        ({"prompt_ids": (1, VOCAB)}, "prompt"),
        ({"prompt_ids": (-1, 1)}, "prompt"),
        ({"produced_ids": (VOCAB,)}, "produced_ids"),
        ({"stop_token_ids": (VOCAB,)}, "stop_token_ids"),
        ({"stop_token_ids": (-2,)}, "stop_token_ids"),
    ],
)
def test_ids_outside_of_the_vocabulary_are_refused_by_name(
    changes: dict[str, tuple[int, ...]], param: str
) -> None:
    outcome = run(replace(request("r", PROMPT), **changes))  # type: ignore[arg-type]
    assert outcome.finish_reason is FinishReason.ERROR
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.param) == (ErrorKind.INVALID_REQUEST, param)


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(temperature=-1),
        SamplingParams(temperature=nan),
        SamplingParams(temperature=inf),
        SamplingParams(top_p=1.5),
        SamplingParams(top_p=nan),
        SamplingParams(min_p=-0.1),
        SamplingParams(min_p=2),
        SamplingParams(repetition_penalty=0),
        SamplingParams(presence_penalty=inf),
        SamplingParams(frequency_penalty=nan),
        SamplingParams(logit_bias=((VOCAB, 1.0),)),
        SamplingParams(logit_bias=((-1, 1.0),)),
        SamplingParams(logit_bias=((1, nan),)),
        SamplingParams(logprobs=-1),
    ],
    ids=str,
)
def test_sampling_that_can_not_be_honoured_is_refused_by_name(sampling: SamplingParams) -> None:
    outcome = run(request("r", PROMPT, sampling))
    assert outcome.error is not None
    assert outcome.error.kind is ErrorKind.INVALID_REQUEST
    neutral = SamplingParams()
    assert outcome.error.param is not None
    changed = getattr(sampling, outcome.error.param)
    assert changed != getattr(neutral, outcome.error.param)


def test_a_prompt_that_fills_the_context_is_refused_and_a_shorter_one_is_not() -> None:
    full, shorter = random_ids(32), random_ids(31)
    refused = run(request("r", full), context_length=32)
    assert refused.error is not None
    assert refused.error.kind is ErrorKind.CONTEXT_LENGTH
    served = run(request("r", shorter, max_tokens=None), context_length=32)
    assert (len(served.token_ids), served.finish_reason) == (1, FinishReason.LENGTH)


def test_a_context_is_no_longer_than_the_pool_could_hold() -> None:
    with engine(limits=roomy(n_pages=5)) as running:
        assert running.core.context_length == 20
        (outcome,) = running.run(request("r", PROMPT, max_tokens=None))
    assert outcome.token_ids == greedy(n=10)


def test_a_context_is_the_models_unless_it_is_set_or_the_pages_are_few() -> None:
    for limits, context in (
        (roomy(n_pages=512), 512),
        (roomy(n_pages=512, context_length=100), 100),
        (roomy(n_pages=4, page_size=8), 32),
    ):
        with engine(limits=limits) as running:
            assert running.core.context_length == context


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        (roomy(n_pages=512, context_length=10_000), "context_length"),
        (roomy(n_pages=4, page_size=8, context_length=100), "context_length"),
        (roomy(n_pages=None, kv_gib=1e-9), "kv_gib"),
        (replace(roomy(), kv_dtype="fp8"), "kv_dtype"),
    ],
)
def test_a_size_that_can_not_be_had_is_an_error_that_names_it(
    limits: EngineLimits, named: str
) -> None:
    if limits.kv_dtype == "fp8" and effort.device != "cpu":
        pytest.skip("a GPU has such pages")
    with pytest.raises(ValueError, match=named), engine(limits=limits):
        pass


def test_a_batch_of_the_library_may_be_larger_than_the_queue() -> None:
    with engine(limits=roomy(max_running=2, max_waiting=1)) as running:
        requests = [request(f"r{n}", PROMPT, max_tokens=2) for n in range(20)]
        ends = [e for _, e in running.core.run(requests) if e.finish_reason is not None]
    assert [event.finish_reason for event in ends] == [FinishReason.LENGTH] * 20


@pytest.mark.parametrize("max_tokens", [1, 2, 7])
def test_a_generation_ends_at_its_limit(max_tokens: int) -> None:
    outcome = run(request("r", PROMPT, max_tokens=max_tokens))
    assert outcome.token_ids == greedy()[:max_tokens]
    assert outcome.finish_reason is FinishReason.LENGTH
    assert outcome.stop_token_id is None


def test_no_tokens_may_be_asked_for() -> None:
    outcome = run(request("r", PROMPT, max_tokens=0))
    assert (outcome.token_ids, outcome.finish_reason) == ((), FinishReason.LENGTH)


@pytest.mark.parametrize("max_tokens", [None, 22, 23, 1000])
def test_a_generation_ends_at_the_end_of_the_context(max_tokens: int | None) -> None:
    outcome = run(request("r", PROMPT, max_tokens=max_tokens), context_length=32)
    assert outcome.token_ids == greedy()[:22]
    assert outcome.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("kind", ["eos", "stop"])
def test_an_end_token_ends_and_is_the_last_of_the_output(kind: str) -> None:
    tokens = greedy()
    token, index = first_seen_late(tokens)
    if kind == "eos":
        outcome = run(request("r", PROMPT, max_tokens=30), eos=frozenset({token}))
    else:
        outcome = run(request("r", PROMPT, max_tokens=30, stop_token_ids=[token]))
    assert outcome.token_ids == tokens[: index + 1]
    assert (outcome.finish_reason, outcome.stop_token_id) == (FinishReason.STOP, token)


def test_an_end_token_at_the_limit_is_a_stop() -> None:
    token, index = first_seen_late(greedy())
    outcome = run(request("r", PROMPT, max_tokens=index + 1), eos=frozenset({token}))
    assert (outcome.finish_reason, outcome.stop_token_id) == (FinishReason.STOP, token)


def test_an_end_token_can_be_ignored_and_a_stop_token_can_not() -> None:
    tokens = greedy()
    token, index = first_seen_late(tokens)
    ignoring = request("r", PROMPT, max_tokens=30, ignore_eos=True)
    assert run(ignoring, eos=frozenset({token})).token_ids == tokens
    stopped = run(replace(ignoring, stop_token_ids=(token,)), eos=frozenset({token}))
    assert stopped.token_ids == tokens[: index + 1]


def test_an_end_token_that_ends_the_prompt_ends_nothing() -> None:
    outcome = run(request("r", PROMPT, max_tokens=3), eos=frozenset({PROMPT[-1]}))
    assert outcome.token_ids[0] == greedy()[0]


def test_an_end_token_beyond_the_vocabulary_is_of_no_account() -> None:
    one = request("r", PROMPT, max_tokens=30, min_tokens=5)
    outcome = run(one, eos=frozenset({VOCAB, VOCAB + 7}))
    assert outcome.token_ids == greedy()


@pytest.mark.parametrize("extra", [1, 5])
def test_no_end_token_is_drawn_before_min_tokens(extra: int) -> None:
    tokens = greedy()
    token, index = first_seen_late(tokens)
    with engine(eos=frozenset({token})) as running:
        early = request("r", PROMPT, max_tokens=30, min_tokens=index)
        assert running.run(early)[0].token_ids == tokens[: index + 1]
        late = replace(early, min_tokens=index + extra)
        (outcome,) = running.run(late)
    assert outcome.token_ids[:index] == tokens[:index]
    assert token not in outcome.token_ids[: index + extra]
    assert len(outcome.token_ids) >= index + extra


def test_min_tokens_count_what_an_earlier_replica_produced() -> None:
    tokens = greedy()
    token, index = first_seen_late(tokens)
    one = request("r", PROMPT, max_tokens=30, min_tokens=index, produced_ids=tokens[: index - 1])
    assert run(one, eos=frozenset({token})).token_ids == tokens[index - 1 : index + 1]


@pytest.mark.parametrize("n_produced", [6, 7])
def test_a_failover_of_a_request_at_its_limit_ends_at_once(n_produced: int) -> None:
    one = request("r", PROMPT, max_tokens=6, produced_ids=greedy()[:n_produced])
    outcome = run(one)
    assert (outcome.token_ids, outcome.finish_reason) == ((), FinishReason.LENGTH)


def test_a_failover_onto_a_shorter_context_ends_at_once() -> None:
    one = request("r", PROMPT, max_tokens=None, produced_ids=greedy()[:25])
    outcome = run(one, context_length=32)
    assert (outcome.token_ids, outcome.finish_reason) == ((), FinishReason.LENGTH)


@pytest.mark.parametrize("kind", ["eos", "stop"])
def test_a_failover_of_a_request_that_had_drawn_its_end_ends_at_once(kind: str) -> None:
    """The replica died between drawing the end token and saying that it was one."""
    tokens = greedy()
    token, index = first_seen_late(tokens)
    one = request("r", PROMPT, max_tokens=30, produced_ids=tokens[: index + 1])
    if kind == "stop":
        one = replace(one, stop_token_ids=(token,))
    outcome = run(one, eos=frozenset({token} if kind == "eos" else ()))
    assert (outcome.token_ids, outcome.finish_reason) == ((), FinishReason.STOP)


def test_a_failover_that_ignores_the_end_goes_on_behind_it() -> None:
    tokens = greedy()
    token, index = first_seen_late(tokens)
    one = request("r", PROMPT, max_tokens=30, produced_ids=tokens[: index + 1], ignore_eos=True)
    assert run(one, eos=frozenset({token})).token_ids == tokens[index + 1 :]


def test_cached_tokens_of_a_failover_are_tokens_of_the_prompt() -> None:
    tokens = greedy()
    with engine() as running:
        running.run(request("first", PROMPT, max_tokens=20))
        one = request("again", PROMPT, max_tokens=30, produced_ids=tokens[:15])
        (outcome,) = running.run(one)
    assert outcome.token_ids == tokens[15:]
    assert outcome.cached_tokens == len(PROMPT)


def test_more_waiting_requests_than_allowed_are_refused_as_overload() -> None:
    async def scenario(running: Engine) -> None:
        running.gate.close()
        names = ["runs", "waits", "waits too", "one too many"]
        tasks = []
        for name in names:
            tasks.append(asyncio.create_task(running.follow(request(name, PROMPT, max_tokens=3))))
            await asyncio.sleep(0)
            running.gate.await_step()
        refused = (await tasks.pop()).outcome
        assert refused.error is not None
        assert refused.error.kind is ErrorKind.OVERLOADED
        running.gate.open()
        for task in tasks:
            assert (await task).outcome.finish_reason is FinishReason.LENGTH

    with engine(limits=roomy(max_running=1, max_waiting=2)) as running:
        asyncio.run(scenario(running))


def test_usage_adds_up_also_when_tasks_are_preempted() -> None:
    requests = [request(f"r{i}", random_ids(9, seed=i), max_tokens=20) for i in range(4)]
    with engine(limits=roomy(n_pages=14)) as running:
        outcomes = running.run_together(*requests)
        stats = running.core.stats()
    assert stats.preemptions > 0
    assert stats.total_requests == 4
    assert stats.prompt_tokens == 4 * 9
    assert stats.tokens_generated == 4 * 20
    assert stats.cached_tokens == sum(outcome.cached_tokens for outcome in outcomes)
    assert (stats.active_requests, stats.waiting_requests, stats.pages_used) == (0, 0, 0)
    assert stats.as_dict()["pages_total"] == 14


def test_a_long_prompt_is_admitted_although_it_needs_the_whole_pool() -> None:
    with engine(limits=roomy(n_pages=6)) as running:
        outcomes = running.run_together(
            request("small", PROMPT, max_tokens=8), request("large", random_ids(23), max_tokens=1)
        )
    assert [len(outcome.token_ids) for outcome in outcomes] == [8, 1]


@pytest.mark.parametrize("max_running", [2, 4])
def test_preempted_requests_keep_their_place_in_the_queue(max_running: int) -> None:
    requests = [request(f"r{i}", random_ids(10, seed=i), max_tokens=25) for i in range(4)]
    with engine(limits=roomy(n_pages=12, max_running=max_running)) as running:
        order = running.order_of_ends(*requests)
        assert running.core.stats().preemptions > 0
    assert order == ["r0", "r1", "r2", "r3"]


@pytest.mark.parametrize("max_batch_tokens", [16, 512])
def test_a_request_is_not_admitted_into_pages_that_those_before_it_still_need(
    max_batch_tokens: int,
) -> None:
    prompts = [request(f"r{i}", random_ids(30, seed=i), max_tokens=1) for i in range(3)]
    with engine(limits=roomy(n_pages=12, max_batch_tokens=max_batch_tokens)) as running:
        outcomes = running.run_together(*prompts)
        assert running.core.stats().preemptions == 0
    assert {outcome.finish_reason for outcome in outcomes} == {FinishReason.LENGTH}


def test_a_long_prompt_does_not_hold_up_those_that_draw() -> None:
    long, short = (
        request("long", random_ids(90), max_tokens=1),
        request("short", (1,), max_tokens=5),
    )
    with engine(limits=roomy(max_running=8, max_batch_tokens=8)) as running:
        order = running.order_of_ends(long, short)
    assert order == ["short", "long"]


def test_a_request_is_admitted_as_soon_as_another_has_computed_what_they_share() -> None:
    """Alone they would need 18 pages."""
    shared = random_ids(32)
    first = request("first", shared + (1,), max_tokens=15)
    second = request("second", shared + (2,), max_tokens=2)
    with engine(limits=roomy(n_pages=14)) as running:
        order = running.order_of_ends(first, second)
        assert running.core.stats().preemptions == 0
    assert order == ["second", "first"]

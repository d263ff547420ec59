"""An output is free until a trigger, follows its grammar from there, and depends on the request
alone.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from deployments.contract.events import FinishReason
from deployments.contract.grammar_triggers import GrammarTriggers, TriggerMode
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.limits import EngineLimits
from deployments.text.grammar.grammar import from_lark
from tests.engine.drive import Outcome, engine, random_ids, request, roomy
from tests.engine.scheduler.repeating import repeating, tokens
from tests.models import VOCAB, forgetful

END = 0
# The mark whole, in parts, and with more text behind it that the grammar allows, or does not.
MARKED = ("<c>", "<c", "c>", ">", "<", "<c>{", "c>{", '<c>{"', "<c>x", "c>x", ">x", "x<c>", "x<c> ")
PLAIN = '{}":x0123456789 ,aq'
TEXTS = (
    "</s>",
    *MARKED,
    *(char for char in PLAIN),
    *(a + b for a, b in product("xyz", "pqrstuvw")),
)
LARK = 'start: "q{" body\nbody: "\\"x\\": " /[1-9][0-9]{0,3}/ "}"'
TRIGGERS = GrammarTriggers(modes=(TriggerMode(marks=(("<c>", ~0),)),), leads=("q",))
SAMPLINGS = {
    "random": SamplingParams(temperature=3, seed=3),
    "history": SamplingParams(temperature=3, seed=5, frequency_penalty=0.2, logprobs=2),
    "truncated": SamplingParams(temperature=3, top_k=40, top_p=0.95, seed=4),
}
every_sampling = pytest.mark.parametrize("sampling", SAMPLINGS)
N_REQUESTS = 12


@cache
def tokenizer_json() -> str:
    texts = dict.fromkeys([*TEXTS, *(f"w{number}" for number in range(VOCAB))])
    as_token = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokens = [as_token.pre_tokenize_str(text)[0][0] for text in texts][:VOCAB]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, []))
    tokenizer.pre_tokenizer = as_token
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["</s>"])
    text: str = tokenizer.to_str()
    return text


@cache
def text_of(ids: tuple[int, ...]) -> str:
    tokenizer = Tokenizer.from_str(tokenizer_json())
    return "".join(tokenizer.decode([token_id]) for token_id in ids)


def free(sampling: str) -> list[GenerationRequest]:
    return [
        request(f"r{i}", random_ids(5 + i, seed=i), seeded(sampling, i), max_tokens=60)
        for i in range(N_REQUESTS)
    ]


def seeded(sampling: str, i: int) -> SamplingParams:
    return replace(SAMPLINGS[sampling], seed=100 + i)


def triggered(sampling: str) -> list[GenerationRequest]:
    grammar = from_lark(LARK, "grammar")
    return [replace(req, grammar=grammar, triggers=TRIGGERS) for req in free(sampling)]


def outcomes(
    requests: Sequence[GenerationRequest], limits: EngineLimits | None = None, at_once: bool = False
) -> list[Outcome]:
    made = engine(eos=frozenset({END}), limits=limits, tokenizer_json=tokenizer_json)
    with made as running:
        if at_once:
            return running.run_at_once(*requests)
        return [running.run(req)[0] for req in requests]


@cache
def undisturbed(sampling: str) -> list[Outcome]:
    return outcomes(triggered(sampling))


def check(found: list[Outcome], sampling: str, skipped: int = 0) -> None:
    for outcome, expected in zip(found, undisturbed(sampling), strict=True):
        assert outcome.token_ids == expected.token_ids[skipped:]
        assert outcome.finish_reason is expected.finish_reason
        assert outcome.stop_token_id == expected.stop_token_id


@every_sampling
def test_text_is_free_until_a_trigger_and_follows_the_grammar_from_there(sampling: str) -> None:
    n_begun = n_free = n_refused = 0
    for outcome, plain in zip(undisturbed(sampling), outcomes(free(sampling)), strict=True):
        text, ids = text_of(outcome.token_ids), outcome.token_ids
        _, mark, call = text.partition("<c>")
        assert outcome.error is None
        n_same = next(
            (n for n, (a, b) in enumerate(zip(ids, plain.token_ids, strict=False)) if a != b), None
        )
        if not mark and n_same is None:
            n_free += 1
            assert outcome.token_ids == plain.token_ids
            continue
        n_begun += bool(mark)
        if n_same is not None:  # the grammar has made it another one
            told = text_of(plain.token_ids[: n_same + 1])
            assert "<c>" in told
            n_refused += "<c>" not in text_of(plain.token_ids[:n_same])
        if outcome.finish_reason is FinishReason.STOP and mark:
            assert set(json.loads(call)) == {"x"}
    assert n_begun > 2
    assert n_free > 0
    assert n_refused > 0 or sampling != "random"


@every_sampling
def test_batched_is_alone(sampling: str) -> None:
    check(outcomes(triggered(sampling), at_once=True), sampling)


@every_sampling
def test_chunked_is_whole(sampling: str) -> None:
    limits = roomy(max_running=4, max_batch_tokens=5)
    check(outcomes(triggered(sampling), limits, at_once=True), sampling)


@every_sampling
def test_preempted_is_undisturbed(sampling: str) -> None:
    limits = roomy(n_pages=40, max_batch_tokens=32)
    made = engine(eos=frozenset({END}), limits=limits, tokenizer_json=tokenizer_json)
    with made as running:
        check(running.run_at_once(*triggered(sampling)), sampling)
        assert running.core.stats().preemptions > 0


@every_sampling
@pytest.mark.parametrize("n_produced", [1, 13, 30])
def test_failed_over_is_undisturbed(sampling: str, n_produced: int) -> None:
    expected = undisturbed(sampling)
    continued = [
        replace(req, produced_ids=outcome.token_ids[:n_produced])
        for req, outcome in zip(triggered(sampling), expected, strict=True)
        if len(outcome.token_ids) > n_produced
    ]
    assert continued
    for found, asked in zip(outcomes(continued, at_once=True), continued, strict=True):
        whole = expected[int(asked.request_id[1:])]
        assert found.token_ids == whole.token_ids[n_produced:]
        assert found.finish_reason is whole.finish_reason


@every_sampling
def test_launched_ahead_is_undisturbed(sampling: str) -> None:
    check(outcomes(triggered(sampling), roomy(async_scheduling=True), at_once=True), sampling)


@pytest.mark.parametrize("at", [33, 60])
def test_drafted_is_plain(at: int) -> None:
    """The trigger is what a model that repeats itself says some time."""
    found: dict[int, list[Outcome]] = {}
    for draft_tokens in (0, 5):
        limits = roomy(draft_tokens=draft_tokens)
        with engine(model=forgetful(), limits=limits, tokenizer_json=tokenizer_json) as running:
            free = [running.run(req)[0] for req in repeating("cool")]
            marks = [text_of(result.token_ids[at : at + 2]) for result in free]
            triggered_requests = [
                _begun_by(mark, req) for mark, req in zip(marks, repeating("cool"), strict=True)
            ]
            found[draft_tokens] = [running.run(req)[0] for req in triggered_requests]
    assert tokens(found[0]) == tokens(found[5])
    assert any(result.accepted_tokens for result in found[5])
    for mark, outcome in zip(marks, found[5], strict=True):
        assert mark + "{" in text_of(outcome.token_ids)


def _begun_by(mark: str, one: GenerationRequest) -> GenerationRequest:
    mode = TriggerMode(marks=((mark, ~0),))
    return replace(
        one,
        grammar=from_lark(LARK, "grammar"),
        triggers=GrammarTriggers(modes=(mode,), leads=("q",)),
    )

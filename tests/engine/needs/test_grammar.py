"""An output with a grammar is a whole sentence of it, and still depends on the request alone."""

import json
import re
from functools import cache

import pytest

from deployments.contract.errors import ErrorKind
from deployments.contract.events import FinishReason
from deployments.contract.requests import SamplingParams
from deployments.text.grammar.grammar import from_choice, from_json_schema, from_lark, from_regex
from tests.engine import laws
from tests.engine.drive import (
    Engine,
    Outcome,
    ascii_text,
    engine,
    random_ids,
    request,
)
from tests.engine.workload import Workload

END = 0  # the model's end token
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]{2,9}$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "bb"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
GRAMMARS = {
    "json": from_json_schema(PERSON, "schema"),
    "regex": from_regex("([a-f]{4}-){3,5}[a-f]{4}", "regex"),
    "lark": from_lark('start: "(" start ")" | pair\npair: "x" "y"{22,30} pair? "z"', "grammar"),
}
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0, logprobs=2),
    "random": SamplingParams(temperature=2.5, seed=3, frequency_penalty=0.2, logprobs=2),
    "truncated": SamplingParams(temperature=3, top_k=30, top_p=0.9, seed=4),
}
PROMPTS = (random_ids(13, seed=1), random_ids(5, seed=2), random_ids(21, seed=3))
WORDS = SamplingParams(temperature=2.5, seed=11)
every_case = pytest.mark.parametrize(
    ("grammar", "sampling"), [(g, s) for g in GRAMMARS for s in SAMPLINGS]
)


@cache
def workload(grammar: str, sampling: str) -> Workload:
    """One request a prompt, and one that no grammar can express."""
    return Workload(
        requests=[
            *(
                request("r", prompt, SAMPLINGS[sampling], max_tokens=90, grammar=GRAMMARS[grammar])
                for prompt in PROMPTS
            ),
            request("free", random_ids(9, seed=4), SAMPLINGS[sampling], max_tokens=30),
        ],
        eos=frozenset({END}),
        come=Engine.run_at_once,
        few_pages=[{"n_pages": 29, "max_batch_tokens": 32}],
        n_accepted=1,
    )


def say(running: Engine, grammar: str, **fields: object) -> Outcome:
    fields = {"max_tokens": 60, **fields}
    return running.run(request("r", PROMPTS[0], WORDS, grammar=grammar, **fields))[0]  # type: ignore[arg-type]


def text_of(outcome: Outcome) -> str:
    ids = outcome.token_ids
    return ascii_text(ids if outcome.stop_token_id is None else ids[:-1])


@every_case
def test_an_output_is_a_sentence_of_its_grammar(grammar: str, sampling: str) -> None:
    outcomes = workload(grammar, sampling).undisturbed[:-1]
    ended = [result for result in outcomes if result.finish_reason is FinishReason.STOP]
    assert ended
    for outcome in ended:
        text = text_of(outcome)
        if grammar == "json":
            assert set(json.loads(text)) == {"name", "age", "tags"}
        elif grammar == "regex":
            assert re.fullmatch("([a-f]{4}-){3,5}[a-f]{4}", text)
        else:
            assert text.count("(") == text.count(")")
            assert text.count("x") == text.count("z") > 0


@every_case
@pytest.mark.parametrize("law", [*laws.USUAL, laws.drafted_is_plain])
def test_law(law: laws.Law, grammar: str, sampling: str) -> None:
    """A draft loses what a grammar forbids, and has what the grammar leaves no choice about."""
    law(workload(grammar, sampling))


@pytest.mark.parametrize("fields", [{}, {"ignore_eos": True}, {"min_tokens": 30}])
@pytest.mark.parametrize("eos", [frozenset(), frozenset({END}), frozenset({END, 1, 500})])
def test_a_whole_output_ends_whatever_the_model_calls_its_end(
    fields: dict[str, object], eos: frozenset[int]
) -> None:
    with engine(eos=eos) as running:
        outcome = say(running, from_choice(["yes", "nope", "maybe"], "choice"), **fields)
    assert ascii_text(outcome.token_ids) in ("yes", "nope", "maybe")
    assert (outcome.finish_reason, outcome.stop_token_id) == (FinishReason.STOP, None)


@pytest.mark.parametrize("end", [3, 5])
def test_any_end_token_of_the_model_may_end_what_could_go_on(end: int) -> None:
    sampling = SamplingParams(temperature=0, logit_bias=((end, 1000.0),))
    with engine(eos=frozenset({3, 5})) as running:
        one = request("r", PROMPTS[0], sampling, grammar=from_regex("[a-f]{4,}", "regex"))
        (outcome,) = running.run(one)
    assert re.fullmatch("[a-f]{4}", text_of(outcome))
    assert (outcome.finish_reason, outcome.stop_token_id) == (FinishReason.STOP, end)


def test_an_end_that_is_ignored_is_never_drawn() -> None:
    sampling = SamplingParams(temperature=0, logit_bias=((END, 1000.0),))
    with engine(eos=frozenset({END})) as running:
        grammar = from_regex("[a-f]{4,}", "regex")
        (outcome,) = running.run(
            request("r", PROMPTS[0], sampling, max_tokens=20, ignore_eos=True, grammar=grammar)
        )
    assert re.fullmatch("[a-f]{20}", ascii_text(outcome.token_ids))
    assert outcome.finish_reason is FinishReason.LENGTH


def test_a_stop_token_ends_an_output_where_the_grammar_has_it() -> None:
    with engine() as running:
        outcome = say(running, from_regex("[a-f]{5};[a-f]+", "r"), stop_token_ids=(ord(";"),))
    assert re.fullmatch("[a-f]{5};", ascii_text(outcome.token_ids))
    assert outcome.stop_token_id == ord(";")


def test_limits_cut_an_output_that_is_not_whole() -> None:
    with engine() as running:
        outcome = say(running, from_regex("[a-f]{40}", "regex"), max_tokens=7)
    assert re.fullmatch("[a-f]{7}", ascii_text(outcome.token_ids))
    assert outcome.finish_reason is FinishReason.LENGTH


def test_min_tokens_waits_for_the_end_token_and_not_for_ever() -> None:
    with engine(eos=frozenset({END})) as running:
        biased = SamplingParams(temperature=0, logit_bias=((END, 1000.0),))
        one = request(
            "r", PROMPTS[0], biased, min_tokens=6, grammar=from_regex("[a-f]{2,9}", "regex")
        )
        (outcome,) = running.run(one)
        assert re.fullmatch("[a-f]{6}", text_of(outcome))


def test_a_row_without_a_token_left_fails_alone_or_ends_if_it_is_whole() -> None:
    banned = SamplingParams(temperature=1, logit_bias=((ord("c"), float("-inf")),))
    with engine() as running:
        stuck = request("stuck", PROMPTS[0], banned, grammar=from_regex("abcd", "regex"))
        whole = request("whole", PROMPTS[1], banned, grammar=from_regex("ab(c*d)?c*", "regex"))
        whole_too = request("too", PROMPTS[1], banned, grammar=from_regex("abc*", "regex"))
        free = request("free", PROMPTS[2], WORDS, max_tokens=9)
        failed, going_on, ended, other = running.run(stuck, whole, whole_too, free)
    assert ascii_text(failed.token_ids) == "ab"
    assert failed.error is not None
    assert failed.error.kind is ErrorKind.INVALID_REQUEST
    assert ascii_text(going_on.token_ids) == "abd"
    assert ascii_text(ended.token_ids) == "ab"
    assert going_on.finish_reason is ended.finish_reason is FinishReason.STOP
    assert len(other.token_ids) == 9


def test_a_row_whose_every_token_is_banned_fails_without_a_grammar_too() -> None:
    nothing = SamplingParams(logit_bias=tuple((i, float("-inf")) for i in range(128)))
    with engine() as running:
        failed, other = running.run(
            request("r", PROMPTS[0], nothing), request("s", PROMPTS[1], max_tokens=3)
        )
    assert failed.error is not None
    assert failed.error.message == "every token is banned"
    assert len(other.token_ids) == 3


def test_produced_ids_that_leave_the_grammar_are_refused() -> None:
    with engine() as running:
        outcome = say(running, from_regex("[a-f]+", "regex"), produced_ids=(ord("a"), ord("z")))
    assert outcome.error is not None
    assert outcome.error.kind is ErrorKind.INVALID_REQUEST


def test_what_an_earlier_replica_made_whole_ends_at_once() -> None:
    with engine() as running:
        outcome = say(running, from_choice(["ab"], "choice"), produced_ids=(ord("a"), ord("b")))
    assert (outcome.token_ids, outcome.finish_reason) == ((), FinishReason.STOP)


def test_requests_with_the_same_grammar_stand_in_it_each_on_its_own() -> None:
    samplings = [SamplingParams(temperature=2.5, seed=i) for i in range(6)]
    same = [
        request("r", PROMPTS[0], sampling, max_tokens=60, grammar=GRAMMARS["regex"])
        for sampling in samplings
    ]
    workload = Workload(requests=same, come=Engine.run_at_once)
    laws.batched_is_alone(workload)
    assert len({outcome.token_ids for outcome in workload.undisturbed}) == len(same)

"""An output is free until a trigger, follows its grammar from there, and depends on the request
alone.
"""

import json
from dataclasses import replace
from functools import cache
from itertools import product

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from deployments.contract.events import FinishReason
from deployments.contract.grammar_triggers import GrammarTriggers, TriggerMode
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.text.grammar.grammar import from_lark
from tests.engine import laws
from tests.engine.drive import Engine, random_ids, request
from tests.engine.scheduler.repeating import repeating
from tests.engine.workload import Workload
from tests.models import VOCAB

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


def triggered(one: GenerationRequest, triggers: GrammarTriggers = TRIGGERS) -> GenerationRequest:
    return replace(one, grammar=from_lark(LARK, "grammar"), triggers=triggers)


@cache
def free(sampling: str) -> Workload:
    prompts = [random_ids(5 + i, seed=i) for i in range(12)]
    samplings = [replace(SAMPLINGS[sampling], seed=200 + i) for i in range(12)]
    return Workload(
        requests=[
            request("r", prompt, own, max_tokens=60)
            for prompt, own in zip(prompts, samplings, strict=True)
        ],
        eos=frozenset({END}),
        tokenizer_json=tokenizer_json,
        come=Engine.run_at_once,
        few_pages=[{"n_pages": 40, "max_batch_tokens": 32}],
        cuts=(1, 13, 30),
    )


@cache
def workload(sampling: str) -> Workload:
    return replace(free(sampling), requests=[*map(triggered, free(sampling).requests)])


@every_sampling
def test_text_is_free_until_a_trigger_and_follows_the_grammar_from_there(sampling: str) -> None:
    n_begun = n_free = n_refused = 0
    pairs = zip(workload(sampling).undisturbed, free(sampling).undisturbed, strict=True)
    for outcome, plain in pairs:
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
@pytest.mark.parametrize("law", laws.USUAL)
def test_law(law: laws.Law, sampling: str) -> None:
    law(workload(sampling))


@pytest.mark.parametrize("at", [33, 60])
def test_drafted_is_plain(at: int) -> None:
    """The trigger is what a model that repeats itself says some time."""
    plain = repeating("cool")
    marks = [text_of(outcome.token_ids[at : at + 2]) for outcome in plain.undisturbed]
    modes = [TriggerMode(marks=((mark, ~0),)) for mark in marks]
    requests = [
        triggered(req, GrammarTriggers(modes=(mode,), leads=("q",)))
        for req, mode in zip(plain.requests, modes, strict=True)
    ]
    begun = replace(
        plain, requests=requests, tokenizer_json=tokenizer_json, come=Engine.run_at_once
    )
    laws.drafted_is_plain(begun)
    for mark, outcome in zip(marks, begun.undisturbed, strict=True):
        assert mark + "{" in text_of(outcome.token_ids)

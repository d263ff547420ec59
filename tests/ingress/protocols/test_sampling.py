"""How a request asks for tokens to be drawn, in every protocol.

llama-server's own has other defaults and more fields: tests/llama/completion has those.
"""

from dataclasses import replace
from typing import Any

import pytest

from deployments.contract.requests import SamplingParams
from tests.ingress.protocols.chats import CHATS
from tests.ingress.protocols.completions import COMPLETIONS
from tests.ingress.protocols.every import EACH
from tests.ingress.protocols.messages import MESSAGES
from tests.ingress.protocols.protocol import Protocol
from tests.ingress.protocols.responses import RESPONSES

DRAWN = {"temperature": 0.5, "top_p": 0.25, "top_k": 7}
MORE = {"min_p": 0.125, "seed": 7, "repetition_penalty": 1.5}
MORE |= {"presence_penalty": -1, "frequency_penalty": 1}
BIAS = {"logit_bias": {"5": -100, "6": 1.5}}
BIASED = {"logit_bias": ((5, -100), (6, 1.5)), "logprobs": 3}
OPENAIS = pytest.mark.parametrize("protocol", [CHATS, COMPLETIONS, RESPONSES], ids=str)
OURS = pytest.mark.parametrize("protocol", [CHATS, COMPLETIONS, RESPONSES, MESSAGES], ids=str)


@pytest.mark.parametrize(
    ("protocol", "fields", "params"),
    [
        (
            CHATS,
            {**DRAWN, **MORE, **BIAS, "logprobs": True, "top_logprobs": 3},
            {**DRAWN, **MORE, **BIASED},
        ),
        (COMPLETIONS, {**DRAWN, **MORE, **BIAS, "logprobs": 3}, {**DRAWN, **MORE, **BIASED}),
        (RESPONSES, {**DRAWN, **MORE}, {**DRAWN, **MORE}),
        (MESSAGES, DRAWN, DRAWN),
    ],
    ids=str,
)
def test_every_sampling_field_reaches_the_engine(
    protocol: Protocol, fields: dict[str, Any], params: dict[str, Any]
) -> None:
    [request] = protocol.asked(**fields, **protocol.fields(limit=9))
    assert request.sampling == SamplingParams(**{"seed": request.sampling.seed, **params})
    assert request.max_tokens == 9


@OPENAIS
def test_so_does_what_vllm_adds(protocol: Protocol) -> None:
    [request] = protocol.asked(ignore_eos=True, cache_salt="tenant", priority=-3)
    assert (request.ignore_eos, request.content.salt, request.own_priority) == (True, "tenant", -3)


@OURS
def test_the_models_defaults_fill_what_is_open(protocol: Protocol) -> None:
    defaults = SamplingParams(temperature=0.6, top_k=20, top_p=0.95, repetition_penalty=1.1)
    model = replace(protocol.card, sampling=defaults)
    [request] = protocol.asked(model, temperature=None)
    assert request.sampling == replace(defaults, seed=request.sampling.seed)
    [request] = protocol.asked(model, top_k=10**30)
    assert request.sampling.top_k == 0


@OPENAIS
def test_a_seed_and_all_tokens_can_be_asked_for_in_spite_of_them(protocol: Protocol) -> None:
    model = replace(protocol.card, sampling=SamplingParams(top_k=20))
    [request] = protocol.asked(model, seed=0, top_k=-1)
    assert request.sampling == SamplingParams()


@EACH
def test_silence_draws_with_a_fresh_seed(protocol: Protocol) -> None:
    silences: list[dict[str, Any]] = [{}] if protocol is MESSAGES else [{}, {"seed": None}]
    silences += [{"seed": -1}] if protocol.several else []
    for silence in silences:
        [first], [second] = (protocol.asked(**silence) for _ in range(2))
        assert first.sampling.seed != second.sampling.seed
        assert 0 <= first.sampling.seed < 2**63

"""Every sampling field reaches the engine; unset ones take the model's defaults."""

import asyncio
from typing import Any

import pytest

from deployments.contract.requests import DryParams, MirostatParams, SamplingParams
from deployments.text.tokens.token_search import ids_containing
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.ingress.clusters import CountingCluster
from tests.ingress.engines import says
from tests.llama.serving import COMPLETION, send
from tests.text.cards import card, metaspace

TOKENIZER = TextTokenizer(card())
DEFAULT_ORDER = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)


def answered(
    makers: SamplingParams | None = None, /, **fields: object
) -> tuple[SamplingParams, Any]:
    """Returns the engine's sampling parameters, and the settings that the answer tells."""

    async def asks() -> tuple[SamplingParams, Any]:
        cluster = CountingCluster(says("x"), card(sampling=makers))
        response = await send(cluster, "POST", COMPLETION, json={"prompt": "a", **fields})
        assert response.status_code == 200, response.text
        return cluster.requests[0].sampling, response.json()["generation_settings"]

    return asyncio.run(asks())


def sampling(**fields: object) -> SamplingParams:
    return answered(**fields)[0]


def test_a_request_that_says_nothing_has_llama_servers_defaults() -> None:
    asked, _ = answered(seed=1)
    assert asked == SamplingParams(
        temperature=0.8,
        top_k=40,
        top_p=0.95,
        min_p=0.05,
        penalty_last_n=64,
        samplers=DEFAULT_ORDER,
        seed=1,
    )


def test_what_the_makers_recommend_comes_first() -> None:
    makers = SamplingParams(temperature=0.6, top_k=20, repetition_penalty=1.05)
    asked, told = answered(makers, top_k=7)
    assert (asked.temperature, asked.top_k, asked.top_p) == (0.6, 7, 0.95)
    assert asked.repetition_penalty == told["repeat_penalty"] == 1.05
    assert told["temperature"] == 0.6


@pytest.mark.parametrize(
    ("field", "given", "name", "asked"),
    [
        ("temperature", 0, "temperature", 0),
        ("dynatemp_range", 0.5, "dynatemp_range", 0.5),
        ("dynatemp_exponent", 2, "dynatemp_exponent", 2),
        ("top_k", 0, "top_k", 0),
        ("top_k", -1, "top_k", 0),
        ("top_k", 10**6, "top_k", 0),
        ("top_p", 0.5, "top_p", 0.5),
        ("min_p", 0.2, "min_p", 0.2),
        ("typical_p", 0.3, "typical_p", 0.3),
        ("top_n_sigma", -1, "top_n_sigma", 0),
        ("top_n_sigma", 1.5, "top_n_sigma", 1.5),
        ("xtc_probability", 0.5, "xtc_probability", 0.5),
        ("xtc_threshold", 0.2, "xtc_threshold", 0.2),
        ("repeat_penalty", 1.1, "repetition_penalty", 1.1),
        ("repeat_last_n", -1, "penalty_last_n", -1),
        ("presence_penalty", 0.1, "presence_penalty", 0.1),
        ("frequency_penalty", 0.2, "frequency_penalty", 0.2),
        ("min_keep", 3, "min_keep", 3),
        ("seed", 42, "seed", 42),
        ("n_probs", 5, "logprobs", 5),
        ("logprobs", 5, "logprobs", 5),
        ("n_probs", 0, "logprobs", None),
        ("temperature", None, "temperature", 0.8),
        ("samplers", "ktp", "samplers", ("top_k", "temperature", "top_p")),
        ("samplers", ["min-p", "temp"], "samplers", ("min_p", "temperature")),
        ("samplers", ["top_k"], "temperature", 1.0),
        ("samplers", [], "samplers", ("temperature",)),
    ],
)
def test_a_field_reaches_the_engine(field: str, given: object, name: str, asked: object) -> None:
    assert getattr(sampling(**{field: given}), name) == asked


@pytest.mark.parametrize("given", [-1, 2**32 - 1, None])
def test_the_answer_shows_a_random_seed(given: int | None) -> None:
    seeds = set()
    for _ in range(2):
        asked, told = answered(seed=given)
        assert asked.seed == told["seed"]
        seeds.add(asked.seed)
    assert len(seeds) == 2


def test_dry_has_the_tokens_that_hold_a_breaker() -> None:
    asked = sampling(dry_multiplier=0.8, dry_allowed_length=3, dry_penalty_last_n=-1)
    assert asked.dry is not None
    breakers = {
        token_id
        for token_id in range(card().vocab_size)
        if any(breaker in TOKENIZER.token_bytes(token_id) for breaker in (b"\n", b":", b'"', b"*"))
    }
    assert asked.dry == DryParams(
        multiplier=0.8, base=1.75, allowed_length=3, last_n=-1, breakers=tuple(sorted(breakers))
    )
    assert sampling(dry_multiplier=0.8, samplers=["top_k"]).dry is None
    assert sampling(dry_multiplier=0.8, dry_penalty_last_n=0).dry is None
    assert sampling().dry is None


@pytest.mark.parametrize("text", ["stop", "o", "\n", " how", "o w", "nothing has this"])
def test_the_search_over_the_vocabulary_finds_what_a_walk_does(text: str) -> None:
    for model_card in (card(), card(metaspace(), name="meta")):
        tokenizer = TextTokenizer(model_card)
        walked = {
            token_id
            for token_id in range(model_card.vocab_size)
            if text.encode() in tokenizer.token_bytes(token_id)
        }
        assert ids_containing(text, model_card.vocab_size, tokenizer) == walked


def test_mirostat_has_its_three_numbers() -> None:
    asked = sampling(mirostat=2, mirostat_tau=4, mirostat_eta=0.2)
    assert asked.mirostat == MirostatParams(version=2, tau=4, eta=0.2)
    assert sampling(mirostat=0).mirostat is None


@pytest.mark.parametrize("bias", [[[66, 1.5]], {"66": 1.5}, [["\u0042", 1.5]], {"B": 1.5}])
def test_a_bias_is_of_an_id_or_of_a_text(bias: object) -> None:
    token_id = TOKENIZER.encode("B", False)[0] if "B" in str(bias) else 66
    asked, told = answered(logit_bias=bias)
    assert asked.logit_bias == ((token_id, 1.5),)
    assert told["logit_bias"] == [{"token": token_id, "bias": 1.5}]


def test_a_bias_of_false_is_never() -> None:
    asked, told = answered(logit_bias=[[66, False], ["stop", -2]], ignore_eos=True)
    stop = TOKENIZER.encode("stop", False)
    end = card().eos_token_ids[0]
    assert asked.bad_words == ((66,),)
    assert asked.logit_bias == tuple((token_id, -2.0) for token_id in stop)
    assert [entry["token"] for entry in told["logit_bias"]] == [end, 66, *stop]
    assert [entry["bias"] for entry in told["logit_bias"][:2]] == [None, None]


def test_the_settings_have_llama_servers_names_in_order() -> None:
    _, told = answered(n_predict=5, stop="x", grammar="")
    names = "seed temperature dynatemp_range dynatemp_exponent top_k top_p min_p top_n_sigma"
    names += " xtc_probability xtc_threshold typical_p repeat_last_n repeat_penalty"
    names += " presence_penalty frequency_penalty dry_multiplier dry_base dry_allowed_length"
    names += " dry_penalty_last_n dry_sequence_breakers mirostat mirostat_tau mirostat_eta"
    names += " adaptive_target adaptive_decay stop max_tokens n_predict n_keep n_discard"
    names += " ignore_eos stream logit_bias n_probs min_keep grammar grammar_lazy"
    names += " grammar_triggers preserved_tokens chat_format reasoning_format"
    names += " reasoning_in_content generation_prompt samplers speculative.types"
    names += " timings_per_token post_sampling_probs backend_sampling lora"
    assert list(told) == names.split()
    assert (told["n_predict"], told["stop"]) == (5, ["x"])
    assert told["samplers"] == list(DEFAULT_ORDER)

"""llama-server's own fields on OpenAI's routes, as its web page and editors send them."""

from typing import Any

import pytest

from deployments.ingress.metrics import Metrics
from deployments.openai.chat.builder import OpenAIResponseBuilder
from deployments.openai.chat.schema import parse_chat
from serve_app.applications.llama import app as llama_app
from tests.ingress.clusters import CountingCluster
from tests.ingress.engines import says
from tests.openai.chat.chatting import asked
from tests.openai.serving import CHAT, COMPLETIONS, HELLO, http, post
from tests.text.cards import card

SAMPLERS: dict[str, object] = {
    "dynatemp_range": 0.25,
    "dynatemp_exponent": 2,
    "typical_p": 0.5,
    "top_n_sigma": -1,
    "xtc_probability": 0.5,
    "xtc_threshold": 0.2,
    "repeat_last_n": 7,
    "repeat_penalty": 1.5,
    "dry_multiplier": 0.5,
    "dry_sequence_breakers": ["e"],
    "mirostat": 2,
    "mirostat_tau": 3,
    "samplers": "edkypmxt",
    "min_keep": 2,
}
NEUTRAL: dict[str, object] = {
    "dynatemp_range": 0,
    "dynatemp_exponent": 1,
    "typical_p": 1,
    "xtc_probability": 0,
    "xtc_threshold": 0.1,
    "dry_multiplier": 0,
    "dry_base": 1.75,
    "dry_penalty_last_n": -1,
    "mirostat": 0,
    "repeat_penalty": 1,
}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_samplers_draw_as_at_the_native_endpoint(path: str) -> None:
    engine = CountingCluster(says("x"), card())
    body = {**SAMPLERS, "seed": 5, **(HELLO if path == CHAT else {"prompt": "x"})}
    assert (await post(engine, path, body)).status_code == 200
    off = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    async with http(llama_app(engine, Metrics())) as client:
        body = {**SAMPLERS, **off, "seed": 5, "prompt": "x"}
        assert (await client.post("/completion", json=body)).status_code == 200
    here, native = (request.sampling for request in engine.requests)
    assert here == native
    assert native.dry is not None


def test_samplers_that_are_neutral_change_nothing() -> None:
    assert asked({**NEUTRAL, "seed": 5})[0].sampling == asked({"seed": 5})[0].sampling


@pytest.mark.parametrize(
    ("fields", "limit"), [({"n_predict": 0}, 0), ({"n_predict": 7, "max_tokens": 7}, 7)]
)
def test_the_native_name_of_a_limit_is_one(fields: dict[str, Any], limit: int) -> None:
    assert parse_chat({**HELLO, **fields}).token_limit == limit


def test_typical_sampling_has_the_name_of_its_sampler_too() -> None:
    assert parse_chat({**HELLO, "typ_p": 0.5}).typical_p == 0.5


def test_a_prompt_that_is_not_to_be_cached_has_a_salt_of_its_own() -> None:
    salts = {asked({"cache_prompt": False})[0].content.salt for _ in range(2)}
    assert len(salts) == 2
    assert asked({"cache_prompt": True})[0].content.salt == ""


@pytest.mark.parametrize(("asked_s", "silence_s"), [(-1, None), (2, 2), (None, 15.0)])
def test_a_request_says_how_long_its_stream_may_be_silent(
    asked_s: int | None, silence_s: float | None
) -> None:
    chat = parse_chat({**HELLO, "sse_ping_interval": asked_s})
    assert OpenAIResponseBuilder().keep_alive_s(chat, 15.0) == silence_s
